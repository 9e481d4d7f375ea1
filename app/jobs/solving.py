"""One attempt at a plan: run the child, follow it, write down what came out."""

from __future__ import annotations

import json
import time
from typing import Any, Final

import structlog
from opentelemetry import trace

from app.db.status import PlanStatus
from app.jobs.child import ChildEnd, Ending, run_child
from app.jobs.child_progress import Following
from app.jobs.context import JobContext
from app.jobs.patience import patiently
from app.services.planning import solves
from app.services.planning.course import Course
from app.services.planning.solves import SolveRequest, failure
from app.tracing import Phases
from cluster_models.units import GIB

CRASHED: Final = "crashed"
"""Outcome of an attempt that is worth another one; every other outcome is a ``PlanStatus`` or ``gone``."""
GONE: Final = "gone"

log = structlog.get_logger(__name__)


def attempt(context: JobContext, *, plan_id: str, is_last: bool = True) -> str:
    """Solve a plan once and record its end; returns the outcome as a word the engine stores.

    A child that crashes, as one killed for memory or by hand, leaves the plan to the next attempt, which may find
    more; the last one's draft is the answer, better than none.
    """
    request = patiently(context, lambda session: solves.begin_attempt(session, plan_id=plan_id))
    if request is None:
        return GONE
    with structlog.contextvars.bound_contextvars(plan_id=plan_id, tenant=request.tenant_id):
        return _attempt(context, plan_id, request, is_last=is_last)


def _attempt(context: JobContext, plan_id: str, request: SolveRequest, *, is_last: bool) -> str:
    backend, span = str(request.options.get("backend", "unknown")), trace.get_current_span()
    span.set_attributes({"meshwright.kind": request.kind, "meshwright.tenant": request.tenant_id})
    if request.waited_s is not None:
        context.metrics.queue_seconds.observe(request.waited_s)
        span.set_attribute("meshwright.waited_s", request.waited_s)
    started = time.monotonic()
    context.solving.add(plan_id)
    try:
        end = _run(context, plan_id, request)
    except OSError as broken:
        end = ChildEnd(Ending.CRASHED, None, -1, f"the solver could not be started: {broken}")
    finally:
        context.solving.discard(plan_id)
    outcome = _record(context, plan_id, request, end, is_last=is_last)
    span.set_attribute("meshwright.outcome", outcome)
    context.metrics.solve_seconds.labels(backend, outcome).observe(time.monotonic() - started)
    return outcome


def give_up(context: JobContext, *, plan_id: str, attempts: int) -> str:
    """Record that every attempt crashed."""
    error = failure(
        f"The solving process ended without an answer {attempts} times.",
        "The service's log has the last lines it wrote; a lower effort or fewer GPUs need less memory.",
    )
    _finish(context, plan_id, PlanStatus.FAILED, error=error)
    return PlanStatus.FAILED


def _run(context: JobContext, plan_id: str, request: SolveRequest) -> ChildEnd:
    settings = context.settings
    following = Following(
        context,
        lambda session, newest: solves.save_progress(session, plan_id=plan_id, progress=newest),
        lambda session: solves.is_enough(session, plan_id=plan_id),
    )
    memory, course = settings.solve_memory_gib, Course()
    message = {
        "snapshot": request.snapshot,
        **request.problem,
        "options": request.options,
        "memory_limit_bytes": None if memory is None else int(memory * GIB),
    }
    time_limit_s = float(request.options.get("time_limit_s", settings.default_time_limit_s))
    with Phases("preparing") as phases:

        def on_progress(newest: dict[str, Any]) -> None:
            phases.enter(str(newest.get("phase", "searching")))
            following.keep(course.after(newest))

        end = run_child(
            settings.solve_command,
            json.dumps(message).encode(),
            hard_limit_s=time_limit_s + settings.overrun_s,
            scratch_root=settings.data_dir / "scratch",
            on_progress=on_progress,
            should_stop=following.should_stop,
            is_enough=following.is_enough,
        )
    following.write_rest()
    return end


def _record(context: JobContext, plan_id: str, request: SolveRequest, end: ChildEnd, *, is_last: bool) -> str:
    if end.ending is Ending.STOPPED:
        return PlanStatus.CANCELLED
    if end.ending is Ending.OVERRAN and end.answer is None:
        overrun = context.settings.overrun_s
        error = failure(
            f"The solver was still running {overrun:g} s after its time limit and was ended.",
            "Give it more time, or a lower effort.",
        )
        return _finish(context, plan_id, PlanStatus.FAILED, error=error)
    if end.ending is Ending.CRASHED:
        context.metrics.child_crashes.inc()
        log.warning("solve_crashed", exit_code=end.exit_code, stderr=end.stderr_tail)
    if end.answer is None or (end.ending is Ending.CRASHED and not is_last):
        return CRASHED
    return _record_answer(context, plan_id, request, end.answer)


def _record_answer(context: JobContext, plan_id: str, request: SolveRequest, answer: dict[str, Any]) -> str:
    kind = answer.get("kind")
    if kind == "plan":
        backend = str(request.options.get("backend", "unknown"))
        if (gap := answer["plan"].get("certificate", {}).get("gap")) is not None:
            context.metrics.gap_at_stop.labels(backend).observe(gap)
            trace.get_current_span().set_attribute("meshwright.gap", gap)
        return _finish(context, plan_id, PlanStatus.SUCCEEDED, result=answer["plan"])
    if kind == "no_plan":
        return _finish(context, plan_id, PlanStatus.INFEASIBLE, result=answer["no_plan"])
    error = answer.get("error")
    if not isinstance(error, dict):
        error = failure("The solver gave an answer that this service does not understand.")
    return _finish(context, plan_id, PlanStatus.FAILED, error=error)


def _finish(
    context: JobContext,
    plan_id: str,
    status: PlanStatus,
    *,
    result: dict[str, Any] | None = None,
    error: dict[str, Any] | None = None,
) -> str:
    won = patiently(
        context,
        lambda session: solves.finish(session, plan_id=plan_id, status=status, result=result, error=error),
    )
    if won:
        context.metrics.solves.labels(status).inc()
        log.info("plan_ended", plan_id=plan_id, status=str(status), error=error)
    return status
