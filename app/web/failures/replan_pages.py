"""Pages of decisions on failures: what to do now, the answer, launch files, and what would be done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Final
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from app.actors import actor_of
from app.db.engine import transaction
from app.exports.contract import Export, Files, View
from app.exports.options import options_of
from app.exports.packing import packed
from app.exports.registry import EXPORTS
from app.exports.serving.contract import ServingExport
from app.exports.serving.registry import SERVING_EXPORTS
from app.presentation.free_nodes import free_nodes_change, free_nodes_sentence
from app.presentation.steps import step_words
from app.resources import Service, service_of
from app.services.decisions import free_nodes, replan_views, replans, reports
from app.services.decisions.replan_steps import LONGEST_ACTOR, Actor
from app.services.decisions.replans import Answer, ReplanRecord
from app.services.errors import Conflict, NotFound
from app.services.health import health_events
from app.services.pagination import MAX_LIMIT
from app.web.error_pages import PageRoute
from app.web.failures.decision import DecisionView, decision_view
from app.web.failures.health import event_rows
from app.web.failures.replan import mark, moments, next_step, replan_line, waiting
from app.web.forms import FormProblem
from app.web.origin import sent_form
from app.web.planning.exports import given_options, option_fields
from app.web.rendering import page
from cluster_models.serving.plan import ServingPlan

_PAGE: Final = 50
_LONGEST_REASON: Final = 1000

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/replans")
def replan_list(request: Request, cursor: str | None = None) -> Response:
    """Decisions on failures of all clusters, newest first."""
    with service_of(request).read_sessions() as session:
        found = replans.list_replans(session, limit=_PAGE, cursor=cursor)
    return page(
        request,
        "replans.html",
        replans=[replan_line(each) for each in found.items],
        next_page=found.next_cursor and f"/replans?cursor={found.next_cursor}",
    )


@router.get("/replans/{replan_id}")
def replan(request: Request, replan_id: str) -> Response:
    """A decision: the one thing to do next on top, then what becomes of every job."""
    return _replan(request, replan_id, ())


@router.get("/replans/{replan_id}/progress")
def replan_progress(request: Request, replan_id: str, seen: str = "") -> Response:
    """The part of the page that changes by itself; tells when the rest has changed since it was ``seen``."""
    with service_of(request).read_sessions() as session:
        record = replans.get_replan(session, replan_id=replan_id)
    changed = {} if mark(record) == seen else {"Plan-Finished": "yes"}
    return page(
        request,
        "replan_progress.html",
        headers=changed,
        line=replan_line(record),
        mark=mark(record),
        waiting=waiting(record, datetime.now(UTC)),
    )


@router.get("/replans/{replan_id}/free-nodes")
def with_free_nodes(request: Request, replan_id: str) -> Response:
    """Decision as it would be with the free nodes as spares, with the button that makes them so."""
    service = service_of(request)
    answer = free_nodes.answer_with_free_nodes(service.sessions, replan_id=replan_id, now=datetime.now(UTC))
    with service.read_sessions() as session:
        record = replans.get_replan(session, replan_id=replan_id)
        cluster = replan_views.cluster_of(session, replan=record, now=datetime.now(UTC))
        made = replan_views.view_of(session, answer.decision, answer.base)
        view = decision_view(replace(made, cluster=cluster))
        shown = _shown_answer(record)
        kept = None if shown is None else replan_views.view_answer(session, replan_id=replan_id, answer=shown)
    return page(
        request,
        "free_nodes.html",
        change=free_nodes_change(answer.decision, None if kept is None else kept.decision),
        line=replan_line(record),
        nodes=answer.nodes,
        address=f"/replans/{record.id}",
        view=view,
    )


@router.post("/replans/{replan_id}")
def change_replan(request: Request, replan_id: str, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """Approve, begin, end or call off a decision, or ask for a new one."""
    step, _, job = str(data.get("do") or "").partition(":")
    act = _ACTS.get(step)
    if act is None:
        problem = FormProblem("", "", "The form does not say what is to be done; use one of its buttons.")
        return _replan(request, replan_id, (problem,), 422)
    try:
        asked = _Asked(
            replan_id=replan_id,
            problem=str(data.get("problem") or "").strip()[:_LONGEST_REASON],
            job=job,
            actor=actor_of(request, str(data.get("actor") or "")[:LONGEST_ACTOR]),
        )
        after = act(service_of(request), asked)
    except Conflict as error:
        return _replan(request, replan_id, (FormProblem("", "", str(error)),), 409)
    return RedirectResponse(f"/replans/{after}", 303)


@router.get("/replans/{replan_id}/files/{job}/{file_format}")
def launch_file(
    request: Request, replan_id: str, job: str, file_format: str, answer: Answer = Answer.DECISION
) -> Response:
    """A file that starts a job as decided."""
    with service_of(request).read_sessions() as session:
        plan = replan_views.decided_plan(session, replan_id=replan_id, job=job, answer=answer)
    options = options_of(given_options(request.query_params))
    if isinstance(plan, ServingPlan):
        serving = SERVING_EXPORTS.get(file_format)
        if serving is None:
            raise NotFound("export format of a serving plan", file_format)
        return _download(serving, serving.files(plan, options))
    export = EXPORTS.get(file_format)
    if export is None:
        raise NotFound("export format", file_format)
    return _download(export, export.files(plan, options))


def _download(export: Export | View | ServingExport, files: Files) -> Response:
    disposition = f'attachment; filename="{export.file_name}"'
    content = packed(export, files)
    return Response(content, media_type=export.media_type, headers={"Content-Disposition": disposition})


@dataclass(frozen=True, slots=True)
class _Asked:
    """Request of a form of the page."""

    replan_id: str
    problem: str
    job: str
    actor: Actor


def _step(
    step: Callable[..., ReplanRecord], *, problem: str | None = None, of_job: bool = False, **more: object
) -> Callable[[Service, _Asked], str]:
    """A button that takes a step: ``problem`` is what is told where nobody typed why."""

    def act(service: Service, asked: _Asked) -> str:
        given = dict(more) if problem is None else {"problem": asked.problem or problem}
        if of_job:
            given["job"] = asked.job
        with transaction(service.sessions) as session:
            return step(session, replan_id=asked.replan_id, actor=asked.actor, **given).id

    return act


def _again(service: Service, asked: _Asked) -> str:
    with transaction(service.sessions) as session:
        cluster_id = replans.get_replan(session, replan_id=asked.replan_id).cluster_id
        fresh = reports.request_replan(session, reference=cluster_id, reason="It was asked for again by hand.")
    service.answer_failures(fresh)
    return fresh


def _use_free_nodes(service: Service, asked: _Asked) -> str:
    with transaction(service.sessions) as session:
        fresh = free_nodes.use_free_nodes(session, replan_id=asked.replan_id, now=datetime.now(UTC))
    service.answer_failures(fresh)
    return fresh


_ACTS: Final[Mapping[str, Callable[[Service, _Asked], str]]] = {
    "approve": _step(replans.approve_replan),
    "approve_safe": _step(replans.approve_replan, answer=Answer.SAFE),
    "start": _step(replans.begin_applying),
    "job_done": _step(replans.complete_job, of_job=True),
    "applied": _step(replans.finish_applied),
    "failed": _step(replans.fail_replan, problem="It could not be carried out."),
    "cancel": _step(replans.cancel_replan, problem="It was called off."),
    "again": _again,
    "use_free": _use_free_nodes,
}


def _replan(request: Request, replan_id: str, found: tuple[FormProblem, ...], status: int = 200) -> Response:
    now = datetime.now(UTC)
    with service_of(request).read_sessions() as session:
        record = replans.get_replan(session, replan_id=replan_id)
        shown = _shown_answer(record)
        free = free_nodes.free_nodes(session, replan=record, now=now)
        view = None if shown is None else _view(session, record, shown, now, request.query_params.get("card", ""))
        events = health_events.list_events(
            session, reference=record.cluster_id, limit=MAX_LIMIT, replan_id=record.id
        )
    given = given_options(request.query_params)
    return page(
        request,
        "replan.html",
        status=status,
        line=replan_line(record),
        address=f"/replans/{record.id}",
        cluster_address=f"/clusters/{quote(record.cluster_name, safe='')}",
        next=next_step(record, shown),
        actor=actor_of(request),
        remaining=frozenset(record.remaining),
        steps=[step_words(each) for each in record.steps],
        waiting=waiting(record, now),
        watched=record.is_open,
        mark=mark(record),
        superseded_by=record.superseded_by,
        is_safe=shown is Answer.SAFE,
        free_nodes=free_nodes_sentence(free),
        view=view,
        events=event_rows(sorted(events.items, key=lambda each: each.event.occurred_at)),
        moments=moments(record),
        options=option_fields(given),
        options_open=bool(given),
        query=urlencode({**given, "answer": shown.value}) if shown else "",
        found=found,
    )


def _shown_answer(record: ReplanRecord) -> Answer | None:
    """The answer to show: the one approved, else the best there is."""
    if record.chosen is not None:
        return record.chosen if record.chosen is Answer.SAFE or record.has_decision else Answer.SAFE
    if record.has_decision:
        return Answer.DECISION
    return Answer.SAFE if record.has_safe_answer else None


def _view(session: Session, record: ReplanRecord, answer: Answer, now: datetime, first: str) -> DecisionView | None:
    kept = replan_views.view_answer(session, replan_id=record.id, answer=answer)
    if kept is None:
        return None
    is_safe = answer is Answer.SAFE or not record.has_safe_answer
    safe = None if is_safe else replan_views.view_answer(session, replan_id=record.id, answer=Answer.SAFE)
    cluster = replan_views.cluster_of(session, replan=record, now=now)
    then = replace(kept, cluster=cluster)
    return decision_view(then, safe=None if safe is None else safe.decision, first=first)
