"""The durable workflows.  Their steps return single words: plans and decisions live in our own tables."""

from __future__ import annotations

from typing import Final

from dbos import DBOS

import app.jobs.sqlite_engine  # noqa: F401 - prepares every SQLite connection of the engine
from app.jobs import deciding, delivering, preparing, solving, sweeping
from app.jobs.context import JobContext
from app.jobs.names import JobKind
from app.tracing import job_span

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


@DBOS.workflow(name=JobKind.SOLVE.value)
def solve_plan(plan_id: str, trace: str = "") -> str:
    """Solve the plan; after a restart, attempts that ended are not repeated.

    ``trace``: that of the request; jobs of earlier versions have none.
    """
    for number in range(1, ATTEMPTS + 1):
        outcome = attempt_solve(plan_id, number, trace)
        if outcome != solving.CRASHED:
            return outcome
    return give_up(plan_id)


@DBOS.step(name="attempt_solve")
def attempt_solve(plan_id: str, number: int, trace: str) -> str:
    """One attempt; see ``solving.attempt``."""
    with job_span("solve", trace, {"meshwright.plan": plan_id, "meshwright.attempt": number}):
        return str(solving.attempt(_bound(), plan_id=plan_id, is_last=number == ATTEMPTS))


@DBOS.step(name="give_up")
def give_up(plan_id: str) -> str:
    """Record that every attempt crashed."""
    return str(solving.give_up(_bound(), plan_id=plan_id, attempts=ATTEMPTS))


@DBOS.workflow(name=JobKind.DECIDE.value)
def decide_replan(replan_id: str) -> str:
    """Decide on failures; after a restart, attempts that ended are not repeated."""
    for number in range(1, ATTEMPTS + 1):
        outcome = attempt_decision(replan_id, number)
        if outcome != deciding.CRASHED:
            return outcome
    return give_up_decision(replan_id)


@DBOS.step(name="attempt_decision")
def attempt_decision(replan_id: str, number: int) -> str:
    """One attempt; see ``deciding.attempt``."""
    with job_span("decide", "", {"meshwright.replan": replan_id, "meshwright.attempt": number}):
        return deciding.attempt(_bound(), replan_id=replan_id)


@DBOS.step(name="give_up_decision")
def give_up_decision(replan_id: str) -> str:
    """Record that every attempt crashed."""
    return deciding.give_up(_bound(), replan_id=replan_id, attempts=ATTEMPTS)


@DBOS.workflow(name=JobKind.PREPARE.value)
def prepare_jobs(cluster_id: str) -> str:
    """Prepare what is lacking on a cluster; what is ready is not made again."""
    for number in range(1, ATTEMPTS + 1):
        outcome = attempt_preparation(cluster_id, number)
        if outcome != deciding.CRASHED:
            return outcome
    return deciding.CRASHED


@DBOS.step(name="attempt_preparation")
def attempt_preparation(cluster_id: str, number: int) -> str:  # noqa: ARG001 - the number tells recorded steps apart
    """One attempt; see ``preparing.attempt``."""
    return preparing.attempt(_bound(), cluster_id=cluster_id)


@DBOS.workflow(name=JobKind.DELIVER.value)
def deliver_webhook(delivery_id: str, attempts: int) -> str:
    """One attempt to deliver a message after so many others; the next one is a job of its own."""
    return attempt_delivery(delivery_id, attempts)


@DBOS.step(name="attempt_delivery")
def attempt_delivery(delivery_id: str, attempts: int) -> str:
    """One attempt; see ``delivering.attempt``."""
    return delivering.attempt(_bound(), delivery_id=delivery_id, attempts=attempts)


@DBOS.workflow(name=JobKind.WHAT_IF.value)
def answer_supposed_failure(sweep_id: str, number: int) -> str:
    """Answer one failure of a sweep."""
    return attempt_what_if(sweep_id, number)


@DBOS.step(name="attempt_what_if")
def attempt_what_if(sweep_id: str, number: int) -> str:
    """One attempt; see ``sweeping.attempt``."""
    return sweeping.attempt(_bound(), sweep_id=sweep_id, number=number)
