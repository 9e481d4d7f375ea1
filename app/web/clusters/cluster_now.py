"""A stored cluster as it is at this moment: its jobs, its GPUs, what is not well, and what waits for somebody."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from app.presentation.decision_reasons import keep_out
from app.services.clusters.clusters import StoredCluster
from app.services.decisions import replans
from app.services.health import health_events
from app.services.pagination import MAX_LIMIT
from app.services.running import occupancy, running_jobs
from app.web.clusters.gpu_grid import GpuGrid, gpu_grid
from app.web.failures.health import ConditionRow, condition_rows
from app.web.failures.jobs import JobLine, job_line
from app.web.failures.replan import ReplanLine, replan_line
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster
from cluster_models.health.degraded import degraded
from cluster_models.health.events import EntityKind, HealthState


@dataclass(frozen=True, slots=True)
class ClusterNow:
    """A cluster at this moment, as its pages show it; ``replan`` is the decision that is open."""

    cluster: Cluster
    """Cluster with the states that its nodes have now."""
    replan: ReplanLine | None
    grid: GpuGrid
    jobs: tuple[JobLine, ...]
    more_jobs: bool
    conditions: tuple[ConditionRow, ...]
    quarantine: tuple[str, ...]


def cluster_now(session: Session, stored: StoredCluster, now: datetime) -> ClusterNow:
    """How a cluster is now."""
    conditions = health_events.conditions_now(session, reference=stored.id, now=now)
    jobs = running_jobs.list_jobs(session, reference=stored.id, limit=MAX_LIMIT)
    replan = replans.open_replan_of(session, reference=stored.id)
    # only its nodes are looked at: their states do not hang on measurements, which take a while to read
    snapshot = degraded(ClusterSnapshot("", stored.cluster, ()), conditions)
    lost = {
        (each.entity.node, int(each.entity.part))
        for each in conditions
        if each.entity.kind is EntityKind.GPU and each.state is HealthState.FAILED and each.entity.part.isdecimal()
    }
    return ClusterNow(
        cluster=snapshot.cluster,
        replan=None if replan is None else replan_line(replan),
        grid=gpu_grid(
            snapshot.cluster,
            occupancy.list_held(session, reference=stored.id),
            lost=lost,
            spares=occupancy.spare_names(session, cluster_id=stored.id),
        ),
        jobs=tuple(job_line(job) for job in jobs.items),
        more_jobs=jobs.next_cursor is not None,
        conditions=condition_rows(conditions, now),
        quarantine=tuple(map(keep_out, health_events.quarantine_now(session, reference=stored.id, now=now))),
    )
