"""Traces of arrivals: planned by their lengths, rate and bursts, replayed step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cluster_models.errors import InvalidWorkload
from cluster_models.model.catalogue import catalogue_model
from cluster_models.serving.checks import check_serving
from cluster_models.serving.goal import ServedModel
from cluster_models.serving.requests import Lengths, RequestClass
from cluster_models.serving.traces import Trace
from cluster_models.serving.workload import ServingWorkload, WeightFormat
from solver.serving.cases import ServingCase
from solver.serving.drawing import drawn_trace
from solver.serving.predict import predict_serving, predict_trace
from solver.serving.replay import replayed
from tests.solver.serving.cases import case
from tests.solver.serving.planning.problems import nodes, problem, sound_plan


def _trace(rate: float, requests: int = 3000, *, burst: float = 1.0, equal: bool = False) -> Trace:
    """Gaps of a gamma distribution whose variance is ``burst`` times the mean's square; log-normal lengths."""
    rng = np.random.default_rng(2)
    arrivals = np.cumsum(rng.gamma(1.0 / burst, burst / rate, requests))
    prompts, answers = (rng.lognormal(mean, 0.8, requests).clip(2, 8000).astype(int) for mean in (6.5, 5.0))
    if equal:
        prompts, answers = np.full(requests, 1024), np.full(requests, 256)
    return Trace(tuple(arrivals.tolist()), tuple(prompts.tolist()), tuple(answers.tolist()))


def _case(trace: Trace, **given: object) -> ServingCase:
    return case(gpu="H200", workload=ServingWorkload.traced(trace, weights=WeightFormat.FP8, **given))


def test_random_arrivals_of_equal_requests_are_the_plain_rate() -> None:
    """But for what the gaps of a sample differ from random ones."""
    trace = _trace(4.0, equal=True)
    traced = predict_serving(_case(trace))
    plain = ServingWorkload(1024, 256, requests_per_s=trace.requests_per_s, weights=WeightFormat.FP8)
    found = predict_serving(case(gpu="H200", workload=plain))
    assert traced.token_s.value == pytest.approx(found.token_s.value, rel=0.01)
    assert traced.first_token_s.value == pytest.approx(found.first_token_s.value, rel=0.03)


@pytest.mark.parametrize("burst", [1.0, 3.0])
def test_the_closed_form_agrees_with_the_replay(burst: float) -> None:
    """90th percentiles to the first token within 25 %, per output token within 15 %, bursts or not."""
    serving = _case(_trace(4.0, burst=burst))
    found = replayed([serving], [1.0])
    assert found is not None
    assert found.requests == 3000
    assert found.expected_first_token == predict_serving(serving).first_token_percentiles
    assert found.expected_first_token.p90_s == pytest.approx(found.first_token.p90_s, rel=0.25)
    assert found.expected_token.p90_s == pytest.approx(found.token.p90_s, rel=0.15)


def test_bursts_wait_longer() -> None:
    """In the closed form as in the replay."""
    calm, bursts = (replayed([_case(_trace(4.0, burst=burst))], [1.0]) for burst in (1.0, 6.0))
    assert calm is not None
    assert bursts is not None
    assert bursts.first_token.p90_s > 1.2 * calm.first_token.p90_s
    assert bursts.expected_first_token.p90_s > 1.1 * calm.expected_first_token.p90_s


def test_groups_take_their_shares_of_a_trace() -> None:
    """Two halves of a trace on equal groups are answered as fast as one half alone; no trace, no replay."""
    serving = _case(_trace(4.0, 2000))
    assert serving.workload.requests_per_s is not None
    half = replace(serving, workload=replace(serving.workload, requests_per_s=serving.workload.requests_per_s / 2))
    one, two = replayed([serving], [1.0]), replayed([half, half], [0.5, 0.5])
    assert one is not None
    assert two is not None
    assert two.requests == one.requests == 2000
    assert two.token.p90_s < one.token.p90_s
    plain = replace(serving, workload=ServingWorkload(64, 64, requests_per_s=1.0))
    assert replayed([plain], [1.0]) is None


def test_a_plan_is_replayed_on_its_groups() -> None:
    """It passes the check; the replay is near the closed form that the plan was chosen by."""
    load = ServingWorkload.traced(
        _trace(30.0, 2000), weights=WeightFormat.FP8, time_per_output_token_s=0.05, limit_percentile=0.9
    )
    plan = sound_plan(
        problem(nodes(1, gpus=4), ServedModel(catalogue_model("llama-3.1-8b"), load), objective="gpus")
    )
    replay = plan.figures[0].replay
    assert replay is not None
    assert replay.limited_s.token_s == replay.token.p90_s
    assert replay.token.p90_s == pytest.approx(plan.figures[0].limited_s.token_s, rel=0.3)


def test_classes_of_a_trace_have_limits_of_their_own() -> None:
    """The trace's lengths and shares; the plan keeps the limit of a class, and the replay says how well."""
    plain = _trace(12.0, 400)
    trace = replace(plain, classes=tuple("long" if each > 1000 else "chat" for each in plain.input_tokens))
    limit = RequestClass("long", 1.0, Lengths((1.0,)), Lengths((1.0,)), time_to_first_token_s=0.2)
    load = ServingWorkload.traced(trace, (limit,), weights=WeightFormat.FP8, limit_percentile=0.9)
    assert set(load.class_names) == {"long", "chat"}
    own = next(each for each in load.classes if each.name == "long")
    assert own.inputs.mean > 1000
    assert own.share == trace.classes.count("long")
    plan = sound_plan(
        problem(nodes(1, gpus=2), ServedModel(catalogue_model("llama-3.1-8b"), load), objective="gpus")
    )
    replay = plan.figures[0].replay
    assert replay is not None
    for found in (plan.figures[0].limited_s, replay.limited_s):
        long, chat = (next(each for each in found.classes if each.name == name) for name in ("long", "chat"))
        assert chat.first_token_s < long.first_token_s <= 0.2
    with pytest.raises(InvalidWorkload, match="is not one of the trace"):
        ServingWorkload.traced(trace, (replace(limit, name="lnog"),))


def test_requests_are_drawn_as_classes_say() -> None:
    """So many of each, with its lengths and prefixes, at the rate; the same ones again."""
    chat = RequestClass("chat", 0.95, Lengths((100.0, 300.0), (0.5, 0.5)), Lengths((50.0,)), prefix_share=0.5)
    long = RequestClass("long", 0.05, Lengths((9000.0,)), Lengths((20.0,)))
    load = ServingWorkload.mixed((chat, long), requests_per_s=3.0)
    trace = drawn_trace(load)
    assert trace is not None
    assert trace.classes.count("long") == 400
    assert trace.requests == 8000
    assert sum(trace.input_tokens) / 8000 == pytest.approx(load.input_tokens)
    assert trace.new_tokens == pytest.approx(load.new_tokens)
    assert trace.requests_per_s == pytest.approx(3.0, rel=0.05)
    assert drawn_trace(load) == trace
    assert drawn_trace(replace(load, requests_per_s=None, concurrency=3.0)) is None


def test_a_rare_long_class_is_simulated() -> None:
    """One prompt in thirty has sixty times the tokens: its 99th percentile is longer than the closed form says.

    Another draw of ten times as many finds the same, to a tenth.
    """
    short = RequestClass("short", 30.0, Lengths((256.0,)), Lengths((256.0,)))
    long = RequestClass("long", 1.0, Lengths((15360.0,)), Lengths((128.0,)))
    load = ServingWorkload.mixed((short, long), requests_per_s=2.0, weights=WeightFormat.FP8, limit_percentile=0.99)
    serving = case(gpu="H200", workload=load)
    found = replayed([serving], [1.0])
    assert found is not None
    simulated = {each.name: each.first_token_s for each in found.limited_s.classes}
    closed = {each.name: each.first_token.p99_s for each in predict_serving(serving).classes}
    assert simulated["long"] > 1.1 * closed["long"]
    rng = np.random.default_rng(7)
    is_long = rng.random(30_000) < 1 / 31
    prompts, answers = (np.where(is_long, *pair).tolist() for pair in ((15360, 256), (128, 256)))
    arrivals = np.cumsum(rng.exponential(0.5, len(prompts)))
    answered = predict_trace(serving, Trace(tuple(arrivals.tolist()), tuple(prompts), tuple(answers)))
    assert simulated["long"] == pytest.approx(np.quantile(answered.first_token_s[is_long], 0.99), rel=0.1)


def test_cached_tokens_of_a_trace_are_not_prefilled() -> None:
    """Half of every prompt, said row by row, is the prefix share of one half."""
    plain = _trace(4.0, 500)
    halves = replace(plain, cached_tokens=tuple(each // 2 for each in plain.input_tokens))
    cached, stated, whole = (
        replayed([_case(trace, **given)], [1.0])
        for trace, given in ((halves, {}), (plain, {"prefix_share": 0.5}), (plain, {}))
    )
    assert cached is not None
    assert stated is not None
    assert whole is not None
    for name in ("first_token", "expected_first_token"):
        assert getattr(cached, name).p50_s == pytest.approx(getattr(stated, name).p50_s, rel=0.02)
        assert getattr(cached, name).p50_s < 0.9 * getattr(whole, name).p50_s
    with pytest.raises(InvalidWorkload, match="conflicts with a trace that says"):
        _case(halves, prefix_share=0.5)


def test_a_row_beyond_the_context_is_named() -> None:
    """With its lengths."""
    serving = _case(Trace((0.0, 1.0), (64, 131_000), (64, 100)))
    with pytest.raises(InvalidWorkload, match="row 2: input and output tokens together are 131100"):
        check_serving(serving.architecture, serving.workload, serving.configuration)
