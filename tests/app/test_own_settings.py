"""Own configurations keep settings that the planner chose, as far as they go with what else they say."""

from __future__ import annotations

from dataclasses import replace

from app.comparing.shorthand import read_shorthand
from cluster_models.training.framework_choices import CudaGraphs
from cluster_models.training.plan import Degrees
from cluster_models.training.run_settings import RunSettings
from cluster_models.training.workload import Recompute
from tests.plans import small_plan


def test_degrees_leave_settings_that_go_with_others() -> None:
    """A single tensor rank overlaps nothing, whole layers run again beside no graph of parts of them."""
    plan = small_plan()
    chosen = RunSettings(overlap_tensor=True, cuda_graphs=CudaGraphs.PARTIAL)
    own = replace(plan.configuration, degrees=Degrees(tensor=2, data=2), settings=chosen, recompute=Recompute.NONE)
    plan = replace(plan, configuration=own)
    assert read_shorthand("tp2 pp2 dp1", plan, gpus=4).settings.to_value() == chosen
    assert read_shorthand("tp1", plan, gpus=4).settings.to_value() == replace(chosen, overlap_tensor=None)
    again = read_shorthand("tp2 pp2 dp1 recompute=full", plan, gpus=4)
    assert again.settings.to_value() == replace(chosen, cuda_graphs=None)
