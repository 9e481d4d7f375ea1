"""Pairs of a stored cluster to measure next."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy.orm import Session

from app.services.clusters import clusters, snapshots
from app.services.planning import plans
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.training.plan import Plan
from solver.measuring.choose import MeasuringPlan, what_to_measure


def subject(session: Session, *, reference: str, plan_id: str | None = None) -> tuple[ClusterSnapshot, Plan | None]:
    """A stored cluster as it is now, and the plan that is to be made surer; raises ``NotFound``, ``NotReady``."""
    snapshot = snapshots.current_snapshot(session, stored=clusters.get_cluster(session, reference=reference))
    return snapshot, None if plan_id is None else plans.get_finished_plan(session, plan_id=plan_id)


def measuring_plan(
    snapshot: ClusterSnapshot, plan: Plan | None, *, most_pairs: int, most_seconds: float
) -> MeasuringPlan:
    """The pairs to measure now; needs no database, as large clusters take seconds."""
    return what_to_measure(
        snapshot, at=datetime.now(UTC), plan=plan, most_pairs=most_pairs, most_seconds=most_seconds
    )
