"""Maps by which tokens stay where they are from layer to layer, for one workload or the mean of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from app.experts.statistics import common_layers
from app.experts.wanted import Ask, ChainTerms
from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import RoutedWorkload
from solver.experts.chains import STARTS, STEPS, Chained, chain_experts
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice
from solver.experts.transitions import transition_tables

_HOW_TO_COUNT: Final = (
    "send traces of tokens or counts from layer to layer, plan for workloads that have them, or by balance"
)


def check_transitions(chosen: Sequence[RoutedWorkload], layout: ExpertLayout, redundant: int | None) -> None:
    """Raise ``InvalidInput`` unless transitions were counted in all of ``chosen``, and no expert gets a copy.

    ``redundant``: how many more slots than experts were asked for, where slots were not.
    """
    experts = chosen[0].experts
    if layout.slots != experts:
        problem = f"makes copies of {experts} experts, and transitions are followed without copies"
        remedy = f"take {experts} slots for locality, or objective balance"
        if redundant is not None:
            raise InvalidInput("redundant_experts", redundant, problem, remedy)
        raise InvalidInput("slots", layout.slots, problem, remedy)
    layers = common_layers(chosen)
    for workload in chosen:
        if not any(table.any() for table in workload.transitions.values()):
            problem = f"no transitions between layers were counted in {workload.name}"
            raise InvalidInput("objective", "locality", problem, _HOW_TO_COUNT)
        if layers and not any(table.any() for table in workload.at(layers).transitions.values()):
            problem = f"{workload.name} has no transitions between layers that all workloads planned for have"
            raise InvalidInput("objective", "locality", problem, "plan for each alone, or by balance")


def limits_of(planned: int, choice: CopyChoice | None) -> tuple[str, ...]:
    """Limits of a map along layers, in sentences."""
    spared = "a token that stays is spared its way only in engines that leave tokens on the GPU of their expert"
    found = [
        "transitions are followed without copies, each expert in one slot",
        f"{spared} from layer to layer; others send it home after each layer",
    ]
    if planned > 1:
        found.append("workloads planned for are placed as one, with the mean of their transitions")
    if choice is not None:
        found.append(f"the choice of copies, {choice}, changes nothing without copies")
    return tuple(found)


def placed_along(chosen: Sequence[RoutedWorkload], ask: Ask, terms: ChainTerms) -> Chained:
    """The map for the transitions of ``chosen``, which have the same layers: of several, for their mean."""
    return chain_experts(
        mean_of(chosen, ask.weights),
        ask.layout,
        prices=terms.prices,
        least_locality=terms.least_locality,
        starts=round(STARTS * ask.effort),
        steps=round(STEPS * ask.effort),
        seed=ask.seed,
    )


def mean_of(chosen: Sequence[RoutedWorkload], weights: Mapping[str, float] | None) -> RoutedWorkload:
    """One workload with the weighted mean of shares and of transitions; a single one is itself."""
    if len(chosen) == 1:
        return chosen[0]
    loads = np.zeros_like(chosen[0].loads)
    tables = np.zeros((len(loads) - 1, loads.shape[1], loads.shape[1]))
    for workload in chosen:
        weight = 1.0 if weights is None else weights[workload.name]
        loads += weight * workload.shares()
        tables += weight * transition_tables(workload)
    name = " and ".join(workload.name for workload in chosen)
    return RoutedWorkload(name, chosen[0].layers, loads, dict(enumerate(tables)))
