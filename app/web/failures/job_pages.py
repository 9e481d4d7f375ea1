"""Pages of jobs: run a plan as one, look at one, change what a failure costs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from app.db.engine import transaction
from app.db.status import PlanKind
from app.documents.reading import problems_of
from app.resources import Service, service_of
from app.services.clusters import clusters
from app.services.decisions import replans
from app.services.errors import Conflict, NotFound
from app.services.pagination import MAX_LIMIT
from app.services.planning import plans, serving_plans
from app.services.planning.plans import PlanRecord
from app.services.running import running_jobs, running_plans
from app.services.running.plan_contents import AnyPlan, summary_of
from app.services.running.running_jobs import JobRecord
from app.services.running.running_plans import PlanSource, RunningPlanRecord
from app.web.error_pages import PageRoute
from app.web.failures import recovery_form
from app.web.failures.jobs import job_page
from app.web.forms import FormProblem, Typed, sent_words
from app.web.listing import plan_line
from app.web.origin import sent_form
from app.web.planning.choices import Options
from app.web.rendering import page
from cluster_models.errors import InvalidInput

_PLANS: Final = 50
_HOWS: Final = (
    ("applied", "it runs already"),
    ("approved", "it starts soon"),
    ("proposed", "not yet decided"),
)
_STEPS: Final = {
    "approve": running_plans.approve_plan,
    "apply": running_plans.apply_plan,
    "cancel": running_plans.cancel_plan,
}

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/plans/{plan_id}/run")
def run_plan(request: Request, plan_id: str, job: str = "") -> Response:
    """The form that makes a plan a job's."""
    with service_of(request).read_sessions() as session:
        record, cluster = _finished(session, plan_id), ""
        if any(each.name == record.cluster_name for each in _clusters(session)):
            cluster = record.cluster_name
        form = recovery_form.form_of(record.kind)
        values = recovery_form.filled(form, name=job or record.model_name.rpartition("/")[2])
        return _run_form(request, session, record, values | {"cluster": cluster, "how": "approved"}, ())


@router.post("/plans/{plan_id}/run")
def register(request: Request, plan_id: str, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """Make the plan that of a new job, or of one that is there already."""
    service = service_of(request)
    with service.read_sessions() as session:
        form = recovery_form.form_of(_finished(session, plan_id).kind)
    values = sent_words(data, recovery_form.filled(form) | {"cluster": "", "how": "approved"})
    found: list[FormProblem] = []
    name = recovery_form.name_of(values, found)
    worth = recovery_form.worth_of(form, values, found)
    if not values["cluster"]:
        found.append(FormProblem("cluster", "Cluster", "is missing; choose the cluster that the job runs on"))
    status = 422
    if not found:
        try:
            with transaction(service.sessions) as session:
                source = PlanSource(plan_id=plan_id)
                known = _known(session, values["cluster"], name)
                if known:
                    made = running_plans.propose_plan(session, reference=values["cluster"], job=name, source=source)
                else:
                    job = running_jobs.register_job(
                        session,
                        reference=values["cluster"],
                        name=name,
                        source=source,
                        weight=worth.weight,
                        recovery=worth.recovery,
                        replica_start=worth.replica_start,
                    )
                    listed = running_plans.list_running_plans(
                        session, reference=values["cluster"], job=job.id, limit=1
                    )
                    made = listed.items[0]
                _go_on(session, made, values["how"])
        except InvalidInput as error:
            found = [FormProblem("cluster", "Cluster", str(each)) for each in problems_of(error)]
        except Conflict as error:
            found, status = [FormProblem("how", "How far it is", str(error))], 409
        else:
            return RedirectResponse(job_address(values["cluster"], name), 303)
    with service.read_sessions() as session:
        return _run_form(request, session, _finished(session, plan_id), values, found, status)


@router.get("/clusters/{name:path}/jobs/{job}")
def job_of_cluster(request: Request, name: str, job: str) -> Response:
    """One job: what to do with it, its plans, and the form of its policy."""
    service = service_of(request)
    with service.read_sessions() as session:
        record = running_jobs.get_job(session, reference=name, job=job)
    return _job(request, service, name, job, _kept(record), ())


@router.post("/clusters/{name:path}/jobs/{job}")
def change_job(request: Request, name: str, job: str, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """Take a step with one of its plans, change its policy, or forget it; a refusal comes back with the form."""
    service, found, status = service_of(request), list[FormProblem](), 422
    with service.read_sessions() as session:
        record = running_jobs.get_job(session, reference=name, job=job)
    values = _kept(record)
    step = str(data.get("do") or "")
    try:
        if step in _STEPS:
            with transaction(service.sessions) as session:
                _STEPS[step](session, running_plan_id=str(data.get("plan") or ""))
        elif step == "forget":
            with transaction(service.sessions) as session:
                running_jobs.delete_job(session, reference=name, job=job)
            return RedirectResponse(f"/clusters/{quote(name, safe='')}", 303)
        else:
            values = sent_words(data, values) | {"name": record.name}
            worth = recovery_form.worth_of(recovery_form.form_of(record.kind), values, found, record.recovery)
            if not found:
                with transaction(service.sessions) as session:
                    running_jobs.change_job(
                        session,
                        reference=name,
                        job=job,
                        weight=worth.weight,
                        recovery=worth.recovery,
                        replica_start=worth.replica_start,
                    )
    except Conflict as error:
        found, status = [FormProblem("", "", str(error))], 409
    if found:
        return _job(request, service, name, job, values, found, status)
    return RedirectResponse(job_address(name, job), 303)


def job_address(cluster: str, job: str) -> str:
    """Where the page of a job is."""
    return f"/clusters/{quote(cluster, safe='')}/jobs/{quote(job, safe='')}"


def _go_on(session: Session, made: RunningPlanRecord, how: str) -> None:
    """Take the plan as far as was asked for."""
    if how in ("approved", "applied"):
        running_plans.approve_plan(session, running_plan_id=made.id)
    if how == "applied":
        running_plans.apply_plan(session, running_plan_id=made.id)


def _known(session: Session, reference: str, name: str) -> bool:
    """Whether the cluster has a job of that name."""
    try:
        running_jobs.get_job(session, reference=reference, job=name)
    except NotFound:
        clusters.find_cluster(session, reference=reference)
        return False
    return True


def _finished(session: Session, plan_id: str) -> PlanRecord:
    """The plan; raises ``NotReady`` where nothing can be run by it."""
    record = plans.get_plan(session, plan_id=plan_id)
    _content(session, record)
    return record


def _content(session: Session, record: PlanRecord) -> AnyPlan:
    if record.kind is PlanKind.SERVING:
        return serving_plans.get_finished_serving_plan(session, plan_id=record.id)
    return plans.get_finished_plan(session, plan_id=record.id)


def _kept(record: JobRecord) -> Typed:
    """The form of a job's weight and policy as they stand."""
    policy = record.recovery or record.replica_start
    form = recovery_form.form_of(record.kind)
    return recovery_form.filled(form, name=record.name, weight=record.weight, policy=policy)


def _clusters(session: Session) -> tuple[clusters.ClusterRecord, ...]:
    return clusters.list_clusters(session, limit=MAX_LIMIT).items


def _run_form(
    request: Request,
    session: Session,
    record: PlanRecord,
    values: Typed,
    found: Sequence[FormProblem],
    status: int = 200,
) -> Response:
    summary = summary_of(_content(session, record))
    form = recovery_form.form_of(record.kind)
    offers: Options = (("", "choose one"), *((each.name, each.name) for each in _clusters(session)))
    return page(
        request,
        "run_plan.html",
        status=status if found else 200,
        plan=plan_line(record),
        summary=summary,
        values=values,
        found=tuple(found),
        clusters=offers,
        hows=_HOWS,
        policy_form=form,
        more_open=recovery_form.policy_in_use(form, found),
    )


def _job(
    request: Request,
    service: Service,
    name: str,
    job: str,
    values: Typed,
    found: Sequence[FormProblem],
    status: int = 200,
) -> Response:
    with service.read_sessions() as session:
        record = running_jobs.get_job(session, reference=name, job=job)
        listed = running_plans.list_running_plans(session, reference=name, job=record.id, limit=_PLANS)
        open_replan = replans.open_replan_of(session, reference=record.cluster_id)
    form = recovery_form.form_of(record.kind)
    return page(
        request,
        "job.html",
        status=status,
        job=job_page(record, listed.items, open_replan),
        address=job_address(record.cluster_name, record.name),
        values=values,
        found=tuple(found),
        policy_form=form,
        more_open=recovery_form.policy_in_use(form, found),
    )
