"""Of decisions that are worth about the same, the one that moves least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from solver.replanning.problem import RecoveryOption
from solver.replanning.program import Limits

GIVEN_UP: Final = 0.5
"""Share of the gap asked for that a job's worth may give up for fewer bytes."""


def spare_moves(
    options: Mapping[str, Sequence[RecoveryOption]],
    chosen: Mapping[str, RecoveryOption],
    limits: Limits,
    *,
    gap: float,
    floor_flop: float,
) -> dict[str, RecoveryOption]:
    """``chosen`` with those of ``options`` that move fewer bytes for jobs that lose next to nothing by it.

    Both by job id.  A job gives up at most ``GIVEN_UP`` of ``gap`` of its worth, and all together stay above
    ``floor_flop``; every GPU still goes to one job.
    """
    made = dict(chosen)
    for job_id, known in options.items():
        now = made[job_id]
        held = {gpu for other, option in made.items() if other != job_id for gpu in option.holds}
        room = None if limits.gpu_budget is None else limits.gpu_budget - len(held)
        spare = sum(option.value_flop for option in made.values()) - floor_flop
        allowed = min(GIVEN_UP * gap * abs(now.value_flop), spare)
        possible = [
            option
            for option in known
            if now.value_flop - option.value_flop <= allowed
            and held.isdisjoint(option.holds)
            and (room is None or len(option.holds) <= room)
        ]
        made[job_id] = min(possible, key=_least, default=now) if allowed > 0 else now
    return made


def _least(option: RecoveryOption) -> tuple[float, float]:
    return option.migration.bytes.total, -option.value_flop
