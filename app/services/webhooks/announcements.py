"""Announcements of failures and decisions to other programs, in the words and units of the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.replan_tables import ReplanRow
from app.db.tables import ClusterRow
from app.documents.remarks import RemarkDocument
from app.presentation.decision_reasons import reason_words
from app.serialization import load
from app.services.health.health_events import EventRecord
from app.services.webhooks import webhooks
from app.services.webhooks.webhooks import EventType
from cluster_models.remarks import Remark

_MOST_NAMES: Final = 50
"""Unknown names in one message."""


def tell_of_replan(
    session: Session, *, event_type: EventType, row: ReplanRow, more: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Announce what became of a replan, with the summary of its answer and what is said of this step."""
    data = _replan_data(row, _cluster_name(session, row.cluster_id))
    webhooks.announce(session, event_type=event_type, data={**data, **more})


def tell_of_unknown_names(session: Session, *, cluster_id: str, events: Iterable[EventRecord]) -> None:
    """Announce reports that name no part of their cluster, several in one message."""
    named = sorted(
        {(each.told_name, each.event.source, str(each.event.state)) for each in events if not each.known}
    )
    if not named:
        return
    data = {
        "cluster": _cluster_name(session, cluster_id),
        "count": len(named),
        "names": [{"name": name, "source": source, "state": state} for name, source, state in named[:_MOST_NAMES]],
        "remedy": "Store the name as an alias of a node, or fix it at the source.",
    }
    webhooks.announce(session, event_type=EventType.UNKNOWN_NAME, data=data)


def _replan_data(row: ReplanRow, cluster: str) -> dict[str, Any]:
    summary = row.summary
    return {
        "replan_id": row.id,
        "cluster": cluster,
        "status": row.status,
        "reason": row.reason,
        "address": f"/api/v1/replans/{row.id}",
        "problem": None if row.error is None else row.error["problem"],
        "superseded_by": row.superseded_by,
        "objections": [] if row.objections is None else row.objections["reasons"],
        "fallback": None if summary is None else summary["fallback"],
        "gap": None if summary is None else summary["gap"],
        "spares_used": [] if summary is None else summary["spares_used"],
        "spares_left": [] if summary is None else summary["spares_left"],
        "quarantine": [] if summary is None else summary["quarantine"],
        "jobs": [] if summary is None else [_job_data(job) for job in summary["jobs"]],
        "serving": [] if summary is None else [_serving_data(job) for job in summary.get("serving", [])],
    }


def _job_data(job: dict[str, Any]) -> dict[str, Any]:
    causes, reasons = (load(tuple[Remark, ...], job[name]) for name in ("causes", "reasons"))
    told = {
        name: [RemarkDocument.from_value(remark).model_dump(mode="json") for remark in remarks]
        for name, remarks in (("causes", causes), ("reasons", reasons))
    }
    return job | told | {"reason": reason_words(causes, reasons)}


def _serving_data(job: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in job.items() if name != "is_to_be_done"}


def _cluster_name(session: Session, cluster_id: str) -> str:
    return session.scalars(select(ClusterRow.name).where(ClusterRow.id == cluster_id)).one()
