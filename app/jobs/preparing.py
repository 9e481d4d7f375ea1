"""Works out in advance what to do with each job when any one of its nodes is lost, when nothing else is to do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import structlog

from app.db.tables import ClusterRow
from app.jobs.child import ChildEnd, Ending, run_child
from app.jobs.context import JobContext
from app.jobs.deciding import CRASHED, GONE, child_message
from app.jobs.patience import ServiceStopping, for_owner, patiently
from app.services.decisions import preparations

DONE: Final = "done"
STOPPED: Final = "stopped"
REFUSED: Final = "refused"
HARD_LIMIT_S: Final = 1800.0

log = structlog.get_logger(__name__)


def attempt(context: JobContext, *, cluster_id: str) -> str:
    """Prepare every running plan of a cluster that lacks it; returns the outcome as a word the engine stores."""
    context = for_owner(context, ClusterRow, cluster_id)
    asked = patiently(
        context, lambda session: preparations.begin(session, cluster_id=cluster_id, now=datetime.now(UTC))
    )
    if asked is None:
        return GONE

    def keep(message: dict[str, Any]) -> None:
        if "prepared" not in message:
            return
        patiently(
            context,
            lambda session: preparations.store(
                session, asked=asked, job_id=message["job_id"], document=message["prepared"]
            ),
        )

    settings = context.settings
    context.solving.add(cluster_id)
    try:
        end = run_child(
            settings.replan_command,
            child_message(context, asked.request, task="prepare", prepare=sorted(asked.generations)),
            hard_limit_s=HARD_LIMIT_S,
            scratch_root=settings.data_dir / "scratch",
            on_progress=keep,
            should_stop=lambda: _is_stopping(context),
        )
    except OSError as broken:
        end = ChildEnd(Ending.CRASHED, None, -1, f"the solver could not be started: {broken}")
    finally:
        context.solving.discard(cluster_id)
    return _outcome(cluster_id, end)


def _outcome(cluster_id: str, end: ChildEnd) -> str:
    if end.ending is Ending.STOPPED:
        return STOPPED
    if end.answer is not None and end.answer.get("kind") == "prepared_all":
        return DONE
    error = None if end.answer is None else end.answer.get("error")
    log.warning("preparation_failed", cluster_id=cluster_id, ending=end.ending, error=error, stderr=end.stderr_tail)
    return CRASHED if end.ending is Ending.CRASHED else REFUSED


def _is_stopping(context: JobContext) -> bool:
    if context.stopping.is_set():
        raise ServiceStopping
    return False
