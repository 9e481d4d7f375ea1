"""Plans for several classes of requests."""

from __future__ import annotations

from dataclasses import replace

from cluster_models.serving.refusal import NoServingPlan, NoServingReason, RemedyKind
from cluster_models.serving.requests import Lengths, RequestClass
from solver.serving.plan import plan_serving
from tests.solver.serving.planning.problems import OPTIONS, nodes, problem, served_classes, sound_plan

CHAT = RequestClass("chat", 0.8, Lengths((500.0,)), Lengths((200.0,)), limit_percentile=0.9)
LONG = RequestClass("long", 0.2, Lengths.counted([(4000, 1), (12_000, 1)]), Lengths((100.0,)))


def test_a_limit_of_a_class_costs_load() -> None:
    """The plan keeps it at the percentile of the class, and answers less than without it."""
    free = sound_plan(problem(nodes(1, gpus=2), served_classes(CHAT, LONG), objective="goodput"))
    limited = replace(CHAT, time_to_first_token_s=0.15)
    plan = sound_plan(problem(nodes(1, gpus=2), served_classes(limited, LONG), objective="goodput"))
    chat, long = plan.figures[0].limited_s.classes
    assert (chat.name, long.name) == ("chat", "long")
    assert 0.1 < chat.first_token_s <= 0.15
    assert plan.tokens_per_s < free.tokens_per_s


def test_a_limit_of_a_class_that_nothing_meets_is_named() -> None:
    """With the nearest value for this class, which a little more than it meets under a rate."""
    limited = replace(LONG, time_to_first_token_s=0.01)
    load = {"requests_per_s": 0.01}
    refused = plan_serving(problem(nodes(1, gpus=2), served_classes(CHAT, limited, **load)), OPTIONS)
    assert isinstance(refused, NoServingPlan)
    assert refused.reason is NoServingReason.FIRST_TOKEN_LIMIT
    remedy = refused.remedies[0]
    assert (remedy.kind, remedy.name) == (RemedyKind.FIRST_TOKEN_LIMIT, "long")
    assert remedy.value is not None
    raised = replace(LONG, time_to_first_token_s=1.05 * remedy.value)
    sound_plan(problem(nodes(1, gpus=2), served_classes(CHAT, raised, **load)))
