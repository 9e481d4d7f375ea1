"""Percentiles of latencies between requests, in closed form; tests hold them to the simulation of a trace.

First tokens: a least time, and for a share of the requests an exponential wait (the tail of M/G/1 in heavy traffic,
Kingman 1962).  Times per output token: log-normal about their mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from solver.serving.loads import FloatArray
from solver.serving.steady_state import Steady


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Seconds that half, nine in ten and 99 in 100 requests do not exceed."""

    p50_s: float
    p90_s: float
    p99_s: float


def first_token_at(steady: Steady, share: float) -> FloatArray:
    """Seconds to the first token that ``share`` of the requests do not exceed, (n,)."""
    waits = np.maximum(np.log(np.maximum(steady.wait_share, 1e-12) / (1.0 - share)), 0.0)
    return np.asarray(steady.first_base_s + steady.wait_scale_s * waits)


def token_at(steady: Steady, share: float) -> FloatArray:
    """Seconds per output token, as a mean over an answer, that ``share`` of the requests do not exceed, (n,)."""
    relative = steady.token_deviation_s / steady.token_s
    return np.asarray(steady.token_s * np.exp(NormalDist().inv_cdf(share) * relative))


def limited_latencies(steady: Steady, output_tokens: FloatArray, share: float | None) -> FloatArray:
    """Seconds (n, 3) that limits hold for: to the first token, per output token, to the last token.

    Those that ``share`` of the requests do not exceed, or means without one.  A time to the last token is the sum
    of the two others, whose excess over the means is taken as independent: it adds up by squares.
    """
    outputs = np.maximum(output_tokens - 1.0, 0.0)
    means = steady.first_token_s, steady.token_s
    first, token = means if share is None else (first_token_at(steady, share), token_at(steady, share))
    excess = np.hypot(np.maximum(first - means[0], 0.0), outputs * np.maximum(token - means[1], 0.0))
    return np.stack([first, token, means[0] + outputs * means[1] + excess], axis=-1)


def first_token_percentiles(steady: Steady) -> Percentiles:
    """Those of the first case."""
    return Percentiles(*(float(first_token_at(steady, share)[0]) for share in (0.5, 0.9, 0.99)))


def token_percentiles(steady: Steady) -> Percentiles:
    """Those of the first case."""
    return Percentiles(*(float(token_at(steady, share)[0]) for share in (0.5, 0.9, 0.99)))
