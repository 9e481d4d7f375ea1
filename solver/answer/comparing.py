"""How a plan stands to another of the same cluster, model and workload (docs/choice.md)."""

from __future__ import annotations

import math

from cluster_models.training.comparison import Comparison
from cluster_models.training.plan import Plan
from solver.costs.confidence import LEVEL
from solver.costs.differences import difference_error, doublings_between


def compare(plan: Plan, other: Plan) -> Comparison:
    """``other`` against ``plan``, both priced for one workload, by its objective.

    The ratio of two predictions is better known than either, the less so the more their sizes differ
    (``solver.costs.differences``).
    """
    ratio = objective_of(other) / objective_of(plan)
    apart = doublings_between(plan.configuration.degrees, other.configuration.degrees)
    error = difference_error()
    low, high = error.ratio_interval(ratio, apart)
    return Comparison(ratio, low, high, LEVEL, error.chance_faster(math.log(ratio), apart))


def objective_of(plan: Plan) -> float:
    """Objective of the workload for the plan itself: its certificate is about the best found."""
    given_up = plan.selection.given_up if plan.selection else 0.0
    return plan.certificate.objective * (1 + given_up)
