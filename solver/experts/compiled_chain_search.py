"""Compiled: search for maps of a chain of layers by exchanging two experts of a layer.

Letters: L layers, E experts, G ranks.  ``flow[l, g, e]``: what expert ``e`` of layer ``l`` would save on rank ``g``
with the maps of both neighbours as they are.  An exchange changes it in the neighbouring layers alone.
"""

from __future__ import annotations

import numba
import numpy as np

from solver.candidates import FloatArray, IntArray


@numba.njit(cache=True)
def _follow(flow: FloatArray, row: FloatArray, worth: FloatArray, old: int, new: int) -> None:
    """The transitions ``row`` (E,) of an expert that goes from rank ``old`` to ``new``, in ``flow`` (G, E)."""
    for g in range(len(worth)):
        change = worth[g, new] - worth[g, old]
        if change != 0.0:
            for f in range(len(row)):
                flow[g, f] += change * row[f]


@numba.njit(cache=True)
def _moved(
    flow: FloatArray,
    onward: FloatArray,
    back: FloatArray,
    worth: FloatArray,
    at: tuple[int, int, int, int],
) -> None:
    """Tell the neighbours of layer ``at[0]`` that expert ``at[1]`` goes from rank ``at[2]`` to ``at[3]``."""
    layer, expert, old, new = at
    if layer > 0:
        _follow(flow[layer - 1], back[layer - 1, expert], worth, old, new)
    if layer < len(onward):
        _follow(flow[layer + 1], onward[layer, expert], worth, old, new)


@numba.njit(cache=True, nogil=True)
def flows(onward: FloatArray, back: FloatArray, ranks: IntArray, worth: FloatArray) -> FloatArray:
    """(L, G, E) what each expert would save on each rank; ``back`` are the tables ``onward`` transposed."""
    layers, experts = ranks.shape
    flow = np.zeros((layers, len(worth), experts))
    for layer in range(layers):
        for e in range(experts):
            for g in range(len(worth)):
                saved = worth[g, ranks[layer, e]]
                if saved == 0.0:
                    continue
                if layer > 0:
                    for f in range(experts):
                        flow[layer - 1, g, f] += saved * back[layer - 1, e, f]
                if layer < layers - 1:
                    for f in range(experts):
                        flow[layer + 1, g, f] += saved * onward[layer, e, f]
    return flow


@numba.njit(cache=True)
def _below(number: int) -> int:
    """A random number from 0 and below ``number``."""
    return int(np.random.random() * number)  # noqa: NPY002


@numba.njit(cache=True)
def _slower(load: FloatArray, a: int, b: int, after_a: float, after_b: float) -> float:
    """By how much the slowest rank gets slower when two ranks change their loads."""
    before, after = 0.0, max(after_a, after_b)
    for g in range(len(load)):
        before = max(before, load[g])
        if g not in (a, b):
            after = max(after, load[g])
    return after - before


@numba.njit(cache=True)
def _rank_loads(ranks: IntArray, shares: FloatArray, speeds: FloatArray) -> FloatArray:
    """(L, G) load of each rank in each layer, over its speed."""
    layers, experts = ranks.shape
    load = np.zeros((layers, len(speeds)))
    for layer in range(layers):
        for e in range(experts):
            load[layer, ranks[layer, e]] += shares[layer, e] / speeds[ranks[layer, e]]
    return load


@numba.njit(cache=True, nogil=True)
def anneal_chain(
    onward: FloatArray,
    back: FloatArray,
    ranks: IntArray,
    worth: FloatArray,
    shares: FloatArray,
    speeds: FloatArray,
    price: float,
    schedule: tuple[int, float, float, int],
) -> None:
    """Simulated annealing of ``ranks`` (L, E), which change: worth less ``price`` times the sum of slowest loads.

    ``shares`` (L, E) scaled so that balanced ranks carry 1, ``schedule``: steps, the first and the last
    temperature, and a seed.  A step exchanges the ranks of two experts of one layer.
    """
    steps, temperature, last, seed = schedule
    np.random.seed(seed)  # noqa: NPY002
    layers, experts = ranks.shape
    flow = flows(onward, back, ranks, worth)
    load = _rank_loads(ranks, shares, speeds)
    factor = (last / temperature) ** (1.0 / max(1, steps))
    for _ in range(steps):
        temperature *= factor
        layer, e, f = _below(layers), _below(experts), _below(experts)
        a, b = ranks[layer, e], ranks[layer, f]
        if a == b:
            continue
        here = flow[layer]
        gain = here[b, e] + here[a, f] - here[a, e] - here[b, f]
        less = shares[layer, e] - shares[layer, f]
        after_a, after_b = load[layer, a] - less / speeds[a], load[layer, b] + less / speeds[b]
        if price > 0.0:
            gain -= price * _slower(load[layer], a, b, after_a, after_b)
        if gain < 0 and np.random.random() >= np.exp(gain / temperature):  # noqa: NPY002
            continue
        ranks[layer, e], ranks[layer, f] = b, a
        load[layer, a], load[layer, b] = after_a, after_b
        _moved(flow, onward, back, worth, (layer, e, a, b))
        _moved(flow, onward, back, worth, (layer, f, b, a))


@numba.njit(cache=True, nogil=True)
def improve_chain(
    onward: FloatArray,
    back: FloatArray,
    ranks: IntArray,
    worth: FloatArray,
    shares: FloatArray,
    speeds: FloatArray,
    price: float,
) -> None:
    """Exchange experts of ``ranks`` (L, E), which change, as long as any exchange of two helps."""
    layers, experts = ranks.shape
    flow = flows(onward, back, ranks, worth)
    load = _rank_loads(ranks, shares, speeds)
    helped = True
    while helped:
        helped = False
        for layer in range(layers):
            here = flow[layer]
            for e in range(experts):
                for f in range(e):
                    a, b = ranks[layer, e], ranks[layer, f]
                    if a == b:
                        continue
                    gain = here[b, e] + here[a, f] - here[a, e] - here[b, f]
                    less = shares[layer, e] - shares[layer, f]
                    after_a, after_b = load[layer, a] - less / speeds[a], load[layer, b] + less / speeds[b]
                    if price > 0.0:
                        gain -= price * _slower(load[layer], a, b, after_a, after_b)
                    if gain <= 1e-12:
                        continue
                    helped = True
                    ranks[layer, e], ranks[layer, f] = b, a
                    load[layer, a], load[layer, b] = after_a, after_b
                    _moved(flow, onward, back, worth, (layer, e, a, b))
                    _moved(flow, onward, back, worth, (layer, f, b, a))


@numba.njit(cache=True)
def _relief(
    here: FloatArray, ranks: IntArray, share: FloatArray, load: FloatArray, speeds: FloatArray, left: float
) -> tuple[float, float, int, int]:
    """Of one layer the exchange with an expert of the slowest rank that makes it faster at the least loss.

    How much faster for each unit lost, what is lost, and the two experts; 0 where none loses at most ``left``.
    """
    best, loss, first, second = 0.0, 0.0, -1, -1
    a = int(np.argmax(load))
    for e in range(len(ranks)):
        if ranks[e] != a:
            continue
        for f in range(len(ranks)):
            b = ranks[f]
            less = share[e] - share[f]
            if b == a or less <= 0:
                continue
            lost = here[a, e] + here[b, f] - here[b, e] - here[a, f]
            faster = -_slower(load, a, b, load[a] - less / speeds[a], load[b] + less / speeds[b])
            if faster <= 1e-12 or lost > left:
                continue
            worth = faster / max(lost, 1e-12)
            if worth > best:
                best, loss, first, second = worth, lost, e, f
    return best, loss, first, second


@numba.njit(cache=True, nogil=True)
def spend(
    onward: FloatArray,
    back: FloatArray,
    ranks: IntArray,
    worth: FloatArray,
    shares: FloatArray,
    speeds: FloatArray,
    left: float,
) -> None:
    """Exchange experts of ``ranks`` (L, E), which change, for faster slowest ranks, losing ``left`` at most."""
    layers, experts = ranks.shape
    flow = flows(onward, back, ranks, worth)
    load = _rank_loads(ranks, shares, speeds)
    for _ in range(layers * experts):
        best, at = 0.0, -1
        loss, e, f = 0.0, -1, -1
        for layer in range(layers):
            found = _relief(flow[layer], ranks[layer], shares[layer], load[layer], speeds, left)
            if found[0] > best:
                best, at = found[0], layer
                loss, e, f = found[1], found[2], found[3]
        if at < 0:
            break
        a, b = ranks[at, e], ranks[at, f]
        less = shares[at, e] - shares[at, f]
        left -= loss
        ranks[at, e], ranks[at, f] = b, a
        load[at, a] -= less / speeds[a]
        load[at, b] += less / speeds[b]
        _moved(flow, onward, back, worth, (at, e, a, b))
        _moved(flow, onward, back, worth, (at, f, b, a))
