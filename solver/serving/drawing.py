"""Requests drawn from the classes of a workload, to be simulated where their percentiles matter."""

from __future__ import annotations

from typing import Final

import numpy as np

from cluster_models.serving.requests import Lengths
from cluster_models.serving.traces import Trace
from cluster_models.serving.workload import ServingWorkload
from solver.serving.loads import FloatArray

SEED: Final = 0
FEWEST: Final = 2000
MOST: Final = 12_000
"""Requests that are drawn: so many that the rarest class has ``OF_RAREST``, within these."""
OF_RAREST: Final = 400


def drawn_trace(workload: ServingWorkload) -> Trace | None:
    """Random arrivals at the rate of ``workload``, of its shares and lengths; ``None`` without either."""
    if workload.trace is not None or not workload.classes or workload.requests_per_s is None:
        return None
    random = np.random.default_rng(SEED)
    shares = np.array([each.share for each in workload.classes])
    shares = shares / shares.sum()
    number = int(np.clip(OF_RAREST / shares.min(), FEWEST, MOST))
    counts = np.maximum(np.round(shares * number), 1).astype(int)
    inputs, outputs, cached, names = [], [], [], []
    for each, count in zip(workload.classes, counts.tolist(), strict=True):
        inputs.append(drawn_lengths(each.inputs, count, random))
        outputs.append(drawn_lengths(each.outputs, count, random))
        cached.append(np.minimum(np.round(each.prefix_share * inputs[-1]), inputs[-1] - 1))
        names += [each.name] * count
    order = random.permutation(int(counts.sum()))
    arrivals = np.cumsum(random.exponential(1.0 / workload.requests_per_s, len(order)))
    prompts, answers, known = (
        tuple(np.concatenate(each)[order].astype(int).tolist()) for each in (inputs, outputs, cached)
    )
    return Trace(tuple(arrivals.tolist()), prompts, answers, known, tuple(names[row] for row in order))


def drawn_lengths(lengths: Lengths, number: int, random: np.random.Generator) -> FloatArray:
    """Lengths, each as often as its share says, in any order."""
    below = np.cumsum(lengths.shares)
    places = np.searchsorted(below / below[-1], (np.arange(number) + 0.5) / number)
    return np.asarray(random.permutation(np.round(np.array(lengths.tokens)[places])))
