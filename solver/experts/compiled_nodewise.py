"""Compiled search for the node of each copy of each expert: balance of the ranks against what crosses nodes.

Letters: E experts, N nodes, C slots of a node, k experts a token; m source node, n other node, M sources told
apart: N where copies near a token's node are preferred, 1 where every copy is as likely.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.compiled_annealing import Schedule, annealer, below, chance
from solver.experts.compiled_node_time import NodeCase, NodeState, Reach, layer_seconds, node_state, renewed, serve
from solver.kernels import inner, kernel

_SWAPS: Final = 0.7
"""Share of exchanges among the proposals for slots whose expert has other copies."""
_LIKE: Final = 0.5
"""Share of exchanges that look for a slot of a similar load, among so many:"""
_LOOKED_AT: Final = 4
_BESIDE: Final = 0.5
"""Share of new copies that go beside another of their node: they send no more tokens there."""
_RENEWED_AFTER: Final = 0.14
"""Accepted proposals, by slots, after which the slopes of needs are worked out anew."""
_COOLED: Final = 1e-2
"""The last temperature beside the first."""


class Proposal(NamedTuple):
    """``slot`` of ``node`` takes ``second`` for ``first``, ``other_slot`` of ``other`` the reverse in a swap."""

    swap: bool
    node: int
    slot: int
    other: int
    other_slot: int
    first: int
    second: int


class _Search(NamedTuple):
    """A search.

    ``heavier`` (E,) cumulated shares; ``seconds`` (3,) now, after a proposal, and of the ``best`` (N, C) map;
    ``accepted`` (1,) proposals since slopes were worked out.
    """

    case: NodeCase
    heavier: FloatArray
    seconds: FloatArray
    accepted: IntArray
    best: IntArray


@inner
def _propose(state: NodeState, search: _Search) -> Proposal:
    """A random proposal.  New experts are drawn by load: copies of hot ones pay."""
    heavier = search.heavier
    nodes, size = state.held.shape
    node, slot = below(nodes), below(size)
    first = state.held[node, slot]
    if state.totals[first] > 1 and chance() >= _SWAPS:
        second = min(np.searchsorted(heavier, chance() * heavier[-1]), len(heavier) - 1)
        if chance() < _BESIDE:
            second = state.held[node, below(size)]
        return Proposal(False, node, slot, node, slot, first, second)
    other = (node + 1 + below(nodes - 1)) % nodes
    other_slot = below(size)
    second = state.held[other, other_slot]
    if chance() < _LIKE:
        load = state.copy_loads[first]
        for _ in range(_LOOKED_AT - 1):
            again = below(size)
            expert = state.held[other, again]
            if abs(state.copy_loads[expert] - load) < abs(state.copy_loads[second] - load):
                other_slot, second = again, expert
    return Proposal(True, node, slot, other, other_slot, first, second)


@inner
def _possible(case: NodeCase, state: NodeState, move: Proposal) -> bool:
    """Whether every node keeps at most one copy of an expert for each of its ranks, and something changes."""
    if move.first == move.second or state.counts[move.second, move.node] >= case.ranks:
        return False
    return not move.swap or bool(state.counts[move.first, move.other] < case.ranks)


@inner
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


@inner
def _carry(reach: Reach, expert: int, old: int, new: int) -> None:
    """Change the new needs by moving the only copy of ``expert`` from one node to another."""
    sources = len(reach.needs)
    for source in range(sources):
        if source != old or sources == 1:
            reach.new_needs[source, old] -= reach.slopes[expert, source, old]
        if source != new or sources == 1:
            reach.new_needs[source, new] += reach.slopes[expert, source, new]


@inner
def _reshare(reach: Reach, counts: IntArray, expert: int) -> None:
    """Change the new needs by the copies of ``expert`` that are counted now."""
    serve(counts[expert], reach.new_served)
    sources, nodes = reach.needs.shape
    for source in range(sources):
        for node in range(nodes):
            if node != source or sources == 1:
                change = reach.new_served[source, node] - reach.served[expert, source, node]
                reach.new_needs[source, node] += reach.slopes[expert, source, node] * change


@inner
def _reached(reach: Reach, state: NodeState, move: Proposal) -> None:
    """The new needs after a proposal that stands in the counts."""
    reach.new_needs[:] = reach.needs
    if move.swap and state.totals[move.first] == 1:
        _carry(reach, move.first, move.node, move.other)
    else:
        _reshare(reach, state.counts, move.first)
    if move.swap and state.totals[move.second] == 1:
        _carry(reach, move.second, move.other, move.node)
    else:
        _reshare(reach, state.counts, move.second)


@inner
def _seconds_after(case: NodeCase, state: NodeState, move: Proposal) -> float:
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
    if case.references[0] > 0.0:
        _reached(state.near, state, move)
    if case.references[1] > 0.0:
        _reached(state.even, state, move)
    hottest = state.hottest[0] if move.swap else state.copy_loads.max()
    return layer_seconds(case, state.new_loads, hottest, state.near.new_needs, state.even.new_needs)


@inner
def _take(state: NodeState, move: Proposal) -> None:
    state.held[move.node, move.slot] = move.second
    if move.swap:
        state.held[move.other, move.other_slot] = move.first
    else:
        state.hottest[0] = state.copy_loads.max()
    state.node_loads[:] = state.new_loads
    state.near.needs[:] = state.near.new_needs
    state.even.needs[:] = state.even.new_needs
    for expert in (move.first, move.second):
        serve(state.counts[expert], state.near.served[expert])
        serve(state.counts[expert], state.even.served[expert])


@inner
def _judge(state: NodeState, search: _Search, move: Proposal) -> float:
    """Try a proposal; growth of the smoothed seconds."""
    if not _possible(search.case, state, move):
        return np.inf
    search.seconds[1] = _seconds_after(search.case, state, move)
    return float(search.seconds[1] - search.seconds[0])


@inner
def _accept(state: NodeState, search: _Search, move: Proposal) -> None:
    _take(state, move)
    search.seconds[0] = search.seconds[1]
    search.accepted[0] += 1
    if search.accepted[0] >= max(1, int(_RENEWED_AFTER * state.held.size)):
        _renew(state, search)


@inner
def _reject(state: NodeState, search: _Search, move: Proposal) -> None:
    _count(search.case, state, move, -1)


@inner
def _renew(state: NodeState, search: _Search) -> None:
    """Work slopes and seconds out anew, and keep the map if it is the best."""
    search.accepted[0] = 0
    search.seconds[0] = renewed(search.case, state)
    if search.seconds[0] < search.seconds[2]:
        search.seconds[2] = search.seconds[0]
        search.best[:] = state.held


_anneal = annealer(_propose, _judge, _accept, _reject)


@kernel
def anneal_nodes(case: NodeCase, held: IntArray, proposals: int, heat: float, seed: int) -> float:
    """Improve (N, C) ``held``, the experts of each node's slots, in place; return its smoothed seconds.

    Simulated annealing from a temperature of ``heat`` of the time.  Needs change by their slopes, which are renewed
    now and then; the best state is kept by times worked out anew.
    """
    state = node_state(held, len(case.shares))
    seconds = np.array([0.0, 0.0, np.inf])
    search = _Search(case, np.cumsum(case.shares), seconds, np.zeros(1, dtype=np.int64), held)
    _renew(state, search)
    hot = heat * seconds[0]
    _anneal(state, search, Schedule(proposals, hot, hot * _COOLED, seed))
    _renew(state, search)
    return float(seconds[2])
