"""Compiled: which copy of an expert serves the tokens of each rank, and the search of maps under that rule.

Numba's cache notices a change only in the file of the function it compiled.  Letters: W workloads, E experts,
G ranks, N nodes, s slots of a rank.  ``shares`` (W, E) are scaled so that balanced ranks all carry 1; ``held``
(G, s) is the expert in each slot; ``speeds`` (G,) have the mean 1; ``near`` (W,) tells whether a token is served on
its own rank where that holds a copy, else by the first copy of its node, else by any, or by any in every case.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numba
import numpy as np

from solver.candidates import BoolArray, FloatArray, IntArray

SQUARINGS: Final = 6
"""Ranks are pushed down by the 2**6-th power of their load: nearly by the maximum, but with a slope everywhere."""


class ServingCase(NamedTuple):
    """What stays: loads, by which rule each workload is served, what its balance counts, speeds and nodes."""

    shares: FloatArray
    near: BoolArray
    weights: FloatArray
    speeds: FloatArray
    nodes: int


class _Serving(NamedTuple):
    """Where a search stands.

    ``held`` changes.  ``counts`` (E,) copies, ``where`` (E, G) the ranks of the copies, ``loads`` (W, G) over
    speeds.  ``on_node``, ``first`` (N,) and ``parts`` (G,) are scratch.
    """

    case: ServingCase
    held: IntArray
    counts: IntArray
    where: IntArray
    loads: FloatArray
    on_node: IntArray
    first: IntArray
    parts: FloatArray


@numba.njit(cache=True, nogil=True)
def near_parts(
    where: IntArray, count: int, ranks: int, nodes: int, on_node: IntArray, first: IntArray, parts: FloatArray
) -> None:
    """Fill ``parts`` with the share of an expert's selections that each of its ``count`` copies serves.

    The copies lie on the ranks ``where``, no two on one.  A rank with a copy is served by it, a rank without one by
    the first copy of its node, and the ranks of nodes without any by all copies equally.
    """
    width = ranks // nodes
    for index in range(count):
        on_node[where[index] // width] = 0
        first[where[index] // width] = ranks
    holding = 0
    for index in range(count):
        node = where[index] // width
        holding += on_node[node] == 0
        on_node[node] += 1
        first[node] = min(first[node], where[index])
    anywhere = (nodes - holding) * width / (ranks * count)
    for index in range(count):
        node = where[index] // width
        own = 1 + width - on_node[node] if first[node] == where[index] else 1
        parts[index] = own / ranks + anywhere


@numba.njit(cache=True)
def _carry(state: _Serving, expert: int, sign: float) -> None:
    """Add (1) or take away (-1) what the copies of an expert bring to their ranks."""
    count, where = state.counts[expert], state.where[expert]
    ranks = len(state.case.speeds)
    near_parts(where, count, ranks, state.case.nodes, state.on_node, state.first, state.parts)
    for w in range(len(state.case.shares)):
        share = sign * state.case.shares[w, expert]
        for index in range(count):
            part = state.parts[index] if state.case.near[w] else 1.0 / count
            state.loads[w, where[index]] += share * part / state.case.speeds[where[index]]


@numba.njit(cache=True)
def _opened(case: ServingCase, held: IntArray) -> _Serving:
    """The search at its start."""
    workloads, experts = case.shares.shape
    ranks = len(held)
    counts, where = np.zeros(experts, dtype=np.int64), np.zeros((experts, ranks), dtype=np.int64)
    for g in range(ranks):
        for expert in held[g]:
            where[expert, counts[expert]] = g
            counts[expert] += 1
    scratch = np.zeros(case.nodes, dtype=np.int64)
    loads = np.zeros((workloads, ranks))
    state = _Serving(case, held, counts, where, loads, scratch, scratch.copy(), np.zeros(ranks))
    for expert in range(experts):
        _carry(state, expert, 1.0)
    return state


@numba.njit(cache=True)
def _moved(state: _Serving, expert: int, old: int, new: int) -> None:
    """Replace rank ``old`` by ``new`` among those that hold ``expert``."""
    for index in range(state.counts[expert]):
        if state.where[expert, index] == old:
            state.where[expert, index] = new
            return


@numba.njit(cache=True)
def _swap(state: _Serving, g: int, i: int, h: int, j: int) -> None:
    """Exchange slot ``i`` of rank ``g`` and ``j`` of ``h``; loads follow."""
    a, b = state.held[g, i], state.held[h, j]
    _carry(state, a, -1.0)
    _carry(state, b, -1.0)
    _moved(state, a, g, h)
    _moved(state, b, h, g)
    state.held[g, i], state.held[h, j] = b, a
    _carry(state, a, 1.0)
    _carry(state, b, 1.0)


@numba.njit(cache=True)
def _recopy(state: _Serving, h: int, j: int, a: int) -> None:
    """Give slot ``j`` of rank ``h`` to a further copy of ``a``; loads follow."""
    b = state.held[h, j]
    _carry(state, a, -1.0)
    _carry(state, b, -1.0)
    state.where[a, state.counts[a]] = h
    state.counts[a] += 1
    state.counts[b] -= 1
    _moved(state, b, h, state.where[b, state.counts[b]])
    state.held[h, j] = a
    _carry(state, a, 1.0)
    _carry(state, b, 1.0)


@numba.njit(cache=True)
def _worths(state: _Serving, tops: IntArray) -> tuple[float, float]:
    """Weighted sums of balancedness, by the power mean of loads and as it is; fills ``tops``, slowest ranks."""
    weights = state.case.weights
    smooth = exact = 0.0
    for w in range(len(weights)):
        total, top = 0.0, 0
        for g in range(len(state.case.speeds)):
            power = state.loads[w, g]
            top = g if power > state.loads[w, top] else top
            for _ in range(SQUARINGS):
                power *= power
            total += power
        mean = total / len(state.case.speeds)
        for _ in range(SQUARINGS):
            mean = np.sqrt(mean)
        smooth += weights[w] / mean
        exact += weights[w] / state.loads[w, top]
        tops[w] = top
    return smooth, exact


@numba.njit(cache=True)
def _below(number: int) -> int:
    """A random number from 0 and below ``number``."""
    return int(np.random.random() * number)  # noqa: NPY002


@numba.njit(cache=True, nogil=True)
def anneal_serving(
    case: ServingCase, held: IntArray, steps: int, seed: int, hot: float, cold: float, inside: bool
) -> float:
    """Simulated annealing of ``held``, which ends as the best found: its weighted sum of balancedness.

    A step swaps two slots, or gives a slot with one of several copies of an expert to another expert; if ``inside``
    it swaps two slots of one node.  Worse ones are taken with a probability that falls with the temperature, from
    ``hot`` to ``cold``, in balancedness.
    """
    np.random.seed(seed)  # noqa: NPY002
    experts, (ranks, size) = case.shares.shape[1], held.shape
    width = ranks // case.nodes
    state, tops = _opened(case, held), np.zeros(len(case.shares), dtype=np.int64)
    worth, best_worth = _worths(state, tops)
    best, tried, before = held.copy(), tops.copy(), state.loads.copy()
    temperature, factor = hot, (cold / hot) ** (1.0 / max(1, steps))
    for _ in range(steps):
        temperature *= factor
        g = tops[_below(len(tops))] if _below(2) else _below(ranks)
        h = g // width * width + _below(width) if inside else _below(ranks)
        i, j = _below(size), _below(size)
        a, b = held[g, i], held[h, j]
        before[:] = state.loads
        copy = not inside and ranks * size > experts and _below(2) == 1
        if copy:
            a = _below(experts) if _below(2) else a
            if a == b or state.counts[b] < 2 or (held[h] == a).any():
                continue
            _recopy(state, h, j, a)
        else:
            if g == h or a == b or (held[h] == a).any() or (held[g] == b).any():
                continue
            _swap(state, g, i, h, j)
        after, reached = _worths(state, tried)
        if after < worth and np.random.random() >= np.exp((after - worth) / temperature):  # noqa: NPY002
            if copy:
                _recopy(state, h, j, b)
            else:
                _swap(state, g, i, h, j)
            # what is added and taken away again would round
            state.loads[:] = before
            continue
        worth = after
        tops[:] = tried
        if reached > best_worth:
            best_worth = reached
            best[:] = held
    held[:] = best
    return best_worth
