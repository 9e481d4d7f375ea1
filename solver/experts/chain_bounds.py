"""What no chain of maps exceeds, layer pair by layer pair.  Proofs: docs/experts.md.

Letters: L layers, E experts, G parts (ranks or nodes), s experts of a part.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.candidates import FloatArray
from solver.experts.layout import ExpertLayout
from solver.experts.transitions import inside_worth

ROUNDS: Final = 60
"""How often prices of experts are shifted towards those that too many choose."""


def worth_bound(tables: FloatArray, worth: FloatArray, layout: ExpertLayout) -> float:
    """What no chain saves more than: the sum over pairs of layers of what none saves there.

    ``tables`` (L - 1, E, E), ``worth`` (G, G) as of ``ChangePrices``.  Staying on the rank and staying in the node
    are bounded one by one.
    """
    inside = inside_worth(worth, layout)
    return float(
        sum(
            (1 - inside) * pair_bound(table, layout.ranks)
            + (inside * pair_bound(table, layout.nodes) if inside else 0.0)
            for table in tables
        )
    )


def pair_bound(table: FloatArray, parts: int) -> float:
    """No two splits into ``parts`` equal parts keep more of the transitions ``table`` (E, E) within parts."""
    total = float(table.sum())
    if parts == 1 or total <= 0:
        return total
    return min(total, partners_bound(table, parts), spectral_bound(table, parts))


def spectral_bound(table: FloatArray, parts: int) -> float:
    """``sum(table) / G + s`` times the sum of the G - 1 greatest singular values of the doubly centred table."""
    centred = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    singular = np.linalg.svd(centred, compute_uv=False)
    return float(table.sum() / parts + len(table) // parts * singular[: parts - 1].sum())


def partners_bound(table: FloatArray, parts: int) -> float:
    """Each expert keeps at most its s best partners, for any prices of partners: the least over some prices.

    For prices p, ``s sum p_f + sum_e (the s greatest of table[e, f] - p_f)`` bounds what stays;
    for one side and the other.
    """
    return min(_partners(table, parts), _partners(table.T, parts))


def _partners(table: FloatArray, parts: int) -> float:
    experts = len(table)
    size = experts // parts
    prices, best = np.zeros(experts), np.inf
    for turn in range(ROUNDS):
        left = table - prices
        chosen = np.argpartition(-left, size - 1, axis=1)[:, :size]
        value = size * prices.sum() + np.take_along_axis(left, chosen, axis=1).sum()
        best = min(best, float(value))
        demand = np.bincount(chosen.ravel(), minlength=experts) - size
        norm = float(demand @ demand)
        if not norm:
            break
        prices = prices + demand * (0.05 * best / (1 + turn / 5) / norm)
    return best
