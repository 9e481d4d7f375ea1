"""Compiled: search for maps of a chain of layers by exchanging two experts of a layer.

Letters: L layers, E experts, G ranks, s experts of a rank.  An exchange changes the flow of neighbouring
layers alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.compiled_annealing import Schedule, annealer, below
from solver.experts.compiled_chain_worth import followed
from solver.kernels import inner, kernel

_LEAST_GAIN = 1e-12
_SLOWEST = 3
"""Ranks kept by load: one of any three takes no part in an exchange of two."""


class ChainState(NamedTuple):
    """Maps of a chain while they are searched; ``ranks``, ``flow``, ``load`` and ``slowest`` change.

    ``onward`` (L - 1, E, E) transitions and ``back`` the same transposed, ``ranks`` (L, E), ``worth`` (G, G),
    ``shares`` (L, E) scaled so that balanced ranks carry 1, ``speeds`` (G,).  ``flow`` (L, G, E): what each expert
    would save on each rank with the maps of both neighbours as they are; ``load`` (L, G) of each rank over its
    speed; ``slowest`` (L, 3) the ranks with most of it, -1 where there are fewer.
    """

    onward: FloatArray
    back: FloatArray
    ranks: IntArray
    worth: FloatArray
    shares: FloatArray
    speeds: FloatArray
    flow: FloatArray
    load: FloatArray
    slowest: IntArray


@inner
def _slower(state: ChainState, layer: int, a: int, b: int, after: tuple[float, float]) -> float:
    """By how much the slowest rank of a layer gets slower when ranks ``a`` and ``b`` have the loads ``after``."""
    rest = 0.0
    for g in state.slowest[layer]:
        if g >= 0 and g not in (a, b):
            rest = state.load[layer, g]
            break
    return float(max(after[0], after[1], rest) - state.load[layer, state.slowest[layer, 0]])


@inner
def _loads_after(state: ChainState, layer: int, e: int, f: int) -> tuple[float, float]:
    """Loads of the ranks of two experts of a layer, once these have exchanged ranks."""
    a, b = state.ranks[layer, e], state.ranks[layer, f]
    less = state.shares[layer, e] - state.shares[layer, f]
    return state.load[layer, a] - less / state.speeds[a], state.load[layer, b] + less / state.speeds[b]


@inner
def _saved(state: ChainState, layer: int, e: int, f: int) -> float:
    """Worth gained by an exchange of two experts of a layer, loads aside."""
    here = state.flow[layer]
    a, b = state.ranks[layer, e], state.ranks[layer, f]
    return float(here[b, e] + here[a, f] - here[a, e] - here[b, f])


@inner
def _gain(state: ChainState, price: float, layer: int, e: int, f: int) -> float:
    """Gain of an exchange of two experts of a layer: worth gained less the price of load."""
    gain = _saved(state, layer, e, f)
    if price > 0.0:
        after = _loads_after(state, layer, e, f)
        gain -= price * _slower(state, layer, state.ranks[layer, e], state.ranks[layer, f], after)
    return gain


@inner
def _exchange(state: ChainState, layer: int, e: int, f: int) -> None:
    """Let two experts of a layer exchange their ranks."""
    a, b = state.ranks[layer, e], state.ranks[layer, f]
    state.load[layer, a], state.load[layer, b] = _loads_after(state, layer, e, f)
    state.ranks[layer, e], state.ranks[layer, f] = b, a
    _sort_slowest(state.load[layer], state.slowest[layer])
    if layer > 0:
        _follow(state.flow[layer - 1], state.back[layer - 1, e], state.back[layer - 1, f], state.worth, a, b)
    if layer < len(state.onward):
        _follow(state.flow[layer + 1], state.onward[layer, e], state.onward[layer, f], state.worth, a, b)


@inner
def _follow(flow: FloatArray, first: FloatArray, second: FloatArray, worth: FloatArray, a: int, b: int) -> None:
    """The transitions of an expert that goes from rank ``a`` to ``b`` and of one that comes back, in ``flow``."""
    for g in range(len(worth)):
        change = worth[g, b] - worth[g, a]
        if change != 0.0:
            for f in range(len(first)):
                flow[g, f] += change * (first[f] - second[f])


@inner
def _sort_slowest(load: FloatArray, slowest: IntArray) -> None:
    """Put the ranks with the greatest ``load`` (G,) into ``slowest``, the slowest first."""
    slowest[:] = -1
    for g in range(len(load)):
        at = _SLOWEST
        while at > 0 and (slowest[at - 1] < 0 or load[slowest[at - 1]] < load[g]):
            at -= 1
        if at < _SLOWEST:
            slowest[at + 1 :] = slowest[at : _SLOWEST - 1].copy()
            slowest[at] = g


@kernel
def chain_state(
    onward: FloatArray,
    back: FloatArray,
    ranks: IntArray,
    worth: FloatArray,
    shares: FloatArray,
    speeds: FloatArray,
) -> ChainState:
    """The state of ``ranks`` (L, E), which change with it."""
    layers, experts = ranks.shape
    load = np.zeros((layers, len(speeds)))
    slowest = np.zeros((layers, _SLOWEST), dtype=np.int64)
    for layer in range(layers):
        for e in range(experts):
            load[layer, ranks[layer, e]] += shares[layer, e] / speeds[ranks[layer, e]]
        _sort_slowest(load[layer], slowest[layer])
    flow = followed(onward, back, ranks, worth)
    return ChainState(onward, back, ranks, worth, shares, speeds, flow, load, slowest)


@inner
def _propose(state: ChainState, _: float) -> tuple[int, int, int]:
    """Two experts of a layer."""
    layers, experts = state.ranks.shape
    return below(layers), below(experts), below(experts)


@inner
def _judge(state: ChainState, price: float, move: tuple[int, int, int]) -> float:
    """Worth that an exchange loses; none on one rank."""
    layer, e, f = move
    if state.ranks[layer, e] == state.ranks[layer, f]:
        return np.inf
    return float(-_gain(state, price, layer, e, f))


@inner
def _accept(state: ChainState, _: float, move: tuple[int, int, int]) -> None:
    _exchange(state, move[0], move[1], move[2])


@inner
def _reject(_: ChainState, __: float, ___: tuple[int, int, int]) -> None:
    return


_anneal = annealer(_propose, _judge, _accept, _reject)


@kernel
def anneal_chain(state: ChainState, price: float, schedule: Schedule) -> None:
    """Anneal the ranks: worth less ``price`` times the sum over layers of slowest loads."""
    _anneal(state, price, schedule)


@kernel
def improve_chain(state: ChainState, price: float) -> None:
    """Exchange experts as long as any exchange of two of a layer helps.

    A layer is looked at again once its own map or that of a neighbour has changed.
    """
    layers = len(state.ranks)
    changed = np.ones(layers + 2, dtype=np.bool_)
    while changed[1 : layers + 1].any():
        for layer in range(layers):
            if changed[layer + 1]:
                changed[layer + 1] = False
                if _improve_layer(state, price, layer):
                    changed[layer : layer + 3] = True


@inner
def _improve_layer(state: ChainState, price: float, layer: int) -> bool:
    """One round of exchanges in a layer; whether any helped.

    The gain of an expert on another rank and the largest gain on the way back limit all exchanges with that rank,
    so that most need no look.
    """
    experts, size = state.ranks.shape[1], state.ranks.shape[1] // len(state.speeds)
    ranks, here = state.ranks[layer], state.flow[layer]
    filled = np.zeros(len(state.speeds), dtype=np.int64)
    members = np.empty((len(filled), size), dtype=np.int64)
    for e in range(experts):  # a sort would be compiled anew for a second
        members[ranks[e], filled[ranks[e]]] = e
        filled[ranks[e]] += 1
    most = np.empty((len(members), len(members)))
    for g in range(len(members)):
        _most_gains(here, members[g], g, most)
    helped = False
    for e in range(experts):
        for b in range(len(members)):
            a = ranks[e]
            if a == b:
                continue
            limit = here[b, e] - here[a, e] + most[b, a]
            if price > 0.0:
                limit -= price * _slower(state, layer, a, b, (0.0, 0.0))
            if limit <= _LEAST_GAIN:
                continue
            for position in range(size):
                f = members[b, position]
                if _gain(state, price, layer, e, f) > _LEAST_GAIN:
                    _exchange(state, layer, e, f)
                    members[b, position] = e
                    members[a, np.argmax(members[a] == e)] = f
                    _most_gains(here, members[a], a, most)
                    _most_gains(here, members[b], b, most)
                    helped = True
                    break
    return helped


@inner
def _most_gains(here: FloatArray, held: IntArray, rank: int, most: FloatArray) -> None:
    """Fill ``most[rank]``: the most that any expert of a rank gains on each other rank."""
    for g in range(len(here)):
        most[rank, g] = -np.inf
        for e in held:
            most[rank, g] = max(most[rank, g], here[g, e] - here[rank, e])


@inner
def _relief(state: ChainState, layer: int, left: float, found: IntArray) -> tuple[float, float]:
    """Exchange with an expert of a layer's slowest rank that makes it faster at the least loss.

    How much faster for each unit lost, and what is lost, with the two experts in ``found``; 0 where none loses at
    most ``left``.
    """
    best, loss = 0.0, 0.0
    a = state.slowest[layer, 0]
    for e in range(state.ranks.shape[1]):
        if state.ranks[layer, e] != a:
            continue
        for f in range(state.ranks.shape[1]):
            b = state.ranks[layer, f]
            if b == a or state.shares[layer, e] <= state.shares[layer, f]:
                continue
            lost = -_saved(state, layer, e, f)
            faster = -_slower(state, layer, a, b, _loads_after(state, layer, e, f))
            if faster <= _LEAST_GAIN or lost > left:
                continue
            worth = faster / max(lost, _LEAST_GAIN)
            if worth > best:
                best, loss = worth, lost
                found[0], found[1] = e, f
    return best, loss


@kernel
def spend(state: ChainState, left: float) -> None:
    """Exchange experts for faster slowest ranks, always where that loses least, losing ``left`` in all at most."""
    layers, experts = state.ranks.shape
    best, loss = np.zeros(layers), np.zeros(layers)
    found = np.zeros((layers, 2), dtype=np.int64)
    stale = np.ones(layers + 2, dtype=np.bool_)
    for _ in range(layers * experts):
        for layer in range(layers):
            if stale[layer + 1] or loss[layer] > left:
                best[layer], loss[layer] = _relief(state, layer, left, found[layer])
                stale[layer + 1] = False
        at = int(np.argmax(best))
        if best[at] <= 0.0:
            break
        left -= loss[at]
        _exchange(state, at, found[at, 0], found[at, 1])
        stale[at : at + 3] = True
