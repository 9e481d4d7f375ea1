"""``meshwright events`` and ``conditions`` on the service's database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from app.answers.events import (
    ConditionsAnswer,
    EventAnswer,
    ReceivedAnswer,
    ReliabilityAnswer,
)
from app.cli.clusters.stored import database, databases
from app.cli.endings import complain
from app.cli.failures.failure_options import ToldFailures, reported
from app.cli.failures.job_stored import stored_cluster
from app.cli.terminal import bullets, console, print_text, section
from app.db.engine import transaction
from app.presentation.decision_reasons import keep_out
from app.presentation.figures import duration, plural
from app.presentation.recovery import STATES, condition_notes, entity_words, event_notes, moment, source_words
from app.presentation.reliability import reliability_figures
from app.services.clusters import aliases
from app.services.decisions.reports import ReportAnswer
from app.services.decisions.safe_answers import answer_safely
from app.services.health import health_events, incoming_reports
from app.services.health.health_events import EventRecord
from app.services.health.reliability import measure_reliability
from cluster_models.errors import InvalidInput
from cluster_models.health.conditions import Condition
from cluster_models.health.events import HealthState

_COLOURS = {HealthState.FAILED: "red", HealthState.RECOVERED: "green"}


def run_report(cluster: str, told: ToldFailures, *, as_json: bool, database_url: str | None) -> None:
    """Store reports and do what follows; the safe answer of a decision they open is there when this returns."""
    if told.says_nothing:
        remedy = "give --lost, --degraded, --draining, --recovered or --events"
        raise InvalidInput("--lost", None, "nothing is reported", remedy)
    now = datetime.now(UTC)
    with databases(database_url) as sessions:
        with transaction(sessions) as session:
            stored = stored_cluster(session, cluster)
            table = aliases.read_aliases(session, cluster_id=stored.id)
            events = reported(told, stored.cluster, table)
            answer = incoming_reports.receive(session, reference=stored.id, reported=events, now=now)
        if answer.wants_safe_answer and answer.replan_id is not None:
            answer_safely(sessions, replan_id=answer.replan_id)
    for name in sorted({each.told_name for each in answer.events if not each.known}):
        complain(f"meshwright: {name!r} is not part of {stored.name}: kept, and it changes nothing")
    if as_json:
        print_text(ReceivedAnswer.make(answer).model_dump_json(indent=2))
    else:
        _tell(answer)


def _tell(answer: ReportAnswer) -> None:
    again = f", {answer.repeated} known already" if answer.repeated else ""
    told = f"{plural(len(answer.events), 'new report')}{again}."
    if answer.replan_id is None:
        console().print(f"{told} No job is touched: nothing to decide.")
        return
    console().print(f"{told} A decision is open: {answer.replan_id}")
    console().print(f"Look at it: meshwright replans show {answer.replan_id}")


def run_events(
    cluster: str, *, unknown: bool, device: str | None, most: int, as_json: bool, database_url: str | None
) -> None:
    """Print the newest reports on a cluster."""
    with database(database_url) as session:
        page = health_events.list_events(
            session,
            reference=stored_cluster(session, cluster).id,
            limit=most,
            known=False if unknown else None,
            device=device,
        )
    if as_json:
        print_text(
            json.dumps([EventAnswer.from_value(each).model_dump(mode="json") for each in page.items], indent=2)
        )
    elif not page.items:
        console().print("No reports.")
    else:
        console().print(_events(page.items))


def run_conditions(cluster: str, *, as_json: bool, database_url: str | None) -> None:
    """Print what is not well on a cluster."""
    now = datetime.now(UTC)
    with database(database_url) as session:
        stored = stored_cluster(session, cluster)
        found = health_events.conditions_now(session, reference=stored.id, now=now)
        out = health_events.quarantine_now(session, reference=stored.id, now=now)
    if as_json:
        print_text(ConditionsAnswer.make(found, out).model_dump_json(indent=2))
        return
    if not found:
        console().print(f"{stored.name}: every part that was reported on is well.")
    else:
        console().print(_conditions(found, now))
    if out:
        console().print(section("Keep out", bullets(map(keep_out, out))))


def run_reliability(cluster: str, *, as_json: bool, database_url: str | None) -> None:
    """Print how often parts of a cluster failed."""
    with database(database_url) as session:
        stored = stored_cluster(session, cluster)
        found = measure_reliability(session, reference=stored.id)
    if as_json:
        print_text(ReliabilityAnswer.from_value(found).model_dump_json(indent=2))
        return
    console().print(Text(stored.name, style="bold"))
    console().print(bullets(f"{name}: {value}" for name, value in reliability_figures(found)))


def _conditions(found: Sequence[Condition], now: datetime) -> RenderableType:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("part", "is", "for", "says", "notes"):
        table.add_column(name, overflow="fold")
    for each in found:
        table.add_row(
            Text(entity_words(each.entity)),
            Text(STATES[each.state], style=_COLOURS.get(each.state, "yellow")),
            Text(duration((now - each.since).total_seconds())),
            Text(source_words(each.source)),
            Text(condition_notes(each, now)),
        )
    return table


def _events(found: Sequence[EventRecord]) -> RenderableType:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("happened", "part", "is", "says", "notes"):
        table.add_column(name, overflow="fold")
    for each in found:
        event = each.event
        notes = (event_notes(each), "" if each.known else f"unknown name {each.told_name}")
        table.add_row(
            Text(moment(event.occurred_at)),
            Text(entity_words(event.entity)),
            Text(STATES[event.state], style=_COLOURS.get(event.state, "yellow")),
            Text(source_words(event.source)),
            Text("; ".join(note for note in notes if note)),
        )
    return table
