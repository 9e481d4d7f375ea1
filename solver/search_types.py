"""Data that the compiled local search reads and writes.

The step time of an assignment is made of *terms*: a transfer, a crossing collective, the slowdown of a cell, a
ring.  Each is the slowest of some pairs of slots.  Letters as in ``solver.compiled``; T terms, E events of a
replica, D = 2 P + 1 delays of one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solver.candidates import FloatArray, IntArray
from solver.compiled import Rules

IndexArray = NDArray[np.uint32]


class Layout(NamedTuple):
    """Where terms stand: transfers first, ``delays`` of each replica, the last of them none.

    From ``cells`` the slowdown and the crossing collectives, ``kinds`` = 1 + X, of each cell (r, s); from
    ``reduces`` Y reductions of each rank, from ``gathers`` as many gathers.
    """

    replicas: int
    ranks: int
    delays: int
    kinds: int
    cells: int
    reduces: int
    gathers: int


class Pipeline(NamedTuple):
    """The schedule: each event after what it waits for.

    ``rows`` (E, 5): event before it on its rank, event that feeds it (both counted from 1, 0 = none), the transfer
    of that and the one it ends with (``way * P + rank``, ``2 P`` = none) and its duration (``kind * C + chunk``).
    ``last`` (P,): each rank's last event, counted from 1.
    """

    rows: IndexArray
    last: IndexArray


class Terms(NamedTuple):
    """Term ``t`` is the slowest of ``pairs[first[t]:first[t + 1]]`` (u, 2) in ``seconds[matrix[t]]`` (M, N, N).

    It is at least ``floor[t]``.  ``slot_terms[slot_first[k]:slot_first[k + 1]]``: the terms of slot ``k``.
    """

    first: IntArray
    pairs: IntArray
    matrix: IntArray
    floor: FloatArray
    seconds: FloatArray
    slot_first: IntArray
    slot_terms: IntArray


class Compute(NamedTuple):
    """Durations on a healthy node, and what crossing collectives add (see ``solver.compiled.Arrays``)."""

    duration_s: FloatArray
    cross_count: FloatArray
    cross_hidden_s: FloatArray


class Exposure(NamedTuple):
    """Seconds that hide rings, and the optimizer step, by rank (see ``solver.compiled.Arrays``)."""

    reduce_hidden_s: FloatArray
    gather_hidden_s: FloatArray
    optimizer_s: FloatArray


class Sharing(NamedTuple):
    """Switches that traffic shares (see ``solver.compiled.Uplinks``).

    ``sent_bytes`` (pairs,): what each pair of ``Terms`` sends; ``phase`` (T,): terms of one phase pass at once.
    """

    above: IntArray
    bytes_per_s: FloatArray
    sent_bytes: FloatArray
    phase: IntArray


class Tables(NamedTuple):
    """Inputs of a search; ``ruled``: whether there are any rules.

    ``grid`` (rows, columns, q): slots that moves shift along rows and columns, each at most once: those of the
    cells (r, s), or all in a single row where cells share slots.  ``near`` (N, n): nodes with the fastest links to
    each.  ``mean_weight``: weight of the means over replicas and rings beside the slowest.
    """

    slots: int
    mean_weight: float
    ruled: bool
    rules: Rules
    layout: Layout
    pipeline: Pipeline
    terms: Terms
    compute: Compute
    exposure: Exposure
    sharing: Sharing
    grid: IntArray
    near: IntArray


class Paths(NamedTuple):
    """A critical path of each replica: on which rank it ends, how often it passes each duration and delay."""

    rank: IntArray
    work: FloatArray
    hops: FloatArray


class State(NamedTuple):
    """Where a search stands; all but ``order``, ``best`` and ``scores`` follow from ``order``.

    ``order`` (N,): the node of each slot, then nodes that are not used; ``position``: where each node stands in
    it; ``best``: the best order met.
    ``value`` (T,): the terms; ``work`` (R, E C): durations; ``ends`` (R, P): last backwards; ``cost`` (R,): the
    slowest of them with the reduction after it; ``rings`` (2, P): exposed reductions and gathers.
    ``scores``: score, violations, mean difference, and violations, step and score of the best.
    """

    order: IntArray
    position: IntArray
    best: IntArray
    value: FloatArray
    work: FloatArray
    ends: FloatArray
    cost: FloatArray
    rings: FloatArray
    paths: Paths
    scores: FloatArray


class Draft(NamedTuple):
    """A move while it is judged: ``nodes`` for the slots ``moved``, what they change, and the new times.

    ``*_stamp``: the last move that changed a term, a cell, a replica.  ``terms`` and ``before``: changed terms and
    what they were; ``cells`` and ``replicas``: those with new times; ``bound`` (R,): ends of their paths;
    ``shared`` (phases, 2, W): seconds in which each switch passes what a phase sends up and down.
    """

    moved: IntArray
    nodes: IntArray
    term_stamp: IntArray
    cell_stamp: IntArray
    replica_stamp: IntArray
    terms: IntArray
    before: FloatArray
    cells: IntArray
    replicas: IntArray
    bound: FloatArray
    work: FloatArray
    ends: FloatArray
    cost: FloatArray
    rings: FloatArray
    events: FloatArray
    shared: FloatArray
