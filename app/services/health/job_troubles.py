"""Trouble reported of the parts that each job holds, and whether the job can run with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sqlalchemy.orm import Session

from app.db.running_tables import RunningJobRow
from app.db.status import PlanKind
from app.serialization import load
from app.services.clusters import clusters, live_clusters
from app.services.health import health_events
from app.services.health.affected_holders import TROUBLE, concerning
from app.services.running.occupancy import Gpus
from cluster_models.cluster.topology import Node
from cluster_models.health.conditions import Condition
from cluster_models.health.events import EntityKind, HealthState
from cluster_models.jobs.running import RecoveryPolicy


@dataclass(frozen=True, slots=True)
class JobTrouble:
    """Trouble of a job's own parts; ``stops`` where it cannot run with it."""

    conditions: tuple[Condition, ...] = ()
    stops: bool = False


_NONE: Final = JobTrouble()


def troubles_of(session: Session, *, jobs: Sequence[RunningJobRow]) -> dict[str, JobTrouble]:
    """Reports on the parts of each of these jobs, by its id; all are of one cluster.

    A recovery that is not believed yet leaves the trouble before it standing.
    """
    found = dict.fromkeys((job.id for job in jobs), _NONE)
    cluster_id = next((job.cluster_id for job in jobs), None)
    if cluster_id is None:
        return found
    conditions = health_events.conditions_now(session, reference=cluster_id, now=datetime.now(UTC))
    conditions = tuple(each for each in conditions if each.state in TROUBLE)
    if not conditions:
        return found
    nodes = {node.name: node for node in clusters.get_cluster(session, reference=cluster_id).cluster.nodes}
    runs_on: dict[str, set[tuple[str, int]]] = {}
    for gpu, job_id in live_clusters.read_held(session, cluster_id=cluster_id, claim_id="").running.items():
        runs_on.setdefault(job_id, set()).add(gpu)
    for job in jobs:
        gpus = frozenset(runs_on.get(job.id, ()))
        concerns = concerning(gpus, nodes)
        own = tuple(each for each in conditions if concerns(each.entity))
        if own:
            found[job.id] = JobTrouble(own, _stops(job, own, gpus, nodes))
    return found


def _stops(job: RunningJobRow, own: Sequence[Condition], gpus: Gpus, nodes: Mapping[str, Node]) -> bool:
    """Whether a job cannot run with these; a deployment serves on as long as a GPU of it works."""
    if job.kind == PlanKind.TRAINING:
        policy = load(RecoveryPolicy, job.recovery)
        return any(_stops_training(each, gpus, policy) for each in own)
    parts = (EntityKind.LINK, EntityKind.NIC)
    failed = [each for each in own if each.state is HealthState.FAILED and each.entity.kind not in parts]
    alone = (concerning(frozenset({gpu}), nodes) for gpu in gpus)
    return all(any(concerns(each.entity) for each in failed) for concerns in alone)


def _stops_training(condition: Condition, gpus: Gpus, policy: RecoveryPolicy) -> bool:
    """Whether a job cannot run with that: a failed link only slows it, and a card where frameworks go round it."""
    if condition.state is not HealthState.FAILED or condition.entity.kind is EntityKind.LINK:
        return False
    is_alone = len({node for node, _gpu in gpus}) == 1
    return condition.entity.kind is not EntityKind.NIC or not (is_alone or policy.survives_lost_card)
