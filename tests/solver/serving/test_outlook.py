"""The outlook of serving before a search: as few GPUs as the search needs, and the same refusals."""

from __future__ import annotations

import pytest

from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.refusal import NoServingPlan, NoServingReason, RemedyKind
from solver.serving.outlook import ServingOutlook, serving_outlook
from solver.serving.plan import plan_serving
from tests.solver.serving.planning.problems import CHAT, OPTIONS, nodes, problem, served

LOADS = ({"concurrency": 64.0}, {"concurrency": 200.0}, {"requests_per_s": 4.0})


@pytest.mark.parametrize("load", LOADS)
def test_the_load_takes_about_what_the_search_needs(load: dict[str, float]) -> None:
    """The search may mix shapes, so it can only need less; the group that is named meets the limits."""
    asked = problem(nodes(1), served(**CHAT, **load), objective="gpus")
    seen, found = serving_outlook(asked, pricing_s=60.0), plan_serving(asked, OPTIONS)
    assert isinstance(seen, ServingOutlook)
    assert isinstance(found, ServingPlan)
    (model,) = seen.models
    assert found.certificate.objective <= model.needed_gpus <= 2 * found.certificate.objective
    assert model.least_gpus <= model.group_gpus
    assert model.first_token_s <= CHAT["time_to_first_token_s"]
    assert model.token_s <= CHAT["time_per_output_token_s"]
    assert seen.is_complete


def test_as_much_as_can_be_has_no_need() -> None:
    """Goodput names the group that answers most on each GPU, and no plan answers more with the same GPUs."""
    asked = problem(nodes(1), served(**CHAT), objective="goodput")
    seen, found = serving_outlook(asked), plan_serving(asked, OPTIONS)
    assert isinstance(seen, ServingOutlook)
    assert isinstance(found, ServingPlan)
    (model,) = seen.models
    assert model.needed_gpus == 0
    assert 8 * model.output_tokens_per_s / model.group_gpus >= found.certificate.objective * 0.99


def test_refusals_name_the_obstacle() -> None:
    """A limit that nothing meets, with the nearest and the value that can be met; too little memory; no GPU."""
    hosts, limited = nodes(1, gpus=1), served("llama-3.1-8b", time_to_first_token_s=0.001)
    for asked, reason, remedies in (
        (problem(hosts, limited), NoServingReason.FIRST_TOKEN_LIMIT, [RemedyKind.FIRST_TOKEN_LIMIT]),
        (problem(hosts, served("deepseek-v3")), NoServingReason.MEMORY, []),
        (problem(hosts, served("llama-3.1-8b"), avoid_nodes=("n0",)), NoServingReason.NO_GPUS, []),
    ):
        seen = serving_outlook(asked)
        assert isinstance(seen, NoServingPlan)
        assert (seen.reason, [each.kind for each in seen.remedies]) == (reason, remedies)
        assert (seen.nearest is not None) == bool(remedies)


def test_no_time_prices_the_first_model_alone() -> None:
    """And says so."""
    seen = serving_outlook(problem(nodes(1), served("llama-3.1-8b"), served("llama-3.1-8b")), pricing_s=0.0)
    assert isinstance(seen, ServingOutlook)
    assert [len(seen.models), seen.is_complete] == [1, False]
