"""What a plan warns of, and how sure it says that it is."""

from __future__ import annotations

import pytest

from tests.solver.problems import nodes, planned, problem


@pytest.mark.parametrize("kind", ["H100-SXM5-80GB", "H20-96GB"])
def test_a_plan_says_how_uncertain_its_times_are(kind: str) -> None:
    """The interval holds the prediction, and the first warning names its ends."""
    plan = planned(problem(nodes(1, gpus=1, gpu=kind)))
    sure = plan.confidence
    assert sure is not None
    assert sure.step_low_s < plan.time.step_s < sure.step_high_s
    assert any(f"{sure.step_low_s:.3g} and {sure.step_high_s:.3g} s" in warning for warning in plan.warnings)


def test_a_plan_warns_where_nothing_like_it_was_measured() -> None:
    """A GPU kind without measured runs is named, and its interval is that of new kinds."""
    plan = planned(problem(nodes(1, gpus=1, gpu="H20-96GB")))
    assert plan.confidence is not None
    assert any("No measured run on H20-96GB" in sentence for sentence in plan.confidence.outside)
    assert any("No measured run on H20-96GB" in warning for warning in plan.warnings)
    assert "no run was measured" in plan.confidence.family
