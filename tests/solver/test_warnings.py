"""What a plan warns of."""

from __future__ import annotations

from cluster_models.catalogue import gpu_kind, gpu_kinds
from solver.costs.calibration import published_score
from tests.solver.problems import nodes, planned, problem


def test_a_plan_says_how_uncertain_its_times_are() -> None:
    """For a kind with published steps, the errors on them; for one without, that nothing calibrates it."""
    known, unknown = (planned(problem(nodes(1, gpus=1, gpu=kind))) for kind in ("H100-SXM5-80GB", "H20-96GB"))
    assert any("174 published training steps" in warning and "12 %" in warning for warning in known.warnings)
    assert any("without calibration" in warning for warning in unknown.warnings)


def test_scores_belong_to_gpu_kinds_of_the_catalogue() -> None:
    """Every score is found under a catalogue name, and a median is below its 90th percentile."""
    scored = [score for kind in gpu_kinds().values() if (score := published_score(kind))]
    assert len(scored) == 8
    assert all(0 < score.median_error < score.p90_error for score in scored)
    assert published_score(gpu_kind("L4")) is None
