"""Upper bounds on the worth of a chain of maps, layer pair by layer pair.  Proofs: docs/experts.md.

Letters: L layers, E experts, G parts (ranks or nodes), s experts of a part.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np

from solver.candidates import FloatArray
from solver.experts.compiled_chain_worth import partners
from solver.experts.layout import ExpertLayout
from solver.experts.transitions import inside_worth

ROUNDS: Final = 60
"""How often prices of experts are shifted towards those that too many choose."""
THREADS: Final = 2
_ROUNDING: Final = 10 * float(np.finfo(np.float64).eps)


def worth_bound(tables: FloatArray, worth: FloatArray, layout: ExpertLayout) -> float:
    """Upper bound on what a chain saves: the sum over pairs of layers of bounds on each.

    ``tables`` (L - 1, E, E), ``worth`` (G, G) as of ``ChangePrices``.  Staying on the rank and staying in the node
    are bounded one by one.
    """
    inside = inside_worth(worth, layout)

    def saved(table: FloatArray) -> float:
        in_node = inside * pair_bound(table, layout.nodes) if inside else 0.0
        return (1 - inside) * pair_bound(table, layout.ranks) + in_node

    with ThreadPoolExecutor(THREADS) as pool:
        return float(sum(pool.map(saved, tables)))


def pair_bound(table: FloatArray, parts: int) -> float:
    """No two splits into ``parts`` equal parts keep more of the transitions ``table`` (E, E) within parts."""
    total = float(table.sum())
    if parts == 1 or total <= 0:
        return total
    return min(total, partners_bound(table, parts), spectral_bound(table, parts))


def spectral_bound(table: FloatArray, parts: int) -> float:
    """``sum(table) / G + s`` times the sum of the G - 1 greatest singular values of the doubly centred table."""
    centred = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    squares = np.linalg.eigvalsh(centred @ centred.T)[::-1]
    # rounding of product and eigenvalues is at most a small multiple of E times the sum of all squares
    slack = _ROUNDING * len(table) * float((centred**2).sum())
    greatest = np.sqrt(np.maximum(squares[: parts - 1], 0.0) + slack).sum()
    return float(table.sum() / parts + len(table) // parts * greatest)


def partners_bound(table: FloatArray, parts: int) -> float:
    """Each expert keeps at most its s best partners, for any prices of partners: the least over some prices.

    For prices p, ``s sum p_f + sum_e (the s greatest of table[e, f] - p_f)`` bounds what stays;
    for one side and the other.
    """
    size = len(table) // parts
    both = np.ascontiguousarray(table), np.ascontiguousarray(table.T)
    return min(partners(side, size, ROUNDS) for side in both)
