"""The closed form of random arrivals against the simulation of a trace of them, step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cluster_models.serving.engines import serving_engine
from cluster_models.serving.traces import Trace
from cluster_models.serving.workload import Pool, ServingConfiguration, ServingWorkload, WeightFormat, Worker
from solver.serving.arrivals import open_state
from solver.serving.cases import Arrays, ServingCase, arrays_of
from solver.serving.mixes import Kinds
from solver.serving.percentiles import latencies_at
from solver.serving.predict import predict_serving, predict_trace
from solver.serving.rates import Rates, rates_of
from solver.serving.simulation import Answered, simulate_trace
from solver.serving.steady_state import Steady
from tests.solver.serving.cases import case

WARM_UP = 300


def _case(rate: float, inputs: int, outputs: int, *, prefill: Pool | None = None) -> ServingCase:
    load = ServingWorkload(inputs, outputs, requests_per_s=rate, weights=WeightFormat.FP8)
    return case(gpu="H200", workload=load, prefill=prefill)


def _arrays(serving: ServingCase) -> tuple[Arrays, Rates]:
    rates = rates_of([serving.properties], {})
    return arrays_of([serving]), replace(rates, interference=np.ones(1))


def _both(serving: ServingCase, *, requests: int = 3000) -> tuple[Answered, Steady, Kinds]:
    """The simulation of random arrivals without its start, and the closed form with the kinds of its requests."""
    load = serving.workload
    assert load.requests_per_s is not None
    times = np.cumsum(np.random.default_rng(1).exponential(1.0 / load.requests_per_s, requests))
    lengths = ((round(each),) * requests for each in (load.input_tokens, load.output_tokens))
    trace = Trace(tuple(times.tolist()), *lengths)
    arrays, rates = _arrays(serving)
    found = simulate_trace(arrays, rates, trace)
    settled = Answered(found.first_token_s[WARM_UP:], found.token_s[WARM_UP:], found.end_s[WARM_UP:])
    closed = open_state(arrays.decode, arrays.prefill, rates, arrays.traffic, np.array([load.requests_per_s]))
    return settled, closed, arrays.kinds


@pytest.mark.parametrize(("inputs", "outputs"), [(2048, 256), (1024, 512)])
@pytest.mark.parametrize("rate", [0.5, 2.0, 4.0, 6.0])
def test_closed_form_agrees_with_the_trace(rate: float, inputs: int, outputs: int) -> None:
    """Means within 6 %, percentiles within 20 and 10 %, up to three quarters of the rate that is served.

    Times to the last token: percentiles within 10 %.
    """
    trace, closed, kinds = _both(_case(rate, inputs, outputs))
    assert closed.first_token_s[0] == pytest.approx(trace.first_token_s.mean(), rel=0.06)
    assert closed.token_s[0] == pytest.approx(trace.token_s.mean(), rel=0.06)
    for share in (0.5, 0.9, 0.99):
        first, token, whole = latencies_at(closed, kinds, 0, share)[0]
        assert first == pytest.approx(np.quantile(trace.first_token_s, share), rel=0.2)
        assert token == pytest.approx(np.quantile(trace.token_s, share), rel=0.1)
        lasting = trace.first_token_s + (outputs - 1) * trace.token_s
        assert whole == pytest.approx(np.quantile(lasting, share), rel=0.1)


def test_split_pools_agree_with_the_trace() -> None:
    """Prefill workers queue as in M/D/1; decode workers are not held up."""
    trace, closed, _ = _both(_case(4.0, 2048, 256, prefill=Pool(Worker(tensor=4))))
    assert closed.first_token_s[0] == pytest.approx(trace.first_token_s.mean(), rel=0.1)
    assert closed.token_s[0] == pytest.approx(trace.token_s.mean(), rel=0.06)


@pytest.mark.parametrize("worker", [Worker(pipeline=4), Worker(tensor=2, pipeline=2)])
def test_pipelines_agree_with_the_trace(worker: Worker) -> None:
    """A prompt passes all stages, while the first one takes the next."""
    serving = replace(_case(2.0, 2048, 256), configuration=ServingConfiguration(Pool(worker)))
    trace, closed, _ = _both(serving, requests=1500)
    assert closed.first_token_s[0] == pytest.approx(trace.first_token_s.mean(), rel=0.06)
    assert closed.token_s[0] == pytest.approx(trace.token_s.mean(), rel=0.06)


@pytest.mark.parametrize(
    ("worker", "inputs", "outputs", "rate", "engine"),
    [
        (Worker(attention_data=8, expert=8), 4096, 1024, 1.0, "vllm-0.16"),
        (Worker(attention_data=8, expert=8), 1024, 256, 8.0, "vllm-0.16"),
        (Worker(attention_data=16, expert=16), 4096, 1024, 2.0, "vllm-0.16"),
        (Worker(tensor=8), 30_000, 500, 0.2, "vllm-0.16"),
        (Worker(attention_data=8, expert=8), 4096, 1024, 1.0, "trtllm-1.2"),
        (Worker(attention_data=8, expert=8), 1024, 1024, 8.0, "trtllm-1.2"),
    ],
)
def test_steps_that_all_ranks_wait_for_agree_with_the_trace(
    worker: Worker, inputs: int, outputs: int, rate: float, engine: str
) -> None:
    """Few prompts in a step leave other attention ranks idle, unless the engine holds them until each rank has one.

    Long prompts in many steps hold up all others.  Means within 6 %, 90th percentiles within 15 %; first tokens of
    prompts that are held within 25 %.
    """
    load = ServingWorkload(
        inputs, outputs, requests_per_s=rate, weights=WeightFormat.FP8, engine=serving_engine(engine)
    )
    trace, closed, kinds = _both(case("deepseek-v3", gpu="H200", worker=worker, workload=load), requests=2000)
    for share, tolerance in ((None, 0.06), (0.9, 0.15)):
        first, token = latencies_at(closed, kinds, 0, share)[0][:2]
        exact = [
            each.mean() if share is None else np.quantile(each, share)
            for each in (trace.first_token_s, trace.token_s)
        ]
        assert first == pytest.approx(exact[0], rel=0.25 if load.engine.held_steps else tolerance)
        assert token == pytest.approx(exact[1], rel=tolerance)


def test_requests_wait_for_a_place_as_in_the_trace() -> None:
    """Where caches are nearly full, long before arrivals exceed what is served: mean within 30 %."""
    load = ServingWorkload(4096, 1024, requests_per_s=1.85, weights=WeightFormat.FP8)
    serving = case("deepseek-v3", gpu="H200", worker=Worker(tensor=8), workload=load)
    trace, closed, _ = _both(serving, requests=8000)
    assert closed.queue_s[0] == 0.0
    assert trace.first_token_s.mean() > 2.0 * closed.first_base_s[0]
    assert closed.first_token_s[0] == pytest.approx(trace.first_token_s.mean(), rel=0.3)


def test_attention_ranks_prefill_side_by_side() -> None:
    """Eight prompts on eight ranks wait for their experts alone, on one rank for all else as well."""
    load = ServingWorkload(4096, 2, requests_per_s=1.0, weights=WeightFormat.FP8)
    times = []
    for worker in (Worker(attention_data=8, expert=8), Worker(tensor=8)):
        serving = case("deepseek-v3", gpu="H200", worker=worker, workload=load)
        one, eight = (predict_trace(serving, Trace(*((each,) * n for each in (0.0, 4096, 2)))) for n in (1, 8))
        times.append(eight.first_token_s.max() / one.first_token_s[0])
    assert times[0] < 4
    assert times[1] > 6


def test_a_lone_request_takes_its_prefill_and_its_steps() -> None:
    """Nothing waits, nothing disturbs."""
    serving = _case(1.0, 1024, 2)
    arrays, rates = _arrays(serving)
    found = simulate_trace(arrays, rates, Trace((5.0,), (1024,), (2,)))
    steady = open_state(arrays.decode, arrays.prefill, rates, arrays.traffic, np.array([1e-6]))
    alone = steady.prefill.total_s[0] + rates.request_s[0]
    assert found.first_token_s[0] == pytest.approx(alone, rel=0.02)
    assert found.token_s[0] == pytest.approx(steady.decode.total_s[0], rel=0.02)
    assert found.end_s[0] == pytest.approx(5.0 + found.first_token_s[0] + found.token_s[0])


def test_a_burst_waits_in_turn() -> None:
    """Prompts that fill a step each end one prefill after the other; answers are complete and in order."""
    serving = _case(1.0, 8192, 64)
    found = predict_trace(serving, Trace((0.0,) * 8, (8192,) * 8, (64,) * 8))
    gaps = np.diff(found.first_token_s)
    assert (gaps > 0).all()
    assert gaps.max() < 1.5 * gaps.min()
    assert np.isfinite(found.end_s).all()


def test_a_chunk_attends_to_all_before_it() -> None:
    """A prompt of four steps takes longer than four prompts of one step alone."""
    serving = _case(1.0, 32_768, 2)
    long = predict_trace(serving, Trace((0.0,), (32_768,), (2,))).first_token_s[0]
    short = predict_trace(serving, Trace((0.0,), (8192,), (2,))).first_token_s[0]
    assert 1.3 * 4 * short < long < 4 * 4 * short


def test_percentiles_rise_and_limits_hold_for_them() -> None:
    """A limit that the mean meets is missed by the 99th percentile."""
    serving = _case(4.0, 2048, 256)
    found = predict_serving(serving)
    first = found.first_token_percentiles
    assert first.p50_s <= first.p90_s <= first.p99_s
    assert found.token_percentiles.p50_s < found.token_percentiles.p99_s
    limit = 0.5 * (found.first_token_s.value + first.p99_s)
    for share, missed in ((None, ()), (0.99, ("time_to_first_token_s",))):
        load = replace(serving.workload, time_to_first_token_s=limit, limit_percentile=share)
        assert predict_serving(replace(serving, workload=load)).missed_limits == missed


def test_reused_prefixes_shorten_prefill_and_keep_the_cache() -> None:
    """Half of the prompt cached: less than the whole prefill, more than half, the same memory."""
    whole = _case(1.0, 8192, 64)
    half = replace(whole, workload=replace(whole.workload, prefix_share=0.5))
    long, short = predict_serving(whole), predict_serving(half)
    assert 0.5 * long.prefill.total_s < short.prefill.total_s < 0.75 * long.prefill.total_s
    assert short.memory == long.memory
