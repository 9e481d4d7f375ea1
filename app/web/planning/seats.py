"""Seats of ranks: the grid of pipeline stages and replicas with the nodes and GPUs of each cell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.presentation.crossings import Places
from app.presentation.figures import plural, spans
from cluster_models.training.plan import Configuration, Placement, RankPlace

HUES: Final = 8
"""Colours that the style sheet has for telling neighbours apart; they repeat in order after that."""


@dataclass(frozen=True, slots=True)
class Seat:
    """The part of one cell that sits on one node."""

    node: str
    gpus: str
    ranks: str
    style: str


@dataclass(frozen=True, slots=True)
class StageRow:
    """One pipeline stage: its layers, its GPU kind where stages differ, and its cell in every replica."""

    stage: int
    layers: str
    gpu_kind: str
    cells: tuple[tuple[Seat, ...], ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that share one colour, for the legend."""

    style: str
    name: str
    nodes: str


@dataclass(frozen=True, slots=True)
class SeatGrid:
    """The whole grid; ``colour_means`` says what the colours stand for, if any."""

    replicas: tuple[int, ...]
    rows: tuple[StageRow, ...]
    groups: tuple[Group, ...]
    colour_means: str


def seat_grid(
    configuration: Configuration, placement: Placement, where: Places, kinds: Sequence[str] = ()
) -> SeatGrid:
    """The grid of a placement, coloured by NVLink domain or leaf where there are no more of these than colours.

    ``kinds``: the GPU kind of each pipeline rank, shown where they differ.
    """
    names = {host: where.of_node.get(host, host) for host in placement.hosts}
    order = {name: index for index, name in enumerate(dict.fromkeys(names.values()))}
    # one colour for several places would say that they are one
    is_coloured = 1 < len(order) <= HUES
    style = {host: f"hue-{order[name]}" if is_coloured else "" for host, name in names.items()}
    cells: dict[tuple[int, int], list[RankPlace]] = defaultdict(list)
    for rank in placement.ranks:
        cells[rank.pipeline, rank.data].append(rank)
    replicas = tuple(range(configuration.degrees.data))
    layers = layer_spans(configuration)
    return SeatGrid(
        replicas=replicas,
        rows=tuple(
            StageRow(
                stage,
                layers[stage],
                kinds[stage] if kinds else "",
                tuple(_seats(cells[stage, data], style) for data in replicas),
            )
            for stage in range(configuration.degrees.pipeline)
        ),
        groups=_groups(names, order) if is_coloured else (),
        colour_means=where.kind if is_coloured else "",
    )


def layer_spans(configuration: Configuration) -> tuple[str, ...]:
    """For each pipeline rank, the layers it holds."""
    held: list[list[int]] = [[] for _ in range(configuration.degrees.pipeline)]
    end = 0
    for rank, width in configuration.chunks:
        held[rank] += range(end, end + width)
        end += width
    return tuple(
        f"{plural(len(numbers), 'layer')}: {spans(numbers)}" if numbers else "no decoder layer" for numbers in held
    )


def _seats(ranks: Sequence[RankPlace], style: Mapping[str, str]) -> tuple[Seat, ...]:
    by_node: dict[str, list[RankPlace]] = defaultdict(list)
    for rank in ranks:
        by_node[rank.node].append(rank)
    return tuple(
        Seat(
            node=node,
            gpus=spans(rank.gpu for rank in members),
            ranks=spans(rank.rank for rank in members),
            style=style[node],
        )
        for node, members in by_node.items()
    )


def _groups(names: Mapping[str, str], order: Mapping[str, int]) -> tuple[Group, ...]:
    members: dict[str, list[str]] = defaultdict(list)
    for host, name in names.items():
        members[name].append(host)
    return tuple(Group(f"hue-{index}", name, plural(len(members[name]), "node")) for name, index in order.items())
