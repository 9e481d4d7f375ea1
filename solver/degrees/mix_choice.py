"""For each candidate the mixes of memory options that fit at least added time (docs/memory_options.md).

A candidate that fits without any option needs none.  For the others every mix that the workload allows is tried, on
all of them at once: the bytes that it leaves on every pipeline rank, and the seconds that it adds to the backward
pass of a layer.  Mixes that fit are kept where no other adds less, so that the best plan of all
mixes is among the rows, whatever is placed where.

Where optimizer states may be offloaded each mix has the least share of them with which it fits, in closed form: the
step takes the longer the more is offloaded, so that this share counts as one more thing that a mix adds.
Where activations may be, a candidate without a pipeline has one row more: nothing runs again, and the fewest layers
with which it fits wait in the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cluster_models.cluster.gpus import GpuKind
from cluster_models.training.framework_choices import OptimizerOffload
from cluster_models.training.frameworks import Framework
from cluster_models.training.offload import must_offload_layers, offload_percents
from cluster_models.training.workload import WHOLE_OFFLOAD
from solver.candidates import BoolArray, CandidateBatch, FloatArray, IntArray, joined_batches, select_rows
from solver.costs.host_offload import as_share
from solver.costs.memory import MemoryAccount
from solver.costs.recomputation import RecomputePolicies
from solver.degrees.memory_mixes import (
    FULL,
    NOTHING,
    Mix,
    levels_of,
    limits_of,
    mixes_of,
    policies_of,
    with_mix,
)
from solver.degrees.mix_rivals import AddedSeconds, least_of, overlaps
from solver.degrees.stage_costs import memory_accounts
from solver.degrees.waiting_layers import numbers_of_layers, only_waiting, waiting
from solver.problem import PlanningProblem

_ROUNDING: Final = 1e-9
"""Percent of the optimizer states by which floating point may miss the least share that fits."""
MOST_CELLS: Final = 2**21
"""Candidates times mixes times pipeline ranks that are tried at once: some tens of megabytes."""


@dataclass(frozen=True, slots=True, eq=False)
class MixedRows:
    """Candidates with the mixes chosen for them: (k,) whose row each is, and what it needs beyond memory."""

    candidate: IntArray
    batch: CandidateBatch
    excess_bytes: FloatArray

    def take(self, rows: IntArray) -> MixedRows:
        """Some rows."""
        return MixedRows(self.candidate[rows], self.batch.take(rows), self.excess_bytes[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Screened:
    """Candidates by whether a choice is left: ``settled`` have one row, ``open`` are the numbers of the others.

    ``tried`` are those that are open.  ``fits`` (n,): those that fit with no memory option.
    """

    fits: BoolArray
    settled: MixedRows
    open: IntArray
    tried: Tried

    def chosen(self, added: AddedSeconds) -> MixedRows:
        """All rows with their mixes; ``added`` are seconds of the open candidates."""
        parts = [self.settled]
        together = max(1, MOST_CELLS // (len(mixes_of(self.tried.problem)) * self.tried.kinds.shape[1] + 1))
        for first in range(0, len(self.open), together):
            own = slice(first, first + together)
            tried = self.tried if together >= len(self.open) else self.tried.take(own)
            found = tried.chosen(select_rows(added, own))
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
    spread: IntArray,
) -> Screened:
    """Candidates that are priced together, and recompute nothing so far, by memory.

    They share their settings, too, which the framework of ``problem`` has.

    ``layers``, (C, K) or (n, C, K), the same where ``spread`` (n,) is, ``stage_kind`` (n, P) and ``domain`` as in
    ``stage_costs``.  A candidate that no
    mix fits has one row, with the mix that frees most or none.  Beside the compute of another micro-batch dispatch
    costs host time, so that mixes that dispatch again may be quicker though nothing need be recomputed.
    """
    accounts = memory_accounts(problem, kinds, batch, layers, domain, spread)
    tried = Tried(problem, batch, layers, stage_kind, accounts)
    levels, waits = levels_of(problem), must_offload_layers(problem.workload)
    if waits or not levels:  # settings may leave no mix of those that the workload allows
        nothing, every = np.empty(0, dtype=np.int64), np.arange(len(batch))
        settled = waiting(tried) if waits else tried.rows_with(NOTHING, every, np.full(len(batch), np.inf))
        return Screened(np.zeros(len(batch), dtype=bool), settled, nothing, tried.take(nothing))
    most, limit = levels[-1]
    ends = policies_of([NOTHING, most], problem.workload.framework)
    excess = tried.excess_bytes(ends)
    if NOTHING not in mixes_of(problem):
        excess[:, 0] = np.inf
    fits, rows = excess[:, 0] <= 0, np.arange(len(batch))
    least = tried
    if tried.may_offload:
        least = tried.offloading(np.where(fits, batch.optimizer_offload, tried.most_percent()))
        excess = np.where(np.isinf(excess), excess, least.excess_bytes(ends))
    is_open = np.where(fits, overlaps(problem, batch), least.least_excess_bytes() <= 0)
    if tried.may_offload_layers:
        is_open |= ~fits & (tried.offloading_layers(tried.most_layers()).plain_excess_bytes() <= 0)
    keeps = ~is_open & (fits | (excess[:, 0] < excess[:, 1]))
    rest = [
        MixedRows(rows[keeps], least.batch.take(keeps), excess[keeps, 0]),
        least.rows_with(most, rows[~keeps & ~is_open], excess[:, 1], limit),
    ]
    return Screened(fits, _joined(rest), rows[is_open], tried.take(rows[is_open]))


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
        """The candidates of some rows."""
        layers = self.layers[rows] if self.layers.ndim > 2 else self.layers
        accounts = [account.take(rows) for account in self.accounts]
        return Tried(self.problem, select_rows(self.batch, rows), layers, self.kinds[rows], accounts)

    @property
    def may_offload(self) -> bool:
        """Whether any candidate may offload more than it does."""
        percents = offload_percents(self.problem.workload)
        return len(percents) > 1 and any(account.states.host.any() for account in self.accounts)

    @property
    def may_offload_layers(self) -> bool:
        """Whether activations of the candidates' layers may wait in the nodes' memory."""
        plain = NOTHING in mixes_of(self.problem) and len(self.batch) > 0 and int(self.batch.pipeline[0]) == 1
        return plain and len(numbers_of_layers(self.problem)) > 0

    def most_layers(self) -> IntArray:
        """(n,) the most layers whose activations may wait."""
        return np.full(len(self.batch), numbers_of_layers(self.problem)[-1])

    def offloading_layers(self, layers: IntArray) -> Tried:
        """The candidates with the activations of ``layers`` (n,) offloaded."""
        batch, waits = (
            replace(self.batch, offloaded_layers=layers),
            layers[:, None] / self.problem.architecture.layers,
        )
        return replace(self, batch=batch, accounts=[replace(account, waits=waits) for account in self.accounts])

    def plain_excess_bytes(self) -> FloatArray:
        """(n,) what the fullest GPU needs beyond its memory with nothing run again."""
        return self.excess_bytes(policies_of([NOTHING], self._framework))[:, 0]

    def most_percent(self) -> IntArray:
        """(n,) the greatest percent of optimizer states that nodes have room for and plans may offload.

        Where there is none, what a candidate offloads already.
        """
        room = self._of_stages([account.most_offload for account in self.accounts]).min(axis=1)
        percents = np.array(offload_percents(self.problem.workload), dtype=np.int64)
        place = np.searchsorted(percents, np.floor(WHOLE_OFFLOAD * room), side="right") - 1
        return np.maximum(np.where(place < 0, 0, percents[place]), self.batch.optimizer_offload)

    def offloading(self, percent: IntArray) -> Tried:
        """The candidates with ``percent`` (n,) of their optimizer states offloaded."""
        batch = replace(self.batch, optimizer_offload=percent)
        return replace(self, batch=batch, accounts=self._accounts_with(percent))

    def _accounts_with(self, percent: IntArray) -> list[MemoryAccount]:
        """The accounts with ``percent``, (n,) or (m, n) by policy, offloaded."""
        share = as_share(percent[..., None])
        return [replace(account, offload=share) for account in self.accounts]

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

    def chosen(self, added: AddedSeconds) -> MixedRows:
        """The mixes that fit and to which no other adds less; where none fits, the one that misses by least."""
        mixes = mixes_of(self.problem)
        policies = policies_of(mixes, self._framework)
        limit, limited_excess = self._least_limits()
        excess = np.column_stack([limited_excess, self.excess_bytes(policies)])
        percent = np.tile(self.batch.optimizer_offload[:, None], (1, excess.shape[1]))
        if self.may_offload:
            percent = self._least_percent(policies, limit, excess)
            excess = self._excess_with(percent, policies, limit, excess)
        fits = excess <= 0
        columns = np.column_stack([fits[:, 0], self._kept(policies, added, fits[:, 1:], percent[:, 1:])])
        if fits[:, 0].any():
            self._drop_beaten(policies, added, columns, self._limited_s(limit, added), percent)
        parts = [only_waiting(self)] if self.may_offload_layers else []
        saved = np.isin(np.arange(len(columns)), [part.candidate for part in parts])
        nearest, nothing = excess.argmin(axis=1), np.flatnonzero(~columns.any(axis=1) & ~saved)
        columns[nothing, nearest[nothing]] = True
        for column in np.flatnonzero(columns.any(axis=0)).tolist():
            mix, own = (Mix(FULL), *mixes)[column], np.flatnonzero(columns[:, column])
            tried = self.offloading(percent[:, column]) if percent.any() else self
            parts.append(tried.rows_with(mix, own, excess[:, column], 0 if column else limit[own]))
        return _joined(parts)

    def _least_percent(self, policies: RecomputePolicies, limit: IntArray, excess: FloatArray) -> IntArray:
        """(n, 1 + m) the least share, in percent, with which limited recomputation and each mix fit, or the most.

        ``excess`` (n, 1 + m) bytes with as little as candidates begin with.
        """
        limited = self._limited_policies(limit)
        needed = np.column_stack(
            [
                self._of_stages([account.needed_offload(limited) for account in self.accounts]).max(axis=1),
                self._fullest([account.needed_offload(policies) for account in self.accounts]).T,
            ]
        )
        percents = np.array(offload_percents(self.problem.workload), dtype=np.int64)
        wanted = np.ceil(np.minimum(WHOLE_OFFLOAD * needed + _ROUNDING, 2.0 * WHOLE_OFFLOAD))
        place = np.minimum(np.searchsorted(percents, wanted), len(percents) - 1)
        own = self.batch.optimizer_offload[:, None]
        least = np.minimum(np.maximum(percents[place], own), self.most_percent()[:, None])
        return np.where(excess <= 0, own, least)

    def _excess_with(
        self, percent: IntArray, policies: RecomputePolicies, limit: IntArray, excess: FloatArray
    ) -> FloatArray:
        """(n, 1 + m) bytes beyond memory where each column offloads ``percent`` of it."""
        limited, mixes = self._accounts_with(percent[:, 0]), self._accounts_with(percent[:, 1:].T)
        policy = self._limited_policies(limit)
        first = self._of_stages([account.excess_bytes(policy) for account in limited]).max(axis=1)
        rest = self._fullest([account.excess_bytes(policies) for account in mixes]).T
        return np.column_stack([np.where(np.isinf(excess[:, 0]), np.inf, first), rest])

    def _kept(
        self,
        policies: RecomputePolicies,
        added: AddedSeconds,
        fits: BoolArray,
        percent: IntArray,
    ) -> BoolArray:
        """(n, mixes) those that fit and to which no other adds less; ``percent`` (n, mixes) of states is offloaded.

        One that repeats traffic whose time the placement decides rules out none that does not, and where dispatch
        runs beside compute the ones that do so and the others rule out one another in no case.  Nor does any one
        where a longer backward pass may hide more of what is offloaded.
        """
        crossing = added.crossing
        attention = crossing.attention[:, None] & policies.attention_again.T
        dispatch = (crossing.dispatch | crossing.beside)[:, None] & policies.dispatch_again.T
        used, kept = [each for layers in added.mixes for each in layers], np.zeros_like(fits)
        used += [percent.astype(np.float64)] if self.may_offload else []
        for again in (False, True):
            for sent in (False, True):
                own = (attention == again) & (dispatch == sent)
                rivals = (attention <= again) & (dispatch <= sent)
                if sent:
                    rivals &= dispatch | ~crossing.beside[:, None]
                if own.any():
                    kept |= own & least_of(used, fits & rivals)
        if self._framework.optimizer_offload is OptimizerOffload.SHARE:
            return kept
        return kept | (fits & (percent > 0))

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
        most = np.broadcast_to(self.layers.sum(axis=-1).max(axis=-1), len(self.batch))
        chunks, row = np.unique(most, return_inverse=True)
        limits = [limits_of(self.problem, size) for size in chunks.tolist()]
        sizes, count = np.array(limits[-1], dtype=np.int64), np.array([len(each) for each in limits])[row]
        low, high = np.zeros(len(self.batch), dtype=np.int64), np.maximum(count - 1, 0)
        if not len(sizes):
            return low, np.full(len(low), np.inf)
        while (low < high).any():
            middle = (low + high) // 2
            fits = self._limited_excess(sizes[middle]) <= 0
            low, high = np.where(fits, low, np.minimum(middle + 1, high)), np.where(fits, middle, high)
        return sizes[high], np.where(count > 0, self._limited_excess(sizes[high]), np.inf)

    def _limited_policies(self, limit: IntArray) -> RecomputePolicies:
        return RecomputePolicies.of(with_mix(self.batch, Mix(FULL), limit), self._framework)

    def _limited_excess(self, limit: IntArray) -> FloatArray:
        policies = self._limited_policies(limit)
        return np.asarray(
            self._of_stages([account.excess_bytes(policies) for account in self.accounts]).max(axis=1)
        )

    def _drop_beaten(
        self,
        policies: RecomputePolicies,
        added: AddedSeconds,
        columns: BoolArray,
        limited_s: FloatArray,
        percent: IntArray,
    ) -> None:
        """Take from ``columns`` (n, 1 + mixes) limited recomputation where a mix adds no more, or that mix.

        ``limited_s`` (n, C): what limited recomputation adds to each chunk, ``added`` each mix to layers,
        ``percent`` (n, 1 + mixes) what each offloads.
        """
        crossing = added.crossing
        again = zip(policies.attention_again[:, 0], policies.dispatch_again[:, 0], policies.full[:, 0], strict=True)
        for column, (attention, dispatch, is_full) in enumerate(again, start=1):
            both = columns[:, 0] & columns[:, column]
            if not both.any():
                continue
            mix_s = [[each[:, column - 1] for each in layers] for layers in added.mixes]
            chunk_s = self._chunks_s(mix_s, self.layers)
            less = (attention & crossing.attention) | (dispatch & crossing.dispatch) | (crossing.beside & ~dispatch)
            ahead = percent[:, column] - percent[:, 0]
            better = both & ~less & (chunk_s <= limited_s).all(axis=1) & ~is_full & (ahead <= 0)
            columns[better, 0] = False
            more = (~attention & crossing.attention) | (~dispatch & (crossing.dispatch | crossing.beside))
            beaten = both & ~better & ~more & (limited_s <= chunk_s).all(axis=1) & (ahead >= 0)
            columns[beaten, column] = False

    def _limited_s(self, limit: IntArray, added: AddedSeconds) -> FloatArray:
        """(n, C) seconds that full recomputation of ``limit`` (n,) layers of each chunk adds."""
        policies = self._limited_policies(limit)
        order = self.batch.model_order(self.layers.shape[-2])
        whole = policies.whole_layers(self.problem.architecture, self.layers, order)
        return self._chunks_s(added.whole, whole)

    def _chunks_s(self, layer_s: Sequence[Sequence[FloatArray]], layers: IntArray) -> FloatArray:
        """(n, C) seconds of chunks with ``layers``, of which each takes ``layer_s`` by GPU kind."""
        return self._of_stages(
            [
                np.asarray(sum(each[:, None] * layers[..., kind] for kind, each in enumerate(kinds)))
                for kinds in layer_s
            ]
        )
