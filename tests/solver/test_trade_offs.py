"""The sample of candidates beside a plan."""

from __future__ import annotations

from cluster_models.training.plan import Plan
from cluster_models.training.workload import Recompute
from tests.solver.problems import nodes, planned, problem


def test_the_frontier_is_what_nothing_beats_in_both() -> None:
    """Pairwise, and the fastest candidate that fits is on it; nothing shown is over the limit."""
    plan = planned(problem(nodes(3, gpus=2), global_batch=12, recompute=tuple(Recompute)))
    assert isinstance(plan, Plan)
    shown = plan.trade_offs
    assert shown[0].on_frontier
    assert [point.step_bound_s for point in shown] == sorted(point.step_bound_s for point in shown)
    for point in shown:
        beaten = any(
            other.step_bound_s <= point.step_bound_s and other.spare_bytes > point.spare_bytes for other in shown
        )
        assert point.spare_bytes >= 0
        assert point.on_frontier <= (not beaten)
        assert point.step_bound_s <= 2.5 * shown[0].step_bound_s
    assert any(point.degrees == plan.configuration.degrees for point in shown)
