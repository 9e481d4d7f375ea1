"""Good chains of maps for any number of experts: assignment sweeps, annealing, and the best mixture of several.

Letters: L layers, E experts, G ranks, N nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import scipy

from solver.candidates import FloatArray, IntArray
from solver.experts import compiled_chain_search as kernels
from solver.experts.compiled_annealing import Schedule
from solver.experts.compiled_chain_worth import dealt, rank_masses
from solver.experts.layout import ExpertLayout
from solver.experts.transitions import chain_worth, inside_worth

SWEEPS: Final = 30
SWEPT: Final = 64
"""Up to so many experts of a layer, assignments of all of them at once are quicker than exchanges of two."""


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """Objective: ``worth`` of transitions less ``price`` times the sum over layers of the slowest load.

    ``tables`` (L - 1, E, E), ``shares`` (L, E) scaled so that balanced ranks carry 1, ``worth`` (G, G).
    ``back`` are the tables transposed.
    """

    tables: FloatArray
    shares: FloatArray
    worth: FloatArray
    layout: ExpertLayout
    price: float = 0.0
    back: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "back", np.ascontiguousarray(self.tables.transpose(0, 2, 1)))

    def state(self, ranks: IntArray) -> kernels.ChainState:
        """State of the compiled search; ``ranks`` (L, E) change with it."""
        speeds = self.layout.relative_speeds()
        return kernels.chain_state(self.tables, self.back, ranks, self.worth, self.shares, speeds)

    def priced(self, price: float) -> Chain:
        """The same with another price of load."""
        return replace(self, price=price)

    def warmth(self) -> float:
        """A temperature at which a rank's mean transitions with one expert do not matter."""
        return float(self.tables.sum()) / self.tables.size * self.layout.slots_per_rank

    def slowest(self, ranks: IntArray) -> FloatArray:
        """(L,) the load of the slowest rank of each layer."""
        loads = np.zeros((len(ranks), self.layout.ranks))
        np.add.at(loads, (np.arange(len(ranks))[:, None], ranks), self.shares)
        return np.asarray((loads / self.layout.relative_speeds()).max(axis=1))

    def value(self, ranks: IntArray) -> float:
        """Value of the objective."""
        saved = chain_worth(ranks, self.tables, self.worth)
        return saved - self.price * float(self.slowest(ranks).sum()) if self.price else saved


def searched(chain: Chain, *, starts: int, steps: int, seed: int) -> IntArray:
    """(L, E) the best ranks found: several starts are annealed, mixed, and polished.

    ``steps``: of each annealing.  Without a price of load, sweeps of assignments follow as long as they help.
    """
    found = []
    for start in range(starts):
        ranks = forward(chain, seed + start)
        annealed(chain, ranks, steps, chain.warmth(), seed + start)
        found.append(swept(chain, ranks))
    return swept(chain, mixed(chain, found))


def annealed(chain: Chain, ranks: IntArray, steps: int, hot: float, seed: int) -> None:
    """Anneal ``ranks``, which change, from temperature ``hot`` down to a hundredth, then as long as swaps help."""
    state = chain.state(ranks)
    if steps > 0:
        kernels.anneal_chain(state, chain.price, Schedule(steps, hot, hot / 100, seed))
    kernels.improve_chain(state, chain.price)


def spent_on_balance(chain: Chain, ranks: IntArray, least: float) -> None:
    """Exchange experts of ``ranks``, which change, while slowest ranks get faster and ``least`` is still saved."""
    kernels.spend(chain.state(ranks), chain_worth(ranks, chain.tables, chain.worth) - least)


def forward(chain: Chain, seed: int) -> IntArray:
    """(L, E) a start: a layer is dealt out at random, its neighbours follow it one after the other."""
    generator = np.random.default_rng(seed)
    layers, experts = chain.shares.shape
    size = chain.layout.slots_per_rank
    ranks = np.zeros((layers, experts), dtype=np.int64)
    first = int(generator.integers(layers))
    ranks[first, generator.permutation(experts)] = np.arange(experts) // size
    for layer in range(first + 1, layers):
        ranks[layer] = _assigned(_saved(chain.tables[layer - 1].T, ranks[layer - 1], chain.worth), size)
    for layer in range(first - 1, -1, -1):
        ranks[layer] = _assigned(_saved(chain.tables[layer], ranks[layer + 1], chain.worth), size)
    return ranks


def swept(chain: Chain, ranks: IntArray) -> IntArray:
    """``ranks`` after sweeps that give each layer its best map between its neighbours, as long as they help.

    With a price of load only the labels of ranks are exchanged: the assignment knows no maximum of loads.
    """
    best, value = ranks, chain.value(ranks)
    for _ in range(SWEEPS):
        tried = mixed(chain, [best])
        if not chain.price and chain.shares.shape[1] <= SWEPT:
            for layer in range(len(tried)):
                tried[layer] = _best_between(chain, tried, layer)
        reached = chain.value(tried)
        if reached <= value + 1e-12:
            break
        best, value = tried, reached
    return best


def mixed(chain: Chain, found: list[IntArray]) -> IntArray:
    """The best chain with each layer from one of ``found``, ranks that are alike exchanged from there on.

    Dynamic programming over which of them each layer takes.  With unequal speeds no ranks are exchanged.
    """
    layers, count = len(chain.shares), len(found)
    value = np.array([-chain.price * chain.slowest(ranks) for ranks in found]).T
    orders = np.zeros((layers, count, chain.layout.ranks), dtype=np.int64)
    before = np.zeros((layers, count), dtype=np.int64)
    for layer in range(1, layers):
        reached = np.full(count, -np.inf)
        for there in range(count):
            for here in range(count):
                masses = rank_masses(
                    chain.tables[layer - 1], found[here][layer - 1], found[there][layer], chain.layout.ranks
                )
                saved, order = best_exchange(masses, chain)
                if value[layer - 1, here] + saved > reached[there]:
                    reached[there] = value[layer - 1, here] + saved
                    before[layer, there], orders[layer, there] = here, order
        value[layer] += reached
    picked = [int(np.argmax(value[-1]))]
    for layer in range(layers - 1, 0, -1):
        picked.append(int(before[layer, picked[-1]]))
    picked.reverse()
    ranks = np.array([found[pick][layer] for layer, pick in enumerate(picked)])
    renamed = np.arange(chain.layout.ranks)
    for layer in range(1, layers):
        renamed = renamed[orders[layer, picked[layer]]]
        ranks[layer] = renamed[ranks[layer]]
    return ranks


def best_exchange(masses: FloatArray, chain: Chain) -> tuple[float, IntArray]:
    """Largest worth, and (G,) the rank that each rank of the next layer becomes, nodes kept together.

    ``masses`` (G, G): transitions from the ranks of a layer to those of the next.
    """
    layout, worth = chain.layout, chain.worth
    if len(set(layout.speeds)) > 1:
        return float((masses * worth).sum()), np.arange(layout.ranks)
    inside = inside_worth(worth, layout)
    if not inside:
        here, there = scipy.optimize.linear_sum_assignment(-masses)
        return float(masses[here, there].sum()), _renaming(here, there)
    width, nodes = layout.ranks_per_node, layout.nodes
    blocks = masses.reshape(nodes, width, nodes, width).transpose(0, 2, 1, 3)
    best = inside * blocks.sum(axis=(2, 3))
    pairs = {}
    for m in range(nodes):
        for n in range(nodes):
            pairs[m, n] = scipy.optimize.linear_sum_assignment(-blocks[m, n])
            best[m, n] += (1 - inside) * blocks[m, n][pairs[m, n]].sum()
    order = np.zeros(layout.ranks, dtype=np.int64)
    here, there = scipy.optimize.linear_sum_assignment(-best)
    for m, n in zip(here.tolist(), there.tolist(), strict=True):
        order[n * width : (n + 1) * width] = m * width + _renaming(*pairs[m, n])
    return float(best[here, there].sum()), order


def _renaming(here: IntArray, there: IntArray) -> IntArray:
    order = np.zeros(len(here), dtype=np.int64)
    order[there] = here
    return order


def _saved(table: FloatArray, ranks: IntArray, worth: FloatArray) -> FloatArray:
    """(E, G) what each expert saves on each rank, with ``ranks`` of the experts that ``table`` leads to."""
    return np.asarray(table @ worth[ranks])


def _assigned(saved: FloatArray, size: int) -> IntArray:
    """(E,) the rank of each expert, ``size`` on each, that saves most: an assignment of experts to slots.

    With many experts, it takes the pairs of an expert and a rank that save most one after the other.
    """
    if len(saved) > SWEPT:
        order = np.argsort(-saved, axis=None, kind="stable")
        return dealt(order, *saved.shape)
    _, slots = scipy.optimize.linear_sum_assignment(-np.repeat(saved, size, axis=1))
    return np.asarray(slots // size)


def _best_between(chain: Chain, ranks: IntArray, layer: int) -> IntArray:
    """(E,) the best ranks of a layer between its neighbours as they are."""
    saved = np.zeros((chain.shares.shape[1], chain.layout.ranks))
    if layer > 0:
        saved += _saved(chain.tables[layer - 1].T, ranks[layer - 1], chain.worth)
    if layer < len(ranks) - 1:
        saved += _saved(chain.tables[layer], ranks[layer + 1], chain.worth)
    return _assigned(saved, chain.layout.slots_per_rank)
