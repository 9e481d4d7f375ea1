"""Classes of requests and distributions of their lengths: moments, strata, and the closed form against a trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cluster_models.errors import InvalidWorkload
from cluster_models.serving.checks import check_serving
from cluster_models.serving.requests import Lengths, RequestClass
from cluster_models.serving.traces import Trace
from cluster_models.serving.workload import ServingWorkload, WeightFormat
from solver.serving.arrivals import open_state
from solver.serving.cases import ServingCase, arrays_of
from solver.serving.mixes import kinds_of, mix_of
from solver.serving.percentiles import latencies_at
from solver.serving.predict import predict_serving
from solver.serving.rates import rates_of
from solver.serving.simulation import simulate_trace
from tests.solver.serving.cases import case

WARM_UP = 500
WIDE = Lengths.from_quantiles([(0.0, 50), (0.5, 800), (0.9, 3000), (1.0, 7000)])
SHORT = Lengths.from_quantiles([(0.0, 10), (0.5, 150), (0.9, 500), (1.0, 1000)])


def _class(
    name: str, share: float, inputs: float | Lengths, outputs: float | Lengths, **given: Any
) -> RequestClass:
    lengths = (each if isinstance(each, Lengths) else Lengths((float(each),)) for each in (inputs, outputs))
    return RequestClass(name, share, *lengths, **given)


def _mixed(*classes: RequestClass, **given: Any) -> ServingCase:
    load = {"requests_per_s": 2.0, "weights": WeightFormat.FP8} | given
    return case(gpu="H200", workload=ServingWorkload.mixed(classes, **load))


def test_one_class_of_equal_requests_is_the_plain_workload() -> None:
    """To the last bit, under a rate and with requests in flight, with percentiles and cached prefixes."""
    for load in ({"requests_per_s": 3.0}, {"requests_per_s": None, "concurrency": 24.0}):
        mixed = _mixed(_class("a", 0.3, 1500, 300, prefix_share=0.25), limit_percentile=0.9, **load)
        given = {"weights": WeightFormat.FP8, "prefix_share": 0.25, "limit_percentile": 0.9} | load
        plain = replace(mixed, workload=ServingWorkload(1500, 300, **given))
        one, two = predict_serving(mixed), predict_serving(plain)
        assert replace(one, classes=()) == two
        assert one.classes[0].first_token == two.first_token_percentiles


def test_distributions_keep_means_and_squares() -> None:
    """A histogram is what it counts; quantiles are met, with the longest told apart best."""
    histogram = Lengths.counted([(100, 3), (300, 1)])
    assert (histogram.mean, histogram.mean_square) == (150.0, 30000.0)
    assert sum(
        share for share, tokens in zip(WIDE.shares, WIDE.tokens, strict=True) if tokens <= 3000
    ) == pytest.approx(0.9)
    assert 6500 < WIDE.tokens[-1] < 7000
    workload = _mixed(_class("a", 1.0, WIDE, SHORT)).workload
    mix = mix_of(workload)
    assert mix.mean(mix.inputs) == pytest.approx(WIDE.mean)
    assert mix.mean(mix.inputs * mix.outputs) == pytest.approx(WIDE.mean * SHORT.mean)
    held = SHORT.mean * WIDE.mean + 0.5 * SHORT.mean_square
    assert workload.held_tokens == pytest.approx(held / SHORT.mean)


def test_strata_keep_the_means_and_the_tail() -> None:
    """At most 64 kinds: means of every class to the last digit, the square of the prompts within 3 %."""
    workload = _mixed(_class("a", 1.0, WIDE, SHORT), _class("b", 3.0, 400, 30)).workload
    kinds = kinds_of(workload, arrays_of([_mixed(_class("b", 1.0, 400, 30))]).prefill)
    assert kinds.shares.shape == (3, len(kinds.outputs))
    assert len(kinds.outputs) <= 64
    assert kinds.shares.sum(axis=1) == pytest.approx(np.ones(3))
    assert kinds.shares @ kinds.outputs == pytest.approx([0.25 * SHORT.mean + 0.75 * 30, SHORT.mean, 30])
    longer = kinds.shares[1] @ (1.0 + kinds.longer) ** 2 / (kinds.shares[1] @ (1.0 + kinds.longer)) ** 2
    assert longer == pytest.approx(WIDE.mean_square / WIDE.mean**2, rel=0.03)


CHAT_AND_DOCUMENTS = (_class("chat", 0.7, 512, 256), _class("documents", 0.3, 6000, 128))


@pytest.mark.parametrize(
    ("classes", "rates"),
    [(CHAT_AND_DOCUMENTS, (2.0, 4.0)), ((_class("all", 1.0, WIDE, SHORT),), (2.0, 6.0))],
)
def test_a_mix_agrees_with_its_trace(classes: tuple[RequestClass, ...], rates: tuple[float, ...]) -> None:
    """All requests and each class, on a trace sampled from the classes.

    Means within 15 %, 90th percentiles within 25 % to the first token and 15 % per output token and to the last,
    99th percentiles per output token within 25 %.
    """
    for rate in rates:
        serving = _mixed(*classes, requests_per_s=rate)
        arrays, fitted = arrays_of([serving]), rates_of([serving.properties], {})
        fitted = replace(fitted, interference=np.ones(1))
        mix, rng = mix_of(serving.workload), np.random.default_rng(1)
        picks = rng.choice(len(mix.shares), 5000, p=mix.shares)
        times = np.cumsum(rng.exponential(1.0 / rate, len(picks)))
        outputs = np.maximum(np.round(mix.outputs[picks]), 2.0)
        prompts = np.round(mix.inputs[picks]).astype(int)
        trace = Trace(tuple(times.tolist()), tuple(prompts.tolist()), tuple(outputs.astype(int).tolist()))
        found = simulate_trace(arrays, fitted, trace)
        closed = open_state(arrays.decode, arrays.prefill, fitted, arrays.traffic, np.array([rate]))
        for group in range(len(classes) + 1):
            own = (mix.of_class[picks] == group - 1) if group else np.ones(len(picks), dtype=bool)
            own &= np.arange(len(picks)) >= WARM_UP
            whole = found.first_token_s + (outputs - 1.0) * found.token_s
            simulated = [each[own] for each in (found.first_token_s, found.token_s, whole)]
            means, tails, last = (
                latencies_at(closed, arrays.kinds, group, share)[0] for share in (None, 0.9, 0.99)
            )
            assert means == pytest.approx([each.mean() for each in simulated], rel=0.15)
            for tail, each, tolerance in zip(tails, simulated, (0.25, 0.15, 0.15), strict=True):
                assert tail == pytest.approx(np.quantile(each, 0.9), rel=tolerance)
            assert last[1] == pytest.approx(np.quantile(simulated[1], 0.99), rel=0.25)


def test_a_long_class_slows_the_short_one() -> None:
    """The same chat beside long prompts waits longer, and is held up while it decodes."""
    chat = predict_serving(_mixed(_class("chat", 1.0, 512, 256), requests_per_s=2.8))
    beside = predict_serving(_mixed(*CHAT_AND_DOCUMENTS, requests_per_s=4.0)).classes[0]
    assert beside.first_token.p90_s > 1.5 * chat.first_token_percentiles.p90_s
    assert beside.token.p90_s > 1.2 * chat.token_percentiles.p90_s


def test_limits_of_a_class_hold_for_it_alone() -> None:
    """A limit on the first token that long prompts miss is met by chat."""
    limit = {"time_to_first_token_s": 0.2}
    chat, documents = CHAT_AND_DOCUMENTS
    assert predict_serving(_mixed(replace(chat, **limit), documents)).missed_limits == ()
    found = predict_serving(_mixed(chat, replace(documents, **limit)))
    assert found.missed_limits == ("documents.time_to_first_token_s",)
    tail = predict_serving(_mixed(replace(chat, limit_percentile=0.99, **limit), documents))
    assert tail.missed_limits == ("chat.time_to_first_token_s",)


def test_what_makes_no_class_is_refused() -> None:
    """Lengths beyond the context name the class; names are unique; lengths ascend and shares add up."""
    serving = _mixed(_class("chat", 1.0, 512, 256), _class("book", 1.0, 131_000, 256))
    with pytest.raises(InvalidWorkload, match=r"classes\[1\].input_tokens.*book together are 131256"):
        check_serving(serving.architecture, serving.workload, serving.configuration)
    with pytest.raises(InvalidWorkload, match="another class"):
        _mixed(_class("a", 1.0, 5, 5), _class("a", 1.0, 6, 6))
    with pytest.raises(InvalidWorkload, match="counts nothing"):
        Lengths.counted([(5, 0)])
    with pytest.raises(InvalidWorkload, match="rise with the shares"):
        Lengths.from_quantiles([(0.5, 900), (0.9, 100)])
    with pytest.raises(InvalidWorkload, match="add up to 1"):
        Lengths((5.0, 6.0), (0.5, 0.6))
    with pytest.raises(InvalidWorkload, match="above 0"):
        _class("a", 0.0, 5, 5)


def test_the_longest_request_must_fit() -> None:
    """A worker that holds many short requests need not hold one of the longest."""
    classes = _class("a", 1.0, 500, 100), _class("b", 1e-3, 120_000, 100)
    small = _mixed(*classes, requests_per_s=None, concurrency=4.0)
    tight = replace(small, workload=replace(small.workload, memory_fraction=0.18))
    assert predict_serving(small).fits
    assert not predict_serving(tight).fits
