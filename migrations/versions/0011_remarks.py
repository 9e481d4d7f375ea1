"""Warnings, reasons and remedies of stored plans and decisions: codes with figures in place of sentences."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

Document = dict[str, Any]
Change = Callable[[Any], Any]

_PLAN: Final = ("warnings", "remedies", "confidence.outside", "robustness.spread_from", "alternatives.reason")
"""Fields that hold a sentence or a list of them; on the way there lists are walked through."""


def upgrade() -> None:
    """Apply the change: a sentence of before is the figure of a remark; what was prepared is worked out again."""
    op.execute("DELETE FROM prepared_jobs")
    _rewrite(_plan_up, _job_up, _quarantine_up)


def downgrade() -> None:
    """Take the change back; remarks that never were sentences become their codes."""
    op.execute("DELETE FROM prepared_jobs")
    _rewrite(_plan_down, _job_down, _quarantine_down)


def _rewrite(plan: Change, job: Change, quarantine: Change) -> None:
    def decision(document: Document) -> None:
        _each("decision.jobs.plan", document, plan)
        _each("decision.jobs", document, job)
        _each("decision.quarantine", document, quarantine)

    def summary(document: Document) -> None:
        _each("jobs", document, job)

    _rewrite_column("plans", "result", plan, "kind = 'training'")
    _rewrite_column("running_plans", "plan", plan)
    _rewrite_column("replans", "safe", decision)
    _rewrite_column("replans", "decision", decision)
    _rewrite_column("replans", "summary", summary)


def _rewrite_column(table: str, column: str, change: Change, which: str = "1 = 1") -> None:
    rows, connection = sa.table(table, sa.column("id"), sa.column(column)), op.get_bind()
    every = connection.scalars(sa.select(rows.c.id).where(rows.c[column].is_not(None), sa.text(which))).all()
    for row in every:
        stored = connection.scalar(sa.select(rows.c[column]).where(rows.c.id == row))
        document = json.loads(stored or "null")
        if document:
            change(document)
            text = json.dumps(document, separators=(",", ":"))
            connection.execute(sa.update(rows).where(rows.c.id == row).values({column: text}))


def _each(path: str, document: Any, change: Change) -> None:
    """Hand every value at ``path`` to ``change``; lists on the way and at its end are walked through."""
    first, _, rest = path.partition(".")
    for part in document if isinstance(document, list) else [document]:
        found = part.get(first)
        if found is None:
            continue
        if rest:
            _each(rest, found, change)
        else:
            for each in found if isinstance(found, list) else [found]:
                change(each)


def _swap(path: str, document: Document, change: Change) -> None:
    """Put what ``change`` makes of every value at ``path`` in its place."""
    way, _, last = path.rpartition(".")

    def swap(part: Document) -> None:
        found = part.get(last)
        if found is not None:
            part[last] = [change(each) for each in found] if isinstance(found, list) else change(found)

    _each(way, document, swap) if way else swap(document)


def _remark(sentence: str) -> Document:
    return {"code": "text", "figures": {"text": sentence}}


def _sentence(remark: Document) -> str:
    figures: dict[str, Any] = remark["figures"]
    return str(figures["text"]) if remark["code"] == "text" else str(remark["code"])


def _plan_up(plan: Document) -> None:
    for path in _PLAN:
        _swap(path, plan, _remark)
    if "reason" in plan:
        plan["reasons"] = [_remark(plan.pop("reason"))]


def _plan_down(plan: Document) -> None:
    for path in _PLAN:
        _swap(path, plan, _sentence)
    for part, field in (("certificate", "explanation"), ("robustness", "summary")):
        if plan.get(part) is not None:
            plan[part][field] = ""
    if "reasons" in plan:
        plan["reason"] = " ".join(map(_sentence, plan.pop("reasons")))


def _job_up(job: Document) -> None:
    _swap("limited_by", job, _remark)
    for entry in (job, *job.get("considered", ())):
        entry["reasons"] = [_remark(entry.pop("reason"))]
    job["causes"] = []


def _job_down(job: Document) -> None:
    _swap("limited_by", job, _sentence)
    job["reasons"] = [*job.pop("causes"), *job["reasons"]]
    for entry in (job, *job.get("considered", ())):
        entry["reason"] = "; ".join(map(_sentence, entry.pop("reasons")))


def _quarantine_up(node: Document) -> None:
    del node["reason"]


def _quarantine_down(node: Document) -> None:
    node["reason"] = f"{node['node']} failed {node['failures']} times: keep it out until it is repaired"
