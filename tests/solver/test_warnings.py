"""Warnings of a plan, and how sure it says that it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_models.calibration.fitted import FittedParameters, FittedValue
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.model.architecture import Architecture
from cluster_models.remarks import remark
from cluster_models.training.frameworks import framework
from solver.costs.calibration import calibration_of
from tests.cluster_models.clusters import sample
from tests.remarks import codes
from tests.solver.problems import DENSE, SPARSE, nodes, planned, problem


@pytest.mark.parametrize("kind", ["H100-SXM5-80GB", "H20-96GB"])
def test_a_plan_says_how_uncertain_its_times_are(kind: str) -> None:
    """The interval holds the prediction, and a warning names its ends."""
    plan = planned(problem(nodes(1, gpus=1, gpu=kind)))
    sure = plan.confidence
    assert sure is not None
    assert sure.step_low_s < plan.time.step_s < sure.step_high_s
    [warning] = [each for each in plan.warnings if each.code == "step_interval"]
    assert (warning.figures["step_low_s"], warning.figures["step_high_s"]) == (sure.step_low_s, sure.step_high_s)


def test_a_plan_warns_where_nothing_like_it_was_measured() -> None:
    """A GPU kind without measured runs is named, and its interval is that of new kinds."""
    plan = planned(problem(nodes(1, gpus=1, gpu="H20-96GB")))
    assert plan.confidence is not None
    unmeasured = remark("unmeasured_gpu_kind", gpu_kind="H20-96GB")
    assert unmeasured in plan.confidence.outside
    assert unmeasured in plan.warnings
    assert "no run was measured" in plan.confidence.family
    [interval] = [each for each in plan.warnings if each.code == "step_interval"]
    assert interval.figures["is_widened"] == (plan.confidence.doublings_outside > 0)


@pytest.mark.parametrize(("kind", "silent"), [("H100-SXM5-80GB", True), ("A100-SXM4-80GB", False)])
def test_a_calibration_of_another_gpu_does_not_pass_for_this_one(kind: str, *, silent: bool) -> None:
    """Parameters that an own calibration lacks are as shipped, and the plan names them."""
    asked = problem(nodes(1, gpus=1, gpu="H100-SXM5-80GB"))
    value = {"sustained_share": FittedValue(0.5, 0.4, 0.6, 9)}
    own = FittedParameters({kind: value}, {asked.workload.framework.name: {}}, "ours 1234")
    warnings = planned(replace(asked, fitted=own)).warnings
    lacking = [each.figures["gpu_kinds"] for each in warnings if each.code == "calibration_lacks"]
    assert lacking == ([] if silent else [("H100-SXM5-80GB",)])


def test_a_plan_without_measurements_says_so_once() -> None:
    """That every link is estimated is one warning, not another one for the links in use."""
    told = codes(planned(problem(nodes(2, gpus=1))).warnings)
    assert "nothing_measured" in told
    assert "estimated_links" not in told


def test_a_plan_says_that_a_link_is_known_by_small_messages_only() -> None:
    """Beside the links in use that it estimates."""
    cut = sample("n0", "n1", 0.6, mib=0.25)
    told = planned(problem(nodes(2, gpus=1), [cut])).warnings
    assert "only_small_messages" in codes(told)


@pytest.mark.parametrize(
    ("model", "generation", "warns"),
    [
        (SPARSE, "transformers-2025", True),
        (SPARSE, "megatron-core-0.12", False),
        (DENSE, "transformers-2025", False),
    ],
)
def test_a_plan_says_that_experts_run_one_after_the_other(
    model: Architecture, generation: str, *, warns: bool
) -> None:
    """Where the framework does so, and the model has experts."""
    told = planned(problem(nodes(1, gpus=1), model=model, framework=framework(generation))).warnings
    assert ("experts_not_grouped" in codes(told)) == warns


@pytest.mark.parametrize(
    ("generation", "heads", "matrices"),
    [("megatron-core-0.12", 16, None), ("megatron-lm-2", 16, 0.0), ("megatron-lm-2", 2, 2.0)],
)
def test_a_plan_says_how_long_scores_take_where_attention_is_not_fused(
    generation: str, heads: int, matrices: float | None
) -> None:
    """Passes of Megatron's softmax over s x s scores of 2 bytes, and which of them no kernel takes whole."""
    model = replace(DENSE, heads=heads, kv_heads=heads, head_size=DENSE.hidden // heads)
    asked = problem(nodes(1, gpus=1), model=model, framework=framework(generation), pinned={"micro_batch": 1})
    told = [each for each in planned(asked).warnings if each.code == "scores_in_memory"]
    assert [each.figures["unfused_matrices"] for each in told] == ([] if matrices is None else [matrices])
    for each in told:
        gpu, scores = gpu_kind("H100-SXM5-80GB"), heads * asked.workload.sequence_length**2
        calibration = calibration_of(gpu, framework(generation))
        rate = gpu.memory_bytes_per_s * calibration.memory_share
        nbytes, kernels = (42, 6) if matrices else (9, 2)
        assert each.figures["forward_s"] == pytest.approx(nbytes * scores / rate + kernels * calibration.kernel_s)
