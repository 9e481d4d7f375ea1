"""Reading rows of measured steps: own look-alike rows, none of the gathered ones."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.published import read_run
from benchmarks.published_frameworks import LINES, generation_month, source_month
from benchmarks.published_layouts import layout_counts, spread_layers
from benchmarks.rows import Skipped
from cluster_models.cluster.gpus import Precision
from cluster_models.training.framework_choices import CudaGraphs, ExpertDispatch, Float8Scaling
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK, frameworks
from cluster_models.training.optimizer_states import FULL_STATES, MasterFormat, MomentFormat, OptimizerStates
from cluster_models.training.workload import Recompute, RecomputeModule, Sharding

ROW = {
    "id": "L1",
    "source": "NVIDIA-NeMo/Megatron-Bridge, made up for a test, NeMo 25.11",
    "model_name": "llama3-8b",
    "family": "dense",
    "layers": "32",
    "hidden": "4096",
    "heads": "32",
    "kv_heads": "8",
    "ffn_hidden": "14336",
    "gated_mlp": "1",
    "vocab": "128256",
    "seq_len": "8192",
    "gpu": "H100",
    "gpus_per_node": "8",
    "num_gpus": "64",
    "interconnect": "NVLink4; 400 Gb/s/GPU IB NDR",
    "precision": "bf16",
    "tp": "2",
    "pp": "4",
    "cp": "1",
    "ep": "1",
    "vpp": "2",
    "dp": "8",
    "zero": "dist-opt",
    "sequence_parallel": "1",
    "micro_batch": "1",
    "global_batch": "128",
    "recompute": "none",
    "iter_time_s": "2.0",
    "notes": "",
}
SPARSE = {"experts": "64", "topk": "6", "moe_ffn_hidden": "1408", "moe_layers": "32", "ep": "8"}


def read(**cells: Any) -> Any:
    """The look-alike row with some cells changed."""
    return read_run(ROW | {name: str(value) for name, value in cells.items()})


def test_a_row_that_says_everything_assumes_nothing() -> None:
    """Degrees, batch and hardware are those of the row."""
    run = read()
    assert run.assumed == ()
    assert str(run.configuration.degrees) == "tp2 pp4 dp8 vpp2"
    assert (run.gpu.name, run.network_bytes_per_s, run.fabric) == ("H100-SXM5-80GB", 50e9, "infiniband")
    assert run.workload.framework.name == "megatron-bridge-25.11"
    assert run.step_s == 2.0


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("vocab", "vocabulary 128256"),
        ("heads", "attention heads 32"),
        ("kv_heads", "key and value heads 32"),
        ("tp", "tensor degree 1"),
        ("pp", "pipeline degree 1"),
        ("cp", "context degree 1"),
        ("vpp", "virtual stages 1"),
        ("sequence_parallel", "sequence parallelism True"),
        ("seq_len", "sequence length 2048"),
        ("micro_batch", "micro-batch"),
        ("global_batch", "global batch"),
        ("recompute", "recomputation none"),
        ("zero", "sharding optimizer"),
        ("interconnect", "network 400 Gb/s per GPU"),
        ("gpus_per_node", "GPUs per node 8"),
        ("precision", "precision bf16"),
        ("gated_mlp", "gated MLP True"),
        ("ffn_hidden", "MLP width"),
    ],
)
def test_what_is_left_open_is_assumed_and_said(column: str, words: str) -> None:
    """An empty cell takes a default, and the run says which."""
    run = read(**{column: ""})
    assert any(note.startswith(words) for note in run.assumed), run.assumed


def test_an_unknown_framework_is_the_default_one_and_said() -> None:
    """Text that names no known framework is not a failure."""
    run = read(source="a blog of somebody")
    assert run.workload.framework.name == DEFAULT_FRAMEWORK.name
    assert any("not recognised" in note for note in run.assumed)


@pytest.mark.parametrize(
    ("source", "cells", "name"),
    [
        ("somebody/axolotl, 2025-06", {"zero": "3"}, "transformers-2025"),
        ("somebody/OLMo-core, 2025-08", {"zero": "hsdp"}, "torchtitan-2025"),
        ("a cluster's report of 2025-10", {"zero": "fsdp"}, "torchtitan-2025"),
        ("a paper, arXiv 2402.15627", {"zero": "2"}, "megatron-lm-3"),
        ("ROCm/Primus, 2025-09", {}, "megatron-core-0.12"),
        ("NVIDIA/dgxc-benchmarking v26.05 llama3.1", {}, "megatron-bridge-26.04"),
        ("NVIDIA/dgxc-benchmarking v25.12 grok1", {}, "nemo-25.04"),
        ("NVIDIA/dgxc-benchmarking v26.02 deepseek_v3/pretrain/torchtitan", {"zero": "fsdp"}, "torchtitan-2025"),
    ],
)
def test_a_strange_framework_is_taken_for_what_it_resembles(source: str, cells: dict[str, str], name: str) -> None:
    """By its name, else by its sharding and date; the run says that it was guessed."""
    assert read(source=source, **cells).workload.framework.name == name


def test_settings_that_a_row_leaves_out_are_those_of_its_recipe() -> None:
    """Found by release, GPU, precision and degrees; what the row prints wins, and other degrees have none."""
    cells = {
        "source": "NVIDIA-NeMo/Megatron-Bridge, made up, NeMo 26.04", "model_name": "deepseek-v3", "layers": "61",
        "gpu": "GB200", "gpus_per_node": "4", "num_gpus": "256", "precision": "mxfp8", "global_batch": "2048",
        "tp": "1", "pp": "4", "vpp": "4", "dp": "64", "ep": "64", "recompute": "",
        "moe_layers": "58", "experts": "256", "topk": "8", "moe_ffn_hidden": "2048",
    }  # fmt: skip
    departures: tuple[dict[str, str], ...] = ({}, {"notes": "MoE dispatcher deepep"}, {"vpp": "2"})
    found, printed, other = (read(**cells | more) for more in departures)
    assert found.workload.framework.cuda_graphs is CudaGraphs.PARTIAL
    assert any(note.startswith("settings") for note in found.assumed)
    assert printed.workload.framework.expert_dispatch is ExpertDispatch.DEEPEP
    assert printed.workload.framework.cuda_graphs is other.workload.framework.cuda_graphs is CudaGraphs.NONE


@pytest.mark.parametrize(
    ("gpu", "pipeline", "module", "layers"),
    [
        ("H100", 8, RecomputeModule.MLA_UP_PROJECTION, (7, 8, 8, 8, 8, 8, 8, 6)),
        ("GB200", 4, RecomputeModule.CORE_ATTENTION, (15, 16, 16, 14)),
    ],
)
def test_recipes_of_nemo_say_what_runs_again_and_where_layers_lie(
    gpu: str, pipeline: int, module: RecomputeModule, layers: tuple[int, ...]
) -> None:
    """DeepSeek-V3 in launch scripts for NeMo 25.04: other modules on each GPU, short first and last stages."""
    run = read(
        source="NVIDIA/dgxc-benchmarking v25.05.05, made up", model_name="deepseek-v3", layers=61, gpu=gpu,
        gpus_per_node=8 if gpu == "H100" else 4, num_gpus=512, global_batch=4096, tp=2, pp=pipeline, vpp=1,
        dp=256 // pipeline, ep=64, experts=256, topk=8, moe_ffn_hidden=2048, moe_layers=58, recompute="",
    )  # fmt: skip
    assert run.configuration.recompute_modules == {module}
    assert run.configuration.stage_layers == (layers,)


def test_narrow_moments_are_read() -> None:
    """From the notes, or the recipe of the model; a run under FSDP has none, one in 8 bits no remainders."""
    notes = "tests; bf16 Adam moments (precision-aware)"
    narrow = OptimizerStates(MomentFormat.BF16, MomentFormat.BF16, MasterFormat.REMAINDER)
    assert read(notes=notes).workload.optimizer_states == narrow
    assert read(model_name="deepseek-v3").workload.optimizer_states == narrow
    in_8_bits = read(notes=notes, precision="fp8").workload.optimizer_states
    assert in_8_bits.master_weight is MasterFormat.FP32
    for cells in ({"notes": notes, "zero": "fsdp", "pp": "1", "dp": "32", "vpp": "1"}, {}):
        assert read(**cells).workload.optimizer_states == FULL_STATES


def test_an_unknown_gpu_is_skipped_with_the_reason() -> None:
    """Nothing can be said about a GPU without a data sheet."""
    with pytest.raises(Skipped, match="data sheet"):
        read(gpu="Abacus 3000")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("A100-80", "A100-SXM4-80GB"),
        ("A100-40", "A100-SXM4-40GB"),
        ("H100-96(HBM2e,500W)", "H100-SXM5-96GB-HBM2e"),
        ("GH200-96", "GH200-96GB"),
        ("RTX-3090", "RTX 3090"),
        ("H200", "H200-SXM-141GB"),
        ("MI300X", "MI300X"),
    ],
)
def test_kinds_are_found_as_tables_write_them(written: str, name: str) -> None:
    """Sizes and brackets behind the name do not matter where they say nothing new."""
    assert read(gpu=written).gpu.name == name


def test_every_kind_of_a_mix_must_know_the_precision() -> None:
    """The one that does not is named."""
    with pytest.raises(Skipped, match="T4 has no peak for bf16"):
        read(gpu="H100 x48 + T4-16 x16")


def test_several_gpu_kinds_keep_their_rank_order() -> None:
    """The mix is priced by group; the most frequent kind stands for the whole."""
    run = read(gpu="H100 x48 + A100-80 x16")
    assert [(group.gpu.name, group.gpus) for group in run.groups] == [
        ("H100-SXM5-80GB", 48),
        ("A100-SXM4-80GB", 16),
    ]
    assert run.gpu.name == "H100-SXM5-80GB"
    assert any("rank order" in note for note in run.assumed)


@pytest.mark.parametrize(
    ("written", "share", "flow", "fabric", "measured"),
    [
        ("4x100 Gb/s Omni-Path per node = 50 Gb/s/GPU", 50, 100, "omni-path", False),
        ("50 Gb/s node-to-node (AWS)", 6.25, 50, "tcp", False),
        ("nodes 10 Gb/s inter/170 Gb/s intra", 1.25, 10, "infiniband", False),
        ("Omni-Path, measured 16-node all-reduce 20-45 Gb/s", 3.75, 30, "omni-path", True),
        ("slow Ethernet (bandwidth not in file)", 1.25, 10, "tcp", False),
        ("200 Gb/s per GPU (Slingshot-11)", 200, 200, "slingshot", False),
        ("8x200 Gb/s HDR IB per node", 200, 200, "infiniband", False),
    ],
)
def test_networks_are_read_as_they_are_written(
    written: str, share: float, flow: float, fabric: str, *, measured: bool
) -> None:
    """Per GPU, per node, several cards, and measured instead of nominal."""
    run = read(interconnect=written)
    assert run.network_bytes_per_s == pytest.approx(share * 1e9 / 8)
    assert run.flow_bytes_per_s == pytest.approx(flow * 1e9 / 8)
    assert (run.fabric, run.network_measured) == (fabric, measured)


@pytest.mark.parametrize(
    ("written", "precision"),
    [("fp8-cs", Precision.FP8), ("fp8_mx", Precision.MXFP8), ("BF16", Precision.BF16), ("float16", Precision.FP16)],
)
def test_precisions_are_found_as_they_are_written(written: str, precision: Precision) -> None:
    """Case, dashes and scaling recipes."""
    assert read(precision=written, gpu="GB200").workload.precision is precision


def test_experts_without_a_stated_degree_take_as_many_ranks_as_share_them_out() -> None:
    """64 experts over 16 ranks of a stage."""
    run = read(**SPARSE | {"ep": ""})
    assert run.configuration.degrees.expert == 16
    assert run.architecture.experts.count == 64


def test_degrees_that_do_not_divide_the_gpus_are_kept_and_the_gpus_corrected() -> None:
    """The stated data degree wins."""
    run = read(num_gpus=100)
    assert run.configuration.degrees.gpus == 64
    assert any(note.startswith("GPUs 64") for note in run.assumed)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("mlcommons/training_results_v4.1 Somebody/results/x_ngc24.09_nemo", "mlperf-4"),
        ("mlcommons/training_results_v3.1 Somebody/results/y", "nemo-23.09"),
        ("NVIDIA/NeMo performance summary, NeMo 24.05", "nemo-24.07"),
        ("NVIDIA/dgxc-benchmarking v25.02.02 some/README.md", "nemo-25.02"),
        ("Megatron-Bridge performance, NeMo 26.04.01", "megatron-bridge-26.04"),
        ("Megatron-Bridge performance, NeMo 27.10", list(frameworks())[-1]),
        ("arXiv 2104.04473 Table 9", "megatron-lm-2"),
        ("Megatron-LM README of May 2023", "megatron-lm-3"),
        ("Megatron-LM core r0.8", "megatron-core-0.8"),
        ("torchtitan benchmarks/llama3_h100_202412.md", "torchtitan-2024"),
        ("torchtitan benchmarks/llama3_h200_202609.md", "torchtitan-2025"),
    ],
)
def test_generations_are_told_by_name_and_date(source: str, name: str) -> None:
    """The last generation of the product that was out by then."""
    assert read(source=source).workload.framework.name == name


def test_runs_of_sailor_are_read_as_its_scripts_say() -> None:
    """One operation after the other, on GPT-2's vocabulary."""
    run = read(source="eth-easl/sailor, made up for a test (SOSP 2025)", vocab=128256)
    assert run.architecture.vocabulary == 50257
    assert not run.workload.framework.fused_kernels
    assert any(note.startswith("vocabulary 50257") for note in run.assumed)


def test_every_line_of_generations_exists() -> None:
    """No pattern leads to a framework that is gone, and all months can be read."""
    for _, starts in LINES:
        assert all(any(name.startswith(start) for name in frameworks()) for start in starts)
    assert all(generation_month(name) >= (2020, 1) for name in frameworks())


@given(st.text(max_size=80))
def test_no_text_breaks_the_reading_of_dates(source: str) -> None:
    """A month or nothing."""
    found = source_month(source)
    assert found is None or 1 <= found[1] <= 12


PHRASES = (
    "0 Gb/s/GPU", "2x 0 Gb/s", "measured 2-node all-reduce 0-0 Gb/s", "H100 x 0 + A100 x 0", "1e400",
    "layer partition boundaries --- over", "entries per stage 3--4", "entries per stage -", "pp_layout ((((",
    "pp_layout (t)*99999999999", "0 micro-batches", "grad accum 0", "activation offload of 99 layers",
    "training_results_v9.9", "nemo 26.00",
)  # fmt: skip
CELLS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(PHRASES),
    st.integers(-3, 10**9).map(str),
    st.floats(allow_nan=False).map(str),
)


@given(st.dictionaries(st.sampled_from(sorted({*ROW, *SPARSE} - {"id"})), CELLS, max_size=4), st.booleans())
def test_no_cell_breaks_the_reader(cells: dict[str, str], sparse: bool) -> None:
    """Whatever some cells say, the row is read or skipped with a reason."""
    with suppress(Skipped):
        assert read_run(ROW | (SPARSE if sparse else {}) | cells).network_bytes_per_s > 0


@pytest.mark.parametrize(
    "cells",
    [
        {"interconnect": "0 Gb/s/GPU"},
        {"num_gpus": "1e400"},
        {"layers": "2.5"},
        {"gpu": "Abacus 3000"},
        {"precision": "int8"},
    ],
)
def test_what_cannot_be_priced_is_skipped(cells: dict[str, str]) -> None:
    """A figure that cannot be, or a kind that nobody described, is a reason, not a failure."""
    with pytest.raises(Skipped):
        read(**cells)


def test_a_row_without_any_column_is_skipped() -> None:
    """Missing columns read as empty."""
    with pytest.raises(Skipped):
        read_run({"id": "empty"})


def test_printed_layouts_are_kept() -> None:
    """Counts of layers, entries with the ends counted, and Megatron's letters."""
    assert layout_counts("Et*3|(tt|)*2mL") == [3, 2, 2, 0]
    assert layout_counts("E|(t|tt|)*2L") == [0, 1, 2, 1, 2, 0]
    run = read(notes="entries per stage 8-9-9-8 (embedding and head count as entries)", vpp=1)
    assert run.configuration.stage_layers == ((7, 9, 9, 7),)


@given(layers=st.integers(8, 130), pipeline=st.integers(1, 8), virtual=st.integers(1, 4))
def test_spread_layers_are_all_there(layers: int, pipeline: int, virtual: int) -> None:
    """Whatever divides or not."""
    virtual = virtual if pipeline > 1 and pipeline * virtual <= layers else 1
    layout = spread_layers(layers, pipeline, virtual)
    assert sum(map(sum, layout)) == layers
    assert (len(layout), {len(stages) for stages in layout}) == (virtual, {pipeline})


@pytest.mark.parametrize(
    ("cells", "recompute", "sharding"),
    [
        ({"recompute": "full", "zero": "0"}, Recompute.FULL, Sharding.NONE),
        ({"recompute": "selective:core_attn", "zero": "fsdp"}, Recompute.SELECTIVE, Sharding.PARAMETERS),
        ({"recompute": "none", "zero": "dist-opt(zero1=8)"}, Recompute.NONE, Sharding.OPTIMIZER),
        ({"recompute": "none", "zero": "3"}, Recompute.NONE, Sharding.PARAMETERS),
    ],
)
def test_policies_are_read(cells: dict[str, str], recompute: Recompute, sharding: Sharding) -> None:
    """Recomputation and sharding as tables write them."""
    configuration = read(**cells).configuration
    assert (configuration.recompute, configuration.sharding) == (recompute, sharding)


def test_recipes_of_fp8_are_read_from_the_notes() -> None:
    """The notes win over what the framework's recipes do."""
    titan = {"source": "pytorch/torchtitan, made up for a test, 2025-08", "precision": "fp8", "zero": "fsdp"}
    for notes, scaling in (("float8 rowwise; async TP", Float8Scaling.ROW), ("compile", Float8Scaling.CURRENT)):
        assert read(**titan, notes=notes).workload.framework.float8_scaling is scaling


def test_a_loss_in_chunks_is_read_from_the_notes() -> None:
    """TRL's chunks have 256 tokens."""
    assert read(notes="FSDP2, chunked loss").workload.framework.loss_chunk_tokens == 256
    assert read().workload.framework.loss_chunk_tokens == 0


def test_the_script_of_a_guide_keeps_the_inputs_of_layers_in_the_host() -> None:
    """TRL's guide to a million tokens checkpoints with ``offload``: all layers; other rows say how many."""
    assert read(notes="chunked loss; levers of the guide not all printed").offloaded_layers == 32
    assert read(notes="activation offload of 4 layers").offloaded_layers == 4
    assert read().offloaded_layers == 0
