"""Power in reports of training plans."""

from __future__ import annotations

from dataclasses import replace

from app.presentation.decision import decision_figures
from cluster_models.training.workload import Objective
from tests.plans import small_plan


def test_power_is_reported_where_the_workload_asks_for_it() -> None:
    """With tokens a joule by data sheets or the cap."""
    plan = small_plan()
    stages = tuple(replace(stage, gpu_kind="H100-SXM5-80GB") for stage in plan.stages)
    plan = replace(plan, stages=stages)
    assert plan.workload is not None
    assert "power" not in dict(decision_figures(plan))
    least = replace(plan, workload=replace(plan.workload, objective=Objective.ENERGY))
    gpus = plan.configuration.degrees.gpus
    rated = f"{0.7 * gpus:,.4g} kW by data sheets, {plan.tokens_per_s / gpus / 700:,.3g} tokens a joule"
    assert dict(decision_figures(least))["power"] == rated
    for watts in (700.0, 900.0):
        loose = replace(plan, workload=replace(plan.workload, gpu_power_cap_watts=watts))
        assert dict(decision_figures(loose))["power"] == rated
    capped = replace(plan, workload=replace(plan.workload, gpu_power_cap_watts=350.0))
    words = f"{0.35 * gpus:,.4g} kW capped at 350 W a GPU, {plan.tokens_per_s / gpus / 350:,.3g} tokens a joule"
    assert dict(decision_figures(capped))["power"] == words
