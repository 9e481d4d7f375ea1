"""Where the experts of a plan lie, what counted routing makes of that, and what a reader must know of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cluster_models.remarks import Remark, remark
from cluster_models.training.expert_balance import ExpertBalance, LayerBalance, WorkloadBalance
from cluster_models.training.expert_slots import ExpertSlots
from solver.candidates import IntArray
from solver.costs.routed_loads import domains_of
from solver.experts.trained import TrainedMap, trained_map
from solver.placement.problem import placed_times
from solver.problem import PlanningProblem
from solver.refine import Candidate, prepare

_WORSE = 1.05
"""A workload is warned of whose imbalance is so many times the one planned for."""


def expert_slots(problem: PlanningProblem, candidate: Candidate) -> ExpertSlots | None:
    """The map of every layer with experts: contiguous blocks, as Megatron-Core assigns them, without counts."""
    architecture = problem.architecture
    if architecture.experts is None:
        return None
    layers = tuple(layer for layer in range(architecture.layers) if architecture.is_sparse_layer(layer))
    natural = tuple(range(architecture.experts.count))
    found = _map(problem, candidate)
    placed = {} if found is None else dict(zip(found.layers, found.rows.tolist(), strict=True))
    slots = tuple(tuple(placed.get(layer, natural)) for layer in layers)
    return ExpertSlots(layers, slots, architecture.experts.count, int(candidate.batch.expert[0]))


def expert_balance(problem: PlanningProblem, candidate: Candidate, assignment: IntArray) -> ExpertBalance | None:
    """Balance of the map on the counts; ``None`` without counts, or where a rank holds all experts."""
    found = _map(problem, candidate)
    if found is None:
        return None
    weighted, contiguous = found.weighted, found.weights @ found.contiguous
    return ExpertBalance(
        imbalance=float(weighted.mean()),
        contiguous=float(contiguous.mean()),
        least=float(found.least.mean()),
        leaving_copies=float(found.domain_copies.mean()),
        contiguous_step_s=_contiguous_step_s(problem, candidate, assignment),
        layers=tuple(
            LayerBalance(layer, *values)
            for layer, *values in zip(
                found.layers, weighted.tolist(), contiguous.tolist(), found.least.tolist(), strict=True
            )
        ),
        workloads=tuple(
            WorkloadBalance(each.name, float(weight), float(row.mean()), float(other.mean()))
            for each, weight, row, other in zip(
                problem.routing, found.weights, found.imbalance, found.contiguous, strict=True
            )
        ),
    )


def expert_warnings(slots: ExpertSlots | None, balance: ExpertBalance | None, step_s: float) -> Iterator[Remark]:
    """Assumptions of the plan about its experts."""
    if slots is None or balance is None:
        return
    natural = tuple(range(slots.experts))
    if any(row != natural for row in slots.slots):
        yield remark("experts_reordered", contiguous_step_s=balance.contiguous_step_s, step_s=step_s)
    if uncounted := len(slots.layers) - len(balance.layers):
        yield remark("layers_not_counted", layers=uncounted, of=len(slots.layers))
    planned = tuple(each.name for each in balance.workloads if each.weight > 0)
    for each in balance.workloads:
        if each.imbalance > _WORSE * balance.imbalance:
            yield remark(
                "worse_balanced_workload",
                planned=planned,
                workload=each.name,
                imbalance=each.imbalance,
                planned_imbalance=balance.imbalance,
            )


def _map(problem: PlanningProblem, candidate: Candidate) -> TrainedMap | None:
    """The very map that the candidate was priced with."""
    ranks, cut = int(candidate.batch.expert[0]), int(candidate.batch.expert_tensor[0])
    experts = problem.architecture.experts
    if not problem.routing or experts is None or ranks == 1:
        return None
    domains = domains_of(ranks, cut, candidate.fabric.gpus_per_unit)
    return trained_map(problem.routing, experts, ranks, domains, problem.keep_expert_order)


def _contiguous_step_s(problem: PlanningProblem, candidate: Candidate, assignment: IntArray) -> float:
    """Seconds of a step with the experts in their natural order and all else as it is."""
    kept = replace(problem, keep_expert_order=True)
    fabric, layout, kinds = candidate.fabric, candidate.layout, candidate.stage_kinds
    natural = prepare(kept, fabric, candidate.batch, layout, kinds)
    return float(np.asarray(placed_times(natural.placement, assignment).step_s))
