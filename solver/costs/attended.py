"""Tokens and attended pairs of sequences, as the data rank with the most of them has them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from cluster_models.training.mixed_lengths import Balance, MixedLengths, Packing
from cluster_models.training.packing import packed_sequences
from cluster_models.training.workload import Sharding, TrainingWorkload
from solver.candidates import SCHEDULE_CODES, SHARDING_CODES, BoolArray, CandidateBatch, FloatArray, IntArray
from solver.costs.compute import Extent
from solver.costs.stalls import stall

_DRAWS: Final = 2**16
"""Sequences drawn, as whole steps, to see how unequal the ranks of one step are."""
_FEWEST_STEPS: Final = 4
_MOST_STEPS: Final = 512
_SEED: Final = 20


class Measure(NamedTuple):
    """Work of a sequence: its attended pairs in a ``window``, or its ``tokens``."""

    window: float | None = None
    chunked: bool = False
    tokens: bool = False


class _Drawn(NamedTuple):
    """Sequences of ``length`` tokens that the ranks of a step draw."""

    mixed: MixedLengths
    length: int
    global_batch: int


@dataclass(frozen=True, slots=True)
class RankLoads:
    """Candidates' data ranks, each with its share of the sequences of a step; the columns are (n,).

    ``lockstep``: data ranks that wait for each other in every micro-batch, because they exchange experts' tokens or
    gather parameters.
    """

    drawn: _Drawn
    data: IntArray
    micro_batch: IntArray
    lockstep: IntArray
    pipeline: IntArray
    virtual: IntArray
    schedule: IntArray

    def take(self, rows: IntArray | BoolArray | slice) -> RankLoads:
        """The ranks of some of the candidates."""
        columns = ("data", "micro_batch", "lockstep", "pipeline", "virtual", "schedule")
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})

    def slowest(self, measure: Measure) -> FloatArray:
        """(n,) ``measure`` of a sequence that, were all like it, would keep the slowest rank busy as long."""
        columns = np.stack(
            [self.data, self.micro_batch, self.lockstep, self.pipeline, self.virtual, self.schedule], axis=1
        )
        distinct, row = np.unique(columns, axis=0, return_inverse=True)
        each = [_slowest(self.drawn, measure, *candidate) for candidate in distinct.tolist()]
        return np.array(each)[row.reshape(-1)]


@dataclass(frozen=True, slots=True)
class Attended:
    """Pairs of one sequence of ``length`` tokens; ``loads``: the ranks, where documents are mixed."""

    length: int
    loads: RankLoads | None = None

    def pairs(self, window: float | None = None, *, chunked: bool = False) -> Extent:
        """Pairs of a sequence, () or those that set the pace of the slowest data rank (n,).

        A causal query at position i sees min(i, w) keys, s*w - w*w/2 pairs in all; blocks of w tokens see half of
        each block, s*w/2.
        """
        s = float(self.length)
        if self.loads is None:
            w = min(window, s) if window else s
            return s * w / 2.0 if chunked else s * w - w * w / 2.0
        return self.loads.slowest(Measure(window, chunked))

    def span(self, window: float | None = None) -> float:
        """Tokens that the kernels of attention run over at once: those of a window, or of a document."""
        if self.loads is None:
            return min(window, float(self.length)) if window else float(self.length)
        return packed_sequences(self.loads.drawn.mixed, self.length).span(window)

    def tokens(self, context: FloatArray, *, most: bool = False) -> Extent:
        """Tokens of a sequence, padding included, () or of the slowest data rank (n,); ``most``: of the longest.

        Two equal pieces of every document lie on each of the ``context`` (n,) ranks, for which it is padded by
        half a piece's worth in the mean (Transformer Engine's ``thd`` format).
        """
        length = float(self.length)
        if self.loads is None or self.loads.drawn.mixed.packing is Packing.PADDED:
            return length
        mixed = self.loads.drawn.mixed
        if mixed.packing is Packing.LONGEST:
            longest = min(length, float(mixed.lengths[-1]))
            tokens: Extent = longest if most else self.loads.slowest(Measure(tokens=True))
        else:
            tokens = length
        documents = packed_sequences(mixed, self.length).documents
        return tokens + np.where(context > 1, documents * (context - 0.5), 0.0)


def attended(batch: CandidateBatch, workload: TrainingWorkload) -> Attended:
    """Pairs of the sequences that the candidates train on."""
    if workload.lengths is None:
        return Attended(workload.sequence_length)
    gathers = batch.sharding == SHARDING_CODES.index(Sharding.PARAMETERS)
    exchanging = np.gcd(batch.data, np.maximum(batch.expert_block // (batch.tensor * batch.context), 1))
    loads = RankLoads(
        drawn=_Drawn(workload.lengths, workload.sequence_length, workload.global_batch),
        data=batch.data,
        micro_batch=batch.micro_batch,
        lockstep=np.where(gathers, batch.data, exchanging),
        pipeline=batch.pipeline,
        virtual=batch.virtual_pipeline,
        schedule=batch.schedule,
    )
    return Attended(workload.sequence_length, loads)


def imbalance_of_pairs(batch: CandidateBatch, workload: TrainingWorkload) -> FloatArray:
    """(n,) attended pairs that set the pace, over the mean of all ranks."""
    even = replace(workload, lengths=workload.lengths and replace(workload.lengths, balance=Balance.EVEN))
    return np.asarray(attended(batch, workload).pairs() / attended(batch, even).pairs())


def least_step_tokens(workload: TrainingWorkload) -> float:
    """Tokens, padding included, that the data ranks of a step work on at least, all together in the mean."""
    if workload.lengths is None:
        return float(workload.sequence_length * workload.global_batch)
    drawn = _Drawn(workload.lengths, workload.sequence_length, workload.global_batch)
    return float(_values(drawn, Measure(tokens=True)).mean()) * workload.global_batch


@lru_cache(maxsize=8)
def _steps(drawn: _Drawn) -> IntArray:
    """(steps, global_batch) sequences of a few steps; those with most pairs first where ranks are balanced."""
    pairs = packed_sequences(drawn.mixed, drawn.length).pairs()
    steps = int(np.clip(_DRAWS // drawn.global_batch, _FEWEST_STEPS, _MOST_STEPS))
    taken = np.random.default_rng(_SEED).integers(len(pairs), size=(steps, drawn.global_batch))
    if drawn.mixed.balance is not Balance.PAIRS:
        return taken
    return np.take_along_axis(taken, np.argsort(-pairs[taken], axis=1, kind="stable"), axis=1)


@lru_cache(maxsize=16)
def _values(drawn: _Drawn, measure: Measure) -> FloatArray:
    """(steps, global_batch) ``measure`` of each sequence."""
    sequences = packed_sequences(drawn.mixed, drawn.length)
    if not measure.tokens:
        return sequences.pairs(measure.window, chunked=measure.chunked)[_steps(drawn)]
    if drawn.mixed.packing is Packing.LONGEST:
        return sequences.tokens.astype(np.float64)[_steps(drawn)]
    return np.full(_steps(drawn).shape, float(drawn.length))


@lru_cache(maxsize=65_536)
def _slowest(
    drawn: _Drawn,
    measure: Measure,
    data: int,
    micro: int,
    lockstep: int,
    pipeline: int,
    virtual: int,
    schedule: int,
) -> float:
    if drawn.mixed.balance is Balance.EVEN:
        return float(_values(drawn, measure).mean())
    loads = _micro_batches(drawn, measure, data, micro, lockstep)
    means = loads.mean(axis=1)
    slowest = means.argmax(axis=1)
    own = np.take_along_axis(loads, slowest[:, None, None], axis=2)[:, :, 0]
    return float(means.max(axis=1).mean()) * stall(SCHEDULE_CODES[schedule], pipeline, virtual, own)


@lru_cache(maxsize=8)
def _micro_batches(drawn: _Drawn, measure: Measure, data: int, micro: int, lockstep: int) -> FloatArray:
    """(steps, micro-batches, ranks) what a sequence of each measures on a rank, or in the largest of ranks in step.

    Sequences of a micro-batch that are padded to the longest measure as much as it.
    """
    values = _values(drawn, measure)
    rounds = values.reshape(len(values), -1, data)
    if drawn.mixed.balance is Balance.PAIRS:
        rounds = rounds.copy()
        rounds[:, 1::2] = rounds[:, 1::2, ::-1]
    sequences = rounds.reshape(len(values), -1, micro, data)
    longest = drawn.mixed.packing is Packing.LONGEST
    micro_batches = sequences.max(axis=2) if longest else sequences.mean(axis=2)
    return np.asarray(micro_batches.reshape(*micro_batches.shape[:2], -1, lockstep).max(axis=3))
