"""First tokens of requests that are all sent at once, against the simulation of such a trace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cluster_models.serving.traces import Trace
from cluster_models.serving.workload import Pool, ServingWorkload, WeightFormat, Worker
from solver.serving.cases import arrays_of
from solver.serving.rates import rates_of
from solver.serving.simulation import simulate_trace
from solver.serving.starting import first_tokens_at_start
from tests.solver.serving.cases import case


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(("requests", "inputs"), [(8, 512), (64, 1024), (64, 6000), (256, 2048)])
def test_requests_sent_at_once_come_in_turn(requests: int, inputs: int, split: bool, share: float) -> None:
    """Within a tenth of the simulation, with one worker of both phases or one prefill and two decode workers."""
    load = ServingWorkload(inputs, 256, concurrency=requests, weights=WeightFormat.FP8)
    prefill = Pool(Worker(4)) if split else None
    serving = case(gpu="H200", workload=load, replicas=1 + split, prefill=prefill)
    arrays, rates = arrays_of([serving]), replace(rates_of([serving.properties], {}), interference=np.ones(1))
    found = simulate_trace(arrays, rates, Trace((0.0,) * requests, (inputs,) * requests, (256,) * requests))
    exact = np.quantile(found.first_token_s, share, method="inverted_cdf")
    assert first_tokens_at_start(arrays, rates, share)[0] == pytest.approx(exact, rel=0.1)


def test_requests_beyond_memory_wait_for_answers() -> None:
    """Where a third of the requests fit, the last get their first token two answers later."""
    load = ServingWorkload(1024, 512, concurrency=90, weights=WeightFormat.FP8)
    serving = case(gpu="H200", workload=load)
    arrays = arrays_of([serving])
    rates = rates_of([serving.properties], {})
    few = replace(arrays, traffic=replace(arrays.traffic, most_sequences=np.full(1, 30.0)))
    trace = Trace((0.0,) * 90, (1024,) * 90, (512,) * 90)
    exact = np.quantile(simulate_trace(few, rates, trace).first_token_s, 0.95, method="inverted_cdf")
    assert first_tokens_at_start(few, rates, 0.95)[0] == pytest.approx(exact, rel=0.1)
