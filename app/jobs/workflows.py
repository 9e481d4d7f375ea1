"""The durable workflow of a solve.  Its steps return single words: plans live in our own tables."""

from __future__ import annotations

from typing import Final

from dbos import DBOS

import app.jobs.sqlite_engine  # noqa: F401 - prepares every SQLite connection of the engine
from app.jobs import solving
from app.jobs.context import JobContext
from app.jobs.names import SOLVE_WORKFLOW

ATTEMPTS: Final = 3
"""A crashed child is tried twice more; "nothing fits" is an answer and is not tried again."""

_context: JobContext | None = None


def bind(context: JobContext | None) -> None:
    """Give the workflows their context; the engine is one per process, and so is this."""
    global _context  # noqa: PLW0603 - workflows are plain functions that the engine calls by name
    _context = context


def _bound() -> JobContext:
    assert _context is not None, "workflows run only between start and stop of the runtime"
    return _context


@DBOS.workflow(name=SOLVE_WORKFLOW)
def solve_plan(plan_id: str) -> str:
    """Solve the plan; after a restart, attempts that ended are not repeated."""
    for number in range(1, ATTEMPTS + 1):
        outcome = attempt_solve(plan_id, number)
        if outcome != solving.CRASHED:
            return outcome
    return give_up(plan_id)


@DBOS.step(name="attempt_solve")
def attempt_solve(plan_id: str, number: int) -> str:  # noqa: ARG001 - the number tells recorded steps apart
    """One attempt; see ``solving.attempt``."""
    return str(solving.attempt(_bound(), plan_id=plan_id))


@DBOS.step(name="give_up")
def give_up(plan_id: str) -> str:
    """Record that every attempt crashed."""
    return str(solving.give_up(_bound(), plan_id=plan_id, attempts=ATTEMPTS))
