"""Free nodes that nobody keeps as spares, and the change they would make to a decision on failures."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from app.db.engine import SessionFactory, transaction
from app.services import occupancy, replan_problems, replans, reports, safe_answers
from app.services.errors import Conflict
from app.services.replans import ReplanRecord
from cluster_models.recovery import BatchDecision


@dataclass(frozen=True, slots=True)
class WithFreeNodes:
    """The safe answer to the same failures if ``nodes`` were spares too."""

    nodes: tuple[str, ...]
    decision: BatchDecision


def free_nodes(session: Session, *, replan: ReplanRecord, now: datetime) -> tuple[str, ...]:
    """Usable free nodes that are no spares, as the replan finds the cluster now; none where it is decided."""
    if not replan.is_open or replan.chosen is not None:
        return ()
    spares, free = (
        replan_problems.situation(
            session, cluster_id=replan.cluster_id, replan_id=replan.id, now=now, takes_free_nodes=takes
        ).document["spares"]
        for takes in (False, True)
    )
    return tuple(node for node in free if node not in spares)


def answer_with_free_nodes(sessions: SessionFactory, *, replan_id: str, now: datetime) -> WithFreeNodes:
    """What would be done with them, worked out without a search; raises ``Conflict`` where there are none."""
    with transaction(sessions) as session:  # the cluster may be frozen for the first time
        replan = replans.get_replan(session, replan_id=replan_id)
        nodes = free_nodes(session, replan=replan, now=now)
        if not nodes:
            raise Conflict("No node is free that is no spare already, or the decision is made.")
        found = replan_problems.situation(
            session, cluster_id=replan.cluster_id, replan_id=replan.id, now=now, takes_free_nodes=True
        )
        problem = safe_answers.problem_of(session, found)
        prepared = safe_answers.prepared_for(session, problem, found)
    return WithFreeNodes(nodes, safe_answers.work_out(problem, prepared))


def use_free_nodes(session: Session, *, replan_id: str, now: datetime) -> str:
    """Keep the free nodes as spares and ask for a new decision; returns its id."""
    replan = replans.get_replan(session, replan_id=replan_id)
    nodes = free_nodes(session, replan=replan, now=now)
    if not nodes:
        raise Conflict("No node is free that is no spare already, or the decision is made.")
    spares = occupancy.spare_names(session, cluster_id=replan.cluster_id)
    occupancy.replace_spares(session, reference=replan.cluster_id, nodes=(*spares, *nodes))
    return reports.request_replan(
        session, reference=replan.cluster_id, reason="Free nodes were made spares: it was asked for again by hand."
    )
