"""Proof by enumeration, for few slots: every assignment is looked at or ruled out by a bound of its branch.

A branch fixes the nodes of some slots.  Transfers, rings and crossing traffic between fixed slots take what they
take, all others the least that is possible; simulating that bounds every completion of the branch.  Shared
switches only delay: their limits count once an assignment is complete.  Among interchangeable nodes only the lowest
unused one is tried, and where replicas may be rotated the first of them holds the lowest class of nodes
(docs/placement.md).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.candidates import BoolArray, FloatArray, IntArray
from solver.compiled import Arrays, step_seconds
from solver.compiled_exhaustive import (
    COMPLETE,
    PATHS,
    TO_PRICE,
    LeastTimes,
    Tree,
    enumerate_slice,
    root_bounds,
)
from solver.placement.problem import PlacementProblem

SLICE_EVENTS: Final = 1e7
"""Simulated events between two looks at the clock, about 30 ms."""

MOST_COMPARED: Final = 128
"""Among more nodes than this, none are taken for interchangeable: to compare all pairs would take seconds."""


class Enumeration:
    """An enumeration under way; ``assignment`` and ``step_s`` are the best known, ``complete`` says it is proved.

    Each call of ``advance`` does one slice of work.
    """

    def __init__(self, problem: PlacementProblem, assignment: IntArray, step_s: float) -> None:
        self.assignment = assignment.copy()
        self.step_s = step_s
        self.complete = False
        self._problem = problem
        self._least = _least_times(problem.arrays)
        self._tree = _tree(problem)
        root_bounds(self._tree, problem.arrays, self._least)
        events = max(1, len(problem.schedule.rank))
        self._slice = max(100, int(SLICE_EVENTS / events))

    def know(self, assignment: IntArray, step_s: float) -> None:
        """Take over a better assignment found elsewhere."""
        if step_s < self.step_s:
            self.assignment, self.step_s = assignment.copy(), step_s

    def advance(self) -> None:
        """One slice further; raises nothing and changes nothing once ``complete``."""
        if self.complete:
            return
        work = self._slice
        while work > 0 and not self.complete:
            found = self.assignment.copy()
            step_s, work, status = enumerate_slice(
                self._tree, self._problem.arrays, self._least, found, self.step_s, work
            )
            if status == TO_PRICE:
                step_s = float(step_seconds(found, self._problem.arrays)[0])
            self.know(found, step_s)
            self.complete = status == COMPLETE


def interchangeable_nodes(arrays: Arrays) -> IntArray:
    """(N,) the lowest node that could take each node's part with no change of any time or rule."""
    nodes = len(arrays.slowdown)
    matrices = np.concatenate([matrix.reshape(-1, nodes, nodes) for matrix in _matrices(arrays)])
    matrices = np.unique(matrices, axis=0)
    marks = _marks(arrays)
    result = np.arange(nodes)
    for n in range(nodes):
        for m in range(n):
            if result[m] == m and np.array_equal(marks[n], marks[m]) and _alike(matrices, m, n):
                result[n] = m
                break
    return result


def _marks(arrays: Arrays) -> FloatArray:
    """(N, marks) what else tells nodes apart: speed, rules and switches."""
    rules = arrays.rules
    parts = (rules.eligible, rules.places, rules.quota_of, arrays.uplinks.above)
    return np.column_stack([arrays.slowdown, *(part.T for part in parts)]).astype(np.float64)


def _alike(matrices: FloatArray, m: int, n: int) -> bool:
    """Whether exchanging nodes ``m`` and ``n`` leaves all matrices (F, N, N) as they are, diagonals aside."""
    others = np.ones(matrices.shape[1], dtype=bool)
    others[[m, n]] = False
    return bool(
        (matrices[:, m, n] == matrices[:, n, m]).all()
        and (matrices[:, m, others] == matrices[:, n, others]).all()
        and (matrices[:, others, m] == matrices[:, others, n]).all()
    )


def rotation_slots(problem: PlacementProblem) -> IntArray:
    """(R,) the first slot of each replica where rotating the replicas changes nothing; empty otherwise.

    Rings are closed and pipelines alike, so it does not where every cell has slots of its own, no expert group
    spans cells, and no rule or uplink tells slots or nodes apart.
    """
    arrays = problem.arrays
    shared = len(np.unique(arrays.cell_slots)) < arrays.cell_slots.size
    experts = len(arrays.cross_pairs) > 1 and bool((arrays.cross_pairs[1] >= 0).any())
    told_apart = not arrays.rules.eligible.all() or len(arrays.rules.group_slots) > 0
    if problem.replicas < 2 or shared or experts or told_apart or len(arrays.uplinks.bytes_per_s):
        return np.empty(0, dtype=np.int64)
    return np.ascontiguousarray(arrays.cell_slots[:, 0, 0])


def _matrices(arrays: Arrays) -> tuple[FloatArray, ...]:
    """The matrices in the order of ``LeastTimes``."""
    return arrays.hop_s[None], arrays.cross_s, arrays.reduce_s, arrays.gather_s


def _least_times(arrays: Arrays) -> LeastTimes:
    nodes = len(arrays.slowdown)
    matrices = np.concatenate([matrix.reshape(-1, nodes, nodes) for matrix in _matrices(arrays)]).copy()
    diagonal = np.arange(nodes)
    matrices[:, diagonal, diagonal] = np.inf
    leaving, entering = matrices.min(axis=2), matrices.min(axis=1)
    if nodes == 1:
        leaving, entering = np.zeros_like(leaving), np.zeros_like(entering)
    return LeastTimes(leaving, entering, leaving.min(axis=1))


def _touched(problem: PlacementProblem) -> tuple[BoolArray, BoolArray]:
    """(K, R) and (K, P): whether a slot takes part in a replica's pipeline, in a rank's rings."""
    arrays, ranks = problem.arrays, problem.schedule.pipeline
    replicas = np.zeros((problem.slots + 1, problem.replicas), dtype=np.bool_)
    for r in range(problem.replicas):
        for pairs in (arrays.hop_pairs[r], arrays.cross_pairs[:, r], arrays.cell_slots[r]):
            replicas[pairs.reshape(-1), r] = True  # padding marks the last row, which is dropped
    stages = np.zeros((problem.slots + 1, ranks), dtype=np.bool_)
    for s in range(ranks):
        stages[arrays.ring_pairs[:, s].reshape(-1), s] = True
    return np.ascontiguousarray(replicas[:-1]), np.ascontiguousarray(stages[:-1])


def _tree(problem: PlacementProblem) -> Tree:
    arrays, slots, ranks = problem.arrays, problem.slots, problem.schedule.pipeline
    cells = arrays.cell_slots.reshape(-1)
    order = np.array(list(dict.fromkeys(cells[cells >= 0].tolist())), dtype=np.int64)
    assert len(order) == slots
    replicas, stages = _touched(problem)
    return Tree(
        order=order,
        replicas=replicas,
        stages=stages,
        twin=interchangeable_nodes(arrays) if problem.nodes <= MOST_COMPARED else np.arange(problem.nodes),
        first=rotation_slots(problem),
        depth=np.zeros(1, dtype=np.int64),
        choice=np.zeros(slots, dtype=np.int64),
        node_of=np.full(slots, -1, dtype=np.int64),
        used=np.zeros(problem.nodes, dtype=np.bool_),
        ends=np.zeros((slots + 1, problem.replicas, ranks)),
        reduce=np.zeros((slots + 1, ranks)),
        gather=np.zeros((slots + 1, ranks)),
        work=np.zeros((PATHS, *arrays.duration_s.shape), dtype=np.int64),
        hops=np.zeros((PATHS, 2, ranks), dtype=np.int64),
        rank=np.zeros(PATHS, dtype=np.int64),
        paths=np.zeros(2, dtype=np.int64),
    )
