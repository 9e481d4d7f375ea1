"""The answers of replans beside what ran before, for whoever shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.running_tables import RunningJobRow, RunningPlanRow
from app.serialization import load
from app.services.clusters import clusters
from app.services.decisions import replan_answers, replan_rows, replan_settings
from app.services.decisions.replans import Answer, ReplanRecord
from app.services.errors import NotReady
from app.services.health import health_events
from app.services.running.plan_contents import AnyPlan
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster
from cluster_models.health.degraded import degraded
from cluster_models.jobs.recovery import BatchDecision, JobDecision
from cluster_models.jobs.serving import ServingDecision
from cluster_models.serving.plan import ServingPlan
from cluster_models.training.plan import Plan


@dataclass(frozen=True, slots=True)
class AnswerView:
    """An answer, by job id the plan that each decided job ran by before, and the names of untouched jobs.

    ``served`` are the plans of deployments before; all are those that are still kept.  ``cluster``: as the
    failures left it, where that is asked for; a GPU in use is out of reach of the jobs that sat on it.
    ``unprepared``: names of jobs for which a prepared answer might have had another shape.
    """

    decision: BatchDecision
    before: Mapping[str, Plan]
    untouched: Mapping[str, str] = field(default_factory=dict)
    served: Mapping[str, ServingPlan] = field(default_factory=dict)
    cluster: Cluster | None = None
    unprepared: tuple[str, ...] = ()


def view_of(session: Session, decision: BatchDecision, base: Mapping[str, str]) -> AnswerView:
    """The view of a decision that starts from these running plans, by job id."""
    query = select(RunningJobRow.id, RunningJobRow.name).where(RunningJobRow.id.in_(decision.untouched))
    names = {row.id: row.name for row in session.execute(query.order_by(RunningJobRow.name))}
    before = _plans_before(session, decision.jobs, base)
    served = _plans_before(session, decision.serving, base)
    return AnswerView(
        decision,
        {job_id: load(Plan, plan) for job_id, plan in before.items()},
        names,
        {job_id: load(ServingPlan, plan) for job_id, plan in served.items()},
    )


def view_answer(session: Session, *, replan_id: str, answer: Answer) -> AnswerView | None:
    """One of a replan's answers, ``None`` where it is not there (yet); raises ``NotFound``."""
    kept = replan_answers.kept_answer(replan_rows.row_of(session, replan_id), safe=answer is Answer.SAFE)
    if kept is None:
        return None
    return view_of(session, load(BatchDecision, kept["decision"]), kept["base"])


def cluster_of(session: Session, *, replan: ReplanRecord, now: datetime) -> Cluster:
    """The cluster as a decision finds it: nodes in the states of the reports until its search began.

    In use are only GPUs that failed alone.
    """
    moment = replan.solving_at or now
    settings = replan_settings.settings_of(session, cluster_id=replan.cluster_id)
    events = health_events.read_known(session, cluster_id=replan.cluster_id)
    conditions = settings.conditions([each for each in events if each.occurred_at <= moment], now=moment)
    stored = clusters.get_cluster(session, reference=replan.cluster_id).cluster
    idle = tuple(replace(node, gpus_in_use=()) for node in stored.nodes)
    return degraded(ClusterSnapshot("", replace(stored, nodes=idle), ()), conditions).cluster


def decided_plan(session: Session, *, replan_id: str, job: str, answer: Answer) -> AnyPlan:
    """The plan by which a job of that name or id is to run.

    Raises ``NotFound`` of the replan, and of a job that is not decided on; ``NotReady`` where there is no such
    answer, or the job stands still.
    """
    kept = replan_answers.kept_answer(replan_rows.row_of(session, replan_id), safe=answer is Answer.SAFE)
    if kept is None:
        raise NotReady(f"The replan {replan_id!r} has no such answer yet; wait for it.")
    made = replan_answers.decided_for(load(BatchDecision, kept["decision"]), job)
    if made.plan is None:
        raise NotReady(f"The job {made.job_name!r} is to stand still ({made.action}): there is no plan to run by.")
    return made.plan


def _plans_before(
    session: Session, decided: Sequence[JobDecision | ServingDecision], base: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """The plans that the decided jobs ran by, as kept, by job id; ``base`` has their running plans."""
    wanted = {base[made.job_id]: made.job_id for made in decided if made.job_id in base}
    query = select(RunningPlanRow.id, RunningPlanRow.plan).where(RunningPlanRow.id.in_(wanted))
    return {wanted[plan_id]: plan for plan_id, plan in session.execute(query)}
