"""The steady state of iteration-level batching under a closed loop, in closed form (docs/serving.md, section 4).

C requests are always in flight in a worker.  Each waits W seconds for its first token, then decodes for D seconds
while prompts of the others are prefilled in the same worker:

    D = (O - 1) tdecode_of(b) / y  +  i s (C - 1) D / (W + D)
    W = t_prefill + a (sqrt(C) - 1) s + w (R - s) + r,    R = s (1 + (C - 1) R / (R + D))

with O output tokens, y tokens a step (1 without speculation), s = t_prefill over the ranks that prefill side by
side, and b = C D / (W + D) sequences that decode at once.  R is the mean stay at a server shared by C customers
(mean value analysis); i, a, w and r are rates (``solver.serving.rates``).  Shapes (n,), an entry a case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.serving.loads import FloatArray, Loads
from solver.serving.rates import Rates
from solver.serving.steps import StepTime, decode_step, prefill_step

ROUNDS: Final = 10
"""Rounds of the fixed point, which halves its error in each."""
MORE: Final = 1.1
"""Sequences of a slightly larger batch, to see how steps grow with them."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests of each case, shape (n,): ``concurrency`` in flight in the whole deployment.

    ``most_sequences``: the most that decode at once in one worker, by memory and by the engine's limit;
    ``drafts`` and ``yields``: drafted tokens and mean tokens of a step (1 without speculation).  ``new_tokens`` of
    a prompt are prefilled, the keys and values of the others being cached already.  Lengths are means over
    requests, ``held_tokens`` (of those ``windowed_tokens`` in layers with a window) over sequences that decode;
    ``chunks``, ``attention`` and the variances are those of ``solver.serving.mixes.Moments``, those that are
    ``bunched`` of ``solver.serving.bunching.Bunching``.  Prompts are held for ``held_steps`` at most until each
    attention rank has one; a prompt waits ``adapter_wait_s`` for its adapter.
    """

    input_tokens: FloatArray
    new_tokens: FloatArray
    output_tokens: FloatArray
    held_tokens: FloatArray
    windowed_tokens: FloatArray
    chunks: FloatArray
    attention: FloatArray
    length_variance: FloatArray
    attention_variance: FloatArray
    covariance: FloatArray
    longest_of_two: FloatArray
    longest_of_eight: FloatArray
    bunched_light_s: FloatArray
    bunched_heavy_s: FloatArray
    bunched_waiting_s: FloatArray
    concurrency: FloatArray
    chunk_tokens: FloatArray
    held_steps: FloatArray
    most_sequences: FloatArray
    drafts: FloatArray
    yields: FloatArray
    decode_workers: FloatArray
    prefill_workers: FloatArray
    split: FloatArray
    transfer_s: FloatArray
    adapter_wait_s: FloatArray


@dataclass(frozen=True, slots=True)
class Steady:
    """The steady state, each of shape (n,); ``requests_per_s`` of the whole deployment.

    First tokens come ``first_base_s`` after a request at least; a share ``wait_share`` of the requests waits
    longer, by seconds of a Weibull distribution of ``wait_scale_s`` and ``wait_shape`` (1: exponential).  The mean
    prompt takes ``prompt_s``, one of twice the mean tokens ``by_tokens_s`` longer, one of twice the mean attention
    ``by_attention_s``.  ``token_deviation_s`` is the standard deviation of the time per output token between
    requests of the mean answer; ``prompt_spread`` of its square comes from the prompts of others, ``both_spread``
    from these and their company.  Its third central moment, s^3, is ``third_by_prompts`` times the mean cube of
    prompts over their mean's cube, and ``third_by_queues`` for prompts that come in turn.  Each second that a
    request waits for its first token makes its answer, of ``answer_tokens`` after the first on average, last
    ``behind`` longer: those that came meanwhile are prefilled first.
    """

    first_token_s: FloatArray
    token_s: FloatArray
    requests_per_s: FloatArray
    decoding: FloatArray
    queue_s: FloatArray
    prefill: StepTime
    decode: StepTime
    first_base_s: FloatArray
    wait_share: FloatArray
    wait_scale_s: FloatArray
    wait_shape: FloatArray
    token_deviation_s: FloatArray
    by_tokens_s: FloatArray
    by_attention_s: FloatArray
    prompt_s: FloatArray
    prompt_spread: FloatArray
    both_spread: FloatArray
    third_by_prompts: FloatArray
    third_by_queues: FloatArray
    behind: FloatArray
    answer_tokens: FloatArray


def steady_state(decode_loads: Loads, prefill_loads: Loads, rates: Rates, traffic: Traffic) -> Steady:
    """Latencies and throughput; for aggregated cases both pools are the same."""
    split = traffic.split > 0
    outputs = np.maximum(traffic.output_tokens - 1.0, 0.0)
    most = traffic.most_sequences * traffic.decode_workers
    held = np.minimum(traffic.concurrency, most)
    per_worker = held / traffic.decode_workers
    others = np.maximum(per_worker - 1.0, 0.0)
    prefill_share = held / traffic.prefill_workers
    ranks, due = np.ones_like(held), np.zeros_like(held)
    at_once = ~split & (prefill_loads.attention_data > 1) & (traffic.held_steps == 0)
    decoding = per_worker
    wait = duration = np.ones_like(held)
    prompts = np.ones_like(held)
    room = np.maximum(traffic.chunk_tokens / traffic.new_tokens, 1.0)
    for _ in range(ROUNDS):
        prefill = prefill_of(prefill_loads, rates, traffic, ranks, prompts)
        prompt = prefill.total_s
        service = prompt / (prompts * ranks * prefill_loads.pipeline)
        decode = decode_of(decode_loads, rates, traffic, decoding)
        plain = outputs * decode.total_s / traffic.yields
        period = wait + duration
        delayed = np.where(split, 0.0, rates.interference * service * others * duration / period)
        duration = 0.5 * duration + 0.5 * (plain + delayed)
        between = prompt + np.where(split, 0.0, decode.total_s)
        # ranks that prefill side by side wait for the step that runs, one rank alone for all prompts before its own
        running = 0.5 * np.minimum(due / (prompts * ranks), 1.0) * between
        queue = np.where(at_once, running, _closed_queue(service, prefill_share, duration) - service)
        together = rates.bunching * (np.sqrt(np.maximum(prefill_share, 1.0)) - 1.0) * service
        first = prompt + together + rates.wait_factor * queue + rates.request_s + traffic.adapter_wait_s
        first = first + 0.5 * np.where(split, 0.0, decode.total_s) * (others > 0)
        first = first + np.where(split, traffic.transfer_s + rates.hand_over_s, 0.0)
        wait = 0.5 * wait + 0.5 * first
        # neither pool serves more than it can: a queue takes up what is left of the period
        period = np.maximum(wait + duration, prefill_share * service)
        decoding = np.maximum(per_worker * duration / period, 1.0)
        due = prefill_share / period * between
        # prompts that are held, or answers of split workers that end in bunches, fill the ranks of a busy worker
        busy = np.minimum(prefill_share * service / period, 1.0)
        filled = 1.0 + (prefill_loads.attention_data - 1.0) * busy
        ranks = np.where(at_once, 0.5 * (ranks + np.clip(due, 1.0, prefill_loads.attention_data)), filled)
        prompts = 0.5 * prompts + 0.5 * np.clip(due / ranks, 1.0, room)
    rate = held / np.maximum(wait + duration, prefill_share * service)
    queued = (traffic.concurrency - held) / rate
    base = (
        prompt
        + rates.request_s
        + traffic.adapter_wait_s
        + np.where(split, traffic.transfer_s + rates.hand_over_s, 0.0)
    )
    # each of the others starts a prompt during an answer with the probability that it takes of a period
    chance = np.clip(duration / (wait + duration), 0.0, 1.0)
    delay = np.where(split, 0.0, rates.interference * service) / np.maximum(outputs, 1.0)
    disturbances = others * chance * (1.0 - chance)
    by_tokens, by_attention, varied = prompt_growth(prefill_loads, rates, traffic, ranks, prompts, prefill)
    return Steady(
        first_token_s=wait + queued,
        token_s=duration / np.maximum(outputs, 1.0),
        requests_per_s=rate,
        decoding=decoding,
        queue_s=queued,
        prefill=prefill,
        decode=decode,
        first_base_s=np.minimum(base, wait) + queued,
        wait_share=np.ones_like(wait),
        wait_scale_s=np.maximum(wait - base, 0.0),
        wait_shape=np.ones_like(wait),
        token_deviation_s=delay * np.sqrt(disturbances * (1.0 + varied)),
        by_tokens_s=by_tokens,
        by_attention_s=by_attention,
        prompt_s=prompt / prompts,
        prompt_spread=np.ones_like(wait),
        both_spread=np.zeros_like(wait),
        third_by_prompts=disturbances * (1.0 - 2.0 * chance) * delay**3,
        third_by_queues=np.zeros_like(wait),
        behind=np.zeros_like(wait),
        answer_tokens=np.maximum(outputs, 1.0),
    )


def prefill_of(
    loads: Loads, rates: Rates, traffic: Traffic, ranks: FloatArray, prompts: FloatArray, times: float = 1.0
) -> StepTime:
    """Prefill of ``prompts`` of ``times`` the mean tokens on each of ``ranks``.

    Ranks wait for the one with the longest.  Its excess over the mean grows with log r for r prompts, as from
    one to two to eight.
    """
    doubled = np.log2(np.maximum(ranks, 1.0))
    two, eight = traffic.longest_of_two, traffic.longest_of_eight
    longest = np.where(doubled < 1.0, two * doubled, two + 0.5 * (eight - two) * (doubled - 1.0))
    uneven = 1.0 + longest / np.sqrt(prompts)
    new, whole = (times * uneven * each for each in (traffic.new_tokens, traffic.input_tokens))
    return prefill_step(loads, rates, new, ranks / uneven, traffic.chunks, prompts, whole, traffic.attention)


def decode_of(loads: Loads, rates: Rates, traffic: Traffic, sequences: FloatArray) -> StepTime:
    """A decode step of so many sequences of a worker."""
    return decode_step(loads, rates, sequences, traffic.held_tokens, traffic.drafts, traffic.windowed_tokens)


def prompt_growth(
    loads: Loads, rates: Rates, traffic: Traffic, ranks: FloatArray, prompts: FloatArray, prefill: StepTime
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Seconds of a prompt by its tokens and by its attention, and the variance of its time over the mean's square.

    Straight lines through the mean prompt; nothing where all prompts are alike.
    """
    nothing = np.zeros_like(ranks)
    if not traffic.length_variance.any():
        return nothing, nothing, nothing
    more = prefill_of(loads, rates, traffic, ranks, prompts, MORE)
    body, longer = (each.total_s - each.attention_s for each in (prefill, more))
    by_tokens, by_attention = (longer - body) / (MORE - 1.0) / prompts, prefill.attention_s / prompts
    variance = (
        by_tokens**2 * traffic.length_variance
        + 2.0 * by_tokens * by_attention * traffic.covariance
        + by_attention**2 * traffic.attention_variance
    )
    return by_tokens, by_attention, variance / (prefill.total_s / prompts) ** 2


def _closed_queue(service: FloatArray, customers: FloatArray, elsewhere: FloatArray) -> FloatArray:
    """Mean stay R at a single server in a closed loop: R = s (1 + (N - 1) R / (R + Z)), Schweitzer's approximation.

    ``customers`` N take turns at a server of mean ``service`` s and spend Z ``elsewhere``: the positive root of
    R^2 + (Z - N s) R - s Z = 0 (Bard 1979, Schweitzer 1979).
    """
    number = np.maximum(customers, 1.0)
    half = 0.5 * (elsewhere - number * service)
    return np.asarray(-half + np.sqrt(half * half + service * elsewhere))
