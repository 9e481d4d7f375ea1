"""Problems that nothing serves: what would help does help."""

from __future__ import annotations

import pytest

from cluster_models.errors import InvalidWorkload
from cluster_models.serving.engines import serving_engine
from cluster_models.serving.plan import ServingWarningKind
from cluster_models.serving.refusal import NoServingPlan, RemedyKind
from cluster_models.serving.workload import WeightFormat
from solver.serving.plan import plan_serving
from tests.cluster_models.clusters import host
from tests.solver.serving.planning.problems import CHAT, OPTIONS, nodes, problem, served, sound_plan


@pytest.mark.parametrize(
    ("budget", "kind"), [({"max_gpus": 1}, RemedyKind.MAX_GPUS), ({"max_power_watts": 800.0}, RemedyKind.MAX_POWER)]
)
def test_a_budget_that_is_too_small_names_the_least(budget: dict[str, object], kind: RemedyKind) -> None:
    """With it a plan exists."""
    refused = plan_serving(problem(nodes(1), served(**CHAT), objective="gpus", **budget), OPTIONS)
    assert isinstance(refused, NoServingPlan)
    least = next(each.value for each in refused.remedies if each.kind is kind)
    assert least is not None
    raised = {name: type(value)(least) for name, value in budget.items()}
    assert sound_plan(problem(nodes(1), served(**CHAT), objective="gpus", **raised)).gpus > 1


def test_limits_that_are_missed_together_are_raised_together() -> None:
    """No single one helps."""
    limits = {"time_to_first_token_s": 0.001, "time_per_output_token_s": 0.0005}
    refused = plan_serving(problem(nodes(1), served(concurrency=1.0, **limits)), OPTIONS)
    assert isinstance(refused, NoServingPlan)
    assert RemedyKind.LIMITS in {each.kind for each in refused.remedies}


def test_gpus_that_the_engine_does_not_serve_on_stay_idle() -> None:
    """Only GPUs of a mixed cluster with tensor cores of the format are used, and refused where there are none."""
    fp4 = served("llama-3.1-70b", weights=WeightFormat.NVFP4, engine=serving_engine("trtllm-1.2"))
    mixed = [host("h", gpu="H100-SXM5-80GB"), host("b", gpu="B200-SXM-180GB")]
    plan = sound_plan(problem(mixed, fp4))
    assert {place.node for replica in plan.replicas for place in replica.places} == {"b"}
    assert ServingWarningKind.WIDENED_WEIGHTS not in {each.kind for each in plan.warnings}
    with pytest.raises(InvalidWorkload, match="does not widen it"):
        plan_serving(problem(mixed[:1], fp4), OPTIONS)


def test_widened_weights_are_said_so() -> None:
    """NVFP4 on GPUs of a generation before its tensor cores."""
    plan = sound_plan(problem(nodes(1), served(weights=WeightFormat.NVFP4)))
    assert ServingWarningKind.WIDENED_WEIGHTS in {each.kind for each in plan.warnings}


@pytest.mark.parametrize("load", [{"requests_per_s": 1e-12}, {"concurrency": 1e-9}])
def test_a_load_next_to_nothing_takes_one_group(load: dict[str, float]) -> None:
    """Solvers round it to none."""
    plan = sound_plan(problem(nodes(1, gpus=2), served("llama-3.1-8b", **CHAT, **load), objective="gpus"))
    assert plan.gpus == 1


def test_an_engine_given_next_to_no_memory_is_told_its_usual_share() -> None:
    """With which a plan exists."""
    refused = plan_serving(problem(nodes(1), served(**CHAT, memory_fraction=1e-6)), OPTIONS)
    assert isinstance(refused, NoServingPlan)
    remedies = {each.kind: each.value for each in refused.remedies}
    usual = remedies[RemedyKind.MEMORY_FRACTION]
    sound_plan(problem(nodes(1), served(**CHAT, memory_fraction=usual)))
