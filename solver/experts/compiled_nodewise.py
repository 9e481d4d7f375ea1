"""Compiled search for the node of each copy of each expert: balance of the ranks against what crosses nodes.

Letters: E experts, N nodes, C slots of a node, k experts a token; m source node, n other node.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numba
import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.compiled_reach import measured_needs, node_needs, served_shares

_EVEN: Final = 0.1
"""Weight of the mean load of nodes beside the maximum: it leads over plateaus."""
_SWAPS: Final = 0.7
"""Share of exchanges among the proposals for slots whose expert has other copies."""
_LIKE: Final = 0.5
"""Share of exchanges that look for a slot of a similar load, among so many:"""
_LOOKED_AT: Final = 4
_RENEWED_AFTER: Final = 0.14
"""Accepted proposals, by slots, after which the slopes of needs are worked out anew."""
_COOLED: Final = 1e-2
"""The last temperature beside the first."""


BEYOND: Final = 10.0
"""How many times more a load beyond the one aimed at costs."""


class NodeCase(NamedTuple):
    """What stays: one layer, its router and its prices.

    ``shares`` (E,) of sum 1; ``weights`` (E,) of the router's draw, ``pairs`` (E, E) as measured or (0, 0) empty;
    ``router`` (k, H, a).  ``prices``: seconds of the load of a rank of mean speed, and of a crossing of 1.
    ``crossing_mean``: weight of the mean crossing of nodes beside the busiest.  ``aimed``: a load of the busiest
    rank, each load beyond it costs ``BEYOND`` times as much.  ``node_speeds`` (N,) sums of the relative speeds of
    ranks, ``ranks`` of a node, ``filler``: what at least lies beside any copy on its rank.
    """

    shares: FloatArray
    weights: FloatArray
    pairs: FloatArray
    router: tuple[int, int, int]
    prices: tuple[float, float]
    crossing_mean: float
    aimed: float
    node_speeds: FloatArray
    ranks: int
    filler: float


class NodeState(NamedTuple):
    """Which experts nodes hold, and what follows from that."""

    held: IntArray
    """(N, C) the expert of each slot of each node."""
    counts: IntArray
    """(E, N) copies in each node."""
    totals: IntArray
    """(E,) copies."""
    copy_loads: FloatArray
    """(E,) load of each copy."""
    hottest: FloatArray
    """(1,) the largest of these."""
    node_loads: FloatArray
    served: FloatArray
    """(E, N, N), see ``served_shares``."""
    slopes: FloatArray
    needs: FloatArray
    """(N, N), see ``node_needs``."""
    new_loads: FloatArray
    new_needs: FloatArray
    new_served: FloatArray
    """(2, N, N) of the two experts of a proposal."""


class Proposal(NamedTuple):
    """``slot`` of ``node`` takes ``second`` for ``first``, ``other_slot`` of ``other`` the reverse in a swap."""

    swap: bool
    node: int
    slot: int
    other: int
    other_slot: int
    first: int
    second: int


@numba.njit(cache=True, nogil=True)
def _chance() -> float:
    return np.random.random()  # noqa: NPY002


@numba.njit(cache=True, nogil=True)
def _below(number: int) -> int:
    return int(np.random.random() * number)  # noqa: NPY002


@numba.njit(cache=True, nogil=True)
def busiest_crossing(needs: FloatArray) -> float:
    """What the busiest node sends or receives, in tokens beside those that start on a node."""
    nodes = len(needs)
    busiest = 0.0
    for node in range(nodes):
        sent = received = 0.0
        for other in range(nodes):
            sent += needs[node, other]
            received += needs[other, node]
        busiest = max(busiest, sent, received)
    return busiest


@numba.njit(cache=True, nogil=True)
def _time(case: NodeCase, node_loads: FloatArray, hottest: float, needs: FloatArray) -> float:
    """Smoothed seconds of the layer, if each node packs its copies well.

    The busiest rank then carries the mean of its node's, or the hottest copy beside cold ones.
    """
    busiest = even = 0.0
    for node in range(len(node_loads)):
        load = node_loads[node] / case.node_speeds[node]
        busiest = max(busiest, load)
        even += load * load
    busiest = max(busiest, hottest + case.filler)
    load = (1.0 - _EVEN) * busiest + _EVEN * math.sqrt(even / len(node_loads))
    load += BEYOND * max(0.0, busiest - case.aimed)
    mean = case.crossing_mean
    crossing = (1.0 - mean) * busiest_crossing(needs) + mean * needs.sum() / len(needs)
    return float(case.prices[0] * load + case.prices[1] * crossing)


@numba.njit(cache=True, nogil=True)
def node_state(held: IntArray, experts: int) -> NodeState:
    """The state of (N, C) ``held``; renew it before use."""
    nodes = len(held)
    counts, totals = np.zeros((experts, nodes), np.int64), np.zeros(experts, np.int64)
    for node in range(nodes):
        for expert in held[node]:
            counts[expert, node] += 1
            totals[expert] += 1
    served = np.zeros((experts, nodes, nodes))
    for expert in range(experts):
        served_shares(counts[expert], served[expert])
    return NodeState(
        held.copy(),
        counts,
        totals,
        np.zeros(experts),
        np.zeros(1),
        np.zeros(nodes),
        served,
        np.zeros((experts, nodes, nodes)),
        np.zeros((nodes, nodes)),
        np.zeros(nodes),
        np.zeros((nodes, nodes)),
        np.zeros((2, nodes, nodes)),
    )


@numba.njit(cache=True, nogil=True)
def renewed(case: NodeCase, state: NodeState) -> float:
    """Loads, needs and slopes of ``state`` worked out anew; its smoothed seconds."""
    state.node_loads[:] = 0.0
    for expert in range(len(state.totals)):
        state.copy_loads[expert] = case.shares[expert] / state.totals[expert]
        for node in range(len(state.node_loads)):
            state.node_loads[node] += state.counts[expert, node] * state.copy_loads[expert]
    if len(case.pairs):
        measured_needs(case.shares, case.pairs, case.router[0], state.served, state.needs, state.slopes)
    else:
        node_needs(case.weights, state.served, case.router, state.needs, state.slopes, True)
    state.hottest[0] = state.copy_loads.max()
    return _time(case, state.node_loads, state.hottest[0], state.needs)


@numba.njit(cache=True, nogil=True)
def _propose(state: NodeState, heavier: FloatArray) -> Proposal:
    """A random proposal.  New experts are drawn by load (``heavier``: cumulated shares): copies of hot ones pay."""
    nodes, size = state.held.shape
    node, slot = _below(nodes), _below(size)
    first = state.held[node, slot]
    if state.totals[first] > 1 and _chance() >= _SWAPS:
        second = min(np.searchsorted(heavier, _chance() * heavier[-1]), len(heavier) - 1)
        return Proposal(False, node, slot, node, slot, first, second)
    other = (node + 1 + _below(nodes - 1)) % nodes
    other_slot = _below(size)
    second = state.held[other, other_slot]
    if _chance() < _LIKE:
        load = state.copy_loads[first]
        for _ in range(_LOOKED_AT - 1):
            again = _below(size)
            expert = state.held[other, again]
            if abs(state.copy_loads[expert] - load) < abs(state.copy_loads[second] - load):
                other_slot, second = again, expert
    return Proposal(True, node, slot, other, other_slot, first, second)


@numba.njit(cache=True, nogil=True)
def _possible(case: NodeCase, state: NodeState, move: Proposal) -> bool:
    """Whether every node keeps at most one copy of an expert for each of its ranks, and something changes."""
    if move.first == move.second or state.counts[move.second, move.node] >= case.ranks:
        return False
    return not move.swap or bool(state.counts[move.first, move.other] < case.ranks)


@numba.njit(cache=True, nogil=True)
def _count(case: NodeCase, state: NodeState, move: Proposal, sign: int) -> None:
    """Do (1) or undo (-1) a proposal in the counts of copies and their loads."""
    first, second = move.first, move.second
    state.counts[first, move.node] -= sign
    state.counts[second, move.node] += sign
    if move.swap:
        state.counts[first, move.other] += sign
        state.counts[second, move.other] -= sign
        return
    state.totals[first] -= sign
    state.totals[second] += sign
    state.copy_loads[first] = case.shares[first] / state.totals[first]
    state.copy_loads[second] = case.shares[second] / state.totals[second]


@numba.njit(cache=True, nogil=True)
def _carry(state: NodeState, expert: int, old: int, new: int) -> None:
    """Change the new needs by moving the only copy of ``expert`` from one node to another."""
    for source in range(len(state.needs)):
        if source != old:
            state.new_needs[source, old] -= state.slopes[expert, source, old]
        if source != new:
            state.new_needs[source, new] += state.slopes[expert, source, new]


@numba.njit(cache=True, nogil=True)
def _reshare(state: NodeState, expert: int, index: int) -> None:
    """Change the new needs by the copies of ``expert`` that are counted now."""
    served = state.new_served[index]
    served_shares(state.counts[expert], served)
    for source in range(len(state.needs)):
        for node in range(len(state.needs)):
            if node != source:
                change = served[source, node] - state.served[expert, source, node]
                state.new_needs[source, node] += state.slopes[expert, source, node] * change


@numba.njit(cache=True, nogil=True)
def _judged(case: NodeCase, state: NodeState, move: Proposal) -> float:
    """Smoothed seconds after a proposal, which is left in the counts; the new loads and needs stand beside."""
    first, second = move.first, move.second
    old_first, old_second = state.copy_loads[first], state.copy_loads[second]
    for node in range(len(state.node_loads)):
        old = old_first * state.counts[first, node] + old_second * state.counts[second, node]
        state.new_loads[node] = state.node_loads[node] - old
    _count(case, state, move, 1)
    for node in range(len(state.node_loads)):
        state.new_loads[node] += state.copy_loads[first] * state.counts[first, node]
        state.new_loads[node] += state.copy_loads[second] * state.counts[second, node]
    state.new_needs[:] = state.needs
    if move.swap and state.totals[first] == 1:
        _carry(state, first, move.node, move.other)
    else:
        _reshare(state, first, 0)
    if move.swap and state.totals[second] == 1:
        _carry(state, second, move.other, move.node)
    else:
        _reshare(state, second, 1)
    hottest = state.hottest[0] if move.swap else state.copy_loads.max()
    return _time(case, state.new_loads, hottest, state.new_needs)


@numba.njit(cache=True, nogil=True)
def _accept(state: NodeState, move: Proposal) -> None:
    state.held[move.node, move.slot] = move.second
    if move.swap:
        state.held[move.other, move.other_slot] = move.first
    state.node_loads[:] = state.new_loads
    state.needs[:] = state.new_needs
    if not move.swap:
        state.hottest[0] = state.copy_loads.max()
    served_shares(state.counts[move.first], state.served[move.first])
    served_shares(state.counts[move.second], state.served[move.second])


@numba.njit(cache=True, nogil=True)
def anneal_nodes(case: NodeCase, held: IntArray, proposals: int, heat: float, seed: int) -> float:
    """Improve (N, C) ``held``, the experts of each node's slots, in place; return its smoothed seconds.

    Simulated annealing from a temperature of ``heat`` of the time.  Needs change by their slopes, which are renewed
    now and then; the best state is kept by times worked out anew.
    """
    np.random.seed(seed)  # noqa: NPY002
    state = node_state(held, len(case.shares))
    now = renewed(case, state)
    best, hottest, accepted = now, heat * now, 0
    heavier = np.cumsum(case.shares)
    renew_after = max(1, int(_RENEWED_AFTER * held.size))
    for step in range(proposals):
        move = _propose(state, heavier)
        if _possible(case, state, move):
            then = _judged(case, state, move)
            temperature = hottest * _COOLED ** (step / proposals)
            if then <= now or _chance() < math.exp((now - then) / temperature):
                now = then
                _accept(state, move)
                accepted += 1
            else:
                _count(case, state, move, -1)
        if accepted >= renew_after or (step == proposals - 1 and accepted):
            accepted = 0
            now = renewed(case, state)
            if now < best:
                best = now
                held[:] = state.held
    return best
