"""Reading rows of models with experts: dispatchers, graphs, multi-token prediction and its layouts."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.published import read_run
from benchmarks.published_layouts import spread_layers
from cluster_models.frameworks import CudaGraphs, ExpertDispatch
from cluster_models.training_run import TrainingRun
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
