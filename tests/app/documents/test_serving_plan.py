"""Serving plans as documents: both ways without loss, and every field described."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from app.documents.reading import read_document
from app.documents.serving import GOAL_FIELDS, ServingWorkloadDocument
from app.documents.serving_plan import NoServingPlanDocument, ServingPlanDocument, serving_document
from app.presentation.serving_plan import serving_report
from cluster_models.serving.figures import LimitedLatencies
from cluster_models.serving.goal import ServingGoal, ServingMode, ServingObjective
from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.workload import Speculation, Worker
from tests.serving_plans import (
    nothing_serves,
    over_nodes,
    replayed_plan,
    served,
    split_phases,
    two_models,
    two_replicas,
    with_classes,
)

PLANS = {
    "two replicas": two_replicas(),
    "several nodes": over_nodes(worker=Worker(tensor=2, attention_data=4, expert=8)),
    "split": split_phases(speculation=Speculation(2, 1.25)),
    "two models": two_models(),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_plan_comes_back_from_its_document(plan: ServingPlan) -> None:
    """Through JSON, goal included."""
    goal = ServingGoal(
        ServingObjective.COST, (ServingMode.SPLIT,), 12, 9000.0, avoid_nodes=("c",), pinned={"tensor": 2}
    )
    plan = replace(plan, goal=goal)
    text = serving_document(plan).model_dump_json()
    assert read_document(ServingPlanDocument, json.loads(text), what="plan").to_plan() == plan


def test_the_reason_for_no_plan_names_what_comes_nearest() -> None:
    """In milliseconds, and with remedies by their kind."""
    told = serving_document(nothing_serves()).model_dump()
    assert told["result"] == "no_serving_plan"
    assert told["reason"] == "token_limit"
    assert told["nearest"]["time_per_output_token_ms"] == 7.8125
    assert [each["kind"] for each in told["remedies"]] == ["token_limit", "weights"]


def test_the_goal_stands_in_the_first_workload() -> None:
    """Workloads of further models have none, and every field of the goal is one of the workload."""
    document = serving_document(replace(two_models(), goal=ServingGoal(max_gpus=4)))
    assert isinstance(document, ServingPlanDocument)
    assert [model.workload.max_gpus for model in document.models] == [4, None]
    assert set(GOAL_FIELDS) == set(ServingGoal.__slots__) <= set(ServingWorkloadDocument.model_fields)


def test_a_workload_comes_back_from_its_document() -> None:
    """Requests, limits and weight."""
    given = replace(served(speculation=Speculation(3, 1.5), memory_fraction=0.75), weight=3.0)
    document = ServingWorkloadDocument.from_served(given)
    assert document.served(given.architecture) == given


def test_classes_come_back_from_their_document() -> None:
    """Constants as numbers, distributions as histograms, limits in milliseconds; so does a plan with them."""
    given = with_classes()
    document = ServingWorkloadDocument.from_served(given)
    assert document.input_tokens is None
    assert [each.input_tokens for each in document.classes or ()][:1] == [512]
    assert document.served(given.architecture) == given
    plan = two_replicas()
    limited = LimitedLatencies.of([0.25, 0.015625, 8.0, 0.5, 0.015625, 2.0, 0.25, 0.03125, 4.0], ("chat", "long"))
    figures = tuple(replace(each, limited_s=limited) for each in plan.figures)
    plan = replace(plan, models=(given,), figures=figures)
    text = serving_document(plan).model_dump_json()
    assert read_document(ServingPlanDocument, json.loads(text), what="plan").to_plan() == plan


def test_a_trace_and_its_replay_come_back_from_their_document() -> None:
    """The trace as text in our columns, without the rate that it has."""
    plan = replayed_plan()
    given = plan.models[0]
    document = ServingWorkloadDocument.from_served(given)
    assert (document.trace or "").splitlines()[:2] == ["arrival_s,input_tokens,output_tokens", "0.0,8,4"]
    assert document.requests_per_s is None
    text = serving_document(plan).model_dump_json()
    assert read_document(ServingPlanDocument, json.loads(text), what="plan").to_plan() == plan
    first, token = serving_report(plan).replays
    assert (first.simulated, first.misses) == (
        ("250.0 ms", "1.000 s", "2.000 s"),
        "its 90th percentile of 1.000 s misses the limit",
    )
    assert token.misses == ""


@pytest.mark.parametrize("kind", [ServingPlanDocument, NoServingPlanDocument])
def test_every_field_is_described(kind: type[ServingPlanDocument]) -> None:
    """The HTTP reference is made of these texts."""
    definitions = kind.model_json_schema()
    for schema in (definitions, *definitions.get("$defs", {}).values()):
        for name, field in schema.get("properties", {}).items():
            assert field.get("description"), f"{schema['title']}.{name} has no description"
