"""``meshwright replans`` on the service's database."""

from __future__ import annotations

import getpass
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from sqlalchemy.orm import Session

from app.answers.replans import DecisionAnswer, ReplanAnswer, ReplanSummary
from app.cli.clusters.stored import database
from app.cli.failures.job_stored import stored_cluster
from app.cli.failures.replan_files import DecisionFiles, JobFiles
from app.cli.failures.replan_view import AskedView, decision_view
from app.cli.terminal import bullets, console, print_text, section
from app.db.status import OPEN_REPLANS, ReplanStatus
from app.documents.reading import close_name
from app.presentation.figures import duration
from app.presentation.recovery import moment
from app.presentation.replans import summary_words
from app.presentation.steps import step_words
from app.services.decisions import replan_views, replans
from app.services.decisions.replan_steps import Actor
from app.services.decisions.replan_views import AnswerView
from app.services.decisions.replans import Answer, ReplanRecord
from app.services.errors import NotFound
from app.services.health import health_events
from app.services.pagination import MAX_LIMIT
from cluster_models.errors import InvalidInput
from cluster_models.health.conditions import Condition

_SHORTEST_ID = 4
_NEXT = {
    ReplanStatus.PROPOSED: "Take its GPUs: meshwright replans approve {id}",
    ReplanStatus.APPROVED: "When the jobs run as decided: meshwright replans complete {id}",
    ReplanStatus.APPLYING: "When the jobs run as decided: meshwright replans complete {id}",
    ReplanStatus.FAILED: "GPUs of jobs not done went back to their holders. A new report opens a new decision.",
}


def run_list(
    cluster: str | None, *, status: str | None, most: int, as_json: bool, database_url: str | None
) -> None:
    """Print decisions, the newest first."""
    if status is not None and status not in tuple(ReplanStatus):
        raise InvalidInput("--status", status, "is not a status", close_name(status, list(ReplanStatus)))
    with database(database_url) as session:
        page = replans.list_replans(
            session,
            limit=most,
            reference=None if cluster is None else stored_cluster(session, cluster).id,
            status=None if status is None else ReplanStatus(status),
        )
    if as_json:
        told = [ReplanSummary.from_value(each).model_dump(mode="json") for each in page.items]
        print_text(json.dumps(told, indent=2))
    elif not page.items:
        console().print("No decisions.")
    else:
        console().print(_table(page.items))


def run_show(replan: str, *, safe: bool, as_json: bool, files: DecisionFiles, database_url: str | None) -> None:
    """Print a decision, and write its plans and launch files where asked."""
    files.check()
    answer = Answer.SAFE if safe else Answer.DECISION
    with database(database_url) as session:
        record = _found(session, replan)
        first = replan_views.view_answer(session, replan_id=record.id, answer=Answer.SAFE)
        best = replan_views.view_answer(session, replan_id=record.id, answer=Answer.DECISION)
        conditions = health_events.conditions_now(session, reference=record.cluster_id)
    shown = first if safe or best is None else best
    written: dict[str, JobFiles] = {}
    if shown is not None:
        written = files.write(shown.decision, lambda: DecisionAnswer.make(shown).model_dump_json(indent=2) + "\n")
    if as_json:
        decided = best if record.has_decision else None
        print_text(ReplanAnswer.make(record, first, decided).model_dump_json(indent=2))
        return
    out = console()
    out.print(Text(f"{record.id} on {record.cluster_name}: {record.status}", style="bold"))
    out.print(Text(_opened(record)))
    if record.steps:
        out.print(section("Steps", bullets(step_words(each) for each in record.steps)))
    if shown is None:
        out.print(Text(f"No {answer} answer is there yet."))
        return
    again = f"meshwright replans show {record.id}{' --safe' if safe else ''} --output DIR"
    out.print(decision_view(shown.decision, _asked(record, shown, conditions, again, written)), crop=False)
    if line := _next_line(record, shown):
        out.print(Text(f"\n{line}", style="green"), crop=False)


def run_approve(replan: str, *, safe: bool, by: str | None, as_json: bool, database_url: str | None) -> None:
    """Take the GPUs that an answer needs."""
    answer = Answer.SAFE if safe else Answer.DECISION
    _act(replan, partial(replans.approve_replan, answer=answer), by, as_json=as_json, database_url=database_url)


def run_start(replan: str, *, by: str | None, as_json: bool, database_url: str | None) -> None:
    """Note that it is being carried out."""
    _act(replan, replans.begin_applying, by, as_json=as_json, database_url=database_url)


def run_complete(replan: str, *, job: str | None, by: str | None, as_json: bool, database_url: str | None) -> None:
    """Note that one job, or all, run as decided."""
    step = replans.finish_applied if job is None else partial(replans.complete_job, job=job)
    _act(replan, step, by, as_json=as_json, database_url=database_url)


def run_fail(replan: str, *, problem: str, by: str | None, as_json: bool, database_url: str | None) -> None:
    """Note that it could not be carried out."""
    step = partial(replans.fail_replan, problem=_said(problem))
    _act(replan, step, by, as_json=as_json, database_url=database_url)


def run_cancel(replan: str, *, problem: str, by: str | None, as_json: bool, database_url: str | None) -> None:
    """Call it off."""
    step = partial(replans.cancel_replan, problem=_said(problem))
    _act(replan, step, by, as_json=as_json, database_url=database_url)


class _Step(Protocol):
    """A step with a stored decision."""

    def __call__(self, session: Session, *, replan_id: str, actor: Actor) -> ReplanRecord: ...


def _act(replan: str, step: _Step, by: str | None, *, as_json: bool, database_url: str | None) -> None:
    """Take a step, in the name given or that of whoever is logged in."""
    actor = Actor(getpass.getuser() if by is None else by)
    with database(database_url) as session:
        try:
            record = step(session, replan_id=_found(session, replan).id, actor=actor)
        except NotFound as error:
            raise InvalidInput("--job", None, str(error)) from error
    if as_json:
        print_text(ReplanSummary.from_value(record).model_dump_json(indent=2))
        return
    console().print(f"{record.id} on {record.cluster_name}: {record.status}")
    if record.remaining:
        console().print(Text(_remaining(record)))
    if (line := _NEXT.get(record.status)) and record.status is not ReplanStatus.PROPOSED:
        console().print(line.format(id=record.id))


def _said(problem: str) -> str:
    if not problem.strip():
        raise InvalidInput("--problem", problem, "says nothing", "say what happened in a sentence")
    return problem


def _found(session: Session, name: str) -> ReplanRecord:
    """The decision of that id or beginning of one, or the one open on the cluster of that name."""
    try:
        return replans.get_replan(session, replan_id=name)
    except NotFound:
        pass
    try:
        opened = replans.open_replan_of(session, reference=name)
    except NotFound:
        return _begins_with(session, name)
    if opened is None:
        remedy = f"earlier ones: meshwright replans list {name}"
        raise InvalidInput("REPLAN", name, "is a cluster without an open decision", remedy)
    return opened


def _begins_with(session: Session, name: str) -> ReplanRecord:
    newest = replans.list_replans(session, limit=MAX_LIMIT).items
    found = [each for each in newest if len(name) >= _SHORTEST_ID and each.id.startswith(name)]
    if len(found) == 1:
        return found[0]
    problem = "begins several ids" if found else "is neither the id of a decision nor a stored cluster"
    raise InvalidInput("REPLAN", name, problem, "list them: meshwright replans list")


def _asked(
    record: ReplanRecord,
    view: AnswerView,
    conditions: Sequence[Condition],
    writes_with: str,
    written: Mapping[str, JobFiles],
) -> AskedView:
    return AskedView(
        names=view.untouched,
        before=view.before,
        served=view.served,
        conditions=conditions,
        written=written,
        writes_with=writes_with,
        is_stored=True,
        is_over=not record.is_open,
    )


def _remaining(record: ReplanRecord) -> str:
    return f"Still to be carried out: {', '.join(record.remaining)} (one alone: complete --job NAME)"


def _opened(record: ReplanRecord) -> str:
    told = f"Opened {moment(record.created_at)}: {record.reason}"
    if record.status is ReplanStatus.COLLECTING:
        left_s = (record.window_ends_at - datetime.now(UTC)).total_seconds()
        when = f"in {duration(left_s)}" if left_s > 0 else "now, where a service or worker runs"
        told += f"\nReports that come until then join it; the search begins {when}."
    if record.superseded_by is not None:
        told += f"\nOvertaken by a later failure: meshwright replans show {record.superseded_by}"
    if record.error is not None:
        told += f"\n{record.error.problem}"
    if record.remaining:
        told += f"\n{_remaining(record)}"
    if record.causes_recovered:
        told += "\nAll that opened it is reported as well again: look before you approve."
    for reason in record.objections:
        told += f"\nLook first: {reason}"
    return told


def _next_line(record: ReplanRecord, shown: AnswerView) -> str:
    """Command to type next."""
    if record.status not in OPEN_REPLANS:
        return ""
    if shown.decision.fallback and record.status in (
        ReplanStatus.COLLECTING,
        ReplanStatus.SOLVING,
        ReplanStatus.PROPOSED,
    ):
        return f"Take its GPUs: meshwright replans approve {record.id} --safe"
    return _NEXT.get(record.status, "").format(id=record.id)


def _table(found: Sequence[ReplanRecord]) -> RenderableType:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("id", no_wrap=True)
    for name in ("cluster", "status", "opened", "jobs"):
        table.add_column(name, overflow="fold")
    for each in found:
        told = [] if each.summary is None else summary_words(each.summary, most=3)
        table.add_row(
            Text(each.id[:12]),
            Text(each.cluster_name),
            Text(each.status, style="yellow" if each.is_open else ""),
            Text(moment(each.created_at)),
            Text("; ".join(told)),
        )
    return table
