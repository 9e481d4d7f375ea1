"""Rounds of local searches on one placement problem, each of twice the moves of the one before."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from solver.placement.local_search import Found, improve_placement, search_placement
from solver.placement.problem import PlacementProblem

FIRST_MOVES_PER_SLOT: Final = 500
"""Moves of the first round."""
MOVES_PER_PAIR: Final = 30
"""Moves of a search for each pair of slots, before a round has several: shorter ones do not settle."""
LARGE: Final = 128
"""Slots from which slow nodes are relocated with nodes near them."""
SEEDS_PER_ROUND: Final = 10_000


def search_round(
    problem: PlacementProblem, round_: int, *, seed: int, known: Sequence[Found], stopped: Callable[[], bool]
) -> Found:
    """The best after one round: searches that start anew, then as many moves from the best of all and ``known``.

    On large grids half of the latter relocate slow nodes of the best known first, and all as long as that helps.
    """
    starts, moves = new_searches(problem, round_)
    met, left = list(known), starts * moves
    if known and problem.slots >= LARGE:
        from solver.placement.relocation import relocate_slow_nodes, relocates  # noqa: PLC0415 - slow, seldom needed

        for share in (left // 2, left - left // 2):
            if not relocates(problem, share):
                break
            start, left = min(met, key=_order), left - share
            met.append(relocate_slow_nodes(problem, start, moves=share, seed=seed + starts + left, stopped=stopped))
            if _order(met[-1]) >= _order(start):
                break
    for index in range(starts):
        met.append(search_placement(problem, moves=moves, seed=seed + index, stopped=stopped))
        if stopped():
            break
    start = min(met, key=_order)
    return improve_placement(problem, start.assignment, moves=left, seed=seed + starts, stopped=stopped)


def _order(found: Found) -> tuple[int, float]:
    return found.violations, found.step_s


def new_searches(problem: PlacementProblem, round_: int) -> tuple[int, int]:
    """Searches of one round that start anew, and moves of each: half of what the round has.

    Half of the doubling goes into their number and half into their length: several short ones find more than a long
    one, as long as they are not too short.
    """
    half = FIRST_MOVES_PER_SLOT * problem.slots * 2.0**round_ / 2
    longest = max(half / math.sqrt(2.0**round_), MOVES_PER_PAIR * problem.slots**2)
    starts = max(1, round(half / longest))
    return starts, max(1, int(half / starts))


def moves_of_round(problem: PlacementProblem, round_: int) -> int:
    """Moves of all searches of a round."""
    starts, moves = new_searches(problem, round_)
    return 2 * starts * moves
