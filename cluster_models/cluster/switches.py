"""Switches whose way up is shared: what the nodes under one of them can send out of it at once, all together.

A pair test loads a switch with one pair; a job loads it with all.  Docs: ``docs/links.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from cluster_models.errors import InvalidCluster

if TYPE_CHECKING:
    from cluster_models.cluster.topology import Node


class Figure(StrEnum):
    """Origin of a figure."""

    NOMINAL = "nominal"
    """A data sheet, or the ratio that a fabric was built for."""
    MEASURED = "measured"


@dataclass(frozen=True, slots=True)
class Switch:
    """The switch over the nodes whose ``label`` is ``name``; without a name, every switch of that label.

    Either ``uplink_bytes_per_s``, each direction, or ``oversubscription``: the rate of all network cards of its
    nodes over what it passes up (1 = non-blocking).
    """

    label: str
    name: str | None = None
    uplink_bytes_per_s: float | None = None
    oversubscription: float | None = None
    figure: Figure = Figure.NOMINAL

    def __post_init__(self) -> None:
        where = f"switches.{self.label}" + (f".{self.name}" if self.name else "")
        given = {"uplink": self.uplink_bytes_per_s, "oversubscription": self.oversubscription}
        stated = {name: value for name, value in given.items() if value is not None}
        if len(stated) != 1:
            raise InvalidCluster(
                where,
                " and ".join(stated) or None,
                "needs either its uplink or its oversubscription" + (", not both" if stated else ""),
                "give one of the two: from the ratio and the cards of its nodes follows the uplink",
            )
        for name, value in stated.items():
            if not (math.isfinite(value) and value > 0):
                raise InvalidCluster(f"{where}.{name}", value, "must be a positive, finite number")

    @property
    def known_as(self) -> str:
        """Name for people."""
        return f"{self.label} {self.name}" if self.name else f"every {self.label}"


@dataclass(frozen=True, slots=True)
class Uplink:
    """Rate of one switch up and down, each direction."""

    bytes_per_s: float
    figure: Figure


def uplinks_of(nodes: Sequence[Node], switches: Sequence[Switch]) -> dict[str, dict[str, Uplink]]:
    """Rates that each stated switch passes, by label and place.  One that is named goes before its label's.

    Raises ``InvalidCluster`` for switches over no node, and for two figures of one switch.
    """
    found: dict[str, dict[str, Uplink]] = {}
    stated: dict[str, set[str | None]] = {}
    for index, switch in sorted(enumerate(switches), key=lambda entry: entry[1].name is not None):
        if switch.name in stated.setdefault(switch.label, set()):
            raise InvalidCluster(f"switches[{index}]", switch.known_as, "is listed twice", "give each switch once")
        stated[switch.label].add(switch.name)
        below: dict[str, list[Node]] = {}
        for node in nodes:
            place = node.place(switch.label)
            if place is not None and switch.name in {None, place, node.labels.get(switch.label)}:
                below.setdefault(place, []).append(node)
        if not below:
            _no_such_switch(index, switch, nodes)
        for place, members in below.items():
            rate = switch.uplink_bytes_per_s
            if switch.oversubscription is not None:
                cards = sum(node.nics.count * node.nics.bytes_per_s for node in members)
                rate = cards / switch.oversubscription
            assert rate is not None
            found.setdefault(switch.label, {})[place] = Uplink(rate, switch.figure)
    return found


def _no_such_switch(index: int, switch: Switch, nodes: Sequence[Node]) -> None:
    """Raise what is wrong with a switch over no node."""
    names = sorted({place for node in nodes if (place := node.place(switch.label)) is not None})
    if not names:
        known = ", ".join(sorted({label for node in nodes for label in node.labels})) or "none"
        raise InvalidCluster(
            f"switches[{index}].label",
            switch.label,
            "no node has that label",
            f"give the nodes below it the label; labels in use: {known}",
        )
    raise InvalidCluster(
        f"switches[{index}].name",
        switch.name,
        f"no node's {switch.label} is called so",
        f"known are {', '.join(names[:30])}",
    )
