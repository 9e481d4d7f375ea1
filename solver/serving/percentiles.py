"""Percentiles of latencies between requests, in closed form; tests hold them to the simulation of a trace.

First tokens: a least time, and for a share of the requests a wait, exponential where queues make it (the tail
of M/G/1 in heavy traffic, Kingman 1962), of a Weibull distribution where it ends with a step.  Times per output
token: a gamma distribution of their mean, variance and skewness, as few long prompts of others make a long
tail.  Requests of several lengths are a mixture of those of each kind.  Letters: n cases, K kinds, G groups
(all requests, then each class).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
import scipy

from cluster_models.serving.figures import Percentiles
from cluster_models.serving.workload import ServingWorkload
from solver.candidates import BoolArray, IntArray
from solver.serving.loads import FloatArray
from solver.serving.mixes import Kinds
from solver.serving.steady_state import Steady

HALVINGS: Final = 11
"""Halvings of the range, in logarithms, in which a mixture's percentile is sought: to a 2,000th of it."""
LEAST: Final = 1e-12
MOST_SKEWED: Final = 4.0
"""Skewness up to which Wilson & Hilferty's cube root holds a gamma distribution, to 5 % of its deviation."""
LEAST_SKEWED: Final = 1e-3


def limited_latencies(steady: Steady, kinds: Kinds, workload: ServingWorkload) -> FloatArray:
    """Seconds (n, 3 G) to the first token, per output token and to the last token, of each group.

    Those that the share of its requests which the limits hold for do not exceed, or means; means, too, where
    requests of several lengths have no limit.
    """
    limits = np.reshape(workload.limits_s, (-1, 3)) < np.inf
    groups = zip(kinds.shares, workload.limit_shares, limits, strict=True)
    return np.concatenate([_group(steady, kinds, *each) for each in groups], axis=-1)


def percentiles_of(steady: Steady, kinds: Kinds, group: int) -> tuple[Percentiles, Percentiles]:
    """Percentiles of the first case, to the first token and per output token, of one group."""
    found = [latencies_at(steady, kinds, group, share)[0] for share in (0.5, 0.9, 0.99)]
    return Percentiles(*(float(each[0]) for each in found)), Percentiles(*(float(each[1]) for each in found))


def latencies_at(steady: Steady, kinds: Kinds, group: int, share: float | None) -> FloatArray:
    """The three latencies (n, 3) that ``share`` of one group do not exceed, or means."""
    return _group(steady, kinds, kinds.shares[group], share, np.ones(3, dtype=bool))


@dataclass(frozen=True, slots=True, eq=False)
class _Requests:
    """Requests of one group: shares and answers after the first token (K,); per case their times (n, K).

    ``decoded`` are shares among those of more than one token; ``base_s`` is the least time to the first token.
    """

    shares: FloatArray
    decoded: FloatArray
    answers: FloatArray
    base_s: FloatArray
    first_s: FloatArray
    token_s: FloatArray
    deviation_s: FloatArray
    skewness: FloatArray

    @property
    def means_s(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Means over the requests, each (n,): to the first token, per output token, to the last token."""
        first = self.first_s @ self.shares
        return first, self.token_s @ self.decoded, first + (self.answers * self.token_s) @ self.shares


def _group(steady: Steady, kinds: Kinds, shares: FloatArray, share: float | None, sought: BoolArray) -> FloatArray:
    """Latencies (n, 3) of requests with ``shares`` (K,) of the kinds, means of those not ``sought`` (3,)."""
    requests = _requests(steady, kinds, shares)
    if share is None:
        return np.stack(requests.means_s, axis=-1)
    if len(requests.shares) == 1:
        return _equal_at(steady, requests, share)
    pairs = zip(_mixtures(steady, requests, share), requests.means_s, sought, strict=True)
    return np.stack([_mixed_at(*found, share) if is_sought else mean for found, mean, is_sought in pairs], axis=-1)


def _requests(steady: Steady, kinds: Kinds, shares: FloatArray) -> _Requests:
    """Times of requests of each kind: those that came while one waited are prefilled while it decodes."""
    own = np.flatnonzero(shares)
    weights, answers = shares[own], kinds.outputs[own] - 1.0
    longer = steady.by_tokens_s[:, np.newaxis] * kinds.longer[own]
    longer = longer + steady.by_attention_s[:, np.newaxis] * kinds.attention[own]
    decoded = weights * (answers > 0) if answers.any() else weights
    first = steady.first_token_s[:, np.newaxis] + longer
    usual = (steady.first_token_s / steady.answer_tokens)[:, np.newaxis]
    behind = steady.behind[:, np.newaxis] * (first / np.maximum(answers, 1.0) - usual)
    deviations = _deviations(steady, kinds, own)
    return _Requests(
        shares=weights,
        decoded=decoded / decoded.sum(),
        answers=answers,
        base_s=steady.first_base_s[:, np.newaxis] + longer,
        first_s=first,
        token_s=steady.token_s[:, np.newaxis] + behind,
        deviation_s=deviations,
        skewness=_third_moments(steady, kinds, own) / np.maximum(deviations, LEAST) ** 3,
    )


def _equal_at(steady: Steady, requests: _Requests, share: float) -> FloatArray:
    """Latencies (n, 3) of equal requests.

    The time to the last token is the sum of the two others, whose excess over the means is independent: it adds up
    by squares.
    """
    mean_first, mean_token, mean = requests.means_s
    first = requests.base_s[:, 0] + _waits_at(steady, share)
    token = mean_token + _excess_at(requests, share)[:, 0]
    outputs = np.maximum(requests.answers, 0.0)
    excess = np.hypot(np.maximum(first - mean_first, 0.0), outputs * np.maximum(token - mean_token, 0.0))
    return np.stack([first, token, mean + excess], axis=-1)


def _mixtures(
    steady: Steady, requests: _Requests, share: float
) -> Iterator[tuple[Callable[[FloatArray], FloatArray], FloatArray]]:
    """For each latency the share of requests below values (n,), and what ``share`` of each kind stay below (n, K).

    Times to the last token are normal in each kind, with the sum of the variances of the two others.
    """
    scale, waits, shape = (
        each[:, np.newaxis] for each in (steady.wait_scale_s, steady.wait_share, steady.wait_shape)
    )
    whole = requests.first_s + requests.answers * requests.token_s
    mean, square = (scale**power * scipy.special.gamma(1.0 + power / shape) * waits for power in (1.0, 2.0))
    spread = np.sqrt(square - mean**2 + (requests.answers * requests.deviation_s) ** 2) + LEAST

    def first_below(value: FloatArray) -> FloatArray:
        late = value[:, np.newaxis] - requests.base_s
        waited = 1.0 - waits * np.exp(-((np.maximum(late, 0.0) / (scale + LEAST)) ** shape))
        return np.asarray(np.where(late < 0, 0.0, waited) @ requests.shares)

    def token_below(value: FloatArray) -> FloatArray:
        return np.asarray(_excess_below(requests, value[:, np.newaxis] - requests.token_s) @ requests.decoded)

    def whole_below(value: FloatArray) -> FloatArray:
        return np.asarray(scipy.special.ndtr((value[:, np.newaxis] - whole) / spread) @ requests.shares)

    yield first_below, requests.base_s + _waits_at(steady, share)[:, np.newaxis]
    yield token_below, np.maximum(requests.token_s + _excess_at(requests, share), LEAST)
    yield whole_below, whole + NormalDist().inv_cdf(share) * spread


def _mixed_at(below: Callable[[FloatArray], FloatArray], ends: FloatArray, share: float) -> FloatArray:
    """Values (n,) that ``share`` of a mixture lie below, between the least and largest of its kinds (n, K)."""
    low, high = ends.min(axis=1), ends.max(axis=1)
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        enough = below(middle) >= share
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.asarray(high)


def _waits_at(steady: Steady, share: float) -> FloatArray:
    """Seconds beyond the least time to the first token that ``share`` of the requests do not exceed, (n,)."""
    waits = np.maximum(np.log(np.maximum(steady.wait_share, LEAST) / (1.0 - share)), 0.0)
    return np.asarray(steady.wait_scale_s * waits ** (1.0 / steady.wait_shape))


def _excess_at(requests: _Requests, share: float) -> FloatArray:
    """Excess over the mean time per output token that ``share`` of each kind do not exceed (n, K).

    The quantile of a gamma distribution by the cube root of Wilson & Hilferty (1931).
    """
    skew = _skewness(requests)
    root = 1.0 + skew * NormalDist().inv_cdf(share) / 6.0 - skew**2 / 36.0
    return np.asarray(requests.deviation_s * 2.0 / skew * (np.maximum(root, 0.0) ** 3 - 1.0))


def _excess_below(requests: _Requests, excess: FloatArray) -> FloatArray:
    """Share of each kind with no more than ``excess`` (n, K)."""
    skew = _skewness(requests)
    cube = 1.0 + 0.5 * skew * excess / (requests.deviation_s + LEAST)
    normal = 6.0 / skew * (np.cbrt(np.maximum(cube, 0.0)) - 1.0) + skew / 6.0
    return np.asarray(np.where(cube > 0.0, scipy.special.ndtr(normal), 0.0))


def _skewness(requests: _Requests) -> FloatArray:
    return np.clip(requests.skewness, LEAST_SKEWED, MOST_SKEWED)


def _deviations(steady: Steady, kinds: Kinds, own: IntArray) -> FloatArray:
    """Standard deviation (n, K) of the time per output token of requests of each kind."""
    if len(kinds.outputs) == 1:
        return steady.token_deviation_s[:, np.newaxis]
    prompts, both = steady.prompt_spread[:, np.newaxis], steady.both_spread[:, np.newaxis]
    square = prompts * kinds.by_prompts[own] + both * kinds.by_both[own]
    square = square + (1.0 - prompts - both) * kinds.by_company[own]
    return np.asarray(steady.token_deviation_s[:, np.newaxis] * np.sqrt(np.maximum(square, 0.0)))


def _third_moments(steady: Steady, kinds: Kinds, own: IntArray) -> FloatArray:
    """Third central moment (n, K) of the time per output token of requests of each kind."""
    longer = (
        steady.by_tokens_s[:, np.newaxis] * kinds.longer + steady.by_attention_s[:, np.newaxis] * kinds.attention
    )
    cube = (1.0 + longer / steady.prompt_s[:, np.newaxis]) ** 3 @ kinds.shares[0]
    third = steady.third_by_prompts * cube + steady.third_by_queues
    return np.asarray(third[:, np.newaxis] * kinds.by_prompts[own] ** 2)
