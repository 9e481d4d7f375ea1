"""Compiled search over few slots by the exact time of a layer: what is smoothed elsewhere is counted here.

Letters: E experts, S slots, G ranks, N nodes, K terms.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numba
import numpy as np

from solver.candidates import BoolArray, FloatArray, IntArray
from solver.experts.compiled_nodewise import NodeCase, crossings, fill_needs, node_state
from solver.experts.compiled_reach import rank_needs
from solver.experts.compiled_serving import near_parts

_FEWEST_KICKS, _MOST_KICKS = 2, 8
"""Random changes of the best map from which the next descent starts."""
_NO_MAP: Final = 1e300
_LESS: Final = 1.0 - 1e-12


class FewCase(NamedTuple):
    """One layer, and seconds of what is counted.

    ``load_s`` of the load of a rank of mean speed, ``inside_s`` of a token that surely needs the busiest rank.  A
    term is (K,) ``between_s`` of a crossing of 1, paced by the busiest node or the mean (``by_mean``), with copies
    near a token's node preferred or all as likely (``near``), and beside ``references``.  ``speeds`` (G,).
    """

    nodes: NodeCase
    load_s: float
    inside_s: float
    between_s: FloatArray
    by_mean: BoolArray
    near: BoolArray
    references: FloatArray
    speeds: FloatArray


@numba.njit(cache=True, nogil=True)
def _twice(row: IntArray, size: int, slot: int) -> bool:
    """Whether the rank of a slot holds its expert in another slot too."""
    first = slot // size * size
    found = 0
    for other in range(first, first + size):
        found += row[other] == row[slot]
    return found > 1


@numba.njit(cache=True, nogil=True)
def _fill_parts(case: FewCase, row: IntArray, totals: IntArray, near: bool, parts: FloatArray) -> None:
    """Fill (S,) with the share of its expert's selections that each slot serves."""
    if not near:
        for slot in range(len(row)):
            parts[slot] = 1.0 / totals[row[slot]]
        return
    ranks, nodes = len(case.speeds), len(case.nodes.node_speeds)
    size, copies = len(row) // ranks, np.zeros(ranks, dtype=np.int64)
    on_node, first, served = np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64), np.zeros(ranks)
    for expert in range(len(totals)):
        at = np.flatnonzero(row == expert)
        for index in range(len(at)):
            copies[index] = at[index] // size
        near_parts(copies, len(at), ranks, nodes, on_node, first, served)
        for index in range(len(at)):
            parts[at[index]] = served[index]


@numba.njit(cache=True, nogil=True)
def _here(case: FewCase, row: IntArray, totals: IntArray, near: bool) -> float:
    """Seconds of the slowest rank's products and of the busiest rank's links inside its node."""
    ranks, slowest, parts = len(case.speeds), 0.0, np.zeros(len(row))
    size = len(row) // ranks
    _fill_parts(case, row, totals, near, parts)
    for rank in range(ranks):
        load = 0.0
        for slot in range(rank * size, (rank + 1) * size):
            load += case.nodes.shares[row[slot]] * parts[slot]
        slowest = max(slowest, load / case.speeds[rank])
    here = case.load_s * slowest
    if case.inside_s > 0.0:
        reached = np.zeros(ranks)
        by_rank = parts.reshape(ranks, size)
        rank_needs(case.nodes.weights, row.reshape(ranks, size), by_rank, case.nodes.router, reached)
        here += case.inside_s * reached.max()
    return here


@numba.njit(cache=True, nogil=True)
def most_beside(case: FewCase, row: IntArray) -> float:
    """The most that (S,) ``row`` takes under any term, beside its reference."""
    experts, nodes = len(case.nodes.shares), len(case.nodes.node_speeds)
    state = node_state(row.reshape(nodes, len(row) // nodes), experts)
    near = even = (0.0, 0.0)
    near_s = even_s = 0.0
    if case.near.any():
        near_s = _here(case, row, state.totals, True)
        fill_needs(case.nodes, state.near, False)
        near = crossings(state.near.needs)
    if not case.near.all():
        even_s = _here(case, row, state.totals, False)
        fill_needs(case.nodes, state.even, False)
        even = crossings(state.even.needs)
    worst = 0.0
    for term in range(len(case.between_s)):
        here = near_s if case.near[term] else even_s
        busiest, mean = near if case.near[term] else even
        crossing = mean if case.by_mean[term] else busiest
        worst = max(worst, (here + case.between_s[term] * crossing) / case.references[term])
    return worst


@numba.njit(cache=True, nogil=True)
def _after_swap(case: FewCase, row: IntArray, first: int, second: int) -> float:
    """Swap two slots in place; what the map then takes, no map where a rank holds an expert twice."""
    size = len(row) // len(case.speeds)
    row[first], row[second] = row[second], row[first]
    if first // size == second // size or row[first] == row[second]:
        return _NO_MAP
    if _twice(row, size, first) or _twice(row, size, second):
        return _NO_MAP
    return most_beside(case, row)


@numba.njit(cache=True, nogil=True)
def _after_copy(case: FewCase, row: IntArray, slot: int, expert: int) -> float:
    """Give a slot to another expert in place; what the map then takes, no map where an expert is lost or twice."""
    old = row[slot]
    row[slot] = expert
    if expert == old or not (row == old).any() or _twice(row, len(row) // len(case.speeds), slot):
        return _NO_MAP
    return most_beside(case, row)


@numba.njit(cache=True, nogil=True)
def _descend(case: FewCase, row: IntArray, now: float, left: int) -> tuple[float, int]:
    """Take every change that helps until none does or no evaluation is left; the map's time, evaluations left."""
    slots, experts = len(row), len(case.nodes.shares)
    better = True
    while better and left > 0:
        better = False
        for first in range(slots):
            for second in range(first + 1, slots):
                then = _after_swap(case, row, first, second)
                left -= then < _NO_MAP
                if then < now * _LESS:
                    now, better = then, True
                else:
                    row[first], row[second] = row[second], row[first]
            for expert in range(experts if slots > experts else 0):
                old = row[first]
                then = _after_copy(case, row, first, expert)
                left -= then < _NO_MAP
                if then < now * _LESS:
                    now, better = then, True
                else:
                    row[first] = old
    return now, left


@numba.njit(cache=True, nogil=True)
def _kick(case: FewCase, row: IntArray) -> None:
    """Some random changes, whatever they cost."""
    slots, experts = len(row), len(case.nodes.shares)
    for _ in range(np.random.randint(_FEWEST_KICKS, _MOST_KICKS + 1)):  # noqa: NPY002
        first, second = np.random.randint(slots), np.random.randint(slots)  # noqa: NPY002
        expert, old = np.random.randint(experts), row[first]  # noqa: NPY002
        if slots > experts and np.random.randint(2):  # noqa: NPY002
            if _after_copy(case, row, first, expert) == _NO_MAP:
                row[first] = old
        elif _after_swap(case, row, first, second) == _NO_MAP:
            row[first], row[second] = row[second], row[first]


@numba.njit(cache=True, nogil=True)
def search_few(case: FewCase, row: IntArray, evaluations: int, seed: int) -> float:
    """Improve (S,) ``row`` in place by about so many exact evaluations; what it takes at most beside references.

    Descents by swaps of two slots and by copies that change their expert, each from the best map shaken a little.
    """
    np.random.seed(seed)  # noqa: NPY002
    best, left = _descend(case, row, most_beside(case, row), evaluations)
    while left > 0:
        tried = row.copy()
        _kick(case, tried)
        reached, left = _descend(case, tried, most_beside(case, tried), left - 1)
        if reached < best:
            best = reached
            row[:] = tried
    return best
