"""Reading rows of models with experts: dispatchers, graphs, multi-token prediction and its layouts."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.published import read_run
from benchmarks.published_layouts import spread_layers
from benchmarks.rows import Skipped
from cluster_models.calibration.training_run import TrainingRun
from cluster_models.training.framework_choices import CudaGraphs, ExpertBalance, ExpertDispatch
from cluster_models.training.workload import Recompute
from tests.benchmarks.test_published import ROW, SPARSE

EACH = ExpertDispatch.ALL_TO_ALL
DEEPSEEK = (
    ROW
    | SPARSE
    | {
        "model_name": "deepseek-v3",
        "layers": "61",
        "moe_layers": "58",
        "experts": "256",
        "topk": "8",
        "gpu": "GB200",
    }
)


def read(release: str, notes: str = "", **cells: Any) -> TrainingRun:
    """A made-up row of Megatron-Bridge."""
    source = f"NVIDIA-NeMo/Megatron-Bridge, made up for a test, NeMo {release}"
    return read_run(
        DEEPSEEK | {"source": source, "notes": notes} | {name: str(cell) for name, cell in cells.items()}
    )


@pytest.mark.parametrize(
    ("release", "notes", "dispatch", "overlap", "graphs"),
    [
        ("25.09", "tokendrop", EACH, False, CudaGraphs.NONE),
        ("25.09", "dropless", ExpertDispatch.DEEPEP, False, CudaGraphs.NONE),
        ("26.04", "MoE dispatcher hybridep; EP A2A overlap", ExpertDispatch.HYBRIDEP, True, CudaGraphs.NONE),
        (
            "26.04",
            "recipe v0.4.0:X; cuda graphs ['attn', 'moe_router']",
            EACH,
            False,
            CudaGraphs.PARTIAL,
        ),
        (
            "26.04",
            "recipe v0.4.0:X; cuda graphs ['moe_router']",
            EACH,
            False,
            CudaGraphs.NONE,
        ),
        ("26.04", "token dispatcher alltoall (NCCL); EP all-to-all overlap on", EACH, True, CudaGraphs.NONE),
        ("26.04", "dispatcher A2A; intra-node EP", EACH, False, CudaGraphs.NONE),
        ("26.06", "", ExpertDispatch.HYBRIDEP, True, CudaGraphs.FULL),
        ("26.06", "recipe v0.5.0:X", EACH, False, CudaGraphs.NONE),
        ("26.06", "cuda graphs full_iteration; recipe v0.5.1:X", EACH, False, CudaGraphs.FULL),
    ],
)
def test_settings_are_those_of_the_recipe(
    release: str, notes: str, dispatch: ExpertDispatch, *, overlap: bool, graphs: CudaGraphs
) -> None:
    """A recipe that is printed says all that it switches on; else the generation's own settings hold."""
    framework = read(release, notes).workload.framework
    assert (framework.expert_dispatch, framework.expert_overlap, framework.cuda_graphs) == (
        dispatch,
        overlap,
        graphs,
    )


def test_recipes_for_hopper_do_not_capture_whole_iterations() -> None:
    """Also in releases that do so on Blackwell."""
    assert read("26.06", gpu="H100").workload.framework.cuda_graphs is CudaGraphs.NONE


def test_prediction_layers_are_read_unless_left_out() -> None:
    """DeepSeek-V3 of NVIDIA's recipes trains one; other models have none."""
    assert read("26.04").architecture.prediction_layers == 1
    assert read("26.04", "w/o MTP").architecture.prediction_layers == 0
    assert read("26.04", model_name="qwen3-30b").architecture.prediction_layers == 0
    automodel = {"source": "NVIDIA-NeMo/Automodel, made up for a test, 2025-10"}
    assert read("26.04", **automodel).architecture.prediction_layers == 0


def test_routers_of_deepseek_keep_a_token_in_four_of_eight_groups() -> None:
    """Nodes that a token travels to depend on it."""
    experts, others = (read("26.04", model_name=name).architecture.experts for name in ("deepseek-v3", "qwen3-30b"))
    assert experts is not None
    assert others is not None
    assert (experts.router_groups, experts.active_groups) == (8, 4)
    assert (others.router_groups, others.active_groups) == (1, 1)


def test_layers_leave_room_for_prediction_and_loss() -> None:
    """61 layers as Megatron-Bridge lays them out: Et*4|(t*4|)*14tmL, and Et|(tt|)*30mL where chunks are short."""
    flat = [count for row in spread_layers(61, 4, 4) for count in row]
    assert flat == [4] * 15 + [1]
    flat = [count for row in spread_layers(61, 8, 4) for count in row]
    assert flat == [1] + [2] * 30 + [0]


@pytest.mark.parametrize(
    ("notes", "balance"),
    [
        ("tokendrop", ExpertBalance.CAPACITY),
        ("router force-balanced; dropless", ExpertBalance.FORCED),
        ("forced balanced routing, random init", ExpertBalance.FORCED),
        ("balanced fake gate", ExpertBalance.FORCED),
        ("dropless, natural routing", ExpertBalance.NATURAL),
        ("", ExpertBalance.NATURAL),
    ],
)
def test_how_the_router_was_followed_is_read_from_the_notes(notes: str, balance: ExpertBalance) -> None:
    """Benchmarks draw experts at random or cut them to a capacity; else the router decides."""
    assert read("25.09", notes).workload.framework.expert_balance is balance


@pytest.mark.parametrize(("library", "generation"), [("0.2.1", "25.11"), ("0.4.2", "26.04"), ("0.6", "26.06")])
def test_the_library_in_the_notes_says_which_release_ran(library: str, generation: str) -> None:
    """A collection of several products is younger than the release that its run names."""
    found = read("27.12", f"Megatron-Bridge {library} / Core 0.17.1; EP all-to-all overlap off").workload.framework
    assert found.name == f"megatron-bridge-{generation}"
    assert not found.expert_overlap


def test_experts_of_one_batch_are_skipped() -> None:
    """Expert ranks beside the data ranks do the same work, which the planner does not offer."""
    with pytest.raises(Skipped, match="same tokens"):
        read("25.09", tp="1", pp="1", ep="8", dp="8", num_gpus="64")


def test_a_script_without_overlap_recomputes_everything() -> None:
    """The script of awslabs says so where its page does not."""
    for note in (
        "recompute of the overlap-off runs not printed (recipe default, not off)",
        "recompute as in the DSV3 twin (off only with overlap)",
        "recompute and VPP assumed from the DSV3 page",
    ):
        assert read("26.04", note, recompute="").configuration.recompute is Recompute.FULL
    assert read("26.04", recompute="").configuration.recompute is Recompute.NONE


def test_no_recipe_of_experts_defers_the_heads_gradient() -> None:
    """Only those of large dense models do."""
    assert not read("25.09").workload.framework.defer_head_gradient
    dense = read_run(ROW | {"source": "NeMo 25.09, Megatron-Bridge"}).workload.framework
    assert dense.defer_head_gradient
    assert dense.head_gradient_limit == 22


def test_first_steps_of_a_training_meet_the_same_experts() -> None:
    """KempnerForge's benchmarks run 20 steps from random weights."""
    run = read_run(DEEPSEEK | {"source": "KempnerInstitute/KempnerForge, made up for a test", "zero": "fsdp"})
    assert run.workload.framework.untrained_router
    assert run.workload.framework.pads_experts


def test_nvidias_first_steps_tell_where_a_capacity_is_filled() -> None:
    """Its launchers run 50 steps on mock data; tokens that are drawn at random do not ask the router."""
    dropped, forced = (read("25.09", notes).workload.framework for notes in ("tokendrop", "force-balanced"))
    assert (dropped.untrained_router, forced.untrained_router) == (True, False)
