"""Steps, the closed form against a simulation, and what must hold of any prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cluster_models.errors import InvalidWorkload
from cluster_models.serving.workload import Pool, ServingWorkload, Speculation, WeightFormat, Worker
from solver.serving.cases import ServingCase, arrays_of, steady_of
from solver.serving.loads import FloatArray
from solver.serving.predict import predict_serving
from solver.serving.rates import Rates, rates_of
from solver.serving.steps import decode_step, prefill_step
from tests.solver.serving.cases import NVLINK, case
from tests.solver.serving.simulation import simulate

LOADS = [(4, 2048, 256), (16, 2048, 256), (32, 1024, 512), (64, 512, 512)]


def _plain(serving: ServingCase, **given: float) -> Rates:
    """Rates of ``serving`` without what the simulation has not."""
    values = {"interference": 1.0, "wait_factor": 1.0, "bunching": 0.0, "request_s": 1e-9} | given
    plain = {name: np.array([value]) for name, value in values.items()}
    return replace(rates_of([serving.properties], {}), **plain)


def _decode(serving: ServingCase, rates: Rates) -> Callable[[float], float]:
    arrays = arrays_of([serving])
    context = arrays.traffic.input_tokens + arrays.traffic.output_tokens / 2

    def seconds(batch: float) -> float:
        return float(decode_step(arrays.decode, rates, np.array([batch]), context, np.zeros(1)).total_s[0])

    return seconds


@pytest.mark.parametrize(("concurrency", "inputs", "outputs"), LOADS)
def test_closed_form_agrees_with_the_simulation(concurrency: int, inputs: int, outputs: int) -> None:
    """Throughput and time per output token within 5 %; a prompt waits no longer than mean value analysis says."""
    load = ServingWorkload(inputs, outputs, concurrency=concurrency, weights=WeightFormat.FP8)
    serving = case(gpu="H200", workload=load)
    rates = _plain(serving)
    steady = steady_of(arrays_of([serving]), rates)
    prefill = float(steady.prefill.total_s[0])
    oracle = simulate(
        concurrency=concurrency,
        outputs=outputs,
        prefill_s=lambda _: prefill,
        decode_s=_decode(serving, rates),
        requests=30 * concurrency,
    )
    assert steady.token_s[0] == pytest.approx(oracle.token_s, rel=0.05)
    assert steady.requests_per_s[0] == pytest.approx(oracle.requests_per_s, rel=0.05)
    assert 0.999 * prefill <= oracle.first_token_s <= 1.25 * float(steady.first_token_s[0])


@pytest.mark.parametrize("ranks", [8, 16])
def test_few_prompts_leave_attention_ranks_idle(ranks: int) -> None:
    """Throughput and time per output token as simulated, within 6 %: all ranks wait for those that prefill."""
    load = ServingWorkload(1024, 256, concurrency=32, weights=WeightFormat.FP8)
    worker = Worker(attention_data=ranks, expert=ranks)
    serving = case("deepseek-v3", gpu="H200", worker=worker, workload=load)
    arrays, rates, one = arrays_of([serving]), _plain(serving), np.ones(1)
    steady = steady_of(arrays, rates)

    def prefill_s(prompts: int) -> float:
        return float(prefill_step(arrays.prefill, rates, 1024.0 * one, prompts * one, one, one).total_s[0])

    oracle = simulate(
        concurrency=32,
        outputs=256,
        prefill_s=prefill_s,
        decode_s=_decode(serving, rates),
        requests=400,
        ranks=ranks,
    )
    assert steady.token_s[0] == pytest.approx(oracle.token_s, rel=0.06)
    assert steady.requests_per_s[0] == pytest.approx(oracle.requests_per_s, rel=0.06)


def test_requests_in_flight_are_rate_times_stay() -> None:
    """Little's law, of cases that prefill and decode keep up with."""
    loads = [ServingWorkload(1024, 512, concurrency=number, weights=WeightFormat.FP8) for number in (1, 8, 64)]
    cases = [case(workload=load) for load in loads]
    arrays = arrays_of(cases)
    steady = steady_of(arrays, rates_of([each.properties for each in cases]))
    stay = steady.first_token_s + 511 * steady.token_s
    np.testing.assert_allclose(steady.requests_per_s * stay, arrays.traffic.concurrency, rtol=2e-2)


def test_a_step_never_beats_the_memory() -> None:
    """Weights and caches of a step cannot be read faster than the data sheet says."""
    serving = case(worker=Worker(tensor=4))
    loads, rates = arrays_of([serving]).decode, rates_of([serving.properties])
    for batch in (1.0, 16.0, 128.0):
        cached = batch * 1536 * loads.cache_full_bytes
        floor = (loads.dense_bytes + cached) / loads.memory_bytes_per_s
        step = decode_step(loads, rates, np.array([batch]), np.array([1536.0]), np.zeros(1))
        assert step.total_s[0] > floor[0]


def _token_s(*cases: ServingCase) -> FloatArray:
    return steady_of(arrays_of(cases), rates_of([each.properties for each in cases])).token_s


def test_what_slows_decoding() -> None:
    """More requests, longer prompts, slower links, and ranks on two nodes."""
    busy = [ServingWorkload(1024, 1024, number, weights=WeightFormat.FP8) for number in (1, 8, 64, 256)]
    assert (np.diff(_token_s(*(case(workload=load) for load in busy))) > 0).all()
    long = [ServingWorkload(size, 1024, 16, weights=WeightFormat.FP8) for size in (512, 4096, 16384)]
    assert (np.diff(_token_s(*(case(workload=load) for load in long))) > 0).all()
    slow = replace(NVLINK, domain_bytes_per_s=NVLINK.domain_bytes_per_s / 10)
    fast, slower = _token_s(case(), case(links=slow))
    assert slower > fast
    halves = replace(NVLINK, domain_gpus=4)
    near, far = _token_s(case(worker=Worker(tensor=8)), case(worker=Worker(tensor=8), links=halves))
    assert far > near


def test_few_requests_touch_few_experts() -> None:
    """A step of one request reads the experts of one token, not all 256."""
    step = decode_step(
        arrays_of([case("deepseek-v3", gpu="B200", worker=Worker(tensor=8))] * 2).decode,
        rates_of([case("deepseek-v3", gpu="B200").properties] * 2),
        np.array([1.0, 256.0]),
        np.array([1024.0, 1024.0]),
        np.zeros(2),
    )
    assert 10 * step.expert_s[0] < step.expert_s[1] < 33 * step.expert_s[0]


def test_split_pools_do_not_disturb_each_other() -> None:
    """Decoding is not delayed by prompts; the cache's way costs time to the first token."""
    load = ServingWorkload(8192, 512, concurrency=32, weights=WeightFormat.FP8)
    together = predict_serving(case(gpu="H200", workload=load, replicas=2))
    split = predict_serving(case(gpu="H200", workload=load, prefill=Pool(Worker(tensor=4))))
    assert split.token_s.value < together.token_s.value
    slow = replace(case(gpu="H200", workload=load, prefill=Pool(Worker(tensor=4))), transfer_bytes_per_s=1e9)
    assert predict_serving(slow).first_token_s.value > split.first_token_s.value + 1.0


def test_accepted_drafts_speed_up_decoding() -> None:
    """At small loads, where a step is bound by memory."""
    plain = ServingWorkload(1024, 1024, 4, weights=WeightFormat.FP8)
    drafted = replace(plain, speculation=Speculation(draft_tokens=2, accepted_tokens=1.0))
    rejected = replace(plain, speculation=Speculation(draft_tokens=2, accepted_tokens=0.0))
    without, quicker, slower = _token_s(*(case(workload=load) for load in (plain, drafted, rejected)))
    assert quicker < 0.6 * without < without < slower


def test_equal_replicas_share_the_load() -> None:
    """Twice the workers and twice the requests: the same times, twice the tokens."""
    one = predict_serving(case())
    load = ServingWorkload(1024, 1024, concurrency=16, weights=WeightFormat.FP8)
    two = predict_serving(case(replicas=2, workload=load))
    assert two.token_s == one.token_s
    assert two.requests_per_s == pytest.approx(2 * one.requests_per_s)
    assert two.output_tokens_per_s_per_gpu == pytest.approx(one.output_tokens_per_s_per_gpu)


def test_a_rate_of_arrivals_is_answered_at_that_rate() -> None:
    """Requests in flight follow by Little's law; a rate beyond what is served is refused with the most there is."""
    load = ServingWorkload(1024, 256, requests_per_s=2.0, weights=WeightFormat.FP8)
    prediction = predict_serving(case(workload=load))
    assert prediction.requests_per_s == 2.0
    stay = prediction.first_token_s.value + 255 * prediction.token_s.value
    assert prediction.concurrency == pytest.approx(2.0 * stay)
    assert prediction.decoding == pytest.approx(2.0 * 255 * prediction.token_s.value, rel=1e-3)
    with pytest.raises(InvalidWorkload, match="answers at most"):
        predict_serving(case(workload=replace(load, requests_per_s=1e4)))


def test_prompts_that_arrive_at_random_wait_as_in_a_queue() -> None:
    """Prompts that fill a step wait u s / (2 (1 - u)) before a prefill worker that is busy a share u (M/D/1)."""
    pool = Pool(Worker(tensor=4))
    found = {}
    for rate in (1e-3, 0.5, 2.0):
        load = ServingWorkload(8192, 64, requests_per_s=rate, weights=WeightFormat.FP8)
        found[rate] = predict_serving(case(gpu="H200", workload=load, prefill=pool))
    service = found[1e-3].prefill.total_s
    for rate in (0.5, 2.0):
        busy = rate * service
        waited = found[rate].first_token_s.value - found[1e-3].first_token_s.value
        assert waited == pytest.approx(0.5 * busy * service / (1.0 - busy), rel=1e-2)


def test_arrivals_and_requests_in_flight_agree_where_nobody_waits() -> None:
    """At a small load the rate that a closed loop answers gives the same time per token back."""
    closed = predict_serving(case(workload=ServingWorkload(256, 1024, concurrency=8, weights=WeightFormat.FP8)))
    load = ServingWorkload(256, 1024, requests_per_s=closed.requests_per_s, weights=WeightFormat.FP8)
    assert predict_serving(case(workload=load)).token_s.value == pytest.approx(closed.token_s.value, rel=0.03)


def test_full_caches_make_requests_wait() -> None:
    """Beyond the requests that memory holds, throughput stays and the queue grows."""
    loads = [ServingWorkload(8192, 1024, number, weights=WeightFormat.FP8) for number in (64, 1000, 2000)]
    some, more, most = (predict_serving(case(workload=load)) for load in loads)
    assert some.most_requests == more.most_requests < 1000
    assert more.queue_s > 0
    assert most.queue_s > 2 * more.queue_s
    assert most.requests_per_s == pytest.approx(more.requests_per_s)


def test_an_interval_of_what_was_not_measured_is_wider() -> None:
    """An engine on a kind of GPU without runs of it."""
    known, unknown = predict_serving(case(gpu="H200")), predict_serving(case(gpu="L40S", worker=Worker(tensor=8)))
    assert known.measured_engine
    assert not unknown.measured_engine
    for figure in ("token_s", "first_token_s"):
        narrow, wide = getattr(known, figure), getattr(unknown, figure)
        assert narrow.low < narrow.value < narrow.high
        assert wide.high / wide.low > narrow.high / narrow.low


def test_limits_that_are_missed_are_named() -> None:
    """Both limits, or none."""
    load = ServingWorkload(1024, 1024, 8, weights=WeightFormat.FP8)
    tight = replace(load, time_to_first_token_s=1e-4, time_per_output_token_s=1e-6)
    wide = replace(load, time_to_first_token_s=100.0, time_per_output_token_s=1.0)
    missed = predict_serving(case(workload=tight)).missed_limits
    assert missed == ("time_to_first_token_s", "time_per_output_token_s")
    assert predict_serving(case(workload=wide)).missed_limits == ()
