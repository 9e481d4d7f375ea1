"""Percentiles of latencies between requests, in closed form; tests hold them to the simulation of a trace.

First tokens: a least time, and for a share of the requests an exponential wait (the tail of M/G/1 in heavy traffic,
Kingman 1962).  Times per output token: log-normal about their mean.  Requests of several lengths are a mixture of
those of each kind.  Letters: n cases, K kinds, G groups (all requests, then each class).
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import Final

import numpy as np
from scipy.special import ndtr

from cluster_models.serving.figures import Percentiles
from cluster_models.serving.workload import ServingWorkload
from solver.candidates import BoolArray, IntArray
from solver.serving.loads import FloatArray
from solver.serving.mixes import Kinds
from solver.serving.steady_state import Steady

HALVINGS: Final = 11
"""Of the range, in logarithms, in which the percentile of a mixture is sought: to a 2,000th of it."""
LEAST: Final = 1e-12


def first_token_at(steady: Steady, share: float) -> FloatArray:
    """Seconds to the first token that ``share`` of equal requests do not exceed, (n,)."""
    return _first_at(steady, steady.first_base_s, share)


def token_at(steady: Steady, share: float) -> FloatArray:
    """Seconds per output token, as a mean over an answer, that ``share`` of equal requests do not exceed, (n,)."""
    return _token_at(steady.token_s, steady.token_deviation_s, share)


def limited_latencies(steady: Steady, kinds: Kinds, workload: ServingWorkload) -> FloatArray:
    """Seconds (n, 3 G) to the first token, per output token and to the last token, of each group.

    Those that the share of its requests which the limits hold for do not exceed, or means; means, too, where
    requests of several lengths have no limit.
    """
    limits = np.reshape(workload.limits_s, (-1, 3)) < np.inf
    groups = zip(kinds.shares, workload.limit_shares, limits, strict=True)
    return np.concatenate([_group(steady, kinds, *each) for each in groups], axis=-1)


def percentiles_of(steady: Steady, kinds: Kinds, group: int) -> tuple[Percentiles, Percentiles]:
    """Those of the first case to the first token and per output token, of one group."""
    found = [latencies_at(steady, kinds, group, share)[0] for share in (0.5, 0.9, 0.99)]
    return Percentiles(*(float(each[0]) for each in found)), Percentiles(*(float(each[1]) for each in found))


def latencies_at(steady: Steady, kinds: Kinds, group: int, share: float | None) -> FloatArray:
    """The three latencies (n, 3) that ``share`` of one group do not exceed, or means."""
    return _group(steady, kinds, kinds.shares[group], share, np.ones(3, dtype=bool))


def _group(steady: Steady, kinds: Kinds, shares: FloatArray, share: float | None, sought: BoolArray) -> FloatArray:
    """The three latencies (n, 3) of requests with ``shares`` (K,) of the kinds, means of those not ``sought`` (3,).

    The time to the last token is the sum of the two others, whose excess over the means is taken as independent:
    for equal requests it adds up by squares, in a mixture each kind is normal with the sum of both variances.
    """
    own = np.flatnonzero(shares)
    weights, answers = shares[own], kinds.outputs[own] - 1.0
    longer = steady.by_tokens_s[:, np.newaxis] * kinds.longer[own]
    longer = longer + steady.by_attention_s[:, np.newaxis] * kinds.attention[own]
    decoded = weights * (answers > 0) if answers.any() else weights
    decoded = decoded / decoded.sum()
    mean_first, outputs = steady.first_token_s + longer @ weights, np.maximum(answers @ weights, 0.0)
    firsts = steady.first_token_s[:, np.newaxis] + longer
    behind = steady.behind[:, np.newaxis] * (
        firsts / np.maximum(answers, 1.0) - (steady.first_token_s / steady.answer_tokens)[:, np.newaxis]
    )
    tokens = steady.token_s[:, np.newaxis] + behind
    token = tokens @ decoded
    mean = mean_first + (answers * tokens) @ weights
    if share is None:
        return np.stack([mean_first, token, mean], axis=-1)
    base, deviation = steady.first_base_s[:, np.newaxis] + longer, _deviations(steady, kinds, own)
    if len(own) == 1:
        first, high = _first_at(steady, base[:, 0], share), _token_at(token, deviation[:, 0], share)
        excess = np.hypot(np.maximum(first - mean_first, 0.0), outputs * np.maximum(high - token, 0.0))
        return np.stack([first, high, mean + excess], axis=-1)
    scale, waits = steady.wait_scale_s[:, np.newaxis], steady.wait_share[:, np.newaxis]
    each = firsts + answers * tokens
    spread = np.sqrt(scale**2 * waits * (2.0 - waits) + (answers * deviation) ** 2) + LEAST
    relative = deviation / np.maximum(tokens, LEAST) + LEAST

    def first_below(value: FloatArray) -> FloatArray:
        late = value[:, np.newaxis] - base
        return np.asarray(
            np.where(late < 0, 0.0, 1.0 - waits * np.exp(-np.maximum(late, 0.0) / (scale + LEAST))) @ weights
        )

    def token_below(value: FloatArray) -> FloatArray:
        ratio = np.log(np.maximum(value, LEAST)[:, np.newaxis] / np.maximum(tokens, LEAST))
        return np.asarray(ndtr(ratio / relative) @ decoded)

    def answer_below(value: FloatArray) -> FloatArray:
        return np.asarray(ndtr((value[:, np.newaxis] - each) / spread) @ weights)

    normal = NormalDist().inv_cdf(share)
    late = base + scale * np.maximum(np.log(np.maximum(waits, LEAST) / (1.0 - share)), 0.0)
    slow = tokens * np.exp(normal * relative)
    found = zip((first_below, token_below, answer_below), (late, slow, each + normal * spread), strict=True)
    columns = [
        _mixed_at(below, ends, share) if is_sought else known
        for (below, ends), is_sought, known in zip(found, sought, (mean_first, token, mean), strict=True)
    ]
    return np.stack(columns, axis=-1)


def _mixed_at(below: Callable[[FloatArray], FloatArray], ends: FloatArray, share: float) -> FloatArray:
    """Values (n,) that ``share`` of a mixture lie below, between the least and largest of its kinds (n, K)."""
    low, high = ends.min(axis=1), ends.max(axis=1)
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        enough = below(middle) >= share
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.asarray(high)


def _first_at(steady: Steady, base: FloatArray, share: float) -> FloatArray:
    waits = np.maximum(np.log(np.maximum(steady.wait_share, LEAST) / (1.0 - share)), 0.0)
    return np.asarray(base + steady.wait_scale_s * waits)


def _token_at(token_s: FloatArray, deviation_s: FloatArray, share: float) -> FloatArray:
    return np.asarray(token_s * np.exp(NormalDist().inv_cdf(share) * (deviation_s / token_s)))


def _deviations(steady: Steady, kinds: Kinds, own: IntArray) -> FloatArray:
    """Standard deviation (n, K) of the time per output token of requests of each kind."""
    if len(kinds.outputs) == 1:
        return steady.token_deviation_s[:, np.newaxis]
    prompts, both = steady.prompt_spread[:, np.newaxis], steady.both_spread[:, np.newaxis]
    square = prompts * kinds.by_prompts[own] + both * kinds.by_both[own]
    square = square + (1.0 - prompts - both) * kinds.by_company[own]
    return np.asarray(steady.token_deviation_s[:, np.newaxis] * np.sqrt(np.maximum(square, 0.0)))
