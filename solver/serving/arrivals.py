"""The steady state of iteration-level batching under random arrivals, in closed form (docs/serving.md, section 4).

Shapes (n,), an entry a case.  Letters: r requests a second that come to a worker, A its attention ranks, K the
prompts that a step holds, P(n) seconds of a step's n prompts, t those of its decode step.

A step takes on all prompts that came during the one before, up to K.  After a step of T(n) = P(n) + t seconds r
T(n) are due on average, or, where none came, those of the first decode step in which any do: n = r T(n) +
exp(-r T(n)) r t / (1 - exp(-r t)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy

from solver.serving.loads import FloatArray, Loads
from solver.serving.rates import Rates
from solver.serving.steady_state import MORE, Steady, Traffic, decode_of, prefill_of, prompt_growth
from solver.serving.steps import StepTime

ROUNDS: Final = 60
"""Rounds of the fixed point at most: a loaded worker is slow to settle."""
SETTLED: Final = 1e-7
"""Change of a round after which there is no other."""
BUSIEST: Final = 0.98
"""Share of the time that a worker may be busy with prompts; above it queues have no length worth the name."""
FARTHEST: Final = 30.0
"""Standard deviations beyond which nobody waits for a place."""
TINY: Final = 1e-300


@dataclass(frozen=True, slots=True)
class _Workers:
    """Workers and what comes to each: ``arrivals`` to prefill, ``answers`` to decode, a second."""

    decode: Loads
    prefill: Loads
    rates: Rates
    traffic: Traffic
    arrivals: FloatArray
    answers: FloatArray

    @property
    def outputs(self) -> FloatArray:
        """Tokens of an answer after the first."""
        return np.maximum(self.traffic.output_tokens - 1.0, 0.0)

    @property
    def room(self) -> FloatArray:
        """Prompts of a rank that a step holds."""
        return np.maximum(self.traffic.chunk_tokens / self.traffic.new_tokens, 1.0)

    @property
    def most(self) -> FloatArray:
        """Prompts that a step holds, K."""
        return np.asarray(self.room * self.prefill.attention_data)

    def prompts(self, number: FloatArray) -> StepTime:
        """A step of so many prompts, side by side on ranks as far as there are any."""
        ranks = np.minimum(number, self.prefill.attention_data)
        return prefill_of(self.prefill, self.rates, self.traffic, ranks, number / ranks)

    def prompts_s(self, number: FloatArray) -> FloatArray:
        """Its seconds in one pipeline stage."""
        return np.asarray(self.prompts(number).total_s / self.prefill.pipeline)

    def decode_s(self, sequences: FloatArray) -> FloatArray:
        """Seconds of a decode step."""
        return decode_of(self.decode, self.rates, self.traffic, sequences).total_s


@dataclass(frozen=True, slots=True)
class _Settled:
    """The fixed point: ``together`` prompts in a step of ``step_s``, which prefills take ``slowed`` times as long.

    ``mixed_s`` is what decoding adds to a prompt's steps, ``service_s`` a prompt's part of prefill, ``left``
    the share of the time that prompts leave.  ``decoding`` sequences decode, of which each meets ``beside``,
    itself included; ``wanted`` would decode if there were places for all.
    """

    prefill: StepTime
    gathering_s: FloatArray
    decode: StepTime
    together: FloatArray
    step_s: FloatArray
    mixed_s: FloatArray
    slowed: FloatArray
    service_s: FloatArray
    left: FloatArray
    duration_s: FloatArray
    wanted: FloatArray
    decoding: FloatArray
    beside: FloatArray


@dataclass(frozen=True, slots=True)
class _Waits:
    """Mean seconds that prompts of others cost a first token, ``bounded_s`` of ``late_s`` ending with a step.

    A ``share`` of the requests waits; ``load`` is that of full steps.
    """

    late_s: FloatArray
    bounded_s: FloatArray
    share: FloatArray
    load: FloatArray


def open_state(
    decode_loads: Loads, prefill_loads: Loads, rates: Rates, traffic: Traffic, requests_per_s: FloatArray
) -> Steady:
    """Latencies under random arrivals at ``requests_per_s`` (n,) instead of a number of requests in flight.

    ``queue_s`` is infinite where prefill, decoding or memory cannot keep up.
    """
    split = traffic.split > 0
    per_worker = requests_per_s / traffic.prefill_workers, requests_per_s / traffic.decode_workers
    workers = _Workers(decode_loads, prefill_loads, rates, traffic, *per_worker)
    settled = _settled(workers)
    outputs, left = np.maximum(workers.outputs, 1.0), np.maximum(settled.left, 1.0 - BUSIEST)
    growth_s = (workers.decode_s(MORE * settled.beside) - settled.decode.total_s) / ((MORE - 1.0) * settled.beside)
    ranks = np.minimum(settled.together, prefill_loads.attention_data)
    a_rank = settled.together / ranks
    by_tokens, by_attention, varied = prompt_growth(prefill_loads, rates, traffic, ranks, a_rank, settled.prefill)
    waits = _waits(workers, settled, varied, growth_s)
    own = settled.mixed_s + 0.5 * (1.0 - waits.share) * settled.mixed_s / traffic.chunks
    # a prompt's last chunk passes all stages, those before it one each while the others work on
    stages = 1.0 + (prefill_loads.pipeline - 1.0) / traffic.chunks
    base = settled.slowed * workers.prompts_s(np.ones_like(outputs)) * stages + own + rates.request_s
    base = base + traffic.adapter_wait_s
    base = base + np.where(split, traffic.transfer_s + rates.hand_over_s, 0.0)
    first = base + waits.late_s
    shape = 1.0 + (1.0 - waits.load) * np.clip(waits.bounded_s / np.maximum(waits.late_s, TINY), 0.0, 1.0)
    disturbed = np.where(split, 0.0, rates.interference * settled.service_s)
    behind = np.where(workers.outputs > 0, disturbed * workers.answers, 0.0) / left
    lasting = settled.duration_s + behind * first
    delay = disturbed / outputs
    spread = _spread(delay, growth_s / traffic.yields, 1.0 + varied)
    third = settled.wanted * delay**3 / left**3
    return Steady(
        first_token_s=first,
        token_s=lasting / outputs,
        requests_per_s=requests_per_s,
        decoding=np.clip(workers.answers * lasting, 1.0, traffic.most_sequences),
        queue_s=np.where(_keeps_up(workers, settled, waits), 0.0, np.inf),
        prefill=settled.prefill,
        decode=settled.decode,
        first_base_s=base,
        wait_share=waits.share,
        wait_scale_s=waits.late_s / np.maximum(waits.share, TINY) / scipy.special.gamma(1.0 + 1.0 / shape),
        wait_shape=shape,
        token_deviation_s=np.asarray(np.sqrt(settled.wanted * sum(spread)) / left),
        by_tokens_s=by_tokens,
        by_attention_s=by_attention,
        prompt_s=settled.prefill.total_s / a_rank,
        prompt_spread=spread[0] / np.maximum(sum(spread), TINY),
        both_spread=spread[1] / np.maximum(sum(spread), TINY),
        third_by_prompts=third,
        third_by_queues=third * 3.0 * (1.0 - left) * (1.0 + varied) ** 2 / left,
        behind=behind,
        answer_tokens=outputs,
    )


def _settled(workers: _Workers) -> _Settled:
    """The fixed point of prompts in a step, sequences that decode, and seconds of both.

    While a prompt is prefilled r P others come, while these are prefilled others, and all of them begin to
    decode together: each has 1 / (1 - r P)^2 - 1 more beside it than random arrivals would bring (the
    distribution of Borel of those that one busy period serves, by its mean square over its mean).
    """
    traffic, rates, arrivals, most = workers.traffic, workers.rates, workers.arrivals, workers.most
    split, outputs, ranks = traffic.split > 0, workers.outputs, workers.prefill.attention_data
    decoding, company, together = np.zeros_like(arrivals), np.zeros_like(arrivals), np.ones_like(arrivals)
    alone, filled = workers.prompts_s(together), workers.prompts_s(most)
    further = np.where(most > 1.0, (filled - alone) / np.maximum(most - 1.0, TINY), alone)
    for _ in range(ROUNDS):
        before = together, decoding
        prefill = workers.prompts(together)
        beside = np.minimum(1.0 + decoding + company, traffic.most_sequences)
        decode = decode_of(workers.decode, rates, traffic, beside)
        active = np.where(split, 0.0, -np.expm1(-decoding))
        mixed, slowed = active * traffic.chunks * decode.total_s, 1.0 + active * (rates.interference - 1.0)
        service = prefill.total_s / (together * workers.prefill.pipeline)
        step = slowed * together * service + mixed
        come, after = arrivals * step, np.maximum(arrivals * mixed / traffic.chunks, 1e-12)
        due = come - np.exp(-come) * after / np.expm1(-after)
        held = 1.0 + arrivals * traffic.held_steps * active * decode.total_s
        held = np.minimum(held, ranks)
        together = 0.5 * (together + np.clip(np.maximum(due, held), 1.0, most))
        left = 1.0 - np.where(split, 0.0, rates.interference * service * workers.answers)
        duration = outputs * decode.total_s / traffic.yields / np.maximum(left, 1.0 - BUSIEST)
        wanted = workers.answers * duration
        decoding = 0.5 * (decoding + np.minimum(wanted, traffic.most_sequences))
        successors = arrivals * slowed * (further + np.exp(-come) * (alone - further))
        quiet = 1.0 - np.where(split, 0.0, np.minimum(successors, BUSIEST))
        company = 0.5 * (company + (1.0 / quiet**2 - 1.0) * outputs / (outputs + 1.0 / quiet))
        if all(
            (np.abs(old - new) <= SETTLED * np.abs(new)).all()
            for old, new in zip(before, (together, decoding), strict=True)
        ):
            break
    # the first of those that too few join waits longest
    first = np.where(held < ranks, 1.0 + 1.0 / held, 1.0)
    gathering = 0.5 * first * np.maximum(held - due, 0.0) / np.maximum(arrivals, TINY)
    return _Settled(
        prefill, gathering, decode, together, step, mixed, slowed, service, left, duration, wanted, decoding, beside
    )


def _keeps_up(workers: _Workers, settled: _Settled, waits: _Waits) -> FloatArray:
    """Whether each pool and its caches do."""
    places = settled.wanted < workers.traffic.most_sequences
    return np.asarray((waits.load < BUSIEST) & (settled.left > 1.0 - BUSIEST) & places)


def _waits(workers: _Workers, settled: _Settled, varied: FloatArray, growth_s: FloatArray) -> _Waits:
    """Waits of a prompt for the step that runs, for full steps, for a place, and for those prefilled beside it.

    The step that runs: half of it, and more where prompts vary (v: the variance of their seconds over the
    square of the mean).  Full steps at a load u = r T(K) / K: (1 + v) u^sqrt(2 (K + 1)) T(K) / K / (2 (1 - u)),
    which for K = 1 makes M/G/1 of both, with the exponent of K servers (Sakasegawa 1977).  Bursts:
    ``solver.serving.bunching``.
    """
    traffic, arrivals, most = workers.traffic, workers.arrivals, workers.most
    full = (settled.slowed * workers.prompts_s(most) + settled.mixed_s) / most
    load = np.minimum(arrivals * full, BUSIEST)
    share = np.minimum(arrivals * settled.step_s / settled.together, BUSIEST)
    running = 0.5 * share * settled.step_s
    prefill_share = settled.slowed * settled.service_s / settled.step_s
    usual = np.maximum(workers.room / (1.0 + traffic.length_variance), 1.0) * workers.prefill.attention_data
    queue = (1.0 + varied) * load ** np.sqrt(2.0 * (usual + 1.0))
    place, waiting = _places(workers, settled, growth_s)
    seen = np.minimum(1.0 + arrivals * (share * settled.step_s + (1.0 - share) * settled.mixed_s), most)
    beside = settled.slowed * (workers.prompts(seen).total_s - workers.prompts(np.ones_like(seen)).total_s)
    bunched = arrivals * (traffic.bunched_light_s * (1.0 - load) + traffic.bunched_heavy_s * load)
    late = running * (1.0 + varied * settled.together * prefill_share**2) + place
    ends = beside + settled.gathering_s
    late = np.maximum(late + 0.5 * (queue + bunched) * full / (1.0 - load), 0.0) + ends
    for others in (waiting, settled.gathering_s > 0, np.minimum(arrivals * traffic.bunched_waiting_s, 1.0)):
        share = share + (1.0 - share) * others
    return _Waits(late, running + ends, share, load)


def _places(workers: _Workers, settled: _Settled, growth_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean seconds that requests wait until memory or the engine's limit has a place, and the share that does.

    Sequences that decode vary about their mean b with a variance of b / (1 - e): as a Poisson number, and more
    as longer steps keep them, e being the elasticity of a step to its batch.  All places are taken with the
    probability of Halfin & Whitt (1981); then those who wait are served at the rate that a full batch has over
    the arrivals.
    """
    most, decoding = workers.traffic.most_sequences, settled.decoding
    elastic = np.minimum(growth_s * decoding / settled.decode.total_s, BUSIEST)
    free = np.minimum((most - decoding) / np.sqrt(decoding / (1.0 - elastic) + TINY), FARTHEST)
    share = 1.0 / (1.0 + free * scipy.special.ndtr(free) * np.sqrt(2.0 * np.pi) * np.exp(0.5 * free**2))
    longest = settled.duration_s * workers.decode_s(most) / settled.decode.total_s
    spare = most / np.maximum(longest, TINY) - workers.answers
    return share / np.maximum(spare, (1.0 - BUSIEST) * workers.answers), share


def _spread(delay: FloatArray, growth: FloatArray, square: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Variance of the time per output token under random arrivals, over the expected answers at once.

    A request that arrives during an answer of D seconds delays each of its tokens by ``delay``, and decodes beside
    it for as long as both last, as does one that came up to D before; either makes steps longer by ``growth``
    seconds.  Campbell's theorem gives for n expected answers at once the variance n (a^2 + a g + 2 g^2 / 3) from
    prompts, both and company; ``square`` is the mean of a^2 over its mean's square.
    """
    return delay**2 * square, delay * growth, 2.0 / 3.0 * growth**2
