"""Bounds on what workers of split groups answer, before anybody prices a group.

P: prompts a second of a worker whose steps are full; D(b) = b / (seconds of an answer beside b - 1 others), nothing
lost between the phases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from cluster_models.serving.goal import ServedModel
from solver.candidates import IntArray
from solver.serving.draw import answers_in_use, prompts_in_use
from solver.serving.loads import FloatArray
from solver.serving.planning.pricing import WorkerTable
from solver.serving.rates import Rates
from solver.serving.steady_state import decode_of, prefill_of

MOST_REPLICAS: Final = 12
"""Replicas of a group in all."""
HALVINGS: Final = 30
MARGIN: Final = 1.01
"""Bounds over what is priced: fixed points settle to within a thousandth, loads to a four-thousandth."""
MEAN_BELOW: Final = 0.7
"""Percentiles from this on are no less than the mean, of a skewed distribution as well."""
KNOTS: Final = (0.1, 0.25, 0.5, 0.75, 1.0)
"""Shares of the most sequences between which those that a rate needs are taken as straight."""
LEAST: Final = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Workers:
    """Workers (W,), or kinds of them at their best: GPUs in each of ``islands``, and bounds on what they answer.

    ``answers`` (Y, L, W): of one among y decode workers, at each load; ``most`` and ``decoding`` sequences at once,
    by memory and within the limits.  One that answers r a second decodes max_k (``fixed[k]`` + r ``each_s[k]``) at
    most, (K, W): chords of a convex function.  Memory or arithmetic of a worker would be in use all the time at so
    many prompts (``prompt_reads``, ``prompt_products``) or answers a second, at its largest batch.
    """

    islands: IntArray
    slot: IntArray
    prompts: FloatArray
    answers: FloatArray
    most: FloatArray
    decoding: FloatArray
    fixed: FloatArray
    each_s: FloatArray
    prompt_reads: FloatArray
    prompt_products: FloatArray
    answer_reads: FloatArray
    answer_products: FloatArray

    @property
    def gpus(self) -> IntArray:
        """GPUs of each (W,)."""
        return self.islands * self.slot


def rows_of(workers: Workers, rows: IntArray) -> Workers:
    """Some of ``workers``."""
    return Workers(*(getattr(workers, each.name)[..., rows] for each in fields(Workers)))


def best_of(workers: Workers) -> Workers:
    """One that is as good as the best of ``workers`` in everything."""
    return Workers(*(getattr(workers, each.name).max(axis=-1, keepdims=True) for each in fields(Workers)))


def joined_workers(workers: Sequence[Workers]) -> Workers:
    """All of ``workers`` in one."""
    return Workers(
        *(np.concatenate([getattr(each, field.name) for each in workers], axis=-1) for field in fields(Workers))
    )


def worker_bounds(table: WorkerTable, loads: FloatArray) -> Workers:
    """All workers of the table (W,), ``answers`` at so many requests in flight of a group (L,)."""
    traffic, rates, prefill = table.arrays.traffic, table.split_rates, table.split_arrays.prefill
    ranks, room = prefill.attention_data, np.maximum(traffic.chunk_tokens / traffic.new_tokens, 1.0)
    full = prefill_of(prefill, rates, traffic, ranks, room).total_s
    alone = prefill_of(prefill, rates, traffic, np.ones_like(ranks), np.ones_like(ranks)).total_s
    first_s, token_s, whole_s = mean_limits_s(table.served)
    in_time = table.fits & (alone + rates.request_s <= MARGIN * first_s)
    longest_s = MARGIN * min(max(table.served.workload.output_tokens - 1.0, LEAST) * token_s, whole_s)
    most = traffic.most_sequences
    low, high = np.ones_like(most), most
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        within = _answer_s(table, rates, middle) <= longest_s
        low, high = np.where(within, middle, low), np.where(within, high, middle)
    able = table.fits & (_answer_s(table, rates, np.ones_like(most)) <= longest_s)

    def answers(load: float) -> FloatArray:
        own = np.minimum(load, high)
        return np.asarray(able * MARGIN * own / _answer_s(table, rates, own))

    one = np.ones_like(most)
    prompts = prompts_in_use(prefill, traffic, one)
    decoded = [np.maximum(each, LEAST) for each in answers_in_use(table.split_arrays.decode, traffic, one, most)]
    knots = [np.maximum(share * high, 1.0) for share in KNOTS]
    rising = [each / _answer_s(table, rates, each) for each in knots]
    slopes = [_answer_s(table, rates, knots[0])]
    slopes += [
        (b - a) / np.maximum(s - r, LEAST) * (s > r)
        for a, b, r, s in zip(knots, knots[1:], rising, rising[1:], strict=False)
    ]
    fixed = [
        np.zeros_like(high),
        *(b - slope * s for b, s, slope in zip(knots[1:], rising[1:], slopes[1:], strict=True)),
    ]
    return Workers(
        islands=np.array([shape.islands for _, shape in table.rows]),
        slot=np.array([shape.slot for _, shape in table.rows]),
        prompts=in_time * MARGIN * room * ranks * prefill.pipeline / full,
        answers=np.array([[answers(load / y) for load in loads.tolist()] for y in range(1, MOST_REPLICAS)]),
        most=most,
        decoding=high,
        fixed=np.array(fixed),
        each_s=np.array(slopes),
        prompt_reads=1.0 / prompts[0],
        prompt_products=1.0 / prompts[1],
        answer_reads=1.0 / decoded[0],
        answer_products=1.0 / decoded[1],
    )


def _answer_s(table: WorkerTable, rates: Rates, sequences: FloatArray) -> FloatArray:
    """Seconds from the first token to the last beside so many sequences, itself included (W,)."""
    step = decode_of(table.split_arrays.decode, rates, table.arrays.traffic, np.maximum(sequences, 1.0)).total_s
    outputs = max(table.served.workload.output_tokens - 1.0, LEAST)
    return np.asarray(outputs * step / table.arrays.traffic.yields)


def mean_limits_s(served: ServedModel) -> tuple[float, float, float]:
    """Limits that hold for means as well, so that bounds may use them."""
    workload = served.workload
    share = workload.limit_percentile
    if workload.is_mixed or (share is not None and share < MEAN_BELOW):
        return math.inf, math.inf, math.inf
    first, token, whole = workload.limits_s[:3]
    return first, token, whole


def longest_wait_s(served: ServedModel) -> float:
    """Mean seconds to the first token at most."""
    first, _, whole = mean_limits_s(served)
    return MARGIN * min(first, whole)
