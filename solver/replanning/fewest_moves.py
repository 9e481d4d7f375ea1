"""The choice that moves fewest ranks among those worth the same: a second integer program after the first.

Letters as in ``program``; m[o] ranks that move, l[o] what the job loses by o against the choice made, S the slack:

    min  sum_o (m[o] + l[o] / 2 S) x[o]   s.t.   sum_o l[o] x[o] <= S, and the rows of ``program``

over options with l[o] at most ``WORTH_MOVING`` of what the job's choice is worth.  No choice is worth more than
the first, so the second term is between 0 and half a rank: it picks the best among those that move as few.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from solver.problem import Backend
from solver.replanning.problem import RecoveryOption
from solver.replanning.program import Limits, chosen_of, ordered, program_of, solved
from solver.replanning.values import WORTH_MOVING


def with_fewest_moves(
    options: Iterable[RecoveryOption],
    limits: Limits,
    chosen: Mapping[str, RecoveryOption],
    *,
    slack_flop: float,
    backend: Backend = Backend.CBC,
    time_limit_s: float = 10.0,
    effort: int = 1,
) -> Mapping[str, RecoveryOption]:
    """The choice that moves fewest ranks of those that are worth the same as ``chosen``, the best of them.

    Worth the same is what loses each job no more than ``WORTH_MOVING`` of its worth and all of them together no
    more than ``slack_flop``, which is positive.
    """
    most = sum(len(option.migration.moved) for option in chosen.values())
    if not most:
        return chosen
    own = {job_id: option.value_flop for job_id, option in chosen.items()}
    same = [made for made in options if own[made.job_id] - made.value_flop <= WORTH_MOVING * abs(own[made.job_id])]
    alike = ordered((*same, *chosen.values()))
    losses = [(own[option.job_id] - option.value_flop) / slack_flop for option in alike]
    moves = [len(option.migration.moved) for option in alike]
    costs = [(moved + loss / 2) / most for moved, loss in zip(moves, losses, strict=True)]
    program = program_of(costs, alike, (), limits, losses=losses)
    found = chosen_of(program, solved(program, backend, time_limit_s, effort, 0.0))
    if found is None:
        return chosen
    lost = math.fsum(own[job_id] - option.value_flop for job_id, option in found.items())
    fewer = sum(len(option.migration.moved) for option in found.values()) < most
    return found if fewer and lost <= slack_flop else chosen
