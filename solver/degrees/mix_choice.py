"""For each candidate the mixes of memory options that fit at least added time (docs/memory_options.md).

A candidate that fits without any option needs none.  For the others every mix that the workload allows is tried, on
all of them at once: the bytes that it leaves on every pipeline rank, and the seconds that it adds to the backward
pass of a layer.  Of the mixes that fit those are kept to which no other adds less, so that the best plan of all
mixes is among the rows, whatever is placed where.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from cluster_models.cluster.gpus import GpuKind
from cluster_models.training.frameworks import Framework
from solver.candidates import BoolArray, CandidateBatch, FloatArray, IntArray, select_rows
from solver.costs.layers import Layers
from solver.costs.memory import MemoryAccount
from solver.costs.recomputation import RecomputePolicies
from solver.degrees.enumeration import joined_batches
from solver.degrees.memory_mixes import (
    FULL,
    NOTHING,
    Mix,
    levels_of,
    limits_of,
    mixes_of,
    modules_used,
    policies_of,
    with_mix,
)
from solver.degrees.stage_costs import LayersByKind, layers_by_kind, memory_accounts
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem

LayerSeconds = list[FloatArray]
"""Of a layer of each kind."""
MOST_CELLS: Final = 2**21
"""Candidates times mixes times pipeline ranks that are tried at once: some tens of megabytes."""


@dataclass(frozen=True, slots=True, eq=False)
class MixedRows:
    """Candidates with the mixes chosen for them: (k,) whose row each is, and what it needs beyond memory."""

    candidate: IntArray
    batch: CandidateBatch
    excess_bytes: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class KnownLayers:
    """Layers of candidates for each GPU kind; ``apart``: where no other pass runs beside dispatch.

    The same where the framework overlaps none.
    """

    usual: LayersByKind
    apart: LayersByKind

    @classmethod
    def of(cls, problem: PlanningProblem, fabric: Fabric, batch: CandidateBatch) -> Self:
        """Those of any candidates, with all modules that they may run again."""
        usual = layers_by_kind(problem, fabric, batch, modules_used(problem))
        if not overlaps(problem, batch).any():
            return cls(usual, usual)
        return cls(usual, layers_by_kind(problem, fabric, with_mix(batch, Mix(FULL)), modules_used(problem)))

    def take(self, rows: IntArray | slice) -> KnownLayers:
        """Those of some of the candidates."""
        usual = select_rows(self.usual, rows)
        return KnownLayers(usual, usual if self.apart is self.usual else select_rows(self.apart, rows))


@dataclass(frozen=True, slots=True, eq=False)
class Screened:
    """Candidates by whether a choice is left: ``settled`` have one row, ``open`` are the numbers of the others.

    ``tried`` are those that are open.
    """

    settled: MixedRows
    open: IntArray
    tried: Tried

    def chosen(self, known: KnownLayers) -> MixedRows:
        """All rows with their mixes; ``known`` are the layers of the open candidates."""
        parts = [self.settled]
        together = max(1, MOST_CELLS // (len(mixes_of(self.tried.problem)) * self.tried.kinds.shape[1] + 1))
        for first in range(0, len(self.open), together):
            own = slice(first, first + together)
            found = self.tried.take(own).chosen(known.take(own))
            parts.append(replace(found, candidate=self.open[own][found.candidate]))
        return _joined(parts)


def screened(
    problem: PlanningProblem,
    kinds: Sequence[GpuKind],
    batch: CandidateBatch,
    layers: IntArray,
    stage_kind: IntArray,
    *,
    domain: int,
) -> Screened:
    """Candidates that share their pipeline and virtual pipeline sizes, and recompute nothing so far, by memory.

    ``layers``, (C, K) or (n, C, K), ``stage_kind`` (n, P) and ``domain`` as in ``staging``.  A candidate that no
    mix fits has one row, with the mix that frees most or none.  Beside the compute of another micro-batch dispatch
    costs host time, so that mixes that dispatch again may be quicker though nothing need be recomputed.
    """
    tried = Tried(problem, batch, layers, stage_kind, memory_accounts(problem, kinds, batch, layers, domain))
    most, limit = levels_of(problem)[-1]
    excess = tried.excess_bytes(policies_of([NOTHING, most], problem.workload.framework))
    if NOTHING not in mixes_of(problem):
        excess[:, 0] = np.inf
    fits, rows = excess[:, 0] <= 0, np.arange(len(batch))
    is_open = np.where(fits, overlaps(problem, batch), tried.least_excess_bytes() <= 0)
    keeps = ~is_open & (fits | (excess[:, 0] < excess[:, 1]))
    settled = [
        MixedRows(rows[keeps], batch.take(keeps), excess[keeps, 0]),
        tried.rows_with(most, rows[~keeps & ~is_open], excess[:, 1], limit),
    ]
    return Screened(_joined(settled), rows[is_open], tried.take(rows[is_open]))


def overlaps(problem: PlanningProblem, batch: CandidateBatch) -> BoolArray:
    """(n,) whether dispatch runs beside the compute of another micro-batch unless something is dispatched again."""
    beside = (batch.expert > 1) & ((batch.pipeline == 1) | (batch.virtual_pipeline > 1))
    return np.asarray(beside & problem.workload.framework.expert_overlap)


def _joined(parts: Sequence[MixedRows]) -> MixedRows:
    return MixedRows(
        np.concatenate([part.candidate for part in parts]),
        joined_batches([part.batch for part in parts]),
        np.concatenate([part.excess_bytes for part in parts]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """Candidates (n,) on which mixes are tried, with their account of memory for each GPU kind."""

    problem: PlanningProblem
    batch: CandidateBatch
    layers: IntArray
    kinds: IntArray
    accounts: list[MemoryAccount]

    def take(self, rows: IntArray | slice) -> Tried:
        """Some of the candidates."""
        layers = self.layers[rows] if self.layers.ndim > 2 else self.layers
        accounts = [account.take(rows) for account in self.accounts]
        return Tried(self.problem, select_rows(self.batch, rows), layers, self.kinds[rows], accounts)

    def rows_with(self, mix: Mix, rows: IntArray, excess: FloatArray, limit: IntArray | int = 0) -> MixedRows:
        """``rows`` with a mix, limited to ``limit`` layers of each chunk; ``excess`` (n,) bytes of all."""
        return MixedRows(rows, with_mix(self.batch.take(rows), mix, limit), excess[rows])

    def least_excess_bytes(self) -> FloatArray:
        """(n,) excess bytes that no mix goes below."""
        policies = policies_of([Mix(FULL)], self._framework)
        least = self._fullest([account.excess_bytes(policies, again=False) for account in self.accounts])
        return np.asarray(least[0])

    def excess_bytes(self, policies: RecomputePolicies) -> FloatArray:
        """(n, m) what the fullest GPU needs beyond its memory under each of (m, 1) policies."""
        return self._fullest([account.excess_bytes(policies) for account in self.accounts]).T

    def chosen(self, known: KnownLayers) -> MixedRows:
        """The mixes that fit and to which no other adds less; where none fits, the one that misses by least."""
        mixes = mixes_of(self.problem)
        policies = policies_of(mixes, self._framework)
        limit, limited_excess = self._least_limits()
        excess = np.column_stack([limited_excess, self.excess_bytes(policies)])
        fits = excess <= 0
        added = [
            self._added_s(policies, first.layers, second.layers)
            for first, second in zip(known.usual, known.apart, strict=True)
        ]
        crossing = _Crossing.of(known, overlaps(self.problem, self.batch))
        columns = np.column_stack([fits[:, 0], self._kept(policies, added, fits[:, 1:], crossing)])
        if fits[:, 0].any():
            self._drop_beaten(policies, added, columns, self._limited_s(limit, known.apart), crossing)
        nearest, nothing = excess.argmin(axis=1), np.flatnonzero(~columns.any(axis=1))
        columns[nothing, nearest[nothing]] = True
        parts = []
        for column in np.flatnonzero(columns.any(axis=0)).tolist():
            mix, own = (Mix(FULL), *mixes)[column], np.flatnonzero(columns[:, column])
            parts.append(self.rows_with(mix, own, excess[:, column], 0 if column else limit[own]))
        return _joined(parts)

    def _kept(
        self, policies: RecomputePolicies, added: Sequence[LayerSeconds], fits: BoolArray, crossing: _Crossing
    ) -> BoolArray:
        """(n, mixes) those that fit and to which no other adds less.

        One that repeats traffic whose time the placement decides rules out none that does not, and where dispatch
        runs beside compute the ones that do so and the others rule out one another in no case.
        """
        attention = crossing.attention[:, None] & policies.attention_again.T
        dispatch = (crossing.dispatch | crossing.beside)[:, None] & policies.dispatch_again.T
        used, kept = [each.T for layers in added for each in layers], np.zeros_like(fits)
        for again in (False, True):
            for sent in (False, True):
                own = (attention == again) & (dispatch == sent)
                rivals = (attention <= again) & (dispatch <= sent)
                if sent:
                    rivals &= dispatch | ~crossing.beside[:, None]
                if own.any():
                    kept |= own & least_of(used, fits & rivals)
        return kept

    @property
    def _framework(self) -> Framework:
        return self.problem.workload.framework

    def _fullest(self, by_kind: Sequence[FloatArray]) -> FloatArray:
        """(m, n) the most of (m, n, P) on any rank, each of its own kind."""
        return np.asarray(self._of_stages(by_kind).max(axis=-1))

    def _of_stages(self, by_kind: Sequence[FloatArray]) -> FloatArray:
        """Columns of arrays (..., C), one array a kind: each pipeline rank's from its own kind."""
        if len(by_kind) == 1:
            return by_kind[0]
        kinds = np.tile(self.kinds, (1, by_kind[0].shape[-1] // self.kinds.shape[1]))
        return np.select([kinds == kind for kind in range(len(by_kind))], by_kind)

    def _least_limits(self) -> tuple[IntArray, FloatArray]:
        """(n,) fewest layers of each chunk to which full recomputation may be limited, and excess bytes with them.

        The most where no limit fits; infinite bytes where there is none.
        """
        sizes = np.array(limits_of(self.problem, int(self.layers.sum(axis=-1).max())), dtype=np.int64)
        low, high = (np.full(len(self.batch), place, dtype=np.int64) for place in (0, len(sizes) - 1))
        if not len(sizes):
            return low, np.full(len(low), np.inf)
        while (low < high).any():
            middle = (low + high) // 2
            fits = self._limited_excess(sizes[middle]) <= 0
            low, high = np.where(fits, low, np.minimum(middle + 1, high)), np.where(fits, middle, high)
        return sizes[high], self._limited_excess(sizes[high])

    def _limited_excess(self, limit: IntArray) -> FloatArray:
        policies = RecomputePolicies.of(with_mix(self.batch, Mix(FULL), limit), self._framework)
        return np.asarray(
            self._of_stages([account.excess_bytes(policies) for account in self.accounts]).max(axis=1)
        )

    def _drop_beaten(
        self,
        policies: RecomputePolicies,
        added: Sequence[LayerSeconds],
        columns: BoolArray,
        limited_s: FloatArray,
        crossing: _Crossing,
    ) -> None:
        """Take from ``columns`` (n, 1 + mixes) limited recomputation where a mix adds no more, or that mix.

        ``limited_s`` (n, C): what limited recomputation adds to each chunk, ``added`` each mix to layers.
        """
        again = zip(policies.attention_again[:, 0], policies.dispatch_again[:, 0], policies.full[:, 0], strict=True)
        for column, (attention, dispatch, is_full) in enumerate(again, start=1):
            both = columns[:, 0] & columns[:, column]
            if not both.any():
                continue
            chunk_s = self._chunks_s([[each[column - 1] for each in layers] for layers in added], self.layers)
            less = (attention & crossing.attention) | (dispatch & crossing.dispatch) | (crossing.beside & ~dispatch)
            better = both & ~less & (chunk_s <= limited_s).all(axis=1) & ~is_full
            columns[better, 0] = False
            more = (~attention & crossing.attention) | (~dispatch & (crossing.dispatch | crossing.beside))
            columns[both & ~better & ~more & (limited_s <= chunk_s).all(axis=1), column] = False

    def _limited_s(self, limit: IntArray, known: LayersByKind) -> FloatArray:
        """(n, C) seconds that full recomputation of ``limit`` (n,) layers of each chunk adds."""
        policies = RecomputePolicies.of(with_mix(self.batch, Mix(FULL), limit), self._framework)
        order = self.batch.model_order(self.layers.shape[-2])
        whole = policies.whole_layers(self.problem.architecture, self.layers, order)
        whole_s = [[np.asarray(each.whole.total) for each in kind.layers.again] for kind in known]
        return self._chunks_s(whole_s, whole)

    def _added_s(self, policies: RecomputePolicies, usual: Layers, apart: Layers) -> LayerSeconds:
        """Seconds (m, n) that each of (m, 1) policies adds to a layer of each kind."""
        shape = len(policies.full), len(self.batch)
        found = []
        for each, alone in zip(usual.again, apart.again, strict=True):
            sent = np.where(policies.full, alone.whole.total, alone.selective(policies).total)
            total = np.where(policies.dispatch_again, sent, each.selective(policies).total)
            found.append(np.broadcast_to(total, shape))
        return found

    def _chunks_s(self, layer_s: Sequence[LayerSeconds], layers: IntArray) -> FloatArray:
        """(n, C) seconds of chunks with ``layers``, of which each takes ``layer_s`` by GPU kind."""
        return self._of_stages(
            [
                np.asarray(sum(each[:, None] * layers[..., kind] for kind, each in enumerate(kinds)))
                for kinds in layer_s
            ]
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Crossing:
    """Candidates (n,) whose rings of attention, or whose dispatch, leave a domain, so that the placement decides.

    ``beside``: dispatch runs beside the compute of another micro-batch.
    """

    attention: BoolArray
    dispatch: BoolArray
    beside: BoolArray

    @classmethod
    def of(cls, known: KnownLayers, beside: BoolArray) -> Self:
        """By the layers of the candidates."""
        layers = known.usual[0].layers
        rings, dispatch = (
            np.logical_or.reduce([each.forward_count > 0 for each in traffic])
            for traffic in (layers.context, layers.expert)
        )
        return cls(rings, dispatch, beside)


def least_of(added: Sequence[FloatArray], fits: BoolArray) -> BoolArray:
    """(n, mixes) which of those that fit no other one adds less than: less in one of ``added`` and more in none.

    Of equal ones the first.
    """
    kept = fits.copy()
    if len(added) > 2 or not fits.size:
        for column in range(fits.shape[1]):
            for other in range(fits.shape[1]):
                no_more = [each[:, other] <= each[:, column] for each in added]
                less = [each[:, other] < each[:, column] for each in added]
                beats = np.logical_and.reduce(no_more) & (np.logical_or.reduce(less) | (other < column))
                kept[:, column] &= ~(fits[:, other] & beats) | (other == column)
        return kept
    first, last = (np.where(fits, each, np.inf) for each in (added[0], added[-1]))
    order = np.argsort(last, axis=1, kind="stable")
    order = np.take_along_axis(order, np.argsort(np.take_along_axis(first, order, 1), axis=1, kind="stable"), 1)
    ordered = np.take_along_axis(last, order, 1)
    least = np.minimum.accumulate(ordered, axis=1)
    is_less = ordered < np.concatenate([np.full((len(least), 1), np.inf), least[:, :-1]], axis=1)
    np.put_along_axis(kept, order, is_less, 1)
    return kept & fits
