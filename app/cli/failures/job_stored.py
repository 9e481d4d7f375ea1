"""``meshwright jobs`` on the service's database."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from sqlalchemy.orm import Session

from app.answers.occupancy import SparesAnswer
from app.answers.running_jobs import JobAnswer
from app.cli.clusters.stored import database
from app.cli.failures.failure_options import as_option
from app.cli.failures.replan_options import check_plan_fits, read_recovery, read_running_plan
from app.cli.failures.serving_jobs import check_serving_fits, read_policy, read_serving_plan
from app.cli.files import is_path
from app.cli.terminal import console, pairs, print_text, section
from app.db.status import JobStanding, PlanKind
from app.presentation.figures import count, plural, spans
from app.presentation.job_policies import policy_facts
from app.presentation.recovery import STATES, entity_words, moment, rate_words
from app.presentation.serving_plan import decision
from app.services.clusters.clusters import StoredCluster, get_cluster
from app.services.errors import NotFound
from app.services.pagination import MAX_LIMIT
from app.services.running import occupancy, running_jobs, running_plans
from app.services.running.plan_contents import AnyPlan
from app.services.running.running_jobs import JobRecord
from app.services.running.running_plans import PlanSource, RunningPlanRecord
from cluster_models.errors import InvalidInput
from cluster_models.training.plan import Plan
from cluster_models.wording import joined

_MOST_PLANS = 10


@dataclass(frozen=True, slots=True)
class AddedJob:
    """The options of ``jobs add`` as typed."""

    cluster: str
    name: str
    plan: str
    weight: float
    recovery: str | None
    runs: bool


def run_add(added: AddedJob, *, as_json: bool, database_url: str | None) -> None:
    """Store a job, running by its plan or with the plan proposed."""
    source = _source(added.plan)
    with database(database_url) as session:
        cluster = stored_cluster(session, added.cluster)
        if isinstance(source.plan, Plan):
            check_plan_fits("--plan", added.plan, source.plan, cluster.cluster)
        elif source.plan is not None:
            check_serving_fits("--plan", added.plan, source.plan, cluster.cluster)
        serves = running_plans.kind_of_source(session, source=source) is PlanKind.SERVING
        record = running_jobs.register_job(
            session,
            reference=cluster.id,
            name=added.name,
            source=source,
            weight=added.weight,
            recovery=None if added.recovery is None or serves else read_recovery(added.recovery),
            replica_start=None if added.recovery is None or not serves else read_policy(added.recovery),
            applied=added.runs,
        )
    if as_json:
        print_text(JobAnswer.from_value(record).model_dump_json(indent=2))
    elif added.runs:
        console().print(
            f"{record.name}: stored; it holds {plural(record.gpus_held, 'GPU')} of {record.cluster_name}"
        )
    else:
        console().print(f"{record.name}: stored with a proposed plan; it holds no GPU of {record.cluster_name} yet")


def _source(plan: str) -> PlanSource:
    """The plan in a file, or of the service."""
    if not is_path(plan):
        return PlanSource(plan_id=plan)
    return PlanSource(plan=read_serving_plan(plan) or read_running_plan(plan))


def run_list(cluster: str, *, as_json: bool, database_url: str | None) -> None:
    """Print the jobs of a cluster."""
    with database(database_url) as session:
        stored = stored_cluster(session, cluster)
        found = list(_every_job(session, stored.id))
    if as_json:
        print_text(json.dumps([JobAnswer.from_value(each).model_dump(mode="json") for each in found], indent=2))
    elif not found:
        console().print(f"No jobs on {stored.name}.")
    else:
        console().print(_table(found))


def run_show(cluster: str, job: str, *, as_json: bool, database_url: str | None) -> None:
    """Print one job."""
    with database(database_url) as session:
        record = running_jobs.get_job(session, reference=stored_cluster(session, cluster).id, job=job)
        plan = None
        if record.plan is not None:
            plan = running_plans.get_content(session, running_plan_id=record.plan.id)
        page = running_plans.list_running_plans(
            session, reference=record.cluster_id, job=record.id, limit=_MOST_PLANS
        )
    if as_json:
        print_text(JobAnswer.from_value(record).model_dump_json(indent=2))
    else:
        console().print(_job(record, plan, page.items))


def run_remove(cluster: str, job: str, *, database_url: str | None) -> None:
    """Forget a job."""
    with database(database_url) as session:
        record = running_jobs.get_job(session, reference=stored_cluster(session, cluster).id, job=job)
        running_jobs.delete_job(session, reference=record.cluster_id, job=record.id)
    freed = f"; {plural(record.gpus_held, 'GPU')} of {record.cluster_name} free" if record.gpus_held else ""
    console().print(f"{record.name}: forgotten{freed}")


def run_spares(cluster: str, nodes: Sequence[str], *, as_json: bool, database_url: str | None) -> None:
    """Print the spares of a cluster, or keep these nodes in place of all."""
    with database(database_url) as session:
        stored = stored_cluster(session, cluster)
        if nodes:
            with as_option("NODES"):
                found = occupancy.replace_spares(session, reference=stored.id, nodes=nodes)
        else:
            found = occupancy.list_spares(session, reference=stored.id)
    if as_json:
        print_text(SparesAnswer.make(found).model_dump_json(indent=2))
        return
    free, held = ([each.node for each in found if each.free is is_free] for is_free in (True, False))
    told = f"{plural(len(found), 'spare')} on {stored.name}"
    if free:
        told += f"; free: {joined(free)}"
    if held:
        told += f"; not free (held by jobs, failed, or to be kept out): {joined(held)}"
    console().print(told)


def stored_cluster(session: Session, name: str) -> StoredCluster:
    """The stored cluster of that name; raises ``InvalidInput`` where there is none."""
    try:
        return get_cluster(session, reference=name)
    except NotFound as error:
        problem, remedy = "is not a stored cluster", "store one: meshwright cluster import FILE"
        raise InvalidInput("CLUSTER", name, problem, remedy) from error


def _every_job(session: Session, cluster_id: str) -> Iterator[JobRecord]:
    cursor = None
    while True:
        page = running_jobs.list_jobs(session, reference=cluster_id, limit=MAX_LIMIT, cursor=cursor)
        yield from page.items
        if (cursor := page.next_cursor) is None:
            return


def _table(found: Sequence[JobRecord]) -> RenderableType:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("job", "standing", "model", "shape"):
        table.add_column(name, overflow="fold")
    for name in ("GPUs held", "tokens/s", "weight"):
        table.add_column(name, justify="right")
    for each in found:
        summary = None if each.plan is None else each.plan.summary
        table.add_row(
            Text(each.name),
            Text(each.standing, style="" if each.standing is JobStanding.RUNNING else "yellow"),
            Text("" if summary is None else summary.model),
            Text("" if summary is None else summary.degrees),
            Text(count(each.gpus_held)),
            Text("slower" if each.tokens_per_s is None else count(each.tokens_per_s)),
            Text(f"{each.weight:g}"),
        )
    return table


def _job(record: JobRecord, plan: AnyPlan | None, plans: Sequence[RunningPlanRecord]) -> RenderableType:
    lines = [Text(f"{record.name} on {record.cluster_name}: {record.standing}", style="bold")]
    if record.plan is not None and plan is not None:
        summary = record.plan.summary
        where = [f"nodes in rank order: {spans_of_nodes(plan)}"] if isinstance(plan, Plan) else decision(plan)
        lines += [
            Text(f"{summary.model} as {summary.degrees}, {plural(summary.gpus, 'GPU')}, weight {record.weight:g}"),
            Text(f"planned for {rate_words(summary)}"),
            *(Text(f"{entity_words(each.entity)} {STATES[each.state]}", style="red") for each in record.trouble),
            *(Text(line) for line in where),
        ]
    return Group(
        *lines,
        section("After a failure", pairs(policy_facts(record))),
        section("Plans, newest first", _plans(plans)),
    )


def spans_of_nodes(plan: Plan) -> str:
    """The nodes of a plan, with GPU numbers where it does not hold all that it has on a node."""
    gpus: dict[str, list[int]] = {}
    for place in plan.placement.ranks:
        gpus.setdefault(place.node, []).append(place.gpu)
    whole = plan.placement.gpus_per_node
    return ", ".join(name if len(own) == whole else f"{name} GPU {spans(own)}" for name, own in gpus.items())


def _plans(plans: Sequence[RunningPlanRecord]) -> RenderableType:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("status", "since", "shape", "id"):
        table.add_column(name, no_wrap=True)
    for each in plans:
        at = each.ended_at or each.applied_at or each.approved_at or each.created_at
        table.add_row(Text(each.status), Text(moment(at)), Text(each.summary.degrees), Text(each.id))
    return table
