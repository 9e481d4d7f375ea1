"""Requests of several lengths as kinds of one length each: moments for the steady state, strata for percentiles.

Letters: K kinds, G groups (all requests, then each class), I prompt, x its tokens to prefill, O answer, f attention
FLOPs of a prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cluster_models.serving.traces import Trace
from cluster_models.serving.workload import ServingWorkload
from solver.serving.loads import FloatArray, Loads
from solver.serving.steps import prompt_flops

STRATA: Final = 64
"""Kinds at most that percentiles of all classes together are made of."""
TAIL: Final = 0.6
"""Share of its forerunner that each stratum of prompts has: the longest are told apart best.  Among answers so
are the shortest, whose times per token vary most."""


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """Kinds (K,) of requests: shares of all, tokens, and the class that each belongs to."""

    shares: FloatArray
    inputs: FloatArray
    new: FloatArray
    outputs: FloatArray
    of_class: npt.NDArray[np.int64]

    def mean(self, values: FloatArray) -> float:
        """Mean of ``values`` (K,) over requests."""
        return float((self.shares * values).sum())


@dataclass(frozen=True, slots=True)
class Moments:
    """Means over requests that the steady state takes; ``held`` over sequences that decode, by answer length.

    ``attention``: mean attention FLOPs of prompts over those of the mean prompt.  ``length_variance``,
    ``attention_variance`` and ``covariance`` are those of x and f over the squares of their means.
    """

    new: float
    held: float
    windowed_held: float
    windowed_input: float
    longest: float
    chunks: float
    attention: float
    length_variance: float
    attention_variance: float
    covariance: float
    longest_of_two: float
    longest_of_eight: float


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """Strata (K,) of a mix: excess over the mean of x and of f, answers, and what spreads their times per token.

    ``shares`` (G, K) of each group.  Others that come while a request decodes spread its time per token: those of
    their prompts, those of their company, and of both (``_open_deviation``), here over those of the mean answer.
    """

    shares: FloatArray
    outputs: FloatArray
    longer: FloatArray
    attention: FloatArray
    by_prompts: FloatArray
    by_both: FloatArray
    by_company: FloatArray


def mix_of(workload: ServingWorkload) -> Mix:
    """The kinds of ``workload``: every pair of lengths of each class, or every request of a trace."""
    if workload.trace is not None:
        pairs = (workload.trace.input_tokens, workload.trace.output_tokens)
        inputs, outputs = (np.array(each, dtype=np.float64) for each in pairs)
        number, cached = len(inputs), workload.trace.cached_tokens
        new = inputs - np.array(cached) if cached else _new(inputs, workload.prefix_share)
        return Mix(np.full(number, 1.0 / number), inputs, new, outputs, class_numbers(workload.trace))
    if not workload.classes:
        inputs, outputs = np.array([float(workload.input_tokens)]), np.array([float(workload.output_tokens)])
        return Mix(np.ones(1), inputs, _new(inputs, workload.prefix_share), outputs, np.zeros(1, dtype=np.int64))
    total = sum(each.share for each in workload.classes)
    parts = []
    for index, each in enumerate(workload.classes):
        shares = each.share / total * np.outer(each.inputs.shares, each.outputs.shares).ravel()
        inputs = np.repeat(np.array(each.inputs.tokens, dtype=np.float64), len(each.outputs.tokens))
        outputs = np.tile(np.array(each.outputs.tokens, dtype=np.float64), len(each.inputs.tokens))
        parts.append((shares, inputs, _new(inputs, each.prefix_share), outputs, np.full(len(inputs), index)))
    return Mix(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def class_numbers(trace: Trace) -> npt.NDArray[np.int64]:
    """The class of each request (n,) by number, 0 where the trace names none."""
    places = {name: place for place, name in enumerate(trace.class_names)}
    return np.array([places[name] for name in trace.classes] or [0] * trace.requests, dtype=np.int64)


def _new(inputs: FloatArray, prefix_share: float) -> FloatArray:
    return np.maximum(inputs * (1.0 - prefix_share), 1.0)


def moments_of(mix: Mix, loads: Loads, chunk_tokens: float) -> Moments:
    """Moments of ``mix`` for the model of ``loads`` (1,)."""
    window = float(loads.window[0])
    held = mix.inputs + mix.outputs / 2.0
    decoding = mix.shares * mix.outputs / mix.mean(mix.outputs)
    new, attention = mix.mean(mix.new), _attention(mix, loads)
    mean = float(_flops(loads, mix.mean(mix.inputs), new)[0])
    flops = mix.mean(attention)
    return Moments(
        new=new,
        held=float((decoding * held).sum()),
        windowed_held=float((decoding * np.minimum(held, window)).sum()),
        windowed_input=mix.mean(np.minimum(mix.inputs, window)),
        longest=float((mix.inputs + mix.outputs).max()),
        chunks=mix.mean(np.maximum(1.0, np.ceil(mix.new / chunk_tokens))),
        attention=flops / mean,
        length_variance=mix.mean(mix.new**2) / new**2 - 1.0,
        attention_variance=mix.mean(attention**2) / flops**2 - 1.0,
        covariance=mix.mean(mix.new * attention) / (new * flops) - 1.0,
        longest_of_two=_longest(mix, 2) / new - 1.0,
        longest_of_eight=_longest(mix, 8) / new - 1.0,
    )


def _longest(mix: Mix, number: int) -> float:
    """Mean tokens to prefill of the longest of so many prompts."""
    order = np.argsort(mix.new, kind="stable")
    below = np.cumsum(mix.shares[order]) ** number
    return float((mix.new[order] * np.diff(below, prepend=0.0)).sum())


def kinds_of(workload: ServingWorkload, loads: Loads) -> Kinds:
    """Strata of ``workload`` for the model of ``loads`` (1,)."""
    mix = mix_of(workload)
    new, flops, decoded = mix.mean(mix.new), mix.mean(_attention(mix, loads)), mix.mean(mix.outputs) - 1.0
    classes = max(len(workload.classes), 1)
    few = _strata(mix, STRATA // classes)
    longer, attention = few.new / new - 1.0, _attention(few, loads) / flops - 1.0
    answers = np.maximum(few.outputs - 1.0, 1.0)
    beside = answers / answers[:, np.newaxis]  # (kind, other)
    short = np.minimum(beside, 1.0)
    both = np.where(beside < 1.0, 2.0 * beside - beside**2, 1.0) @ few.shares
    company = (1.5 * short**2 * np.maximum(beside, 1.0) - 0.5 * short**3) @ few.shares
    whole = [few.of_class == index for index in range(len(workload.classes))]
    return Kinds(
        shares=np.stack([few.shares, *(few.shares * own / few.shares[own].sum() for own in whole)]),
        outputs=few.outputs,
        longer=longer,
        attention=attention,
        by_prompts=max(decoded, 1.0) / answers,
        by_both=both,
        by_company=answers / max(decoded, 1.0) * company,
    )


def _attention(mix: Mix, loads: Loads) -> FloatArray:
    return _flops(loads, mix.inputs, mix.new)


def _flops(loads: Loads, inputs: FloatArray | float, new: FloatArray | float) -> FloatArray:
    """Attention FLOPs of prompts, of which ``new`` tokens are prefilled."""
    return prompt_flops(loads, np.asarray(inputs)) - prompt_flops(loads, np.asarray(inputs) - np.asarray(new))


def _strata(mix: Mix, most: int) -> Mix:
    """At most ``most`` kinds of each class that have its mean lengths: groups by x, and in each by O."""
    columns = []
    for index in np.unique(mix.of_class):
        own = np.flatnonzero(mix.of_class == index)
        if len(own) > most:
            across = max(int(np.sqrt(most)), 1)
            rows = own[np.argsort(mix.new[own], kind="stable")]
            for part in _cut(rows, mix.shares[rows], across):
                inner = part[np.argsort(mix.outputs[part], kind="stable")]
                columns += [
                    _joined(mix, each) for each in _cut(inner, mix.shares[inner], most // across, of_answers=True)
                ]
        else:
            columns += [_joined(mix, own[k : k + 1]) for k in range(len(own))]
    shares, inputs, new, outputs, of_class = zip(*columns, strict=True)
    return Mix(np.array(shares), np.array(inputs), np.array(new), np.array(outputs), np.array(of_class))


def _cut(
    rows: npt.NDArray[np.int64], shares: FloatArray, parts: int, *, of_answers: bool = False
) -> list[npt.NDArray[np.int64]]:
    """``rows`` in at most ``parts`` runs, the last with the fewest requests, as is the first ``of_answers``."""
    middle = 0.5 * (parts - 1) if of_answers else 0.0
    sizes = TAIL ** np.abs(np.arange(parts) - middle)
    edges = np.cumsum(sizes / sizes.sum())[:-1]
    middles = (np.cumsum(shares) - 0.5 * shares) / shares.sum()
    return [part for part in np.split(rows, np.searchsorted(middles, edges)) if len(part)]


def _joined(mix: Mix, rows: npt.NDArray[np.int64]) -> tuple[float, float, float, float, int]:
    """One kind in place of several."""
    share = mix.shares[rows].sum()
    weights = mix.shares[rows] / share
    inputs, new, outputs = (float((weights * each[rows]).sum()) for each in (mix.inputs, mix.new, mix.outputs))
    return float(share), inputs, new, outputs, int(mix.of_class[rows[0]])
