"""Serving problems for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cluster_models.cluster.measurements import Sample
from cluster_models.cluster.topology import Node
from cluster_models.model.catalogue import catalogue_model
from cluster_models.serving.goal import ServedModel, ServingGoal, ServingObjective
from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.requests import RequestClass
from cluster_models.serving.workload import ServingWorkload, WeightFormat
from solver.check.serving import check_serving_plan
from solver.problem import SearchOptions
from solver.serving.plan import plan_serving
from solver.serving.problem import ServingProblem
from tests.cluster_models.clusters import host, sample, snapshot

OPTIONS: Final = SearchOptions(gap=0.01, alternatives=3)
CHAT: Final = {"time_to_first_token_s": 0.5, "time_per_output_token_s": 0.03}
"""Limits of the tests' requests."""


def nodes(count: int, *, gpus: int = 8, gpu: str = "H100-SXM5-80GB") -> list[Node]:
    """Equal nodes n0, n1, ..."""
    return [host(f"n{index}", gpus=gpus, gpu=gpu) for index in range(count)]


def measured(hosts: Sequence[Node], gbytes_per_s: float) -> list[Sample]:
    """Every pair of ``hosts`` measured with one flow and with eight."""
    return [
        sample(a.name, b.name, gbytes_per_s, ranks=ranks)
        for i, a in enumerate(hosts)
        for b in hosts[i + 1 :]
        for ranks in (1, 8)
    ]


def served(model: str = "llama-3.1-70b", **given: Any) -> ServedModel:
    """A model whose FP8 weights answer 64 requests of 1,024 + 1,024 tokens unless stated otherwise."""
    load = {} if "requests_per_s" in given else {"concurrency": 64.0}
    weight = given.pop("weight", 1.0)
    values = {"input_tokens": 1024, "output_tokens": 1024, "weights": WeightFormat.FP8} | load | given
    return ServedModel(catalogue_model(model), ServingWorkload(**values), weight)


def served_classes(*classes: RequestClass, model: str = "llama-3.1-8b", **given: Any) -> ServedModel:
    """A model in FP8 with 20 requests a second of several classes unless stated otherwise."""
    values = {"requests_per_s": 20.0, "weights": WeightFormat.FP8} | given
    return ServedModel(catalogue_model(model), ServingWorkload.mixed(classes, **values))


def problem(
    hosts: Sequence[Node],
    *models: ServedModel,
    objective: str = "throughput",
    samples: Sequence[Sample] = (),
    **goal: Any,
) -> ServingProblem:
    """A problem on a cluster of ``hosts``."""
    return ServingProblem(snapshot(hosts, samples), models, ServingGoal(ServingObjective(objective), **goal))


def sound_plan(given: ServingProblem, options: SearchOptions = OPTIONS) -> ServingPlan:
    """The plan, which must exist and pass the independent check."""
    plan = plan_serving(given, options)
    assert isinstance(plan, ServingPlan), plan
    assert check_serving_plan(plan, given) == ()
    return plan
