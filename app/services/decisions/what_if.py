"""Answer to the supposed failure of parts of a cluster: nothing of it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from sqlalchemy.orm import Session

from app.db.engine import SessionFactory, transaction
from app.documents.reading import FieldProblem, InvalidDocument, close_name
from app.events.part_lookup import resolve
from app.events.reading import ReportedEvent, ToldEvent
from app.services.clusters import aliases, clusters
from app.services.clusters.clusters import StoredCluster
from app.services.decisions import replan_problems, safe_answers
from app.services.decisions.replan_views import AnswerView, view_of
from app.services.errors import Conflict
from cluster_models.cluster.topology import Cluster
from cluster_models.errors import InvalidInput
from cluster_models.health.events import EntityKind, HealthEvent, HealthState

SOURCE: Final = "what-if"


def answer_losses(
    sessions: SessionFactory, *, reference: str, losses: Sequence[ReportedEvent], now: datetime
) -> AnswerView:
    """The safe answer to losses on top of what was reported: worked out without a search, as after a failure.

    Raises ``NotFound``, ``InvalidInput`` of parts that the cluster has not, and ``Conflict`` where no job runs
    there.
    """
    with transaction(sessions) as session:  # the cluster may be frozen for the first time
        cluster = clusters.get_cluster(session, reference=reference)
        supposed = _looked_up(session, cluster, losses)
        found = replan_problems.situation(session, cluster_id=cluster.id, replan_id="", now=now, supposed=supposed)
        if not found.base:
            raise Conflict(f"No job runs on the cluster {cluster.name!r}: there is nothing to decide.")
        problem = safe_answers.problem_of(session, found)
        prepared = safe_answers.prepared_for(session, problem, found)
    decision = safe_answers.work_out(problem, prepared)
    with sessions() as session:
        return replace(view_of(session, decision, found.base), cluster=found.snapshot.cluster)


def _looked_up(
    session: Session, cluster: StoredCluster, losses: Sequence[ReportedEvent]
) -> tuple[HealthEvent, ...]:
    table = aliases.read_aliases(session, cluster_id=cluster.id)
    told = resolve(losses, source=SOURCE, cluster=cluster.cluster, aliases=table)
    for index, each in enumerate(losses):
        if each.state is HealthState.RECOVERED:
            raise InvalidInput(f"losses[{index}].state", each.state, "is no loss", "leave what is well out")
    unknown = [_unknown(index, each, cluster.cluster) for index, each in enumerate(told) if not each.known]
    if unknown:
        raise InvalidDocument(unknown)
    return tuple(each.event for each in told)


def _unknown(index: int, told: ToldEvent, cluster: Cluster) -> FieldProblem:
    """Problem with a loss of no part of the cluster."""
    entity, problem = told.event.entity, "is no part of the cluster"
    if entity.kind is EntityKind.SWITCH:
        return FieldProblem(f"losses[{index}].part", told.told_name, problem)
    nodes = {node.name: node for node in cluster.nodes}
    if entity.kind is EntityKind.GPU and entity.node in nodes:
        last = nodes[entity.node].gpu_count - 1
        remedy = f"its GPUs have the numbers 0 to {last}"
        return FieldProblem(f"losses[{index}].part", told.told_name, problem, remedy)
    return FieldProblem(f"losses[{index}].node", told.told_name, problem, close_name(told.told_name, list(nodes)))
