"""Own configurations: read from what users have, compared with a plan, and shown beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.comparing.launch_arguments import OwnLaunch, read_launch
from app.comparing.shorthand import is_shorthand, read_shorthand
from app.comparing.standings import Contender, configuration_in, priced, standings
from app.documents.configuration import ConfigurationDocument
from app.documents.quantities import token_count
from app.exports.registry import EXPORTS
from app.presentation.comparison import ComparisonReport, comparison_report, rounded_parts
from app.presentation.decision import Budget
from app.serialization import make_snapshot
from cluster_models.errors import InvalidInput
from cluster_models.training.frameworks import frameworks
from cluster_models.training.plan import Degrees, Plan, RankOrder
from cluster_models.training.rank_costs import TIME_PARTS, TimeBreakdown
from cluster_models.training.recompute import read_recomputation
from cluster_models.training.workload import Recompute, Sharding
from cluster_models.units import GIB
from solver.problem import PlanningProblem
from tests.plans import (
    small_architecture,
    small_cluster,
    small_configuration,
    small_plan,
    small_samples,
    small_workload,
)

SCRIPT = """#!/bin/bash
#SBATCH --nodes=8
#SBATCH --gpus-per-node=8
TP=8
PP=${PP:-4}
# --tensor-model-parallel-size 2
torchrun --nnodes $SLURM_NNODES --nproc-per-node 8 pretrain_gpt.py \\
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size "${PP}" \\
  --num-layers 80 --seq-length 8192 --micro-batch-size 1 --global-batch-size 512 \\
  --num-layers-per-virtual-pipeline-stage 5 \\
  --recompute-granularity selective --use-distributed-optimizer --sequence-parallel
"""


def _launch(text: str, *, layers: int = 80, gpus: int = 64) -> OwnLaunch:
    return read_launch(f"--micro-batch-size 1 {text}", layers=layers, gpus=gpus)


def test_a_launch_script_says_its_configuration() -> None:
    """Variables, comments and the header of the batch script are followed, as a shell would."""
    launch = read_launch(SCRIPT, layers=80, gpus=8)
    found, degrees = launch.configuration, launch.configuration.degrees
    assert (degrees.tensor, degrees.pipeline, degrees.data, degrees.virtual_pipeline) == (8, 4, 2, 4)
    assert found.stage_layers == [[5] * 4] * 4
    assert (found.recompute, found.sharding) == (Recompute.SELECTIVE, Sharding.OPTIMIZER)
    assert (launch.sequence_length, launch.global_batch) == (8192, 512)


@pytest.mark.parametrize(
    "text",
    [
        'args:\n  - --tensor-model-parallel-size\n  - "8"\n  - "--micro-batch-size=2"\n',
        '["--tensor-model-parallel-size","8", "--micro-batch-size", "2"]',
        "--tensor-model-parallel-size=8 --micro-batch-size '2'",
    ],
)
def test_arguments_are_found_in_lists_of_other_languages(text: str) -> None:
    """Manifests and Python scripts give a flag and its value as two entries of a list."""
    found = read_launch(text, layers=80, gpus=64).configuration
    assert (found.degrees.tensor, found.degrees.data, found.micro_batch_sequences) == (8, 8, 2)


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ('--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "Et*39|t*41L"', [[39, 41]]),
        ("--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 17", [[17, 21, 21, 21]]),
        (
            "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 19 {}".format(
                "--decoder-last-pipeline-num-layers 19"
            ),
            [[19, 21, 21, 19]],
        ),
        ("--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 5", [[4] * 4] * 5),
    ],
)
def test_layers_follow_the_flag_that_splits_them(text: str, layers: list[list[int]]) -> None:
    """Each of Megatron-LM's ways to split layers over stages."""
    assert _launch(text).configuration.stage_layers == layers


def test_what_a_script_leaves_out_is_what_megatron_does_by_default() -> None:
    """Experts are cut as wide as all else, nothing is recomputed or sharded, data ranks are left for the GPUs."""
    sparse = _launch("--tensor-model-parallel-size 2 --num-experts 8 --expert-model-parallel-size 4").configuration
    assert (sparse.degrees.expert, sparse.degrees.expert_tensor, sparse.degrees.data) == (4, 2, 32)
    dense = _launch("--tensor-model-parallel-size 2").configuration
    assert (dense.degrees.expert_tensor, dense.recompute, dense.sharding) == (1, "none", "none")
    assert dense.rank_order is RankOrder.DATA_BEFORE_PIPELINE


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ("--tensor-model-parallel-size $UNSET", "--tensor-model-parallel-size", "not a plain whole number"),
        ("--tensor-model-parallel-size", "--tensor-model-parallel-size", "has no value"),
        ("--context-parallel-size 2 --context-parallel-size 4", "--context-parallel-size", "several values"),
        ("--tensor-model-parallel-size 5", "--tensor-model-parallel-size", "does not divide 64 GPUs"),
        ("--num-layers 32", "--num-layers", "has 80"),
        ("--pipeline-model-parallel-size 0", "--pipeline-model-parallel-size", "at least 1"),
        ("--num-virtual-stages-per-pipeline-rank 0", "--num-virtual-stages-per-pipeline-rank", "at least 1"),
        ("--pipeline-model-parallel-size 32", "--pipeline-model-parallel-size", "do not divide"),
        ("--recompute-granularity some", "--recompute-granularity", "full or selective"),
        ("--recompute-granularity selective --recompute-modules mlp conv", "--recompute-modules", "not a module"),
        ("--account-for-loss-in-pipeline-split", "--account-for-loss-in-pipeline-split", "not priced"),
    ],
)
def test_what_cannot_be_read_or_priced_names_the_flag(text: str, field: str, words: str) -> None:
    """Nothing is guessed, and no value is taken from a script that contradicts itself."""
    with pytest.raises(InvalidInput) as raised:
        _launch(text)
    assert raised.value.field == field
    assert words in raised.value.problem


def test_variables_that_stand_for_each_other_end() -> None:
    """A text made to grow is refused for what is not a number, soon."""
    hostile = "\n".join(f"V{i}={f'$V{i + 1}' * 100}" for i in range(20)) + "\n--tensor-model-parallel-size $V0"
    with pytest.raises(InvalidInput):
        _launch(hostile)


NEMO = """NEMO_OVERRIDES=(
    model.num_layers=80
    train.micro_batch_size=2
    model.tensor_model_parallel_size=4
    model.pipeline_model_parallel_size=4
    model.virtual_pipeline_model_parallel_size=5
    model.recompute_granularity=null
    dist.use_tp_pp_dp_mapping=false
    ddp.use_distributed_optimizer={sharded}
)"""


def test_settings_of_nemo_are_read_by_their_names() -> None:
    """Dotted names, false and null; what a recipe does not say of its optimizer is what recipes do."""
    found = read_launch(NEMO.format(sharded="false"), layers=80, gpus=64).configuration
    assert (found.degrees.tensor, found.degrees.data, found.degrees.virtual_pipeline) == (4, 4, 5)
    assert (found.micro_batch_sequences, found.recompute, found.sharding) == (2, "none", "none")
    assert found.rank_order is RankOrder.DATA_BEFORE_PIPELINE
    yaml = "model:\n  tensor_model_parallel_size: 8\n  context_parallel_size: None\nmicro_batch_size: 1\n"
    bare = read_launch(yaml, layers=80, gpus=64).configuration
    assert (bare.degrees.tensor, bare.degrees.context, bare.sharding) == (8, 1, "optimizer")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--recompute-granularity selective --recompute-modules core_attn moe_act --bf16", "core_attn+moe_act"),
        ("model.recompute_granularity=selective model.recompute_modules=[layernorm,mlp]", "layernorm+mlp"),
        ('{"recompute_granularity": "selective", "recompute_modules": ["moe"], "seed": 1}', "moe"),
        ("recompute_granularity: selective\nrecompute_modules: null", ""),
        ("--recompute-granularity selective --recompute-modules core_attn", ""),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 3", "3"),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 80", ""),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", ""),
    ],
)
def test_recomputation_is_read_by_module_and_by_layer(text: str, words: str) -> None:
    """Modules named as Megatron-LM and NeMo take them, its default none, and layers of the method block."""
    configuration = _launch(text).configuration.to_configuration(replace(small_architecture(), layers=80))
    assert configuration.recomputation.partition(":")[2] == words


@pytest.mark.parametrize("recomputation", ["selective:layernorm+mlp", "full:1", "selective"])
@pytest.mark.parametrize("name", ["megatron", "nemo"])
def test_exported_recomputation_is_read_back(name: str, recomputation: str) -> None:
    """Modules and layers come back from the files for the plan, by the shorthand as well."""
    workload = replace(small_workload(), framework=frameworks()["megatron-bridge-25.09"])
    policy, modules, limit = read_recomputation(recomputation)
    own = replace(small_configuration(), recompute=policy, recompute_modules=modules, recompute_layers=limit)
    plan = replace(small_plan(), workload=workload, configuration=own)
    text = "\n".join(file.text for file in EXPORTS[name].files(plan))
    for given in (text, f"{own.degrees} mb{own.micro_batch} recompute={recomputation}"):
        assert configuration_in(given, plan).to_configuration(small_architecture()) == own


@pytest.mark.parametrize("name", ["megatron", "nemo"])
def test_an_exported_share_of_offloaded_states_is_read_back(name: str) -> None:
    """From the files for the plan, by the shorthand, and as Megatron-LM's default of all states."""
    workload = replace(small_workload(), framework=frameworks()["megatron-bridge-25.09"])
    own = replace(small_configuration(), optimizer_offload=35)
    plan = replace(small_plan(), workload=workload, configuration=own)
    text = "\n".join(file.text for file in EXPORTS[name].files(plan))
    other = replace(plan, configuration=small_configuration(), alternatives=())
    for given in (text, f"{own.degrees} mb{own.micro_batch} offload=35"):
        assert configuration_in(given, other).to_configuration(small_architecture()) == own
    bare = _launch("--optimizer-cpu-offload").configuration
    assert bare.optimizer_offload_percent == 100
    with pytest.raises(InvalidInput, match="between 0 and 1"):
        _launch("--optimizer-cpu-offload --optimizer-offload-fraction 35")


def test_layers_that_wait_are_read_from_launches() -> None:
    """A shorthand keeps those of the plan where nothing runs again and there is no pipeline."""
    degrees = Degrees(data=8)
    own = replace(
        small_configuration(), degrees=degrees, recompute=Recompute.NONE, stage_layers=((4,),), offloaded_layers=3
    )
    assert _launch("--cpu-offloading-num-layers 30").configuration.offloaded_layers == 30
    assert _launch("model.cpu_offloading_num_layers=30").configuration.offloaded_layers == 30
    plan = replace(small_plan(), configuration=own, alternatives=())
    assert read_shorthand("tp1 mb2", plan, gpus=8).offloaded_layers == 3
    assert read_shorthand("tp1 pp2", plan, gpus=8).offloaded_layers == 0
    assert read_shorthand("tp1 recompute=full", plan, gpus=8).offloaded_layers == 0


@pytest.mark.parametrize("name", ["megatron", "slurm", "jobset", "nemo"])
@pytest.mark.parametrize("layers", [((2, 2),), ((1, 3),), ((1, 1), (1, 1)), ((1, 0), (2, 1))])
def test_our_own_launch_files_say_the_plan(name: str, layers: tuple[tuple[int, ...], ...]) -> None:
    """The export of a plan, compared with it, is the plan."""
    workload = replace(small_workload(), framework=frameworks()["megatron-bridge-25.09"])  # knows any layout
    plan = replace(small_plan(layers=layers), workload=workload)
    export = EXPORTS[name]
    text = "\n".join(file.text for file in export.files(plan))
    assert configuration_in(text, plan).to_configuration(small_architecture()) == plan.configuration


def test_a_shorthand_takes_what_it_leaves_out_from_the_plan() -> None:
    """Data ranks from the GPUs, settings from the plan, layers from an alternative of these sizes."""
    plan = small_plan()
    found = read_shorthand("tp4 mb2 recompute=full", plan, gpus=8)
    assert (found.degrees.tensor, found.degrees.data, found.micro_batch_sequences) == (4, 2, 2)
    assert (found.recompute, found.sharding, found.stage_layers) == ("full", "optimizer", None)
    uneven = replace(plan, configuration=small_configuration(layers=((1, 3),)), alternatives=())
    assert read_shorthand("tp2 pp2", uneven, gpus=8).stage_layers == [[1, 3]]
    assert read_shorthand("tp2 pp2 recompute=none", uneven, gpus=8).stage_layers is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tp3", "do not divide 8"),
        ("tp2 offload=101", "in percent"),
        ("tp2 xx4", "neither a degree"),
        ("tp2 tp4", "two sizes"),
        ("tp2 recompute=ful", "not a policy"),
        ("tp2 recompute=selective:conv", "not a module"),
        ("mb0", "at least 1"),
        ("tp0", "at least 1"),
    ],
)
def test_a_wrong_shorthand_is_told(text: str, words: str) -> None:
    """Each word is a degree or a setting."""
    assert is_shorthand(text)
    with pytest.raises(InvalidInput, match=words):
        read_shorthand(text, small_plan(), gpus=8)


def test_a_launch_of_another_run_is_not_compared() -> None:
    """Step times of other batches say nothing about the plan's."""
    text = "--micro-batch-size 1 --tensor-model-parallel-size 2 --seq-length {} --global-batch-size 8"
    assert configuration_in(text.format(2048), small_plan()).degrees.data == 4
    with pytest.raises(InvalidInput, match="the plan is for 2048"):
        configuration_in(text.format(4096), small_plan())
    with pytest.raises(InvalidInput, match="holds no launch arguments"):
        configuration_in("python train.py", small_plan())


def test_groups_of_micro_batches_are_those_that_are_priced() -> None:
    """Nine micro-batches on two ranks pass in groups of three; Megatron-LM does not start unless it is told."""
    plan = small_plan(layers=((1, 1), (1, 1)))
    assert plan.workload is not None
    plan = replace(plan, workload=replace(plan.workload, global_batch=36))
    text = (
        "--micro-batch-size 1 --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 "
        "--num-layers-per-virtual-pipeline-stage 1 "
    )
    flag = "--microbatch-group-size-per-virtual-pipeline-stage"
    assert configuration_in(f"{text} {flag} 3", plan).degrees.virtual_pipeline == 2
    assert configuration_in(f"{text} model.microbatch_group_size_per_vp_stage=3", plan).degrees.data == 4
    for other in ("", f"{flag} 5"):
        with pytest.raises(InvalidInput, match="priced in groups of 3"):
            configuration_in(f"{text} {other}", plan)


def _other(step_s: float = 0.6, **changes: Any) -> Plan:
    """The small plan with a slower step, most of it for tensor parallel communication."""
    plan = small_plan()
    time = replace(plan.time, step_s=step_s, tensor_s=plan.time.tensor_s + step_s - plan.time.step_s)
    certificate = replace(plan.certificate, objective=step_s)
    per_s = plan.tokens_per_s * plan.time.step_s / step_s
    return replace(plan, time=time, certificate=certificate, tokens_per_s=per_s, **changes)


def _report(other: Plan, budget: Budget | None = None) -> ComparisonReport:
    plan = small_plan()
    return comparison_report(plan, standings(plan, [Contender("ours", other)]), budget or Budget())


def test_a_comparison_says_what_is_gained_and_lost() -> None:
    """The difference with its parts, how sure it is, and which is the better one in truth."""
    (standing,) = standings(small_plan(), [Contender("ours", _other())])
    found = standing.comparison
    assert found.objective_ratio == pytest.approx(1.2)
    assert found.ratio_low < 1.2 < found.ratio_high
    assert found.chance_better < 0.5
    ((name, sentences),) = _report(_other()).verdicts
    assert name == "ours"
    assert sentences[0] == (
        "20.00 % slower a step than the plan (+100.0 ms): tensor parallel communication +100.0 ms."
    )


def test_more_doublings_apart_predictions_tell_less() -> None:
    """The same difference of two predictions is surer between configurations alike."""
    far = replace(small_configuration().degrees, tensor=1, pipeline=1, data=8)
    distant = _other(configuration=replace(small_configuration(), degrees=far))
    near, wide = (standings(small_plan(), [Contender("x", each)])[0].comparison for each in (_other(), distant))
    assert wide.ratio_high / wide.ratio_low > near.ratio_high / near.ratio_low
    assert wide.chance_better > near.chance_better


def test_another_number_of_gpus_is_weighed() -> None:
    """A shorter step on twice the GPUs may cost more: 0.4 s x 16 against 0.5 s x 8."""
    wide = replace(small_configuration(), degrees=replace(small_configuration().degrees, data=4))
    ((_, sentences),) = _report(_other(0.4, configuration=wide)).verdicts
    assert sentences[1] == "It runs on 16 GPUs, the plan on 8: 60.0 % more GPU time a step."


def test_one_that_does_not_fit_is_told_so_first() -> None:
    """A step time of what runs out of memory is no reason to take it."""
    plan = small_plan()
    fuller = tuple(replace(each, activations_bytes=each.activations_bytes + 20 * GIB) for each in plan.memory)
    ((_, sentences),) = _report(_other(0.4, memory=fuller)).verdicts
    assert sentences[0] == "Does not fit: its fullest GPU misses 8.5 GiB."


def test_the_whole_run_is_priced() -> None:
    """Days from tokens, dollars from the price: 16,384 tokens in 0.5 s and in 0.6 s on 8 GPUs."""
    report = _report(_other(), Budget(tokens=2048 * 8 * 2 * 86400 * 10, usd_per_gpu_hour=2.5))
    rows = {row.name: row.values for table in report.tables for row in table.rows}
    assert rows["whole run"] == ("10.0 days", "12.0 days")
    assert rows["whole run, USD"] == ("4,800", "5,760")
    assert "2.0 days longer and 960 USD dearer" in report.verdicts[0][1][-1]


def test_the_configuration_of_the_plan_sits_where_the_plan_has_placed_it() -> None:
    """Settings that are equal differ in nothing, however well another placement is searched for."""
    plan, architecture = small_plan(), small_architecture()
    snapshot = make_snapshot(small_cluster(), small_samples())
    problem = PlanningProblem(snapshot, architecture, small_workload())
    document = ConfigurationDocument.from_value(plan.configuration)
    assert priced(problem, document, plan) is plan
    moved = document.model_copy(update={"hosts": ["a", "b"], "gpus_per_node": 4})
    assert priced(problem, moved, plan).placement.hosts == ("a", "b")


def test_another_model_or_batch_is_refused() -> None:
    """Nothing can be said about plans of different work."""
    with pytest.raises(InvalidInput, match="the plan is for the model tiny-4"):
        _report(_other(model="other"))
    workload = small_plan().workload
    assert workload is not None
    with pytest.raises(InvalidInput, match="the plan is for 2048"):
        _report(_other(workload=replace(workload, sequence_length=4096)))


def test_predictions_that_were_not_made_alike_are_marked() -> None:
    """The interval of a ratio holds for one snapshot and one framework only."""
    elsewhere = replace(small_plan().provenance, snapshot_id="other")
    ((_, sentences),) = _report(_other(provenance=elsewhere)).verdicts
    assert sentences[-1] == "Not made alike, so compare with care: snapshot of the cluster."


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_printed_parts_add_up_to_the_printed_step(scale: float) -> None:
    """Nine parts that each lose almost half of a last digit."""
    values = [1.0049, 0.0149, 0.0249, 0.0049, 0.0349, 0.0049, 0.0049, 0.0149, 0.0049]
    parts = rounded_parts(TimeBreakdown(sum(values), *values), scale, 2)
    assert sum(parts[part] for part in TIME_PARTS) == pytest.approx(parts["step_s"], abs=1e-9)
    exact = dict(zip(TIME_PARTS, values, strict=True))
    assert all(abs(parts[part] - exact[part] * scale) < 0.01 for part in TIME_PARTS)


@pytest.mark.parametrize(("text", "tokens"), [("15T", 15e12), ("300 b", 3e11), ("1.5e12", 1.5e12), ("1,000", 1e3)])
def test_tokens_are_read_as_people_write_them(text: str, tokens: float) -> None:
    """Trillions and billions, with or without a letter."""
    assert token_count(text, field="--tokens") == tokens


@pytest.mark.parametrize("text", ["", "many", "-3B", "0", "15Q", "1e99", "1" * 500_000 + "x"], ids=len)
def test_what_is_no_number_of_tokens_is_refused(text: str) -> None:
    """The field is named; at once, for a form takes a megabyte of digits."""
    with pytest.raises(InvalidInput, match="--tokens"):
        token_count(text, field="--tokens")
