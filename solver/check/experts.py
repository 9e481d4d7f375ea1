"""Whether the map gives every expert a home on the right ranks, and its figures follow from the counts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from cluster_models.routing.counts import ExpertLoads
from cluster_models.training.expert_balance import ExpertBalance
from cluster_models.training.expert_slots import ExpertSlots
from cluster_models.training.plan import Plan
from solver.problem import PlanningProblem

_TOLERANCE: Final = 1e-6


def expert_violations(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    """Rules that ``plan.expert_slots`` and ``plan.expert_balance`` break."""
    experts, slots = problem.architecture.experts, plan.expert_slots
    if experts is None:
        if slots is not None:
            yield f"The expert map has {len(slots.layers)} layers but the model has no experts."
        return
    if slots is None:
        yield "The plan does not say where the experts of the model lie."
        return
    yield from _map_rules(slots, plan, problem)
    if slots.experts != experts.count or slots.count != experts.count:
        yield f"The expert map has {slots.count} slots for {experts.count} experts: training holds each once."
        return
    yield from _order_rules(slots, problem)
    yield from _balance_rules(slots, plan, problem)


def _map_rules(slots: ExpertSlots, plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    model, degree = problem.architecture, plan.configuration.degrees.expert
    if slots.ranks != degree:
        yield f"The expert map has {slots.ranks} ranks for expert degree {degree}."
    sparse = tuple(layer for layer in range(model.layers) if model.is_sparse_layer(layer))
    if slots.layers != sparse:
        missing = sorted(set(sparse) ^ set(slots.layers))
        yield f"The expert map is not of the {len(sparse)} layers with experts: look at layer {missing[0]}."


def _order_rules(slots: ExpertSlots, problem: PlanningProblem) -> Iterator[str]:
    """Only counted layers may leave their natural order, and none may mix the groups of its router."""
    counted = () if problem.keep_expert_order or not problem.routing else problem.routing[0].layers
    natural = tuple(range(slots.experts))
    for layer, row in zip(slots.layers, slots.slots, strict=True):
        if row != natural and layer not in counted:
            yield f"The experts of layer {layer} leave their order without any count of its routing."
            return
        if _mixed_groups(row, problem):
            yield f"The order of experts of layer {layer} mixes router groups, which frameworks form by position."
            return


def _mixed_groups(row: Sequence[int], problem: PlanningProblem) -> bool:
    """Whether experts of two router groups stand in one block of positions."""
    groups = 1 if problem.architecture.experts is None else problem.architecture.experts.router_groups
    size = len(row) // groups
    return any(expert // size != row[place - place % size] // size for place, expert in enumerate(row))


def _balance_rules(slots: ExpertSlots, plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    balance = plan.expert_balance
    if (balance is not None) != (bool(problem.routing) and slots.ranks > 1):
        yield "The balance of experts must be told just where routing was counted and several ranks share them."
        return
    if balance is None or any(layer not in slots.layers for layer in problem.routing[0].layers):
        return
    placed = dict(zip(slots.layers, slots.slots, strict=True))
    natural = dict.fromkeys(slots.layers, tuple(range(slots.experts)))
    total = sum(each.weight for each in problem.routing)
    if [each.name for each in balance.workloads] != [each.name for each in problem.routing]:
        yield "The balance of experts is not of the workloads that were given."
        return
    for said, given in zip(balance.workloads, problem.routing, strict=True):
        yield from _differs(f"weight of {said.name}", said.weight, given.weight / total)
        for what, value, rows in (("", said.imbalance, placed), ("contiguous ", said.contiguous, natural)):
            found = _mean(_imbalances(given, rows, slots.ranks))
            yield from _differs(f"{what}imbalance under {said.name}", value, found)
    yield from _layer_rules(balance, problem.routing, placed, natural, slots.ranks)
    if not (math.isfinite(balance.leaving_copies) and balance.leaving_copies >= 0):
        yield f"Copies that leave a domain are {balance.leaving_copies}, which is not an amount."
    if not (math.isfinite(balance.contiguous_step_s) and balance.contiguous_step_s > 0):
        yield f"The step with experts in their order is {balance.contiguous_step_s} s, which is not a time."


def _layer_rules(
    balance: ExpertBalance,
    routing: Sequence[ExpertLoads],
    placed: dict[int, tuple[int, ...]],
    natural: dict[int, tuple[int, ...]],
    ranks: int,
) -> Iterator[str]:
    if tuple(each.layer for each in balance.layers) != routing[0].layers:
        yield "The balance of experts is not of the layers that were counted."
        return
    for said, reached, before in zip(
        balance.layers, _weighted(routing, placed, ranks), _weighted(routing, natural, ranks), strict=True
    ):
        yield from _differs(f"imbalance of layer {said.layer}", said.imbalance, reached)
        yield from _differs(f"contiguous imbalance of layer {said.layer}", said.contiguous, before)
        if not 1.0 - _TOLERANCE <= said.least <= reached * (1.0 + _TOLERANCE):
            yield f"Layer {said.layer} is said to need {said.least:.4f} at least and reaches {reached:.4f}."
    for what in ("imbalance", "contiguous", "least"):
        mean = _mean([getattr(each, what) for each in balance.layers])
        yield from _differs(f"mean {what} of the layers", getattr(balance, what), mean)


def _weighted(routing: Sequence[ExpertLoads], rows: dict[int, tuple[int, ...]], ranks: int) -> list[float]:
    """For each counted layer its imbalance over all workloads."""
    total = sum(each.weight for each in routing)
    columns = zip(*(_imbalances(each, rows, ranks) for each in routing), strict=True)
    return [
        sum(each.weight / total * value for each, value in zip(routing, column, strict=True)) for column in columns
    ]


def _imbalances(loads: ExpertLoads, rows: dict[int, tuple[int, ...]], ranks: int) -> list[float]:
    """For each counted layer the load of the slowest rank over the mean, added up expert by expert."""
    found = []
    for layer, counts in zip(loads.layers, loads.loads, strict=True):
        row = rows[layer]
        size = len(row) // ranks
        carried = [
            sum(counts[expert] for expert in row[start : start + size]) for start in range(0, len(row), size)
        ]
        found.append(max(carried) * ranks / sum(counts))
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _differs(what: str, said: float, found: float) -> Iterator[str]:
    if not math.isclose(said, found, rel_tol=_TOLERANCE):
        yield f"The {what} is said to be {said:.6g}, by the counts it is {found:.6g}."
