"""Whether a power cap that a plan says was chosen is one that the search may choose."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from cluster_models.training.plan import Plan
from solver.problem import PlanningProblem

_SHARES: Final = (0.85, 0.7, 0.6)
"""Caps to choose from, as shares of the power of some board of the cluster, in tenths of watts."""


def cap_violations(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    """A cap needs a reason, a limit of power or energy as the objective, and is one of those told."""
    cap = None if plan.workload is None else plan.workload.gpu_power_cap_watts
    if cap is None or not problem.workload.choose_power_caps:
        return
    if problem.workload.max_power_watts is None and str(problem.workload.objective) != "energy":
        yield f"A power cap of {cap:g} W is chosen though neither power nor energy is asked about."
    cluster = problem.snapshot.cluster
    boards = {cluster.gpu_kinds[node.gpu_kind].power_watts for node in cluster.nodes}
    if not any(math.isclose(cap, share * watts, abs_tol=0.06) for share in _SHARES for watts in boards):
        yield f"The power cap of {cap:g} W is none of those to choose from."
