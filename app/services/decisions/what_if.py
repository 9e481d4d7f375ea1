"""Answer to the supposed failure of parts of a cluster: nothing of it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy.orm import Session

from app.db.engine import SessionFactory, transaction
from app.documents.reading import FieldProblem, InvalidDocument, close_name
from app.events.part_lookup import resolve
from app.events.reading import ReportedEvent, ToldEvent
from app.services.clusters import aliases, clusters
from app.services.clusters.clusters import StoredCluster
from app.services.decisions import replan_problems, safe_answers
from app.services.decisions.replan_problems import Situation
from app.services.decisions.replan_views import AnswerView, view_of
from app.services.errors import Conflict
from cluster_models.cluster.topology import Cluster
from cluster_models.errors import InvalidInput
from cluster_models.health.events import EntityKind, HealthEvent, HealthState
from cluster_models.jobs.recovery import BatchDecision, RecoveryAction
from readers.proposal.aliases import AliasTable
from solver.replanning.shared import SharedProblem

SOURCE: Final = "what-if"


@dataclass(frozen=True, slots=True)
class Question:
    """Problem that losses put, with what was prepared for the jobs that they hit."""

    situation: Situation
    problem: SharedProblem
    prepared: list[dict[str, Any]]

    def decision(self) -> BatchDecision:
        """The safe answer, without a search."""
        return safe_answers.work_out(self.problem, self.prepared)

    def unprepared(self, decision: BatchDecision) -> tuple[str, ...]:
        """Names of jobs that shrink or pause after the loss of one node, as nothing is prepared for them yet."""
        from solver.replanning.touched import lost_gpus  # noqa: PLC0415 - loads the solver

        made = {document["job_id"] for document in self.prepared}
        worse = {
            each.job_id
            for each in decision.jobs
            if each.action in (RecoveryAction.SHRINK_DATA_PARALLEL, RecoveryAction.PAUSE)
        }
        return tuple(
            job.name
            for job in self.problem.training.jobs
            if job.id in worse - made and len({node for node, _ in lost_gpus(self.problem.training, job)}) == 1
        )


def answer_losses(
    sessions: SessionFactory, *, reference: str, losses: Sequence[ReportedEvent], now: datetime
) -> AnswerView:
    """The safe answer to losses on top of what was reported: worked out without a search, as after a failure.

    Raises ``NotFound``, ``InvalidInput`` of parts that the cluster has not, and ``Conflict`` where no job runs
    there.
    """
    with transaction(sessions) as session:  # the cluster may be frozen for the first time
        question = question_of(session, reference=reference, losses=losses, now=now)
    found, decision = question.situation, question.decision()
    with sessions() as session:
        view = view_of(session, decision, found.base)
    return replace(view, cluster=found.snapshot.cluster, unprepared=question.unprepared(decision))


def question_of(session: Session, *, reference: str, losses: Sequence[ReportedEvent], now: datetime) -> Question:
    """The question that losses put on top of what was reported; raises as ``answer_losses`` does."""
    cluster = clusters.get_cluster(session, reference=reference)
    supposed = looked_up(cluster, losses, aliases.read_aliases(session, cluster_id=cluster.id))
    found = replan_problems.situation(session, cluster_id=cluster.id, replan_id="", now=now, supposed=supposed)
    if not found.base:
        raise no_jobs(cluster.name)
    problem = safe_answers.problem_of(session, found)
    return Question(found, problem, safe_answers.prepared_for(session, problem, found))


def no_jobs(cluster_name: str) -> Conflict:
    """The refusal where no job runs."""
    return Conflict(f"No job runs on the cluster {cluster_name!r}: there is nothing to decide.")


def looked_up(
    cluster: StoredCluster, losses: Sequence[ReportedEvent], table: AliasTable
) -> tuple[HealthEvent, ...]:
    """Losses by the cluster's own names; raises ``InvalidInput`` of parts that it has not."""
    told = resolve(losses, source=SOURCE, cluster=cluster.cluster, aliases=table)
    for index, each in enumerate(losses):
        if each.state is HealthState.RECOVERED:
            raise InvalidInput(f"losses[{index}].state", each.state, "is not a loss", "leave what is well out")
    unknown = [_unknown(index, each, cluster.cluster) for index, each in enumerate(told) if not each.known]
    if unknown:
        raise InvalidDocument(unknown)
    return tuple(each.event for each in told)


def _unknown(index: int, told: ToldEvent, cluster: Cluster) -> FieldProblem:
    """Problem with a loss of no part of the cluster."""
    entity, problem = told.event.entity, "is not part of the cluster"
    if entity.kind is EntityKind.SWITCH:
        return FieldProblem(f"losses[{index}].part", told.told_name, problem)
    nodes = {node.name: node for node in cluster.nodes}
    if entity.kind is EntityKind.GPU and entity.node in nodes:
        last = nodes[entity.node].gpu_count - 1
        remedy = f"its GPUs have the numbers 0 to {last}"
        return FieldProblem(f"losses[{index}].part", told.told_name, problem, remedy)
    return FieldProblem(f"losses[{index}].node", told.told_name, problem, close_name(told.told_name, list(nodes)))
