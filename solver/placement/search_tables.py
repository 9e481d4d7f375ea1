"""What the compiled search reads, from a placement problem (``solver.compiled_search``)."""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.compiled import event_levels
from solver.compiled_search import refresh
from solver.pipeline.schedule import Schedule
from solver.placement.problem import PlacementProblem
from solver.search_types import Compute, Exposure, Layout, Paths, Pipeline, Sharing, State, Tables, Terms

NEAR: Final = 12
"""Nodes that aimed moves choose from."""


def search_tables(problem: PlacementProblem) -> Tables:
    """The tables of a problem."""
    arrays = problem.arrays
    counting = np.flatnonzero(
        arrays.cross_count.any(axis=(1, 2)) & (arrays.cross_pairs[..., 0] >= 0).any(axis=(1, 2, 3))
    )
    replicas, ranks = problem.replicas, problem.schedule.pipeline
    delays, kinds = 2 * ranks + 1, 1 + len(counting)
    cells = replicas * delays
    reduces = cells + replicas * ranks * kinds
    layout = Layout(replicas, ranks, delays, kinds, cells, reduces, reduces + ranks * len(arrays.ring_pairs))
    terms, sharing = _terms(problem, counting)
    rules = arrays.rules
    return Tables(
        slots=problem.slots,
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
        near=_near(arrays.hop_s),
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


def _grid(problem: PlacementProblem) -> IntArray:
    """The slots of each cell (R, P, q), or all slots (1, K, 1) where cells share some."""
    cells = problem.arrays.cell_slots
    if (cells >= 0).all() and len(np.unique(cells)) == cells.size:
        return np.ascontiguousarray(cells)
    return np.arange(problem.slots).reshape(1, -1, 1)


def _near(hop_s: FloatArray) -> IntArray:
    """(N, n) nodes with the fastest links to each node, both ways together; itself where there is no other."""
    both_s = hop_s + hop_s.T
    np.fill_diagonal(both_s, np.inf)
    return np.ascontiguousarray(np.argsort(both_s, axis=1, kind="stable")[:, : max(1, min(NEAR, len(hop_s) - 1))])


def _pipeline(schedule: Schedule) -> Pipeline:
    """Events in an order in which neighbours seldom wait for each other, so that a processor can overlap them."""
    events, none, chunks = schedule.events, 2 * schedule.pipeline, schedule.pipeline * schedule.virtual
    order = np.argsort(event_levels(events.previous, events.feed), kind="stable")
    number = np.zeros(len(order) + 1, dtype=np.int64)
    number[order] = np.arange(1, len(order) + 1)

    def transfer(rank: IntArray) -> IntArray:
        return np.where(rank >= 0, events.backward * schedule.pipeline + rank, none)

    rows = np.stack(
        [
            number[events.previous],
            number[events.feed],
            transfer(events.hop),
            transfer(events.send),
            events.backward * chunks + events.chunk,
        ],
        axis=1,
    )
    return Pipeline(rows[order].astype(np.uint32), number[schedule.last].astype(np.uint32))


class _Entries:
    """Terms in the order of ``Layout``, as they are listed."""

    def __init__(self) -> None:
        self.pairs: list[IntArray] = []
        self.sent_bytes: list[FloatArray] = []
        self.matrix: list[int] = []
        self.floor: list[float] = []
        self.phase: list[int] = []

    def add(self, pairs: IntArray, sent_bytes: FloatArray | float, matrix: int, floor: float, phase: int) -> None:
        """A term over slot pairs (u, 2), ``NO_SLOT`` and pairs on one slot among them."""
        between = (pairs[:, 0] >= 0) & (pairs[:, 0] != pairs[:, 1])
        found, index = np.unique(pairs[between], axis=0, return_inverse=True)
        sizes = np.broadcast_to(sent_bytes, len(pairs))[between]
        self.pairs.append(found)
        self.sent_bytes.append(
            np.bincount(index.reshape(-1), weights=sizes, minlength=len(found)).astype(np.float64)
        )
        self.matrix.append(matrix)
        self.floor.append(floor)
        self.phase.append(phase)

    def add_cell(self, slots: IntArray, matrix: int, floor: float) -> None:
        """The slowdown of a cell: on the diagonal of its matrix."""
        taken = np.unique(slots[slots >= 0])
        self.pairs.append(np.stack([taken, taken], axis=1))
        self.sent_bytes.append(np.zeros(len(taken)))
        self.matrix.append(matrix)
        self.floor.append(floor)
        self.phase.append(0)


def _terms(problem: PlacementProblem, counting: IntArray) -> tuple[Terms, Sharing]:
    """All terms in the order of ``Layout``; ``counting`` are the kinds of crossing traffic that there are."""
    arrays, uplinks, ranks = problem.arrays, problem.arrays.uplinks, problem.schedule.pipeline
    replicas, kinds = problem.replicas, len(arrays.ring_pairs)
    seconds = [
        arrays.hop_s,
        np.diag(arrays.slowdown),
        *arrays.cross_s[counting],
        *arrays.reduce_s,
        *arrays.gather_s,
    ]
    entries = _Entries()
    for r, way, s in np.ndindex(replicas, 2, ranks):
        pairs = arrays.hop_pairs[r, way, s]
        inside = ((pairs[:, 0] >= 0) & (pairs[:, 0] == pairs[:, 1])).any()
        floor = float(arrays.local_hop_s) if inside else 0.0
        entries.add(pairs, uplinks.hop_bytes[r, way, s], 0, floor, way * ranks + s)
        if (way, s) == (1, ranks - 1):
            entries.add(pairs[:0], 0.0, 0, 0.0, 0)
    for r, s in np.ndindex(replicas, ranks):
        entries.add_cell(arrays.cell_slots[r, s], 1, 1.0)
        for i, x in enumerate(counting):
            entries.add(arrays.cross_pairs[x, r, s], uplinks.cross_bytes[x], 2 + i, 0.0, 2 * ranks + i)
    after, phase = 2 + len(counting), 2 * ranks + len(counting)
    for kind, local_s in enumerate((arrays.reduce_local_s, arrays.gather_local_s)):
        for s, y in np.ndindex(ranks, kinds):
            matrix = after + kind * len(arrays.reduce_s) + int(arrays.ring_times[y, s])
            sent_bytes = uplinks.ring_bytes[kind, y, s]
            entries.add(arrays.ring_pairs[y, s], sent_bytes, matrix, float(local_s[y, s]), phase + kind * kinds + y)
    return _packed(entries, seconds, problem)


def _packed(entries: _Entries, seconds: list[FloatArray], problem: PlacementProblem) -> tuple[Terms, Sharing]:
    """Terms one after the other; without switches to share, those that all nodes serve alike need no pairs."""
    uplinks, nodes = problem.arrays.uplinks, problem.nodes
    shared = len(uplinks.bytes_per_s) > 0
    off = ~np.eye(nodes, dtype=bool)
    least = np.array([0.0 if nodes < 2 else matrix[off].min() for matrix in seconds])
    even = np.array([not shared and (matrix[off] == low).all() for matrix, low in zip(seconds, least, strict=True)])
    slowdown = problem.arrays.slowdown
    least[1], even[1] = slowdown.min(), bool((slowdown == slowdown[0]).all())
    kept = np.flatnonzero(~even)
    place = np.zeros(len(seconds), dtype=np.int64)
    place[kept] = np.arange(len(kept))
    matrix = np.array(entries.matrix)
    paired = np.array([len(pairs) > 0 for pairs in entries.pairs])
    floor = np.maximum(entries.floor, np.where(paired & even[matrix], least[matrix], 0.0))
    pairs = [found[:0] if even[m] else found for found, m in zip(entries.pairs, matrix, strict=True)]
    sent_bytes = [sizes[:0] if even[m] else sizes for sizes, m in zip(entries.sent_bytes, matrix, strict=True)]
    slots = [np.unique(found) for found in pairs]
    users = np.concatenate(slots)
    by_slot = np.argsort(users, kind="stable")
    terms = Terms(
        first=np.concatenate([[0], np.cumsum([len(found) for found in pairs])]),
        pairs=np.concatenate(pairs),
        matrix=place[matrix],
        floor=floor,
        seconds=np.stack([seconds[m] for m in kept]) if len(kept) else np.zeros((1, nodes, nodes)),
        slot_first=np.searchsorted(users[by_slot], np.arange(nodes + 1)),
        slot_terms=np.repeat(np.arange(len(pairs)), [len(found) for found in slots])[by_slot],
    )
    return terms, Sharing(uplinks.above, uplinks.bytes_per_s, np.concatenate(sent_bytes), np.array(entries.phase))
