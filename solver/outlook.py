"""Outlook of a problem before its search: how many configurations fit, on how few GPUs, and about how fast.

Configurations are priced until the time is up and the ones with the lowest bounds are placed, as a search begins;
nothing is refined, so the answer comes in seconds and promises no more than a first plan.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cluster_models.links.model import effective_links
from cluster_models.training.plan import Configuration, NoPlan
from solver.answer.assemble import configuration_of
from solver.answer.remedies import no_plan
from solver.answer.unmet_rules import no_plan_by_rules
from solver.degrees.promising import fits_memory
from solver.degrees.rule_filter import taken
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem, SearchOptions
from solver.refine import place
from solver.search import FIRST_PLANS, SearchSpace, promising_space
from solver.search_state import first_state

LONGEST_PRICING_S: Final = 2.0
"""Seconds of pricing that someone waits for beside a form; a search prices on."""


@dataclass(frozen=True, slots=True)
class FirstPlan:
    """A configuration with the step time of its first placement, in seconds."""

    configuration: Configuration
    step_s: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """Facts about a problem before a search.

    ``configurations`` are legal ones listed in the time, of which ``too_large`` do not fit into memory and
    ``ruled_out`` fit but cannot keep every rule; ``is_complete`` says whether the time sufficed for all.
    ``least_gpus``: on so few GPUs of one kind some configuration fits, however slow; ``None`` where it takes
    several kinds together.  ``first`` is the best of the configurations placed, ``None`` where none of these few
    found a place.
    """

    configurations: int
    too_large: int
    ruled_out: int
    is_complete: bool
    least_gpus: int | None
    first: FirstPlan | None


def outlook(problem: PlanningProblem, *, pricing_s: float = LONGEST_PRICING_S) -> Outlook | NoPlan:
    """The outlook of a problem, or why nothing fits; raises ``InvalidInput`` as a search does."""
    options = SearchOptions()
    links = effective_links(problem.snapshot, bandwidth=problem.workload.link_bandwidth)
    ends = time.monotonic() + pricing_s
    space = promising_space(problem, links, options, is_time_up=lambda: time.monotonic() >= ends)
    priced = space.priced
    if not (priced.excess_bytes <= 0).any():
        return no_plan(problem, options, space.fabrics, priced)
    if not (taken(priced, space.kept.mask).excess_bytes <= 0).any():
        return no_plan_by_rules(problem, options, space.fabrics, priced, space.kept)
    return Outlook(
        configurations=priced.total,
        too_large=priced.infeasible,
        ruled_out=int(((priced.excess_bytes <= 0) & ~space.kept.mask).sum()),
        is_complete=priced.left.unpriced == priced.left.worlds == 0,
        least_gpus=min(_least_gpus(problem, space.fabrics), default=None),
        first=_first_plan(problem, space, options),
    )


def _first_plan(problem: PlanningProblem, space: SearchSpace, options: SearchOptions) -> FirstPlan | None:
    """The best of the configurations that a search places first."""
    state = first_state(taken(space.priced, space.kept.mask), space.fabrics)
    for _, _, index in state.fresh[:FIRST_PLANS]:
        state.placed(index, place(state.prepared(problem, index), options))
    if state.best is None:
        return None
    step_s = state.known[state.best].step_s
    configuration = configuration_of(state.prepared(problem, state.best))
    return FirstPlan(configuration, step_s, problem.workload.tokens_per_step / step_s)


def _least_gpus(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> Iterator[int]:
    """The fewest GPUs of each kind alone that hold the model, by halving: more nodes never hold less."""
    for fabric in fabrics:
        if fabric.is_mixed or not _holds(problem, fabric, fabric.nodes):
            continue
        less, enough = 0, fabric.nodes
        while enough - less > 1:
            middle = (less + enough) // 2
            less, enough = (less, middle) if _holds(problem, fabric, middle) else (middle, enough)
        yield enough * fabric.gpus_per_unit


def _holds(problem: PlanningProblem, fabric: Fabric, nodes: int) -> bool:
    return fits_memory(problem, fabric.gpu, gpus_per_node=fabric.gpus_per_unit, nodes=nodes)
