"""A stored cluster as it is at this moment: GPUs that jobs hold are in use, and parts that failed are out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.running_tables import OccupiedGpuRow
from app.services.clusters import clusters, snapshots
from app.services.health import health_events
from app.services.running import occupancy
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.health.degraded import degraded


@dataclass(frozen=True, slots=True)
class Held:
    """``running``: GPUs of the plans that jobs run by; ``promised``: what plans not applied yet have taken."""

    running: Mapping[tuple[str, int], str]
    promised: frozenset[tuple[str, int]]


def snapshot_for_new_job(session: Session, *, reference: str, now: datetime) -> ClusterSnapshot:
    """Snapshot to plan a new job on: no GPU that another holds, no part that failed; raises ``NotFound``.

    A cluster without jobs and trouble gives the same snapshot as ``snapshots.take_snapshot``.
    """
    record = clusters.find_cluster(session, reference=reference)
    stored = snapshots.newest_snapshot(session, reference=record.id)
    live = as_others_left_it(session, snapshot=stored, cluster_id=record.id, now=now)
    return stored if live is stored else snapshots.store_derived(session, snapshot=live, cluster_id=record.id)


def as_others_left_it(
    session: Session, *, snapshot: ClusterSnapshot, cluster_id: str, now: datetime
) -> ClusterSnapshot:
    """A stored cluster's snapshot without GPUs that jobs hold and parts that failed; nothing is stored."""
    held = occupancy.held_gpus(session, cluster_id=cluster_id)
    conditions = health_events.conditions_now(session, reference=cluster_id, now=now)
    return degraded(as_held(snapshot, Held({}, frozenset(held))), conditions)


def read_held(session: Session, *, cluster_id: str, claim_id: str) -> Held:
    """Jobs by the GPUs that they run on or are promised; what the claim of that id has taken counts as free."""
    running: dict[tuple[str, int], str] = {}
    promised = set()
    row = OccupiedGpuRow
    columns = (row.node, row.gpu, row.job_id, row.claim_id, row.previous_job_id)
    for node, gpu, job, claim, previous in session.execute(select(*columns).where(row.cluster_id == cluster_id)):
        owner = job if claim is None else previous
        if owner is not None:
            running[node, gpu] = owner
        if claim not in (None, claim_id) and owner != job:
            promised.add((node, gpu))
    return Held(running, frozenset(promised))


def as_held(snapshot: ClusterSnapshot, held: Held) -> ClusterSnapshot:
    """The snapshot with what is promised in use, and what jobs run on not: that is theirs to decide about."""
    cluster = occupancy.with_in_use(snapshot.cluster, held.promised, free=held.running)
    if cluster == snapshot.cluster:
        return snapshot
    digest = hashlib.sha256(repr([node.gpus_in_use for node in cluster.nodes]).encode()).hexdigest()[:12]
    return replace(snapshot, id=f"{snapshot.id}+{digest}", cluster=cluster)
