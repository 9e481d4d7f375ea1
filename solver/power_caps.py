"""Power caps that the planner chooses: one for all GPUs of a plan, or none.

Every cap is a search of its own, whose bound holds for its plans; the least of them holds for all.  A cap slows
work and never quickens it, so that only a limit of power, which then allows more GPUs, or energy as the objective
can ask for one: without either the search is the one without caps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from cluster_models.cluster.power import CAP_SHARES, LEAST_SHARE
from cluster_models.errors import InvalidWorkload, SolverFailed
from cluster_models.remarks import remark
from cluster_models.training.plan import NoPlan, Plan, StopReason
from cluster_models.training.workload import Objective
from solver.problem import IsCancelled, OnDraft, PlanningProblem, SearchOptions

LEAST_S: Final = 1.0
"""Time limit of one search, at least."""
_COUNTS: Final = (
    "candidates_total",
    "candidates_infeasible",
    "candidates_pruned",
    "candidates_placed",
    "unpriced",
    "unlisted",
)

SearchOne = Callable[[PlanningProblem, SearchOptions, OnDraft | None], Plan | NoPlan]
Caps = tuple[float | None, ...]


def caps_of(problem: PlanningProblem) -> Caps:
    """Watts that the GPUs of a plan may be capped at, no cap first: shares of the boards of each kind in use.

    Caps below what is priced on some board are left out.
    """
    workload, cluster = problem.workload, problem.snapshot.cluster
    if workload.max_power_watts is None and workload.objective is not Objective.ENERGY:
        return (None,)
    used = {node.gpu_kind for node in cluster.nodes if node.usable and node.name not in workload.avoid_nodes}
    boards = [cluster.gpu_kinds[name].power_watts for name in used]
    most = max(boards, default=0.0)
    caps = {round(share * watts, 1) for watts in boards for share in CAP_SHARES}
    return None, *sorted((cap for cap in caps if cap >= LEAST_SHARE * most), reverse=True)


def under_least_cap(problem: PlanningProblem) -> PlanningProblem:
    """The problem under the lowest cap to choose from, where most GPUs may be used; as it is without a choice."""
    return _under(problem, caps_of(problem)[-1]) if problem.workload.choose_power_caps else problem


def plan_with_caps(
    problem: PlanningProblem,
    options: SearchOptions,
    search_one: SearchOne,
    on_draft: OnDraft | None,
    is_cancelled: IsCancelled,
) -> Plan | NoPlan:
    """The best plan under any cap, with a bound that holds for all; searches share out the time that is left.

    Raises ``InvalidInput`` where the workload contradicts model or cluster under every cap.
    """
    caps, ends = caps_of(problem), time.monotonic() + options.time_limit_s
    found: list[Plan] = []
    refused: list[NoPlan | InvalidWorkload | SolverFailed] = []

    def tell(draft: Plan) -> None:
        best = min((each.certificate.objective for each in found), default=None)
        if on_draft is not None and (best is None or draft.certificate.objective < best):
            on_draft(_joint(draft, [draft], 0.0, caps))

    for index, cap in enumerate(caps):
        if found and is_cancelled():
            return _joint(_best(found), found, 0.0, caps, StopReason.CANCELLED)
        share_s = max((ends - time.monotonic()) / (len(caps) - index), LEAST_S)
        try:
            answer = search_one(_under(problem, cap), replace(options, time_limit_s=share_s), tell)
        except (InvalidWorkload, SolverFailed) as error:  # too few GPUs for the power; no plan in this time
            refused.append(error)
            continue
        (found if isinstance(answer, Plan) else refused).append(answer)  # type: ignore[arg-type]  # each its own
    if found:
        is_open = any(
            not each.is_proven if isinstance(each, NoPlan) else isinstance(each, SolverFailed) for each in refused
        )
        bound = 0.0 if is_open else min(each.certificate.bound for each in found)
        return _joint(_best(found), found, bound, caps, StopReason.TIME_LIMIT if is_open else None)
    if isinstance(refused[-1], NoPlan):
        return refused[-1]
    raise refused[-1]


def _under(problem: PlanningProblem, cap: float | None) -> PlanningProblem:
    workload = replace(problem.workload, gpu_power_cap_watts=cap, choose_power_caps=False)
    return replace(problem, workload=workload)


def _best(plans: Sequence[Plan]) -> Plan:
    return min(plans, key=lambda each: each.certificate.objective)


def _joint(
    best: Plan, plans: Sequence[Plan], bound: float, caps: Caps, stopped_by: StopReason | None = None
) -> Plan:
    """The best of plans, each under a cap of its own, with a certificate for all of them."""
    own, proofs = best.certificate, [each.certificate for each in plans]
    least = min(bound, own.objective)
    ends = [each.stopped_by for each in proofs if each.stopped_by is not StopReason.PROVEN]
    limit = remark("limit_power_caps", caps=", ".join("none" if cap is None else f"{cap:g} W" for cap in caps))
    certificate = replace(
        own,
        bound=least,
        gap=(own.objective - least) / own.objective,
        stopped_by=stopped_by or next(iter(ends), StopReason.PROVEN),
        limits=(*own.limits, limit),
        **{name: sum(getattr(each, name) for each in proofs) for name in _COUNTS},
    )
    return replace(best, certificate=certificate)
