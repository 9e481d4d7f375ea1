"""Objections to approving an answer unseen: a storm of reports, causes that are back, limits passed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy.orm import Session

from app.db.replan_tables import ReplanRow
from app.presentation.figures import duration, percent, plural
from app.presentation.recovery import OTHER_ACTIONS
from app.services.clusters import clusters
from app.services.decisions import reports
from app.services.decisions.replan_settings import ReplanSettings
from app.services.health import health_events
from app.services.running import occupancy
from cluster_models.health.storms import storms_of
from cluster_models.jobs.recovery import AS_RECOVERY, BatchDecision, RecoveryAction

LEAST_STORM_NODES: Final = 3
"""Fewer nodes than this are not a storm, however small the cluster."""


def warnings(session: Session, *, row: ReplanRow, settings: ReplanSettings) -> tuple[str, ...]:
    """Oddities of the reports that a replan decides on, whatever the answer."""
    own = health_events.read_of_replan(session, replan_id=row.id)
    if not own:
        return ()
    cluster = clusters.get_cluster(session, reference=row.cluster_id).cluster
    since = min(event.occurred_at for event in own) - timedelta(seconds=settings.storm_within_s)
    events = health_events.read_known(session, cluster_id=row.cluster_id)
    least = max(LEAST_STORM_NODES, math.ceil(settings.storm_share * len(cluster.nodes)))
    storms = storms_of(
        (event for event in events if event.occurred_at >= since),
        least_nodes=least,
        within_s=settings.storm_within_s,
    )
    told = [
        f"{storm.source} reported trouble on {storm.nodes} of {plural(len(cluster.nodes), 'node')} within "
        f"{duration(settings.storm_within_s)}: see whether they failed, or the source is wrong"
        for storm in storms
    ]
    if reports.is_over(session, row=row, now=datetime.now(UTC)):
        told.append("all that opened it is reported as well again")
    return tuple(told)


def limits_passed(
    session: Session, *, row: ReplanRow, settings: ReplanSettings, decision: BatchDecision
) -> tuple[str, ...]:
    """Where an answer goes beyond what the cluster's settings approve by themselves."""
    training = (made.action for made in decision.jobs)
    actions: list[RecoveryAction] = [action for action in training if action is not RecoveryAction.NONE]
    actions += [AS_RECOVERY[made.action] for made in decision.serving if made.is_to_be_done]
    return tuple(_passed(settings, decision, actions, _nodes(session, row, decision)))


def _passed(
    settings: ReplanSettings, decision: BatchDecision, actions: list[RecoveryAction], nodes: set[str]
) -> Iterator[str]:
    allowed = settings.auto_actions
    if allowed and (others := sorted(set(actions) - set(allowed))):
        named = ", ".join(OTHER_ACTIONS[each] for each in others)
        yield f"the settings approve some actions by themselves, not: {named}"
    if settings.auto_most_jobs is not None and len(actions) > settings.auto_most_jobs:
        yield f"{plural(len(actions), 'job')} would act, and {settings.auto_most_jobs} may by themselves"
    if settings.auto_most_nodes is not None and len(nodes) > settings.auto_most_nodes:
        yield f"{plural(len(nodes), 'node')} would change hands, and {settings.auto_most_nodes} may by themselves"
    if settings.auto_most_gap is None:
        return
    if decision.fallback:
        yield "it is the safe answer, whose distance from the best is not known"
    elif decision.gap > settings.auto_most_gap:
        limit = percent(settings.auto_most_gap, places=1)
        yield f"another answer may be worth {percent(decision.gap, places=1)} more, and {limit} is the limit"


def _nodes(session: Session, row: ReplanRow, decision: BatchDecision) -> set[str]:
    """The nodes that jobs leave or take."""
    before: dict[str, set[str]] = {}
    for (node, _gpu), job_id in occupancy.held_gpus(session, cluster_id=row.cluster_id, but_claim=row.id).items():
        before.setdefault(job_id, set()).add(node)
    touched: set[str] = set()
    for made in decision.jobs:
        held = before.get(made.job_id, set())
        if made.plan is not None:
            touched |= held ^ set(made.plan.placement.hosts)
        elif made.action is RecoveryAction.PAUSE:
            touched |= held
    for served in decision.serving:
        touched |= before.get(served.job_id, set()) ^ {node for node, _gpu in served.held}
    return touched
