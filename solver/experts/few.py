"""Maps of few slots, searched by the exact time of layers (``compiled_few``).

Letters: L layers, E experts, S slots, K terms.
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.compiled_annealing import Schedule
from solver.experts.compiled_few import FewCase, anneal_few
from solver.experts.dispatch import Routing
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice
from solver.experts.regret import Terms

FEW: Final = 32
"""Most slots that are searched exactly: every change of each can be tried again and again."""
_HOT: Final = (0.1, 0.03, 0.01)
"""First temperatures of the annealings, in shares of what the references take."""
_COOLING: Final = 0.03
_FEWER_SLOTS: Final = 16
"""Maps of so many slots are judged as often as asked, others so much more often as they have fewer."""


def improved_few(
    slots: IntArray,
    references: FloatArray,
    routed: Routing,
    layout: ExpertLayout,
    terms: Terms,
    *,
    evaluations: int,
    seed: int,
    pool: Executor,
) -> IntArray:
    """(L, S) ``slots`` with less of what they take at most beside (K, L) ``references``, under the router given.

    Each layer is judged about ``evaluations`` times, more often with fewer than 16 slots.
    """
    cases = [_case(layer, references[:, layer], routed, layout, terms) for layer in range(len(slots))]
    most = evaluations * _FEWER_SLOTS // layout.slots

    def improved(layer: int) -> IntArray:
        row: IntArray = slots[layer].copy()
        for hot in _HOT:
            anneal_few(cases[layer], row, Schedule(most // len(_HOT), hot, hot * _COOLING, seed + layer))
        return row

    return np.asarray(list(pool.map(improved, range(len(slots)))), dtype=np.int64)


def _case(layer: int, references: FloatArray, routed: Routing, layout: ExpertLayout, terms: Terms) -> FewCase:
    rates, tokens = terms.rates, terms.rates.tokens * layout.ranks
    each = [
        (choice, by_mean, factor) for choice in terms.choices for by_mean in terms.paces for factor in terms.factors
    ]
    between = rates.tokens * rates.copy_bytes / rates.between_bytes_per_s
    return FewCase(
        routed.case(layer, layout, (0.0, 1.0, 0.0), 0.0),
        rates.selection_s * routed.rule.active * tokens,
        tokens * rates.copy_bytes / rates.inside_bytes_per_s if layout.ranks_per_node > 1 else 0.0,
        np.array([between * factor for _, _, factor in each]),
        np.array([by_mean for _, by_mean, _ in each]),
        np.array([choice is CopyChoice.NEAREST for choice, _, _ in each]),
        references[: len(each)].copy(),
        layout.relative_speeds(),
    )
