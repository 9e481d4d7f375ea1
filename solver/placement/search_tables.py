"""Inputs of the compiled search, from a placement problem (``solver.compiled_search``)."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.compiled_chains import nearest_nodes
from solver.compiled_search import refresh
from solver.compiled_terms import event_levels
from solver.pipeline.schedule import Schedule
from solver.placement.problem import NO_SLOT, PlacementProblem
from solver.search_types import Compute, Exposure, Layout, Paths, Pipeline, Sharing, State, Tables, Terms

NEAR: Final = 12
"""Nodes that aimed moves choose from."""
MEAN_WEIGHT: Final = 1e-3
"""Enough of the means to lead a search over plateaus; beside the slowest they count for next to nothing."""


def search_tables(problem: PlacementProblem, both_s: FloatArray | None = None) -> Tables:
    """The tables of a problem; ``both_s`` is ``both_ways_s`` of it where that is at hand."""
    arrays = problem.arrays
    counting = np.flatnonzero(
        arrays.cross_count.any(axis=(1, 2)) & (arrays.cross_pairs[..., 0] >= 0).any(axis=(1, 2, 3))
    )
    replicas, ranks = problem.replicas, problem.schedule.pipeline
    delays, kinds = 2 * ranks + 1, 1 + len(counting)
    cells = replicas * delays
    reduces = cells + replicas * ranks * kinds
    layout = Layout(replicas, ranks, delays, kinds, cells, reduces, reduces + ranks * len(arrays.ring_pairs))
    terms, sharing = _terms(problem, layout, counting)
    rules = arrays.rules
    return Tables(
        slots=problem.slots,
        mean_weight=MEAN_WEIGHT,
        ruled=not rules.eligible.all() or len(rules.group_slots) > 0 or len(rules.most_used) > 0,
        rules=rules,
        layout=layout,
        pipeline=_pipeline(problem.schedule),
        terms=terms,
        compute=Compute(
            np.ascontiguousarray(arrays.duration_s),
            np.ascontiguousarray(arrays.cross_count[counting]),
            np.ascontiguousarray(arrays.cross_hidden_s[counting]),
        ),
        exposure=Exposure(arrays.reduce_hidden_s, arrays.gather_hidden_s, arrays.optimizer_s),
        sharing=sharing,
        grid=_grid(problem),
        near=_near(both_ways_s(problem) if both_s is None else both_s),
    )


def search_state(tables: Tables, order: IntArray) -> State:
    """The state of an order (N,)."""
    layout, terms = tables.layout, len(tables.terms.matrix)
    chunks = tables.compute.duration_s.size
    replicas = layout.replicas
    state = State(
        order=order.astype(np.int64),
        position=np.zeros(len(order), dtype=np.int64),
        best=order.astype(np.int64),
        value=np.empty(terms),
        work=np.zeros((replicas, chunks)),
        ends=np.zeros((replicas, layout.ranks)),
        cost=np.zeros(replicas),
        rings=np.zeros((2, layout.ranks)),
        paths=Paths(
            np.zeros(replicas, dtype=np.int64), np.zeros((replicas, chunks)), np.zeros((replicas, layout.delays))
        ),
        scores=np.zeros(6),
    )
    refresh(tables, state)
    return state


def both_ways_s(problem: PlacementProblem) -> FloatArray:
    """(N, N) what a transfer between two nodes takes, both ways together."""
    return np.ascontiguousarray(problem.arrays.hop_s + problem.arrays.hop_s.T)


def _near(both_s: FloatArray) -> IntArray:
    """(N, n) nodes with the fastest links to each node; itself where there is no other."""
    if len(both_s) < 2:
        return np.zeros((len(both_s), 1), dtype=np.int64)
    return nearest_nodes(both_s, min(NEAR, len(both_s) - 1))


def _grid(problem: PlacementProblem) -> IntArray:
    """The slots of each cell (R, P, q), or all slots (1, K, 1) where cells share some."""
    cells = problem.arrays.cell_slots
    if (cells >= 0).all() and len(np.unique(cells)) == cells.size:
        return np.ascontiguousarray(cells)
    return np.arange(problem.slots).reshape(1, -1, 1)


def _pipeline(schedule: Schedule) -> Pipeline:
    """Events in an order in which neighbours seldom wait for each other, so that a processor can overlap them."""
    events, none, chunks = schedule.events, 2 * schedule.pipeline, schedule.pipeline * schedule.virtual
    order = np.argsort(event_levels(events.previous, events.feed), kind="stable")
    number = np.zeros(len(order) + 1, dtype=np.int64)
    number[order] = np.arange(1, len(order) + 1)

    rows = np.stack(
        [
            number[events.previous],
            number[events.feed],
            np.where(events.hop >= 0, events.hop, none),
            np.where(events.send >= 0, events.send, none),
            events.kind * chunks + events.chunk,
        ],
        axis=1,
    )
    return Pipeline(rows[order].astype(np.uint32), number[schedule.last].astype(np.uint32))


class _Pairs:
    """Pairs of slots of all terms, as they are listed."""

    def __init__(self) -> None:
        self.term: list[IntArray] = []
        self.pairs: list[IntArray] = []
        self.sent_bytes: list[FloatArray] = []

    def add(self, term: IntArray, pairs: IntArray, sent_bytes: FloatArray) -> None:
        """Slot pairs (..., u, 2) of the terms (...), ``NO_SLOT`` among them; ``sent_bytes`` fits (..., u)."""
        shape = pairs.shape[:-1]
        there = pairs[..., 0] >= 0
        self.term.append(np.broadcast_to(term[..., None], shape)[there])
        self.pairs.append(pairs[there])
        self.sent_bytes.append(np.broadcast_to(sent_bytes, shape)[there])

    def merged(self, slots: int) -> tuple[IntArray, IntArray, FloatArray]:
        """Term (p,), pair (p, 2) and bytes (p,), each pair once in a term, in ascending order."""
        pairs = np.concatenate(self.pairs)
        key = (np.concatenate(self.term) * slots + pairs[:, 0]) * slots + pairs[:, 1]
        key, index = np.unique(key, return_inverse=True)
        sent_bytes = np.bincount(index.reshape(-1), weights=np.concatenate(self.sent_bytes), minlength=len(key))
        pair = np.stack([key // slots % slots, key % slots], axis=1)
        return key // slots**2, pair, sent_bytes.astype(np.float64)


class _Entries(NamedTuple):
    """Pairs of all terms (see ``_Pairs.merged``), and of each term its matrix, floor and phase."""

    term: IntArray
    pair: IntArray
    sent_bytes: FloatArray
    matrix: IntArray
    floor: FloatArray
    phase: IntArray


def _terms(problem: PlacementProblem, layout: Layout, counting: IntArray) -> tuple[Terms, Sharing]:
    """All terms in the order of ``Layout``; ``counting`` are the kinds of crossing traffic that there are."""
    arrays = problem.arrays
    seconds = [arrays.hop_s, arrays.hop_s, *arrays.cross_s[counting], *arrays.reduce_s, *arrays.gather_s]
    return _packed(_entries(problem, layout, counting), seconds, problem)


def _entries(problem: PlacementProblem, layout: Layout, counting: IntArray) -> _Entries:
    """The terms over matrices: transfers, slowdowns, crossing traffic by kind, reductions and gathers."""
    arrays, uplinks, ranks, kinds = (
        problem.arrays,
        problem.arrays.uplinks,
        layout.ranks,
        len(problem.arrays.ring_pairs),
    )
    terms, pairs = layout.gathers + ranks * kinds, _Pairs()
    matrix, phase, floor = np.zeros(terms, dtype=np.int64), np.zeros(terms, dtype=np.int64), np.zeros(terms)
    by_replica = np.arange(layout.cells).reshape(layout.replicas, layout.delays)
    delays = by_replica[:, :-1].reshape(layout.replicas, 2, ranks)
    pairs.add(delays, _between(arrays.hop_pairs), uplinks.hop_bytes)
    inside = ((arrays.hop_pairs[..., 0] >= 0) & (arrays.hop_pairs[..., 0] == arrays.hop_pairs[..., 1])).any(axis=-1)
    floor[delays] = np.where(inside, arrays.local_hop_s, 0.0)
    phase[delays] = np.arange(2 * ranks).reshape(2, ranks)
    cells = np.arange(layout.cells, layout.reduces).reshape(layout.replicas, ranks, layout.kinds)
    pairs.add(cells[..., 0], np.repeat(arrays.cell_slots[..., None], 2, axis=-1), np.zeros(1))
    matrix[cells], floor[cells[..., 0]] = 1 + np.arange(layout.kinds), 1.0
    phase[cells[..., 1:]] = 2 * ranks + np.arange(layout.kinds - 1)
    for i, x in enumerate(counting):
        pairs.add(cells[..., 1 + i], _between(arrays.cross_pairs[x]), uplinks.cross_bytes[x])
    local_s = np.stack([arrays.reduce_local_s, arrays.gather_local_s])
    rings = np.arange(layout.reduces, terms).reshape(2, ranks, kinds).swapaxes(1, 2)
    for kind in range(2):
        pairs.add(rings[kind], _between(arrays.ring_pairs), uplinks.ring_bytes[kind][..., None])
        matrix[rings[kind]] = 1 + layout.kinds + kind * len(arrays.reduce_s) + arrays.ring_times
        phase[rings[kind]] = 2 * ranks + layout.kinds - 1 + kind * kinds + np.arange(kinds)[:, None]
    floor[rings] = local_s
    return _Entries(*pairs.merged(problem.nodes), matrix, floor, phase)


def _between(pairs: IntArray) -> IntArray:
    """``pairs`` (..., 2) with ``NO_SLOT`` for those on one slot."""
    return np.where(pairs[..., :1] != pairs[..., 1:], pairs, NO_SLOT)


def _packed(entries: _Entries, seconds: list[FloatArray], problem: PlacementProblem) -> tuple[Terms, Sharing]:
    """Terms one after the other; without switches to share, those that all nodes serve alike need no pairs.

    The slowdowns stand on the diagonal of the transfers, where no pair of two slots looks.
    """
    uplinks, slowdown, terms = problem.arrays.uplinks, problem.arrays.slowdown, len(entries.matrix)
    shared = len(uplinks.bytes_per_s) > 0
    ranges = [_range(matrix) for matrix in seconds]
    ranges[1] = float(slowdown.min()), float(slowdown.max())
    least = np.array([low for low, _ in ranges])
    even = np.array([not shared and low == high for low, high in ranges])
    even[1] = slowdown.min() == slowdown.max()
    kept = [m for m in range(len(seconds)) if m != 1 and not (even[m] and (m > 0 or even[1]))]
    place = np.zeros(len(seconds), dtype=np.int64)
    place[kept] = np.arange(len(kept))
    table = np.stack([seconds[m] for m in kept]) if kept else np.zeros((1, problem.nodes, problem.nodes))
    np.fill_diagonal(table[0], slowdown)
    paired = np.bincount(entries.term, minlength=terms) > 0
    floor = np.maximum(entries.floor, np.where(paired & even[entries.matrix], least[entries.matrix], 0.0))
    uneven = ~even[entries.matrix[entries.term]]
    term, pair = entries.term[uneven], entries.pair[uneven]
    users = np.unique((pair * terms + term[:, None]).reshape(-1))
    packed = Terms(
        first=np.searchsorted(term, np.arange(terms + 1)),
        pairs=pair,
        matrix=place[entries.matrix],
        floor=floor,
        seconds=table,
        slot_first=np.searchsorted(users // terms, np.arange(problem.nodes + 1)),
        slot_terms=users % terms,
    )
    return packed, Sharing(uplinks.above, uplinks.bytes_per_s, entries.sent_bytes[uneven], entries.phase)


def _range(matrix: FloatArray) -> tuple[float, float]:
    """The least and the largest entry (N, N) between two different nodes; 0 where there is one node."""
    if len(matrix) < 2:
        return 0.0, 0.0
    # without the last entry and the first of each row that is left, one longer than before, the diagonal is gone
    others = matrix.reshape(-1)[:-1].reshape(len(matrix) - 1, -1)[:, 1:]
    return float(others.min()), float(others.max())
