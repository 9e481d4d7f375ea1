"""Launch files start what was priced, by the release of the plan's generation, or say what they cannot."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.exports.contract import check_files
from app.exports.launch_value import launch_of
from app.exports.options import options_of
from app.exports.readback.megatron import pattern_of
from cluster_models.cluster.gpus import Precision
from cluster_models.errors import InvalidConfiguration, InvalidInput
from cluster_models.training.framework_choices import CudaGraphs, ExpertDispatch, Float8Scaling
from cluster_models.training.layer_splits import LayerSplit, can_launch, split_of
from cluster_models.training.plan import Degrees, Plan
from cluster_models.training.run_settings import RunSettings
from tests.app.exports.plans import PLANS, export, shaped, text_of, under

LAUNCHERS = ("torchrun", "torchrun-nodes", "slurm", "slurm-hostfile", "openmpi", "jobset", "kueue", "volcano")
LAUNCHERS += ("lws", "trainjob")


def on(plan: Plan, kind: str) -> Plan:
    """The plan with all stages on GPUs of this kind."""
    return replace(plan, stages=tuple(replace(stage, gpu_kind=kind) for stage in plan.stages))


DATA = shaped(Degrees(data=8), ((6,),))
TENSOR, SHARDS = PLANS["dense"], PLANS["shards"]
ALONE = shaped(Degrees(tensor=1, context=2, data=4), ((6,),))
NEWER = "megatron-core-0.15"


@pytest.mark.parametrize(
    ("plan", "kind", "framework", "count"),
    [
        (TENSOR, "H100-SXM5-80GB", "megatron-core-0.12", "1"),
        (ALONE, "H100-SXM5-80GB", NEWER, "1"),
        (TENSOR, "MI300X", "megatron-core-0.12", "1"),
        (DATA, "H100-SXM5-80GB", "megatron-core-0.12", ""),
        (DATA, "H100-SXM5-80GB", "megatron-core-0.8", "1"),
        (TENSOR, "B200-SXM-180GB", "megatron-core-0.12", "1"),
        (ALONE, "B200-SXM-180GB", "megatron-core-0.12", "32"),
        (TENSOR, "B200-SXM-180GB", NEWER, "32"),
        (SHARDS, "H100-SXM5-80GB", NEWER, ""),
        (PLANS["whole model"], "H100-SXM5-80GB", "megatron-bridge-26.06", "32"),
        (TENSOR, "H100-SXM5-80GB", "torchtitan-2025", ""),
    ],
)
@pytest.mark.parametrize("name", LAUNCHERS)
def test_hardware_queues_are_those_that_the_framework_demands(
    name: str, plan: Plan, kind: str, framework: str, count: str
) -> None:
    """``validate_args`` would stop at once, or kernels would wait for each other."""
    text = text_of(name, on(under(plan, framework), kind))
    said = "value: " in text and count and "CUDA_DEVICE_MAX_CONNECTIONS\n" in text and f'value: "{count}"' in text
    assert (
        (f"CUDA_DEVICE_MAX_CONNECTIONS={count}" in text or said)
        if count
        else ("CUDA_DEVICE_MAX_CONNECTIONS=" not in text and "CUDA_DEVICE_MAX_CONNECTIONS\n" not in text)
    )


def test_megatron_fsdp_unsets_the_queues_of_its_caller() -> None:
    """A shell that has 1 from another job would make it stop."""
    assert "unset CUDA_DEVICE_MAX_CONNECTIONS" in text_of("slurm", under(SHARDS, NEWER))


@pytest.mark.parametrize(
    ("rows", "split"),
    [
        (((3, 3), (3, 3)), LayerSplit.EVEN),
        (((2, 3, 3, 4),), LayerSplit.ENDS),
        (((2, 3), (2, 3)), LayerSplit.ENDS),
        (((1, 2), (2, 1)), LayerSplit.LESS_ENDS),
        (((2, 3), (3, 3)), LayerSplit.LESS_ENDS),
        (((3, 3), (3, 1)), LayerSplit.ANY),
        (((3, 4, 3, 3),), LayerSplit.ANY),
        (((5, 0, 6, 7),), LayerSplit.ANY),
        (((0, 3, 3),), LayerSplit.ANY),
    ],
)
def test_splits_are_known_by_the_easiest_way_to_launch_them(rows: Any, split: LayerSplit) -> None:
    """Splits that 0.12 has arguments for are told apart from those that need a layout."""
    assert split_of(rows) is split
    plan = under(DATA, "megatron-core-0.12")
    assert plan.workload is not None
    assert can_launch(plan.workload.framework, rows) == (split is not LayerSplit.ANY)
    newer = under(DATA, NEWER).workload
    assert newer is not None
    assert can_launch(newer.framework, rows)


@pytest.mark.parametrize("name", ["megatron", *LAUNCHERS])
def test_a_split_that_a_release_cannot_be_told_is_refused_with_one_that_can(name: str) -> None:
    """0.12 has no layouts: the sentence names the generation that has."""
    with pytest.raises(InvalidConfiguration, match=r"0\.12 cannot take it.*layouts came with 0\.13.*bridge-25\.09"):
        export(name).files(under(PLANS["any stages"], "megatron-core-0.12"))


def test_older_arguments_say_the_same_stages() -> None:
    """Ends of their own before layouts; the wrong number is found."""
    uneven = text_of("megatron", PLANS["uneven"])
    assert "--decoder-first-pipeline-num-layers 2\n    --decoder-last-pipeline-num-layers 2\n" in uneven
    assert "layout" not in uneven
    virtual = text_of("megatron", PLANS["uneven virtual"])
    for flag in ("account-for-embedding", "account-for-loss", "num-virtual-stages-per-pipeline-rank 2"):
        assert f"--{flag}" in virtual
    both = shaped(Degrees(pipeline=2, data=4, virtual_pipeline=2), ((1, 3), (1, 3)))
    (file,) = export("megatron").files(both)
    assert "--decoder-first-pipeline-num-layers 2\n" in file.text
    wrong = replace(file, text=file.text.replace("first-pipeline-num-layers 2", "first-pipeline-num-layers 6"))
    with pytest.raises(InvalidConfiguration, match="stage_layers"):
        check_files(export("megatron"), (wrong,), launch_of(both))


def test_files_say_what_the_planner_chose() -> None:
    """Switches of a plan stand above those of its framework."""
    plan = under(PLANS["experts"], "megatron-core-0.15")
    chosen = RunSettings(True, None, CudaGraphs.PARTIAL, ExpertDispatch.DEEPEP)
    switched = replace(plan, configuration=replace(plan.configuration, settings=chosen))
    for words in ("--tp-comm-overlap", "--cuda-graph-impl transformer_engine", "--moe-enable-deepep"):
        assert (words in text_of("megatron", switched), words in text_of("megatron", plan)) == (True, False)


def test_what_the_planner_switched_off_is_said_to_recipes_that_have_it_on() -> None:
    """Bridge's recipes overlap tensor ranks unless they are told; a printed page names what was chosen."""
    plan = under(PLANS["experts"], "megatron-bridge-26.06")
    off = RunSettings(overlap_tensor=False, expert_overlap=False)
    without = replace(plan, configuration=replace(plan.configuration, settings=off, optimizer_offload=100))
    for field in ("comm_overlap.tp_comm_overlap", "comm_overlap.overlap_moe_expert_parallel_comm"):
        assert f"{field}=false" in text_of("nemo", without)
        assert f"{field}=false" not in text_of("nemo", plan)
    assert "overlap tensor off, expert overlap off" in text_of("report", without)
    assert "<td>100 %</td>" in text_of("report", without)


def test_what_a_release_lacks_is_said_or_refused() -> None:
    """Kernels are left out with a sentence; another model would be trained without sharding or formats."""
    graphs = under(PLANS["experts"], "megatron-core-0.12", cuda_graphs=CudaGraphs.FULL)
    text = text_of("megatron", graphs)
    assert (
        "Priced, and not told to Megatron-Core 0.12: a fused router (--moe-router-fusion came with 0.14)." in text
    )
    assert "not told to Megatron-Core 0.12: CUDA graphs (full), which came with 0.14." in text
    assert "cuda-graph" not in text
    windowed = text_of("megatron", under(PLANS["whole model"], "megatron-core-0.12"))
    assert windowed.count("attention within a window") == 1
    assert "--window" not in windowed.partition("MEGATRON_ARGS")[2]
    hybrid = under(PLANS["experts"], "megatron-bridge-25.09", expert_dispatch=ExpertDispatch.HYBRIDEP)
    assert "--moe-enable-deepep" in text_of("megatron", hybrid)
    assert "hybridep, which came with 0.16 (deepep stands for it)" in text_of("megatron", hybrid)
    assert "hybridep, which came with 0.16 (deepep stands for it)" in text_of("nemo", hybrid)
    for plan in (under(SHARDS, "megatron-core-0.8"), in_precision(DATA, Precision.NVFP4)):
        with pytest.raises(InvalidConfiguration, match="plan with framework"):
            export("megatron").files(plan)


def in_precision(plan: Plan, precision: Precision) -> Plan:
    """The plan with products of this format."""
    assert plan.workload is not None
    return replace(plan, workload=replace(plan.workload, precision=precision))


@pytest.mark.parametrize("name", LAUNCHERS)
def test_experts_and_widths_reach_every_launcher(name: str) -> None:
    """Without them Megatron trains with two experts a token, one product after the other, whatever was priced."""
    words = text_of(name, PLANS["whole model"]).split()
    for flag, value in (
        ("--moe-router-topk", "3"),
        ("--hidden-size", "1024"),
        ("--moe-ffn-hidden-size", "512"),
        ("--moe-shared-expert-intermediate-size", "1024"),
        ("--moe-flex-dispatcher-backend", "hybridep"),
        ("--hidden-dropout", "0.0"),
    ):
        assert words[words.index(flag) + 1] == value
    switches = {"--moe-grouped-gemm", "--moe-permute-fusion", "--overlap-moe-expert-parallel-comm"}
    assert switches <= set(words)


def test_deferred_gradients_of_the_head_have_their_limit() -> None:
    """Without it every micro-batch would keep its logits until the flush."""
    plan = under(TENSOR, "nemo-25.04")
    assert "--wgrad-deferral-limit 22" in text_of("megatron", plan)
    assert "comm_overlap.wgrad_deferral_limit=22" in text_of("nemo", plan)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("megatron", "--microbatch-group-size-per-virtual-pipeline-stage 3\n"),
        ("nemo", "model.microbatch_group_size_per_vp_stage=3\n"),
    ],
)
def test_groups_of_micro_batches_are_said_where_ranks_do_not_divide_them(name: str, said: str) -> None:
    """Five micro-batches on two ranks would not start without; another size is another schedule."""
    plan = PLANS["larger groups"]
    text = text_of(name, plan)
    assert said in text
    assert said.split("3", maxsplit=1)[0] not in text_of(name, PLANS["virtual"])
    files = export(name).files(plan)
    for other in (said.replace("3", "4"), "\n"):
        spoilt = tuple(replace(file, text=file.text.replace(said, other)) for file in files)
        with pytest.raises(InvalidConfiguration, match="micro_batch_group"):
            check_files(export(name), spoilt, launch_of(plan))


def test_bridge_is_told_what_was_priced() -> None:
    """Graphs, loss, scaling, overlap: none of them is on by itself in every recipe."""
    plan = under(in_precision(PLANS["whole model"], Precision.FP8), "megatron-bridge-26.02", expert_overlap=True)
    plan = under(plan, "megatron-bridge-26.02", expert_overlap=True, cuda_graphs=CudaGraphs.PARTIAL)
    text = text_of("nemo", plan)
    for line in (
        "mixed_precision=bf16_with_fp8_current_scaling_mixed",
        '"model.cuda_graph_scope=[attn,moe_router,moe_preprocess]"',
        "model.cuda_graph_impl=transformer_engine",
        "comm_overlap.tp_comm_overlap=true",
        "comm_overlap.overlap_moe_expert_parallel_comm=true",
        "model.cross_entropy_fusion_impl=te",
        "model.moe_router_topk=3",
    ):
        assert f"    {line}\n" in text
    assert "Priced as" not in text
    assert "Priced as megatron-core-0.12; fields are those of Bridge" in text_of("nemo", TENSOR)


@pytest.mark.parametrize(
    ("scaling", "recipe", "bridge"),
    [
        (Float8Scaling.DELAYED, "", "bf16_with_fp8_delayed_scaling_mixed"),
        (Float8Scaling.CURRENT, "--fp8-recipe tensorwise", "bf16_with_fp8_current_scaling_mixed"),
        (Float8Scaling.BLOCK, "--fp8-recipe blockwise", "bf16_with_fp8_subchannel_scaling_mixed"),
        (Float8Scaling.ROW, "not told to", "Priced, and not told to Bridge: one scale for each row"),
    ],
)
def test_tensors_of_fp8_are_scaled_as_priced(scaling: Float8Scaling, recipe: str, bridge: str) -> None:
    """Delayed scaling is Megatron's default; scales of rows it lacks, and says so."""
    plan = under(in_precision(TENSOR, Precision.FP8), "megatron-bridge-26.02", float8_scaling=scaling)
    megatron = text_of("megatron", plan)
    assert recipe in megatron
    assert ("--fp8-recipe" in megatron) == recipe.startswith("--fp8-recipe")
    assert bridge in text_of("nemo", plan)


def test_nemo_is_not_given_gpus_of_another_maker() -> None:
    """A plan on AMD's GPUs says so; Megatron-LM itself runs there."""
    with pytest.raises(InvalidConfiguration, match=r"NVIDIA's GPUs only .got 'AMD'"):
        export("nemo").files(on(TENSOR, "MI300X"))
    assert export("megatron").files(on(TENSOR, "MI300X"))


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_plan_for_another_framework_is_not_started_with_arguments_of_megatron(name: str) -> None:
    """Its command must be its own; the default script is Megatron's and is not taken for it."""
    plan = under(DATA, "torchtitan-2025")
    text = text_of(name, plan)
    assert "--num-layers" not in text
    assert "pretrain_gpt.py" not in text
    assert "Priced as torchtitan-2025, whose own arguments must be part of the command" in text
    assert "train.py --module llama3" in text_of(name, plan, command=("train.py", "--module", "llama3"))


@pytest.mark.parametrize(
    ("name", "file", "framework", "problem"),
    [
        ("torchrun", "torchrun.sh", "megatron-core-0.12", "CHECKPOINT_PATH is empty"),
        ("slurm", "slurm.sh", "megatron-core-0.12", "CHECKPOINT_PATH is empty"),
        ("slurm-hostfile", "slurm_hostfile.sh", "megatron-core-0.12", "CHECKPOINT_PATH is empty"),
        ("openmpi", "mpirun.sh", "megatron-core-0.12", "CHECKPOINT_PATH is empty"),
        ("torchrun", "torchrun.sh", "torchtitan-2025", "TRAIN_COMMAND is empty"),
        ("openmpi", "mpirun.sh", "torchtitan-2025", "TRAIN_COMMAND is empty"),
    ],
)
def test_scripts_stop_at_an_empty_place_in_one_line(
    name: str, file: str, framework: str, problem: str, tmp_path: Path
) -> None:
    """Before any rank starts, with exit code 2."""
    for each in export(name).files(under(DATA, framework)):
        (tmp_path / each.name).write_text(each.text)
    done = subprocess.run(
        ["bash", file], cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(problem)
    assert done.stderr.count("\n") == 1


def test_pods_and_pasted_lines_stop_at_an_empty_place() -> None:
    """Their command is one line of bash, which refuses by itself."""
    (file,) = export("torchrun-nodes").files(DATA)
    line = file.text.splitlines()[-1].replace("CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun", "echo")
    for given, code in (({}, 127), ({"CHECKPOINT_PATH": "/x"}, 0)):
        done = subprocess.run(["bash", "-c", line], env=given, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == (code == 0)
        assert ("CHECKPOINT_PATH: is empty" in done.stderr) == (code != 0)
    assert "CHECKPOINT_PATH" not in text_of("torchrun-nodes", DATA, checkpoint="/shared/run-7")
    assert "CHECKPOINT_PATH\n                      value: /shared/run-7" in text_of(
        "jobset", DATA, checkpoint="/shared/run-7"
    )


def pods(tree: Any) -> list[Any]:
    """Every pod spec below a tree."""
    if isinstance(tree, list):
        return [pod for item in tree for pod in pods(item)]
    if not isinstance(tree, dict):
        return []
    return [tree] if "containers" in tree else [pod for value in tree.values() for pod in pods(value)]


@pytest.mark.parametrize("name", ["jobset", "volcano", "lws", "kueue", "trainjob"])
def test_pods_get_network_devices_and_locked_memory(name: str) -> None:
    """RDMA needs the device, the right to lock memory and room to share; the GPUs stay what they were."""
    plain = text_of(name, DATA)
    assert "without one (option rdma_resource) hosts may talk over TCP" in plain
    options = {"rdma_resource": "rdma/hca", "rdma_count": "8", "shared_memory": "64Gi", "host_network": "yes"}
    files = export(name).files(DATA, options_of(options))
    found = [pod for file in files for document in yaml.safe_load_all(file.text) for pod in pods(document)]
    assert found
    for pod in found:
        (container,) = pod["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": 4, "rdma/hca": 8}
        assert container["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
        assert pod["hostNetwork"] is True
        assert pod["volumes"] == [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}]
    assert "IPC_LOCK" not in text_of(name, DATA, rdma_resource="rdma/hca", ipc_lock=False)


def test_slurm_gives_ranks_their_cores() -> None:
    """No rank is bound to the one core that Slurm gives a task by itself."""
    for name, cores in (("slurm", 48), ("slurm-hostfile", 12)):
        plain = text_of(name, DATA)
        assert "srun " in plain
        assert "--cpu-bind=none " in plain
        assert "#SBATCH --cpus-per-task" not in plain
        asked = text_of(name, DATA, cpus_per_gpu=12, cpu_bind="cores")
        assert f"#SBATCH --cpus-per-task={cores}\n" in asked
        assert "--cpu-bind=cores " in asked
    assert "#SBATCH --cpus-per-task=2\n" in text_of("slurm", PLANS["beside others"])


def test_patterns_of_layers_are_read_strictly() -> None:
    """Runs of 0 and 1 only."""
    assert pattern_of("([0]*1+[1]*2)") == (False, True, True)
    for text in ("", "[0]*1", "([0]*1+[1])", "([2]*1)"):
        with pytest.raises(InvalidConfiguration):
            pattern_of(text)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("checkpoint", "a b"),
        ("checkpoint", "$(id)"),
        ("rdma_resource", "nvidia.com/gpu"),
        ("rdma_count", "0"),
        ("shared_memory", "much"),
        ("host_network", "maybe"),
        ("cpus_per_gpu", "-1"),
        ("cpu_bind", ""),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(option: str, text: str) -> None:
    """One sentence with the name of the option."""
    with pytest.raises(InvalidInput, match=f"options.{option}"):
        options_of({option: text})
