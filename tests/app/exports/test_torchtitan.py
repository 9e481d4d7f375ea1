"""torchtitan is told the pipeline that was planned: its schedule, its stages, its groups of micro-batches."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from app.exports.contract import check_files
from app.exports.launch_value import launch_of
from cluster_models.errors import InvalidConfiguration
from cluster_models.training.plan import Plan
from cluster_models.training.schedules import PipelineSchedule
from tests.app.exports.plans import BREADTH_FIRST, PLANS, V_OF_STAGES, export, scheduled, under


def test_torchtitan_groups_micro_batches_by_itself() -> None:
    """Its schedule wants equal groups: five micro-batches on two ranks make none, three make one."""
    with pytest.raises(InvalidConfiguration, match="in groups of 3"):
        export("torchtitan").files(PLANS["larger groups"])
    own = under(PLANS["larger groups"], "torchtitan-2025")
    assert own.workload is not None
    three = replace(own, workload=replace(own.workload, global_batch=2 * 3))
    assert "Interleaved1F1B" in "".join(file.text for file in export("torchtitan").files(three))


def test_torchtitan_names_the_modules_of_stages_that_it_would_cut_otherwise() -> None:
    """Stages of a search, by the names of their modules; older releases call the last one otherwise."""
    arguments, toml = export("torchtitan").files(PLANS["any stages"])
    assert (
        "--parallelism.module_fqns_per_model_part tok_embeddings,layers.0 layers.1,layers.2 "
        "layers.3,layers.4,layers.5 layers.6,layers.7 layers.8,layers.9 layers.10,norm,lm_head\n"
    ) in arguments.text
    assert '["layers.10", "norm", "output"]]' in toml.text
    for old, new in (("layers.1,layers.2", "layers.1"), ("layers.2", "layers.3"), (",lm_head", "")):
        spoilt = replace(arguments, text=arguments.text.replace(old, new, 1))
        with pytest.raises(InvalidConfiguration):
            check_files(export("torchtitan"), (spoilt, toml), launch_of(PLANS["any stages"]))


@pytest.mark.parametrize(
    ("schedule", "layers", "name"),
    [
        ("1f1b", ((3, 3),), "1F1B"),
        ("1f1b", ((2, 2), (2, 2)), "Interleaved1F1B"),
        ("gpipe", ((3, 3),), "GPipe"),
        ("gpipe", ((2, 2), (2, 2)), "LoopedBFS"),
        ("zero_bubble", ((2, 2), (2, 2)), "InterleavedZeroBubble"),
        ("zb_v", ((1, 2), (2, 1)), "ZBVZeroBubble"),
        ("dualpipe_v", ((1, 2), (2, 1)), "DualPipeV"),
    ],
)
def test_torchtitan_gets_the_schedule_by_the_name_that_pytorch_has_for_it(
    schedule: str, layers: tuple[tuple[int, ...], ...], name: str
) -> None:
    """The name is read back as the schedule, and another one is noticed."""
    plan = scheduled(PipelineSchedule(schedule), layers)
    files = export("torchtitan").files(plan)
    assert f"--parallelism.pipeline_parallel_schedule {name}\n" in files[0].text
    other = "GPipe" if name == "1F1B" else "LoopedBFS" if name == "Interleaved1F1B" else "Interleaved1F1B"
    spoilt = tuple(replace(file, text=file.text.replace(name, other)) for file in files)
    with pytest.raises(InvalidConfiguration):
        check_files(export("torchtitan"), spoilt, launch_of(plan))


def test_stages_of_a_v_are_named_in_the_order_of_the_model() -> None:
    """The first rank has the first and the last stage, which torchtitan makes of the list by itself."""
    plan = V_OF_STAGES
    arguments, toml = export("torchtitan").files(plan)
    assert (
        "--parallelism.module_fqns_per_model_part tok_embeddings,layers.0 layers.1,layers.2 "
        "layers.3 layers.4,layers.5,norm,lm_head\n"
    ) in arguments.text
    looped = replace(arguments, text=arguments.text.replace("rank: 1 2; 2 1", "rank: 1 2; 1 2"))
    with pytest.raises(InvalidConfiguration, match="would not cut 6 layers"):
        check_files(export("torchtitan"), (looped, toml), launch_of(plan))


@pytest.mark.parametrize("plan", [V_OF_STAGES, BREADTH_FIRST])
@pytest.mark.parametrize("name", ["megatron", "nemo"])
def test_megatron_is_given_no_schedule_that_it_has_not(name: str, plan: Plan) -> None:
    """Its pipelines run 1F1B."""
    with pytest.raises(InvalidConfiguration, match="it knows 1F1B alone"):
        export(name).files(plan)


def test_torchtitan_takes_no_zero_bubble_schedule_of_one_stage_a_rank() -> None:
    """PyTorch has the class for several stages alone."""
    with pytest.raises(InvalidConfiguration, match="several stages on a rank"):
        export("torchtitan").files(scheduled(PipelineSchedule.ZERO_BUBBLE, ((3, 3),)))


def test_asynchronous_tensor_parallelism_is_switched_on_where_it_was_priced() -> None:
    """Releases from 0.3 on have it under compile, those before under parallelism; split backwards do without."""
    plain, overlapped = (under(PLANS["dense"], "torchtitan-2025", overlap_tensor=on) for on in (False, True))
    assert "async" not in "".join(file.text for file in export("torchtitan").files(plain))
    arguments, toml = export("torchtitan").files(overlapped)
    assert "    --compile.enable\n    --compile.enable_async_tensor_parallel\n" in arguments.text
    tables = tomllib.loads(toml.text)
    assert (tables["compile"]["enable"], tables["parallelism"]["enable_async_tensor_parallel"]) == (True, True)
    split = under(V_OF_STAGES, "torchtitan-2025", overlap_tensor=True)
    assert "async" not in "".join(file.text for file in export("torchtitan").files(split))
