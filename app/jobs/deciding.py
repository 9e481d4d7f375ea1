"""One attempt at a decision on failures: run the child, follow it, write down what came out."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from app.db.replan_tables import ReplanRow
from app.jobs.child import ChildEnd, Ending, run_child
from app.jobs.child_progress import Following
from app.jobs.context import JobContext
from app.jobs.patience import for_owner, patiently
from app.replan_request import ReplanRequest
from app.services.decisions import replan_solves
from app.services.planning.solves import failure
from cluster_models.units import GIB

CRASHED: Final = "crashed"
"""Outcome of an attempt that is worth another one."""
GONE: Final = "gone"
PROPOSED: Final = "proposed"
REFUSED: Final = "refused"
STOPPED: Final = "stopped"

log = structlog.get_logger(__name__)


def attempt(context: JobContext, *, replan_id: str) -> str:
    """Decide a replan once and record the answer; returns the outcome as a word the engine stores."""
    context = for_owner(context, ReplanRow, replan_id)
    request = patiently(
        context, lambda session: replan_solves.begin_attempt(session, replan_id=replan_id, now=datetime.now(UTC))
    )
    if request is None:
        return GONE
    context.solving.add(replan_id)
    try:
        end = _run(context, replan_id, request)
    except OSError as broken:
        end = ChildEnd(Ending.CRASHED, None, -1, f"the solver could not be started: {broken}")
    finally:
        context.solving.discard(replan_id)
    outcome = _record(context, replan_id, end)
    context.metrics.replans.labels(outcome).inc()
    return outcome


def give_up(context: JobContext, *, replan_id: str, attempts: int) -> str:
    """Record that every attempt crashed; the safe answer is proposed where there is one."""
    context = for_owner(context, ReplanRow, replan_id)
    told = f"The deciding process ended without an answer {attempts} times."
    return _refuse(context, replan_id, failure(told, "The service's log has the last lines it wrote."))


def child_message(context: JobContext, request: ReplanRequest, **more: object) -> bytes:
    """Message that the child reads on its standard input."""
    memory = context.settings.solve_memory_gib
    limit = None if memory is None else int(memory * GIB)
    return json.dumps({**asdict(request), **more, "memory_limit_bytes": limit}).encode()


def _run(context: JobContext, replan_id: str, request: ReplanRequest) -> ChildEnd:
    settings = context.settings
    following = Following(
        context, lambda session, newest: replan_solves.save_progress(session, replan_id=replan_id, progress=newest)
    )
    return run_child(
        settings.replan_command,
        child_message(context, request, task="decide"),
        hard_limit_s=float(request.options["time_limit_s"]) + settings.overrun_s,
        scratch_root=settings.data_dir / "scratch",
        on_progress=following.keep,
        should_stop=following.should_stop,
    )


def _record(context: JobContext, replan_id: str, end: ChildEnd) -> str:
    if end.ending is Ending.STOPPED:
        return STOPPED
    if end.ending is Ending.OVERRAN:
        told = f"The solver was still running {context.settings.overrun_s:g} s after its time limit and was ended."
        return _refuse(context, replan_id, failure(told, "Give it more time, or a lower effort."))
    if end.answer is None:
        context.metrics.child_crashes.inc()
        log.warning("decision_crashed", replan_id=replan_id, exit_code=end.exit_code, stderr=end.stderr_tail)
        return CRASHED
    if end.answer.get("kind") == "decision":
        decision = end.answer["decision"]
        won = patiently(
            context, lambda session: replan_solves.finish(session, replan_id=replan_id, decision=decision)
        )
        log.info("replan_proposed" if won else "replan_answer_late", replan_id=replan_id)
        return PROPOSED if won else STOPPED
    error = end.answer.get("error")
    if not isinstance(error, dict):
        error = failure("The solver gave an answer that this service does not understand.")
    return _refuse(context, replan_id, error)


def _refuse(context: JobContext, replan_id: str, error: dict[str, Any]) -> str:
    patiently(context, lambda session: replan_solves.finish_without(session, replan_id=replan_id, error=error))
    log.warning("replan_without_answer", replan_id=replan_id, error=error)
    return REFUSED
