"""A trace of arrivals, or requests drawn from classes, step by step on groups of a plan, beside the closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from cluster_models.serving.figures import LimitedLatencies, Percentiles, Replay
from cluster_models.serving.traces import Trace
from cluster_models.serving.workload import ServingWorkload
from solver.candidates import IntArray
from solver.serving.cases import ServingCase, arrays_of
from solver.serving.drawing import drawn_trace
from solver.serving.loads import FloatArray
from solver.serving.percentiles import percentiles_of
from solver.serving.predict import steady_under
from solver.serving.rates import Effects, Fitted, rates_of
from solver.serving.simulation import simulate_trace

SHARES: Final = (0.5, 0.9, 0.99)
WARM_UP: Final = 10
"""Per cent of drawn requests that come before those that count."""


def replayed(
    cases: Sequence[ServingCase], shares: Sequence[float], effects: Effects | Fitted | None = None
) -> Replay | None:
    """The trace of the cases' workload, or one drawn from its classes, divided over the cases by ``shares``.

    ``None`` where there is neither.  Of a drawn one the first tenth, which meets idle workers, does not count.

    Raises ``InvalidWorkload`` as ``predict_serving`` does.
    """
    workload = cases[0].workload
    drawn = drawn_trace(_together(workload, shares[0]))
    trace = workload.trace or drawn
    if trace is None:
        return None
    outputs = np.array(trace.output_tokens, dtype=np.float64)
    first, token = np.empty_like(outputs), np.empty_like(outputs)
    expected = np.zeros((2, len(SHARES)))
    turns = _turns(shares, trace.requests)
    for number, case in enumerate(cases):
        arrays, rates = arrays_of([case]), rates_of([case.properties], effects, [case.shifts])
        found = percentiles_of(steady_under(case, arrays, rates), arrays.kinds, 0)
        expected += shares[number] * np.array([each.values_s for each in found])
        own = np.flatnonzero(turns == number)
        if len(own):
            answered = simulate_trace(arrays, rates, trace.part(own.tolist()))
            first[own], token[own] = answered.first_token_s, answered.token_s
    if drawn is not None:
        rows = np.arange(WARM_UP * trace.requests // 100, trace.requests)
        trace, first, token, outputs = trace.part(rows.tolist()), first[rows], token[rows], outputs[rows]
    decoded = token[outputs > 1] if (outputs > 1).any() else token
    return Replay(
        requests=trace.requests,
        first_token=_percentiles(first),
        token=_percentiles(decoded),
        expected_first_token=Percentiles(*expected[0].tolist()),
        expected_token=Percentiles(*expected[1].tolist()),
        limited_s=_limited(workload, trace, first, token, first + (outputs - 1.0) * token),
    )


def _together(workload: ServingWorkload, share: float) -> ServingWorkload:
    """The workload of all groups, of which one has ``share``."""
    rate = workload.requests_per_s
    return workload if rate is None else replace(workload, requests_per_s=rate / share)


def _turns(shares: Sequence[float], requests: int) -> IntArray:
    """The group (n,) of each request: group g takes its k-th when (k + 1/2) / share has come."""
    due = [(np.arange(int(np.ceil(share * requests)) + 1) + 0.5) / share for share in shares]
    groups = np.repeat(np.arange(len(shares)), [len(each) for each in due])
    return np.asarray(groups[np.argsort(np.concatenate(due), kind="stable")][:requests])


def _percentiles(values: FloatArray) -> Percentiles:
    return Percentiles(*np.quantile(values, SHARES).tolist())


def _limited(workload: ServingWorkload, trace: Trace, *latencies: FloatArray) -> LimitedLatencies:
    """Values that limits hold for, over all requests and in each class; times per token beyond the first."""
    names, outputs = np.array(trace.classes), np.array(trace.output_tokens)
    groups = [np.ones(trace.requests, dtype=bool), *(names == own for own in workload.class_names)]
    found = []
    for own, share in zip(groups, workload.limit_shares, strict=True):
        longer = own & (outputs > 1)
        for rows, values in zip((own, longer if longer.any() else own, own), latencies, strict=True):
            found.append(float(values[rows].mean() if share is None else np.quantile(values[rows], share)))
    return LimitedLatencies.of(found, workload.class_names)
