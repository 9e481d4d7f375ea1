"""Low-rank adapters beside the weights: what they take of memory, of steps and of the way to the first token."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.model.catalogue import catalogue_model
from cluster_models.serving.adapters import ServedAdapters
from cluster_models.serving.workload import ServingWorkload, WeightFormat, Worker
from solver.check.serving import check_serving_plan
from solver.serving.predict import ServingPrediction, predict_serving
from solver.serving.steps import ADAPTER_LINEAR_S
from tests.solver.serving.cases import case
from tests.solver.serving.planning.problems import CHAT, nodes, problem, served, sound_plan

LLAMA = "llama-3.1-8b"


def _predicted(adapters: ServedAdapters | None, tensor: int = 1, **load: float) -> ServingPrediction:
    given = {"concurrency": 8.0} | load
    workload = ServingWorkload(1024, 256, weights=WeightFormat.FP8, adapters=adapters, **given)
    return predict_serving(case(LLAMA, worker=Worker(tensor=tensor), workload=workload))


def test_an_adapter_of_rank_16_has_the_parameters_that_peft_counts() -> None:
    """41,943,040 beside all linear layers of Llama-3.1-8B; two ranks hold the uncut matrices twice."""
    model, adapters = catalogue_model(LLAMA), ServedAdapters(1, 16)
    assert adapters.gpu_bytes(model, 1) == 2 * 41_943_040
    queries, keys, out = (16 * (4096 + width / 2) for width in (4096, 1024, 4096))
    mlp = 2 * 16 * (4096 + 14336 / 2) + 16 * (14336 / 2 + 4096)
    assert adapters.gpu_bytes(model, 2) == 2 * 32 * (queries + 2 * keys + out + mlp)


def test_resident_adapters_take_the_place_of_caches() -> None:
    """A hundred of 84 MB each, or ten of a hundred."""
    none, ten, all_of_them = (
        _predicted(given).memory[0] for given in (None, ServedAdapters(100, 16, 10), ServedAdapters(100, 16))
    )
    each = 2 * 41_943_040
    assert ten.weight_bytes - none.weight_bytes == pytest.approx(10 * each)
    assert none.cache_bytes - all_of_them.cache_bytes == pytest.approx(100 * each)


def test_steps_launch_and_read_the_adapters_of_their_requests() -> None:
    """224 linear layers of launches; eight requests read nearly eight of many adapters, or one and the same."""
    none, one, many = (
        _predicted(given).decode for given in (None, ServedAdapters(1, 64), ServedAdapters(1000, 64, 8))
    )
    assert one.overhead_s - none.overhead_s == pytest.approx(224 * ADAPTER_LINEAR_S, rel=0.01)
    assert none.dense_s < one.dense_s < many.dense_s
    assert many.dense_s - none.dense_s == pytest.approx(8 * (one.dense_s - none.dense_s), rel=0.1)


def test_requests_wait_for_adapters_that_are_not_there() -> None:
    """Three quarters of them, for 84 MB over the link from the host; under a rate as well."""
    link = gpu_kind("H100").host_share.link_bytes_per_s
    for load in ({}, {"concurrency": None, "requests_per_s": 2.0}):
        here, away = (_predicted(ServedAdapters(8, 16, held), **load) for held in (8, 2))
        late = away.first_token_s.value - here.first_token_s.value
        assert late == pytest.approx(0.75 * 2 * 41_943_040 / link, rel=0.2)


def test_plans_hold_their_adapters() -> None:
    """They take more GPUs where adapters leave no room, and a plan that forgets them is found out."""
    load = {"concurrency": 64.0, **CHAT}
    free = sound_plan(problem(nodes(1, gpus=4), served(LLAMA, **load), objective="gpus"))
    given = problem(nodes(1, gpus=4), served(LLAMA, **load, adapters=ServedAdapters(400, 32)), objective="gpus")
    plan = sound_plan(given)
    assert plan.gpus > free.gpus
    group, *others = plan.groups
    light = tuple(
        replace(each, memory=replace(each.memory, weight_bytes=each.memory.weight_bytes / 3))
        for each in group.replicas
    )
    forgets = replace(plan, groups=(replace(group, replicas=light), *others))
    assert any("bytes of weights" in broken for broken in check_serving_plan(forgets, given))
