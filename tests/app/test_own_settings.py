"""Own configurations keep settings that the planner chose, as far as they go with what else they say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.comparing.launch_arguments import read_launch
from app.comparing.shorthand import read_shorthand
from app.comparing.standings import configuration_in
from app.exports.registry import EXPORTS
from cluster_models.errors import InvalidConfiguration
from cluster_models.training.framework_choices import CudaGraphs, ExpertDispatch, FreeSetting
from cluster_models.training.plan import Degrees
from cluster_models.training.run_settings import RunSettings
from cluster_models.training.workload import Recompute
from tests.app.exports.plans import PLANS, under
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


CHOSEN = (
    RunSettings(True, True, CudaGraphs.PARTIAL, ExpertDispatch.HYBRIDEP),
    RunSettings(False, False, CudaGraphs.FULL, ExpertDispatch.DEEPEP),
    RunSettings(True, False, CudaGraphs.NONE, ExpertDispatch.ALL_TO_ALL),
)


@pytest.mark.parametrize("name", ["megatron", "nemo"])
@pytest.mark.parametrize("chosen", CHOSEN, ids=str)
def test_an_exported_choice_is_read_back(name: str, chosen: RunSettings) -> None:
    """Claims name settings that were free and nothing else: the rest is as the workload's framework has it."""
    plan = under(PLANS["experts"], "megatron-bridge-26.06")
    own = replace(plan.configuration, settings=chosen, recompute=Recompute.NONE)
    text = "\n".join(file.text for file in EXPORTS[name].files(replace(plan, configuration=own)))
    assert plan.workload is not None
    assert plan.architecture is not None
    assert configuration_in(text, plan).settings.to_value() == RunSettings()
    free = replace(plan, workload=replace(plan.workload, free_settings=tuple(FreeSetting)))
    assert configuration_in(text, free).to_configuration(plan.architecture) == own


def test_copies_of_optimizer_states_are_read_as_groups() -> None:
    """Two instances among eight data ranks share out four each; three are none."""
    text = "--tensor-model-parallel-size 8 --use-distributed-optimizer --num-distributed-optimizer-instances"
    assert read_launch(f"--micro-batch-size 1 {text} 2", layers=80, gpus=64).configuration.sharding_ranks == 4
    with pytest.raises(InvalidConfiguration, match="does not divide 8"):
        read_launch(f"--micro-batch-size 1 {text} 3", layers=80, gpus=64)
