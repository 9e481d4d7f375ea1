"""Balancedness that no map of experts can exceed: for each layer by itself (proofs in docs/experts.md).

Letters: E experts, S slots, G ranks, s slots of a rank.  Shares are scaled so that balanced ranks all carry 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from solver.candidates import FloatArray
from solver.experts import compiled_proofs as proofs
from solver.experts.layout import ExpertLayout
from solver.ilp import LinearModel, solve_relaxation

HALVINGS: Final = 13
"""Halvings of the distance between a proven load and one that is reached."""
ENOUGH: Final = 1e-4
"""Nothing more is tried when the load that was reached lies so near (relatively) to a proven one."""
FLOORS: Final = 24
ROWS: Final = 120
SHORTFALLS: Final = (0.0005, 0.003, 0.01, 0.03, 0.1)
"""How far below the load that was reached a linear program tries to prove, until one succeeds."""
ROUNDING: Final = 1e-9
MARGIN: Final = 1e-4
"""Slots by which a linear program must exceed those that there are."""


def plain_bound(shares: FloatArray, layout: ExpertLayout) -> float:
    """A load that the slowest rank of one layer has at least, at once: by the mean, and by the heaviest copy.

    ``shares`` (E,) of which balanced ranks all carry 1.  Without copies by counting the hottest experts, or
    by pairing the hottest with the coldest.  Where speeds differ, every rank is taken for the fastest.
    """
    fastest = float(layout.relative_speeds().max())
    if layout.slots == len(shares) and layout.slots_per_rank == 2:
        ascending = np.sort(shares)
        alone = float((ascending + ascending[::-1]).max())
    elif layout.slots == len(shares):
        alone = float(proofs.counting_bound(np.sort(shares)[::-1], layout.ranks, layout.slots_per_rank))
    else:
        alone = _least_maximum(shares, layout.slots)
    return max(1.0, alone / fastest) * (1 - ROUNDING)


def least_slowest_load(shares: FloatArray, layout: ExpertLayout, reached: float, *, close: bool = True) -> float:
    """As ``plain_bound``, and where copies leave something open by pairs of heavy and light replicas.

    At most ``reached``, the load that some map has.  ``close``: solve linear programs too, where every rank has two
    slots.
    """
    least = plain_bound(shares, layout)
    size, slots = layout.slots_per_rank, layout.slots
    fastest = float(layout.relative_speeds().max())
    if slots == len(shares) or size == 1 or reached <= least * (1 + ENOUGH):
        return min(reached, least)
    floors = np.quantile(shares, np.linspace(0, 1, FLOORS)) * 0.999
    low, high = least * fastest, reached * fastest

    def shown(limit: float) -> bool:
        return bool(proofs.shown_by_slopes(shares, limit, slots, size, floors))

    if shown(low * (1 + ENOUGH)):
        low = _largest(low, high, shown)
    if size == 2 and close:
        low = _by_partners(shares, slots, low, high)
    return min(reached, max(least, low / fastest))


def _least_maximum(shares: FloatArray, slots: int) -> float:
    """Smallest achievable maximum replica load with ``slots`` copies."""
    low, high = float(shares.sum()) / slots, float(shares.max())
    return _largest(low, high, lambda limit: bool(proofs.fewest_copies(shares, limit) > slots), halvings=40)


def _largest(low: float, high: float, shown: Callable[[float], bool], *, halvings: int = HALVINGS) -> float:
    """The largest load met between ``low`` and ``high`` that is ``shown`` to be impossible, else ``low``."""
    for _ in range(halvings):
        middle = (low + high) / 2
        if shown(middle):
            low = middle
        else:
            high = middle
    return low


def _by_partners(shares: FloatArray, slots: int, least: float, reached: float) -> float:
    """The largest load tried below ``reached`` that light partners for all heavy copies prove, else ``least``."""
    failed = 0.0
    for shortfall in SHORTFALLS:
        limit = reached * (1 - shortfall)
        if limit <= least:
            return least
        if _partners_lack(shares, slots, limit):
            above = reached * (1 - failed)
            closer = _largest(
                limit, above, lambda load: _partners_lack(shares, slots, load), halvings=3 if failed > 0 else 0
            )
            return closer * (1 - ROUNDING)
        failed = shortfall
    return least


def _partners_lack(shares: FloatArray, slots: int, limit: float) -> bool:
    program = partner_program(shares, slots, limit)
    return program is not None and solve_relaxation(program).bound > slots + MARGIN


def partner_program(shares: FloatArray, slots: int, limit: float) -> LinearModel | None:
    """Fewest slots with which two slots for each rank can stay at ``limit``; ``None`` without any heavy copy.

    ``x_o`` option (an expert with so many copies), ``y_i`` partners left over in row ``i`` (heavy copies from
    ``limit - d_i`` on, partners up to ``d_i``)::

        min  sum_o r_o x_o
        s.t. sum_{o of e} x_o = 1                                               for each expert e
             y_i = y_{i-1} + sum_{o helps from i} r_o x_o - sum_{o needs from i} r_o x_o
             x, y >= 0
    """
    most = slots - len(shares) + 1
    gaps = np.unique(proofs.heavy_gaps(shares, limit, most))
    if not len(gaps):
        return None
    if len(gaps) > ROWS:
        gaps = gaps[(np.arange(ROWS) * (len(gaps) - 1)) // (ROWS - 1)]
    expert, copies, need, helps = proofs.partner_options(shares, limit, most, gaps)
    options, experts, rows = len(expert), len(shares), len(gaps)
    needing, helping = np.flatnonzero(need < rows), np.flatnonzero(helps < rows)
    balance, every = experts + np.arange(rows), np.arange(options)
    left = options + np.arange(rows)
    triplets = [
        (expert, every, np.ones(options)),
        (experts + need[needing], needing, -1.0 * copies[needing]),
        (experts + helps[helping], helping, 1.0 * copies[helping]),
        (balance, left, -np.ones(rows)),
        (balance[1:], left[:-1], np.ones(rows - 1)),
    ]
    columns = options + rows
    sides = np.concatenate([np.ones(experts), np.zeros(rows)])
    return LinearModel(
        cost=np.concatenate([copies, np.zeros(rows)]).astype(np.float64),
        lower=np.zeros(columns),
        upper=np.full(columns, np.inf),
        integer=np.zeros(columns, dtype=np.bool_),
        row=np.concatenate([part[0] for part in triplets]),
        column=np.concatenate([part[1] for part in triplets]),
        value=np.concatenate([part[2] for part in triplets]),
        row_lower=sides,
        row_upper=sides,
    )
