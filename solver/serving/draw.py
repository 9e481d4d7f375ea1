"""Mean power that the GPUs of a deployment draw as it serves.

A worker that answers r requests a second, b sequences at once, runs r (O - 1) / (y b) decode steps a second, of y
tokens each, and r prompts.  Their work at data sheet rates is the share of the time that memory and arithmetic are
in use, which the law of ``cluster_models.cluster.draw`` was fitted to.
"""

from __future__ import annotations

import math

import numpy as np

from cluster_models.cluster.draw import draw_law
from cluster_models.serving.figures import Interval
from solver.serving.cases import Arrays, ServingCase
from solver.serving.loads import FloatArray, Loads
from solver.serving.power import drawn_share, work_s
from solver.serving.steady_state import Steady, Traffic, decode_of, prefill_of


def drawn_shares(arrays: Arrays, steady: Steady) -> tuple[FloatArray, FloatArray]:
    """Shares (n,) of their boards' power that GPUs of the prefill and of the decode pool draw, no more than caps.

    The same where one pool does both.
    """
    traffic, split = arrays.traffic, arrays.traffic.split > 0
    prompts = prompts_in_use(arrays.prefill, traffic, steady.requests_per_s / traffic.prefill_workers)
    each = steady.requests_per_s / traffic.decode_workers
    answers = answers_in_use(arrays.decode, traffic, each, steady.decoding)
    both = [one + other for one, other in zip(prompts, answers, strict=True)]
    found = []
    for loads, alone in ((arrays.prefill, prompts), (arrays.decode, answers)):
        memory, compute = (np.where(split, own, all_) for own, all_ in zip(alone, both, strict=True))
        found.append(np.minimum(drawn_share(loads, memory, compute), loads.power_cap))
    return found[0], found[1]


def drawn_watts(case: ServingCase, arrays: Arrays, steady: Steady) -> Interval:
    """Mean power of all GPUs of the one ``case``, no more than their boards' or caps; estimated."""
    spread, configuration = draw_law().spread(case.gpu.name), case.configuration
    pools = zip(
        (configuration.prefill, configuration.decode),
        drawn_shares(arrays, steady),
        (arrays.prefill.power_cap, arrays.decode.power_cap),
        strict=True,
    )
    own = [(pool.gpus, float(share[0]), float(cap[0])) for pool, share, cap in pools if pool is not None]
    watts, most = (case.gpu.power_watts * sum(each[0] * each[end] for each in own) for end in (1, 2))
    return Interval(watts, watts * math.exp(-spread), min(watts * math.exp(spread), most))


def answers_in_use(
    loads: Loads, traffic: Traffic, requests_per_s: FloatArray, sequences: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Shares (n,) of memory bandwidth and peak in use for ``requests_per_s`` of a worker, ``sequences`` at once."""
    batch = np.maximum(sequences, 1.0)
    steps = requests_per_s * np.maximum(traffic.output_tokens - 1.0, 0.0) / (traffic.yields * batch)
    reads_s, products_s = work_s(lambda own, rates: decode_of(own, rates, traffic, batch), loads)
    return steps * reads_s, steps * products_s


def prompts_in_use(loads: Loads, traffic: Traffic, requests_per_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same for prompts, one at a time on each attention rank of a worker."""
    ranks, one = loads.attention_data, np.ones_like(requests_per_s)
    times = requests_per_s / (ranks * loads.pipeline)
    reads_s, products_s = work_s(lambda own, rates: prefill_of(own, rates, traffic, ranks, one), loads)
    return times * reads_s, times * products_s
