"""Requests for rebalancings, and answers: moves, their bytes, and whether they pay."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
from pydantic import BaseModel, Field

from app.documents.reading import Count, Positive, WholeNumber
from app.documents.routing import Layer
from app.documents.values import ValueAnswer
from app.experts.answer import ExpertMapDocument, Row
from app.experts.budget import MOST_RANKS
from app.experts.links import Given, check_model, kind_of, rates_of, rule_of
from app.experts.pace import WEIGHT_BYTES, reading_s, with_tokens
from app.experts.request import LinkFields, Planned, own_fields, planned_of
from app.experts.statistics import common_layers
from app.services.planning.requests import RoutingReference
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.routing.counts import RoutedWorkload
from cluster_models.training.expert_slots import ExpertSlots
from cluster_models.units import MILLISECOND
from readers.routing.reading import MOST_LAYERS
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice, balancedness, layer_balancedness
from solver.experts.moves import Move, MoveCosts
from solver.experts.rebalance import Pace, Rebalanced, rebalance

MOST_SECONDS: Final = 60.0
"""Seconds of one core."""
_SLOT_PAIR_S: Final = 3.5e-6
"""Measured on layers of 288 to 1024 slots: 0.2 to 3.4 s each."""
_MATRICES: Final = 3


class RebalanceFields(LinkFields):
    """All of a rebalancing that is wanted but the counts."""

    physical_to_logical_map: list[Row] = Field(
        min_length=1,
        max_length=MOST_LAYERS,
        description="The map that runs: for each layer the expert in each slot; rows of layers without counts, "
        "such as dense ones, are left as they are.",
        examples=[[[0, 1, 2, 3, 0, 1]]],
    )
    layers: list[Layer] | None = Field(
        None, description="Number of the decoder layer of each row; absent = counted from 0.", examples=[[3]]
    )
    ranks: Annotated[Count, Field(le=MOST_RANKS)] = Field(description="Expert ranks (GPUs).", examples=[2])
    nodes: Annotated[Count, Field(le=MOST_RANKS)] = Field(
        1, description="Nodes; the ranks of each are consecutive.", examples=[1]
    )
    workloads: Planned | None = Field(
        None,
        description="Workloads that run: a list (all alike) or weights by name; absent = all.",
        examples=[{"decode": 1.0}],
    )
    target_balancedness: Annotated[float, Field(strict=True, gt=0, le=1)] | None = Field(
        None,
        description="Reach it with the cheapest moves; absent = the moves that gain most until the next look.",
        examples=[0.95],
    )
    steps_until_next: Annotated[Count, Field(le=10**9)] = Field(
        10_000, description="Steps until the map will be looked at again.", examples=[10000]
    )
    expert_bytes: Positive | None = Field(
        None, le=1e15, description="Bytes of one expert of one layer; needed without a model.", examples=[44e6]
    )
    bytes_per_weight: Annotated[float, Field(strict=True, gt=0, le=64)] = Field(
        2.0, description="With a model: 1 of FP8 weights, 2 of BF16, 18 with Adam's states.", examples=[2.0]
    )
    balanced_layer_ms: Positive | None = Field(
        None,
        le=1e9,
        description="Time of a layer in a step on balanced ranks; absent = computed from model and GPU kind.",
        examples=[0.3],
    )
    seed: Annotated[WholeNumber, Field(le=2**31 - 1)] = Field(0, description="Equal seeds give equal moves.")


class RebalanceRequest(RebalanceFields):
    """A rebalancing that is wanted."""

    routing: RoutingReference


class MoveAnswer(ValueAnswer[Move]):
    """One expert of one layer that is loaded into a slot."""

    layer: int = Field(description="Decoder layer.", examples=[3])
    slot: int = Field(description="Slot of the layer, from 0.", examples=[17])
    rank: int = Field(description="Rank of the slot.", examples=[1])
    old: int = Field(description="Expert that leaves.", examples=[5])
    new: int = Field(description="Expert that comes.", examples=[9])
    source: int = Field(description="Rank that sends it.", examples=[0])
    same_node: bool = Field(description="Whether it stays inside its node.", examples=[True])
    buffered: bool = Field(description="Whether it waits in a spare buffer first.", examples=[False])


class RebalancedLayer(BaseModel):
    """One layer before and after the moves."""

    layer: int = Field(description="Decoder layer.", examples=[3])
    moves: int = Field(description="Experts that are loaded.", examples=[12])
    moves_between_nodes: int = Field(description="How many of these come from another node.", examples=[2])
    balancedness_before: float = Field(description="Balancedness of the map that runs.", examples=[0.71])
    balancedness: float = Field(description="After the moves.", examples=[0.94])


class RebalanceAnswer(BaseModel):
    """Moves, and whether to make them."""

    verdict: str = Field(description="In a sentence.", examples=["leave it alone: nothing can be gained"])
    pays: bool = Field(description="Whether the gain until the next look exceeds the time of the moves.")
    placement: ExpertMapDocument = Field(description="The map after all moves.")
    balancedness_before: float = Field(description="Balancedness of the map that runs.", examples=[0.78])
    balancedness: float = Field(description="After the moves.", examples=[0.95])
    nearest_balancedness_before: float = Field(
        description="Balancedness of the map that runs, where the nearest copy serves as in SGLang's static "
        "dispatch; all other figures are those of engines in which each copy is as likely to serve.",
        examples=[0.74],
    )
    nearest_balancedness: float = Field(description="The same after the moves.", examples=[0.83])
    workloads: dict[str, list[float]] = Field(
        description="Balancedness before and after for each workload of the statistics.",
        examples=[{"decode": [0.78, 0.95]}],
    )
    target_balancedness: float | None = Field(description="As asked.", examples=[0.95])
    reached: bool = Field(description="Whether the target is reached.", examples=[True])
    least_moves: int | None = Field(
        description="No map that reaches the target needs fewer moves; null where it cannot be reached.",
        examples=[83],
    )
    bytes_inside_nodes: float = Field(description="Sent inside nodes.", examples=[1.2e10])
    bytes_between_nodes: float = Field(description="Sent between nodes.", examples=[0.0])
    move_ms: float = Field(description="Until the busiest rank is done.", examples=[3.9])
    gain_ms_per_step: float = Field(description="Saved in a step, all layers together.", examples=[4.1])
    break_even_steps: float | None = Field(
        description="Steps that pay for the moves; null = never.", examples=[1.0]
    )
    spare_buffers: int = Field(description="Spare buffers of one expert that a rank needs.", examples=[1])
    layers: list[RebalancedLayer] = Field(description="Layer by layer.")
    moves: list[MoveAnswer] = Field(description="In an order in which every expert has a copy at any moment.")
    assumptions: list[str] = Field(description="What was taken for want of something given.")


@dataclass(frozen=True, slots=True)
class Rebalancing:
    """A request with everything looked up."""

    running: ExpertSlots
    mixed: RoutedWorkload
    layout: ExpertLayout
    costs: MoveCosts
    pace: Pace
    target: float | None
    seed: int
    workloads: tuple[RoutedWorkload, ...]
    assumed: tuple[str, ...]


def prepared_rebalancing(fields: RebalanceFields, workloads: Sequence[RoutedWorkload], given: Given) -> Rebalancing:
    """Rebalancing ``fields`` ask for; raises ``InvalidInput`` with the field of the request."""
    names, weights = planned_of(fields.workloads, [workload.name for workload in workloads])
    chosen = [workload for workload in workloads if workload.name in names]
    experts = workloads[0].experts
    if given.model is not None:
        check_model(given.model, experts)
    running = _running(fields, common_layers(chosen), experts)
    given, counted = with_tokens(given, [workload.name for workload in chosen])
    rates, known, assumed = rates_of(given)
    rule, words = rule_of(given, experts)
    balanced, words = rates.selection_s * rule.active * rates.tokens, [*words, *counted]
    expert_bytes = _expert_bytes(fields, given.model)
    states = 1.0 if fields.expert_bytes is not None else fields.bytes_per_weight / WEIGHT_BYTES
    least_s = reading_s(running.count // running.ranks * expert_bytes / max(1.0, states), kind_of(given)[0])
    if fields.balanced_layer_ms is not None:
        balanced, least_s, words = fields.balanced_layer_ms * MILLISECOND, 0.0, []
    if known or fields.nodes == 1:
        assumed = tuple(sentence for sentence in assumed if "between nodes" not in sentence)
    with own_fields():
        layout = ExpertLayout(fields.ranks, fields.nodes, running.count)
    return Rebalancing(
        running=running,
        mixed=_mixed(chosen, running.layers, weights),
        layout=layout,
        costs=MoveCosts(expert_bytes, 1 / rates.inside_bytes_per_s, 1 / rates.between_bytes_per_s),
        pace=Pace(balanced, float(fields.steps_until_next), least_s),
        target=fields.target_balancedness,
        seed=fields.seed,
        workloads=tuple(each for each in workloads if set(running.layers) <= set(each.layers)),
        assumed=(*words, *assumed),
    )


def rebalanced(asked: Rebalancing) -> RebalanceAnswer:
    """The answer, which takes seconds."""
    found = rebalance(
        asked.running,
        asked.mixed,
        asked.layout,
        costs=asked.costs,
        pace=asked.pace,
        target=asked.target,
        seed=asked.seed,
    )
    before, after = np.array(asked.running.slots), np.array(found.slots.slots)
    near_before, near_after = (
        balancedness(rows, asked.mixed.shares(), asked.layout, CopyChoice.NEAREST) for rows in (before, after)
    )
    judged = {}
    for workload in asked.workloads:
        loads = workload.loads[[workload.layers.index(layer) for layer in asked.running.layers]]
        judged[workload.name] = [balancedness(rows, loads, asked.layout) for rows in (before, after)]
    return RebalanceAnswer(
        verdict=verdict_of(found, asked.pace),
        pays=found.pays,
        placement=ExpertMapDocument.from_slots(found.slots),
        balancedness_before=found.balancedness_before,
        balancedness=found.balancedness,
        nearest_balancedness_before=near_before,
        nearest_balancedness=near_after,
        workloads=judged,
        target_balancedness=found.target,
        reached=found.reached,
        least_moves=found.least_moves if found.target is not None else None,
        bytes_inside_nodes=found.bytes_inside,
        bytes_between_nodes=found.bytes_between,
        move_ms=found.move_s / MILLISECOND,
        gain_ms_per_step=found.gain_s_per_step / MILLISECOND,
        break_even_steps=found.break_even_steps if math.isfinite(found.break_even_steps) else None,
        spare_buffers=found.spare_buffers,
        layers=_layers(asked, found),
        moves=[MoveAnswer.from_value(move) for move in found.moves],
        assumptions=list(asked.assumed),
    )


def _layers(asked: Rebalancing, found: Rebalanced) -> list[RebalancedLayer]:
    shares = asked.mixed.shares()
    before, after = (
        layer_balancedness(np.array(slots.slots), shares, asked.layout) for slots in (asked.running, found.slots)
    )
    moved = Counter(move.layer for move in found.moves)
    far = Counter(move.layer for move in found.moves if not move.same_node)
    return [
        RebalancedLayer(
            layer=layer,
            moves=moved[layer],
            moves_between_nodes=far[layer],
            balancedness_before=float(old),
            balancedness=float(new),
        )
        for layer, old, new in zip(asked.running.layers, before, after, strict=True)
    ]


def verdict_of(found: Rebalanced, pace: Pace) -> str:
    """Advice in a sentence."""
    if not found.moves:
        reason = "the target is reached already" if found.target is not None else "no moves pay for themselves"
        return f"leave it alone: {reason}"
    missed = ""
    if not found.reached:
        whose = "no map on these slots reaches" if found.least_moves is None else "they do not reach"
        missed = f", though {whose} the target of {found.target:g}"
    if found.pays:
        return (
            f"move: {len(found.moves):,} loads of experts pay for themselves after "
            f"{math.ceil(found.break_even_steps):,} of {pace.steps:,.0f} steps{missed}"
        )
    return f"leave it alone: the moves take longer than {pace.steps:,.0f} steps gain{missed}"


def _running(fields: RebalanceFields, counted: Sequence[int], experts: int) -> ExpertSlots:
    """The map that runs, at the layers that were counted."""
    table = fields.physical_to_logical_map
    numbers = list(range(len(table))) if fields.layers is None else fields.layers
    if len(numbers) != len(table) or len(set(numbers)) < len(numbers):
        problem = f"numbers {len(set(numbers))} layers, and the map has {len(table)} rows"
        raise InvalidInput("layers", numbers, problem, "give one number for each row")
    rows = {number: row for number, row in zip(numbers, table, strict=True) if number in set(counted)}
    if not rows:
        remedy = "give layers, the numbers of the rows, as the statistics number them"
        raise InvalidInput("layers", numbers, f"are not among the counted ones, {counted[:1]} on", remedy)
    if _SLOT_PAIR_S * sum(len(row) ** 2 for row in rows.values()) > MOST_SECONDS:
        problem = f"{len(rows)} layers of {len(next(iter(rows.values())))} slots take minutes"
        raise InvalidInput("physical_to_logical_map", "", problem, "rebalance a part of the layers at a time")
    ordered = sorted(rows)
    held = max((expert for row in rows.values() for expert in row), default=-1) + 1
    if held != experts:
        problem = f"holds {held} experts, the statistics count {experts}"
        raise InvalidInput("physical_to_logical_map", "", problem, "give statistics of the model that runs")
    try:
        return ExpertSlots(tuple(ordered), tuple(tuple(rows[layer]) for layer in ordered), experts, fields.ranks)
    except InvalidInput as error:
        field = error.field.replace("experts.slots", "physical_to_logical_map", 1)
        raise InvalidInput(field, error.value, error.problem, error.remedy) from error


def _mixed(
    chosen: Sequence[RoutedWorkload], layers: Sequence[int], weights: Mapping[str, float] | None
) -> RoutedWorkload:
    """The workloads as one: the mean of their shares by weight."""
    shares = np.zeros((len(layers), chosen[0].experts))
    for workload in chosen:
        rows = workload.shares()[[workload.layers.index(layer) for layer in layers]]
        shares += (1.0 if weights is None else weights[workload.name]) * rows
    return RoutedWorkload(" and ".join(workload.name for workload in chosen), tuple(layers), shares)


def _expert_bytes(fields: RebalanceFields, model: Architecture | None) -> float:
    if fields.expert_bytes is not None:
        return fields.expert_bytes
    if model is None:
        raise InvalidInput("expert_bytes", None, "is missing", "give it, or the model: its experts' size is known")
    assert model.experts is not None, "checked before"
    matrices = _MATRICES if model.gated_mlp else _MATRICES - 1
    return matrices * model.hidden * model.experts.hidden * fields.bytes_per_weight
