"""From what is stored about a cluster to the question that is put to the solver after failures.

The plans that jobs run by are those last *applied*: while GPUs change hands for a replan that a later failure
overtook, the state of a job is surely where it was before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Text, select, type_coerce
from sqlalchemy.orm import Session

from app.db.running_tables import RunningPlanRow
from app.db.status import PlanKind
from app.replan_request import ReplanRequest
from app.serialization import jsonable
from app.services.clusters import snapshots
from app.services.clusters.live_clusters import Held, as_held, read_held
from app.services.decisions import replan_settings
from app.services.decisions.replan_settings import ReplanSettings
from app.services.health import health_events
from app.services.health.affected_holders import concerning
from app.services.running import occupancy
from app.services.running.job_plans import JobPlan, job_plans
from app.services.running.plan_contents import training_plan_of
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster
from cluster_models.health.conditions import Condition
from cluster_models.health.degraded import degraded
from cluster_models.health.events import HealthEvent, HealthState
from cluster_models.jobs.recovery import Quarantine

LEAVING: Final = (HealthState.FAILED, HealthState.DRAINING)
"""States of parts that jobs wait for."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A cluster with its jobs after failures.

    ``document`` is what a replan keeps of it (``request_of`` reads it back): the jobs by the running plan that each
    runs by, spares and options.  ``base``: the running plan of each job.
    """

    snapshot: ClusterSnapshot
    document: dict[str, Any]
    quarantine: tuple[Quarantine, ...]

    @property
    def base(self) -> dict[str, str]:
        """The running plan that each job runs by."""
        return base_of(self.document)


def situation(
    session: Session,
    *,
    cluster_id: str,
    replan_id: str,
    now: datetime,
    supposed: tuple[HealthEvent, ...] = (),
    takes_free_nodes: bool = False,
) -> Situation:
    """How a cluster is now, for the replan of that id; what that has claimed itself counts as free.

    ``supposed`` are reports that nobody made: the cluster is as they would leave it.  ``takes_free_nodes``: all
    free nodes count as spares, whatever the settings say.
    """
    settings = replan_settings.settings_of(session, cluster_id=cluster_id)
    events = (*health_events.read_known(session, cluster_id=cluster_id), *supposed)
    conditions = settings.conditions(events, now=now)
    quarantine = settings.keep_out(events, now=now)
    held = read_held(session, cluster_id=cluster_id, claim_id=replan_id)
    found = job_plans(session, cluster_id=cluster_id).values()
    snapshot = degraded(as_held(snapshots.newest_snapshot(session, reference=cluster_id), held), conditions)
    names = occupancy.spare_names(session, cluster_id=cluster_id)
    taken = {*held.running, *held.promised}
    out = {each.node for each in quarantine}
    spares = [
        node
        for node in occupancy.free_nodes(snapshot.cluster, taken)
        if node not in out and (takes_free_nodes or settings.all_free_nodes or node in names)
    ]
    document = {
        "jobs": [_job(each) for each in found if each.job.kind == PlanKind.TRAINING],
        "deployments": [_deployment(each) for each in found if each.job.kind == PlanKind.SERVING],
        "spares": spares,
        "horizon_s": settings.horizon_s,
        "back_after_s": settings.back_after_s,
        "jobs_back_after_s": _back_after(settings, conditions, held, snapshot.cluster),
        "gpu_budget": settings.gpu_budget,
        "spare_worth_share": settings.spare_worth_share,
        "events": jsonable((*health_events.read_of_replan(session, replan_id=replan_id), *supposed)),
        "options": jsonable(settings.options),
    }
    return Situation(snapshot, document, quarantine)


def request_of(
    session: Session, *, snapshot: dict[str, Any], document: Mapping[str, Any], as_values: bool = False
) -> ReplanRequest:
    """The request that a replan keeps, with the plans of its jobs: documents, or ``as_values`` for this process.

    Those of deployments are documents always.
    """
    served = document.get("deployments", [])
    ids = [*base_of(document).values(), *(each["meant_plan_id"] for each in served if each["meant_plan_id"])]
    text = type_coerce(RunningPlanRow.plan, Text)
    query = select(RunningPlanRow.id, text, RunningPlanRow.fitted).where(RunningPlanRow.id.in_(ids))
    plans = {plan_id: (plan, fitted) for plan_id, plan, fitted in session.execute(query)}
    read = training_plan_of if as_values else json.loads
    jobs = []
    for job in document["jobs"]:
        plan, fitted = plans[job["running_plan_id"]]
        jobs.append({**job, "plan": read(plan), "fitted": fitted})
    deployments = []
    for each in served:
        meant = plans.get(each["meant_plan_id"]) if each["meant_plan_id"] != each["running_plan_id"] else None
        plan, _ = plans[each["running_plan_id"]]
        deployments.append({**each, "plan": json.loads(plan), "meant": meant and json.loads(meant[0])})
    return ReplanRequest(**{**document, "snapshot": snapshot, "jobs": jobs, "deployments": deployments})


def base_of(document: Mapping[str, Any]) -> dict[str, str]:
    """The running plan that each job of a question runs by, by its id."""
    asked = (*document["jobs"], *document.get("deployments", []))
    return {job["id"]: job["running_plan_id"] for job in asked}


def _back_after(
    settings: ReplanSettings, conditions: Iterable[Condition], held: Held, cluster: Cluster
) -> dict[str, float]:
    """Moment for each job when the last of the parts that it lost is expected back, by what they are."""
    nodes = {node.name: node for node in cluster.nodes}
    gpus: dict[str, set[tuple[str, int]]] = {}
    for gpu, job_id in held.running.items():
        gpus.setdefault(job_id, set()).add(gpu)
    out = [(each.entity, settings.back_s(each.entity.kind)) for each in conditions if each.state in LEAVING]
    found: dict[str, float] = {}
    for job_id, own in gpus.items():
        concerns = concerning(frozenset(own), nodes)
        if times := [back_s for entity, back_s in out if concerns(entity)]:
            found[job_id] = max(times)
    return found


def _job(found: JobPlan) -> dict[str, Any]:
    """A training job that runs, waits or is paused."""
    return {**_common(found), "wanted_gpus": found.wanted_gpus, "wanted_batch": found.wanted_batch}


def _deployment(found: JobPlan) -> dict[str, Any]:
    """A deployment that serves or is paused."""
    return {**_common(found), "meant_plan_id": found.meant_id}


def _common(found: JobPlan) -> dict[str, Any]:
    return {
        "id": found.job.id,
        "name": found.job.name,
        "weight": found.job.weight,
        "recovery": found.job.recovery,
        "is_paused": found.is_paused,
        "running_plan_id": found.running_plan_id,
    }
