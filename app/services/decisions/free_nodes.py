"""Free nodes that are not spares: those that a decision on failures leaves out, and what they would change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from app.db.engine import SessionFactory, transaction
from app.services.clusters import clusters
from app.services.clusters.live_clusters import as_held, read_held
from app.services.decisions import replan_problems, replan_settings, replans, reports, safe_answers
from app.services.decisions.replans import ReplanRecord
from app.services.errors import Conflict
from app.services.health import health_events
from app.services.running import occupancy
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.health.degraded import degraded
from cluster_models.jobs.recovery import BatchDecision


@dataclass(frozen=True, slots=True)
class WithFreeNodes:
    """The safe answer to the same failures if ``nodes`` were spares too; ``base``: each job's running plan."""

    nodes: tuple[str, ...]
    decision: BatchDecision
    base: Mapping[str, str]


def free_nodes(session: Session, *, replan: ReplanRecord, now: datetime) -> tuple[str, ...]:
    """Usable free nodes that are not spares, as the replan finds the cluster now; none where it is decided."""
    settings = replan_settings.settings_of(session, cluster_id=replan.cluster_id)
    if not replan.is_open or replan.chosen is not None or settings.all_free_nodes:
        return ()
    events = health_events.read_known(session, cluster_id=replan.cluster_id)
    held = read_held(session, cluster_id=replan.cluster_id, claim_id=replan.id)
    stored = clusters.get_cluster(session, reference=replan.cluster_id)
    snapshot = as_held(ClusterSnapshot("", stored.cluster, ()), held)
    cluster = degraded(snapshot, settings.conditions(events, now=now)).cluster
    out = {each.node for each in settings.keep_out(events, now=now)}
    out.update(occupancy.spare_names(session, cluster_id=replan.cluster_id))
    return tuple(node for node in occupancy.free_nodes(cluster, {*held.running, *held.promised}) if node not in out)


def answer_with_free_nodes(sessions: SessionFactory, *, replan_id: str, now: datetime) -> WithFreeNodes:
    """The safe answer with the free nodes as spares; raises ``Conflict`` where there are none."""
    with transaction(sessions) as session:  # the cluster may be frozen for the first time
        replan = replans.get_replan(session, replan_id=replan_id)
        nodes = free_nodes(session, replan=replan, now=now)
        if not nodes:
            raise Conflict("No node is free that is not a spare already, or the decision is made.")
        found = replan_problems.situation(
            session, cluster_id=replan.cluster_id, replan_id=replan.id, now=now, takes_free_nodes=True
        )
        problem = safe_answers.problem_of(session, found)
        prepared = safe_answers.prepared_for(session, problem, found)
    return WithFreeNodes(nodes, safe_answers.work_out(problem, prepared), found.base)


def use_free_nodes(session: Session, *, replan_id: str, now: datetime) -> str:
    """Keep the free nodes as spares and ask for a new decision; returns its id."""
    replan = replans.get_replan(session, replan_id=replan_id)
    nodes = free_nodes(session, replan=replan, now=now)
    if not nodes:
        raise Conflict("No node is free that is not a spare already, or the decision is made.")
    spares = occupancy.spare_names(session, cluster_id=replan.cluster_id)
    occupancy.replace_spares(session, reference=replan.cluster_id, nodes=(*spares, *nodes))
    return reports.request_replan(
        session, reference=replan.cluster_id, reason="Free nodes were made spares: it was asked for again by hand."
    )
