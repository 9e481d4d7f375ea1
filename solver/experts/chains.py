"""Maps of experts that let tokens stay where they are from layer to layer, and how far that is from the best.

A token that needs experts on one rank in two neighbouring layers need not be sent between them.  Rank loads are
kept in sight: of all maps that save nearly as much as the best, one with balanced ranks is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import RoutedWorkload
from cluster_models.training.expert_slots import ExpertSlots
from solver.candidates import IntArray
from solver.experts.chain_bounds import worth_bound
from solver.experts.chain_splits import best_chain, splits_of
from solver.experts.chain_sweeps import Chain, annealed, mixed, searched, spent_on_balance, swept
from solver.experts.layout import ExpertLayout
from solver.experts.loads import balancedness
from solver.experts.transitions import (
    EVERY_CHANGE,
    ChangePrices,
    chain_worth,
    node_stay_share,
    rank_slots,
    stay_share,
    transition_tables,
)

STARTS: Final = 4
STEPS: Final = 400
"""Exchanges tried in each annealing, for each expert of each layer."""
MOST_STEPS: Final = 600_000
MANY: Final = 64
MOST_STARTS_OF_MANY, MOST_STEPS_OF_MANY = 2, 200_000
"""With more experts than this, exchanges as long as any helps find nearly all, and annealing little more."""
HALVINGS, HALVINGS_OF_MANY = 10, 6
"""For how many prices of load a map is made: doubled at first, and halved once maps save too little."""
COOL: Final = 0.1
"""Temperature with which a map is annealed again under another price of load, beside that of a start."""
Search = Callable[[float, IntArray | None], IntArray]


@dataclass(frozen=True, slots=True, eq=False)
class Chained:
    """A map without copies for known transitions, and what it is worth.

    ``stay_share`` and ``node_stay_share``: of the counted transitions, those that stay on their rank, and in their
    node.  ``worth``: 1 for each transition that stays on its rank, for one that stays in its node what the prices
    say, as a share; ``most_worth``: of the best map found without regard to load; ``bound``: no map exceeds it.
    ``exact``: ``most_worth`` is the optimum.
    """

    slots: ExpertSlots
    stay_share: float
    node_stay_share: float
    worth: float
    most_worth: float
    bound: float
    exact: bool
    balancedness: float

    def rows(self) -> IntArray:
        """(L, S) the expert in each slot."""
        return np.array(self.slots.slots)


def chain_experts(
    workload: RoutedWorkload,
    layout: ExpertLayout,
    *,
    prices: ChangePrices = EVERY_CHANGE,
    least_locality: float = 0.98,
    starts: int = STARTS,
    steps: int = STEPS,
    seed: int = 0,
) -> Chained:
    """The best balanced map among those that save at least ``least_locality`` of what the best one saves.

    Where a layer has few ways to split its experts, the best chain is found exactly.  ``steps``: see ``STEPS``; the
    same arguments give the same map.  Raises ``InvalidInput`` without transitions, and for layouts with copies.
    """
    if not 0 <= least_locality <= 1:
        raise InvalidInput("experts.least_locality", least_locality, "must be from 0 to 1")
    if layout.slots != workload.experts:
        raise InvalidInput(
            "experts.slots",
            layout.slots,
            f"maps by transitions hold no copies, {workload.experts} slots for {workload.experts} experts",
            f"take {workload.experts} slots, or leave transitions out",
        )
    worth = prices.worth(layout)
    chain = Chain(transition_tables(workload), workload.shares() * layout.ranks, worth, layout)
    search, exact = _search(chain, starts, steps, seed)
    ranks = search(0.0, None)
    most = chain_worth(ranks, chain.tables, worth)
    if least_locality < 1:
        ranks = _balanced(chain, search, ranks, least_locality * most)
    rows = rank_slots(ranks)
    bound = most if exact else min(1.0, worth_bound(chain.tables, worth, layout))
    return Chained(
        slots=ExpertSlots(
            workload.layers, tuple(tuple(row) for row in rows.tolist()), workload.experts, layout.ranks
        ),
        stay_share=stay_share(rows, workload.transitions, layout),
        node_stay_share=node_stay_share(rows, workload.transitions, layout),
        worth=chain_worth(ranks, chain.tables, worth),
        most_worth=most,
        bound=max(bound, most),
        exact=exact or most >= bound * (1 - 1e-9),
        balancedness=balancedness(rows, workload.loads, layout),
    )


def _search(chain: Chain, starts: int, steps: int, seed: int) -> tuple[Search, bool]:
    """Search of the ranks (L, E) for a price of load, from a start where it needs one, and whether it is exact."""
    layers, experts = chain.shares.shape
    splits = splits_of(experts, layers, chain.layout, chain.worth)
    if splits is not None:
        slowest = np.array([splits.slowest(shares, chain.layout) for shares in chain.shares])
        return lambda price, _: best_chain(chain.tables, price * slowest, splits), True

    def find(price: float, start: IntArray | None) -> IntArray:
        priced = chain.priced(price)
        budget = min(steps * chain.shares.size, MOST_STEPS if experts <= MANY else MOST_STEPS_OF_MANY)
        if start is None:
            several = starts if experts <= MANY else min(starts, MOST_STARTS_OF_MANY)
            return searched(priced, starts=several, steps=budget, seed=seed)
        ranks = start.copy()
        annealed(priced, ranks, budget, COOL * priced.warmth(), seed)
        return swept(priced, mixed(priced, [start, ranks]))

    return find, False


def _balanced(chain: Chain, search: Search, ranks: IntArray, least: float) -> IntArray:
    """Map with the least mean slowest load that saves ``least``, among those for several prices of load.

    The price is doubled until maps save too little, and then halved between the last that did and the first that
    did not.  The locality still missing then goes into single exchanges.
    """
    best, lightest = ranks, float(chain.slowest(ranks).mean())
    price = _first_price(chain, least)
    low, high = 0.0, np.inf
    start = ranks
    for _ in range(HALVINGS if chain.shares.shape[1] <= MANY else HALVINGS_OF_MANY):
        found = search(price, start)
        load = float(chain.slowest(found).mean())
        if chain_worth(found, chain.tables, chain.worth) >= least * (1 - 1e-12):
            low, start = price, found
            if load < lightest:
                best, lightest = found, load
        else:
            high = price
        price = 2 * price if np.isinf(high) else (low + high) / 2
    best = best.copy()
    spent_on_balance(chain, best, least)
    return best


def _first_price(chain: Chain, least: float) -> float:
    """A price at which 1 % of what is saved weighs as much as a tenth of the mean load in every layer."""
    return max(least, 1e-9) * 0.01 / (0.1 * len(chain.shares))
