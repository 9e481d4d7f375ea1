"""Jobs that run on a cluster: register them with the plan they run by, change what they are worth, forget them."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from sqlalchemy.orm import Session

from app.answers.running_jobs import JobAnswer, RunningPlanSummaryAnswer
from app.api.v1.answers import PageAnswer, address, page_answer
from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import (
    ClusterPath,
    Cursor,
    ExpectedTag,
    IdempotencyKey,
    JobPath,
    Limit,
    ServiceDep,
    content_tag,
    tagged,
)
from app.db.engine import transaction
from app.documents.running_jobs import JobDocument, JobPatch, RunningPlanDocument
from app.services import idempotency
from app.services.clusters import clusters
from app.services.field_paths import errors_under
from app.services.planning import given_plans
from app.services.preconditions import ExpectedTags, check_tag
from app.services.running import running_jobs, running_plans
from app.services.running.running_jobs import JobRecord
from app.services.running.running_plans import RunningPlanRecord

router = APIRouter(tags=["jobs"], route_class=BodyRoute)


@router.post("/clusters/{cluster}/jobs", status_code=201)
def create_job(
    cluster: ClusterPath,
    document: JobDocument,
    service: ServiceDep,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> JobAnswer:
    """Register a job, or a deployment, with its plan: running by it already (it holds its GPUs), or proposed.

    409 where the name is taken, or another job holds one of the GPUs.
    """
    with errors_under("recovery"):
        recovery = None if document.recovery is None else document.recovery.to_value()
    with errors_under("replica_start"):
        replica_start = None if document.replica_start is None else document.replica_start.to_value()
    with errors_under("plan"):
        source = given_plans.source_of(document.plan)
    with transaction(service.sessions) as session:
        cluster_id = clusters.find_cluster(session, reference=cluster).id

        def make() -> str:
            registered = running_jobs.register_job(
                session,
                reference=cluster_id,
                name=document.name,
                source=source,
                weight=document.weight,
                recovery=recovery,
                replica_start=replica_start,
                applied=document.is_running,
            )
            return registered.id

        def find(job_id: str) -> JobRecord:
            return running_jobs.get_job(session, reference=cluster_id, job=job_id)

        keyed = idempotency.keyed("job", idempotency_key, cluster_id, document)
        record = find(idempotency.once(session, keyed, make=make, find=find))
    response.headers["Location"] = address("clusters", record.cluster_name, "jobs", record.name)
    return JobAnswer.from_value(record)


@router.get("/clusters/{cluster}/jobs")
def list_jobs(
    request: Request, cluster: ClusterPath, service: ServiceDep, limit: Limit = 50, cursor: Cursor = None
) -> PageAnswer[JobAnswer]:
    """The jobs of a cluster, by name."""
    with service.read_sessions() as session:
        page = running_jobs.list_jobs(session, reference=cluster, limit=limit, cursor=cursor)
    return page_answer(request, page, JobAnswer.from_value)


@router.get("/clusters/{cluster}/jobs/{job}")
def get_job(cluster: ClusterPath, job: JobPath, service: ServiceDep, response: Response) -> JobAnswer:
    """A job, and the plan it runs by; the ETag names this content."""
    with service.read_sessions() as session:
        answer = JobAnswer.from_value(running_jobs.get_job(session, reference=cluster, job=job))
    return tagged(response, answer)


@router.patch("/clusters/{cluster}/jobs/{job}")
def change_job(
    cluster: ClusterPath,
    job: JobPath,
    patch: JobPatch,
    service: ServiceDep,
    response: Response,
    expected: ExpectedTag,
) -> JobAnswer:
    """Change a job's weight or recovery policy.

    An open decision about it that is not approved is made anew (the one before is superseded) unless only the age
    of checkpoints changed; one that was approved keeps the old values.
    """
    with errors_under("recovery"):
        recovery = None if patch.recovery is None else patch.recovery.to_value()
    with errors_under("replica_start"):
        replica_start = None if patch.replica_start is None else patch.replica_start.to_value()
    with transaction(service.sessions) as session:
        _check_tag(session, cluster, job, expected)
        record = running_jobs.change_job(
            session,
            reference=cluster,
            job=job,
            weight=patch.weight,
            recovery=recovery,
            replica_start=replica_start,
        )
    answer = JobAnswer.from_value(record)
    return tagged(response, answer)


@router.delete("/clusters/{cluster}/jobs/{job}", status_code=204)
def delete_job(cluster: ClusterPath, job: JobPath, service: ServiceDep, expected: ExpectedTag) -> None:
    """Forget a job and free its GPUs.  409 while an approved plan or replan moves it."""
    with transaction(service.sessions) as session:
        _check_tag(session, cluster, job, expected)
        running_jobs.delete_job(session, reference=cluster, job=job)


def _check_tag(session: Session, cluster: str, job: str, expected: ExpectedTags) -> None:
    """Keep others from changing the jobs of a cluster, and compare one with what the caller has read of it."""
    clusters.lock(session, reference=cluster, expected_version=None)
    before = JobAnswer.from_value(running_jobs.get_job(session, reference=cluster, job=job))
    check_tag("job", before.name, expected=expected, current=content_tag(before))


@router.get("/clusters/{cluster}/jobs/{job}/running-plans")
def list_running_plans(
    request: Request,
    cluster: ClusterPath,
    job: JobPath,
    service: ServiceDep,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PageAnswer[RunningPlanSummaryAnswer]:
    """The plans of a job, newest first, without their content."""
    with service.read_sessions() as session:
        page = running_plans.list_running_plans(session, reference=cluster, job=job, limit=limit, cursor=cursor)
    return page_answer(request, page, RunningPlanSummaryAnswer.from_value)


@router.post("/clusters/{cluster}/jobs/{job}/running-plans", status_code=201)
def propose_running_plan(
    cluster: ClusterPath,
    job: JobPath,
    document: RunningPlanDocument,
    service: ServiceDep,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> RunningPlanSummaryAnswer:
    """Propose a plan for a job; it takes its GPUs when it is approved."""
    with errors_under("plan"):
        source = given_plans.source_of(document.plan)
    with transaction(service.sessions) as session:
        job_id = running_jobs.get_job(session, reference=cluster, job=job).id

        def make() -> str:
            return running_plans.propose_plan(session, reference=cluster, job=job_id, source=source).id

        def find(running_plan_id: str) -> RunningPlanRecord:
            return running_plans.get_running_plan(session, running_plan_id=running_plan_id)

        keyed = idempotency.keyed("running plan", idempotency_key, job_id, document)
        record = find(idempotency.once(session, keyed, make=make, find=find))
    response.headers["Location"] = address("running-plans", record.id)
    return RunningPlanSummaryAnswer.from_value(record)
