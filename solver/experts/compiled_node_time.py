"""Compiled: the time of a layer by the node of each copy: load of its ranks, and what crosses nodes.

Letters: E experts, N nodes, C slots of a node, k experts a token; m source node, n other node, M sources told
apart: N where copies near a token's node are preferred, 1 where every copy is as likely.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.compiled_reach import even_shares, measured_needs, node_needs, served_shares
from solver.kernels import inner, kernel

_EVEN: Final = 0.1
"""Weight of the mean load of nodes beside the maximum: it leads over plateaus."""
_BETTER_CHOICE: Final = 0.6
"""Weight of both choices of copies beside the worse of them."""
BEYOND: Final = 10.0
"""How many times more a load beyond the one aimed at costs."""


class NodeCase(NamedTuple):
    """One layer, its router and its prices.

    ``references``: seconds beside which the time counts where copies near a token's node are preferred, and where
    every copy is as likely; 0: that choice does not count.  ``shares`` (E,) of sum 1; ``weights`` (E,) of the
    router's draw, ``pairs`` (E, E) as measured or (0, 0) empty; ``router`` (k, H, a).  ``prices``: seconds of the
    load of a rank of mean speed, of a crossing of 1, and of the square of the hottest copy's load.
    ``crossing_mean``: weight of the mean crossing of nodes beside the busiest.  ``aimed``: a load of the busiest
    rank, each load beyond it costs ``BEYOND`` times as much.  ``node_speeds`` (N,) sums of the relative speeds of
    ranks, ``ranks`` of a node, ``filler``: what at least lies beside any copy on its rank.
    """

    shares: FloatArray
    weights: FloatArray
    pairs: FloatArray
    router: tuple[int, int, int]
    prices: tuple[float, float, float]
    references: tuple[float, float]
    crossing_mean: float
    aimed: float
    node_speeds: FloatArray
    ranks: int
    filler: float


class Reach(NamedTuple):
    """Shares that nodes serve, and needs of tokens, under one choice of copies."""

    served: FloatArray
    """(E, M, N), see ``served_shares`` and ``even_shares``."""
    slopes: FloatArray
    needs: FloatArray
    """(M, N), see ``node_needs``."""
    new_needs: FloatArray
    new_served: FloatArray
    """(M, N) of one expert of a proposal."""


class NodeState(NamedTuple):
    """Experts of each node, and what follows from them."""

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
    new_loads: FloatArray
    near: Reach
    """Where copies near a token's node are preferred."""
    even: Reach
    """Where every copy is as likely."""


@kernel
def crossings(needs: FloatArray) -> tuple[float, float]:
    """From (M, N) needs what the busiest node sends or receives, in tokens beside those that start on a node.

    Beside it other nodes that a token needs, mean of all sources.
    """
    sources, nodes = needs.shape
    busiest = mean = 0.0
    for node in range(nodes):
        sent = received = 0.0
        for other in range(nodes):
            if other != node:
                sent += needs[min(node, sources - 1), other]
                received += needs[min(other, sources - 1), node]
        busiest = max(busiest, sent, received)
        mean += sent
    return busiest, mean / nodes


@inner
def _crossing(case: NodeCase, needs: FloatArray) -> float:
    busiest, mean = crossings(needs)
    return (1.0 - case.crossing_mean) * busiest + case.crossing_mean * mean


@inner
def layer_seconds(
    case: NodeCase, node_loads: FloatArray, hottest: float, near: FloatArray, even: FloatArray
) -> float:
    """Smoothed seconds of the layer beside its references, if each node packs its copies well.

    The busiest rank then carries the mean of its node's, or the hottest copy beside cold ones.
    """
    busiest = mean = 0.0
    for node in range(len(node_loads)):
        load = node_loads[node] / case.node_speeds[node]
        busiest = max(busiest, load)
        mean += load * load
    busiest = max(busiest, hottest + case.filler)
    load = (1.0 - _EVEN) * busiest + _EVEN * math.sqrt(mean / len(node_loads))
    load += BEYOND * max(0.0, busiest - case.aimed)
    load_s = case.prices[0] * load + case.prices[2] * hottest * hottest
    worst = total = 0.0
    for choice in range(2):
        if case.references[choice] > 0.0:
            crossing = _crossing(case, near if choice == 0 else even)
            beside = (load_s + case.prices[1] * crossing) / case.references[choice]
            worst, total = max(worst, beside), total + beside
    return float((1.0 - _BETTER_CHOICE) * worst + _BETTER_CHOICE * total)


@inner
def _reach(experts: int, sources: int, nodes: int) -> Reach:
    return Reach(
        np.zeros((experts, sources, nodes)),
        np.zeros((experts, sources, nodes)),
        np.zeros((sources, nodes)),
        np.zeros((sources, nodes)),
        np.zeros((sources, nodes)),
    )


@inner
def serve(counts: IntArray, served: FloatArray) -> None:
    """Fill (M, N) what copies in each node serve of one expert."""
    if len(served) > 1:
        served_shares(counts, served)
    else:
        even_shares(counts, served)


@kernel
def node_state(held: IntArray, experts: int) -> NodeState:
    """The state of (N, C) ``held``, of at least 2 nodes; renew it before use."""
    nodes = len(held)
    counts, totals = np.zeros((experts, nodes), np.int64), np.zeros(experts, np.int64)
    for node in range(nodes):
        for expert in held[node]:
            counts[expert, node] += 1
            totals[expert] += 1
    near, even = _reach(experts, nodes, nodes), _reach(experts, 1, nodes)
    for expert in range(experts):
        serve(counts[expert], near.served[expert])
        serve(counts[expert], even.served[expert])
    loads = np.zeros(nodes)
    return NodeState(held.copy(), counts, totals, np.zeros(experts), np.zeros(1), loads, loads.copy(), near, even)


@kernel
def fill_needs(case: NodeCase, reach: Reach, with_slopes: bool) -> None:
    """Work out anew what tokens need, from what copies serve; slopes if wanted (with measured pairs always)."""
    if len(case.pairs):
        measured_needs(case.shares, case.pairs, case.router[0], reach.served, reach.needs, reach.slopes)
    else:
        node_needs(case.weights, reach.served, case.router, reach.needs, reach.slopes, with_slopes)


@kernel
def renewed(case: NodeCase, state: NodeState) -> float:
    """Loads, needs and slopes of ``state`` worked out anew; its smoothed seconds beside the references."""
    state.node_loads[:] = 0.0
    for expert in range(len(state.totals)):
        state.copy_loads[expert] = case.shares[expert] / state.totals[expert]
        for node in range(len(state.node_loads)):
            state.node_loads[node] += state.counts[expert, node] * state.copy_loads[expert]
    if case.references[0] > 0.0:
        fill_needs(case, state.near, True)
    if case.references[1] > 0.0:
        fill_needs(case, state.even, True)
    state.hottest[0] = state.copy_loads.max()
    return layer_seconds(case, state.node_loads, state.hottest[0], state.near.needs, state.even.needs)
