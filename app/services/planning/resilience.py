"""Cost of failures to a plan over time, and of surviving one more of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy.orm import Session

from app.documents.reading import close_name
from app.services.clusters import clusters, snapshots
from app.services.errors import NotFound
from app.services.planning import plans
from app.services.running.plan_contents import check_fits
from app.services.running.running_plans import PlanSource
from app.services.subprocesses import in_subprocess
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.errors import InvalidInput
from cluster_models.jobs.running import RecoveryPolicy
from cluster_models.training.failure_domains import FailureDomainLosses
from cluster_models.training.plan import NoPlan, Plan
from cluster_models.training.workload import TrainingWorkload

if TYPE_CHECKING:
    from solver.replanning.resilience import EffectiveTraining, Hardening


_BESIDE_SEARCH_S: Final = 60.0
"""Seconds for all that is not a search: starting a process, and pricing."""


@dataclass(frozen=True, slots=True)
class ResilienceQuestion:
    """``label``: failure domains of which one more is to be survived; the rest as in the solver's.

    ``search_s``: how long the planner may look for a plan that does, ``None`` where it is not asked; ``fitted``:
    the user's own parameters that ``plan`` was priced with.
    """

    plan: Plan
    snapshot: ClusterSnapshot
    recovery: RecoveryPolicy
    label: str
    failures_per_node_day: float | None
    write_s: float | None
    search_s: float | None = None
    fitted: FittedParameters | None = None


@dataclass(frozen=True, slots=True)
class Resilience:
    """Losses a plan survives, the time in which it makes progress, and ways to survive more, cheapest first."""

    survives: tuple[FailureDomainLosses, ...]
    training: EffectiveTraining
    hardenings: tuple[Hardening, ...]


def plan_and_snapshot(session: Session, *, source: PlanSource, cluster: str | None) -> tuple[Plan, ClusterSnapshot]:
    """The plan, and the cluster it was made for: as it was then, or (``cluster``) a stored one as it is now.

    Raises ``NotFound``, ``NotReady``, and ``InvalidInput`` where plan and cluster do not go together.
    """
    if source.plan_id is not None:
        plan = plans.get_finished_plan(session, plan_id=source.plan_id)
        snapshot = plans.get_problem(session, plan_id=source.plan_id).snapshot
    else:
        assert isinstance(source.plan, Plan), "one of the two is given, and it trains"
        plan, snapshot = source.plan, None
    if cluster is not None:
        snapshot = snapshots.newest_snapshot(
            session, reference=clusters.find_cluster(session, reference=cluster).id
        )
    if snapshot is None:
        snapshot = _of_provenance(session, plan)
    check_fits(plan, snapshot.cluster)
    return plan, snapshot


def judge(asked: ResilienceQuestion) -> Resilience:
    """The resilience of a plan; raises ``InvalidInput`` of a label that its nodes do not carry."""
    # Imported late: only whoever asks pays for loading the solver.
    from solver.answer.survival import losses_by, survives  # noqa: PLC0415
    from solver.problem import PlanningProblem, SearchOptions  # noqa: PLC0415
    from solver.replanning.resilience import (  # noqa: PLC0415
        FAILURES_PER_NODE_DAY,
        effective_training,
        hardenings,
    )
    from solver.search import plan  # noqa: PLC0415

    def replan(workload: TrainingWorkload) -> Plan | NoPlan:
        assert asked.plan.architecture is not None, "a plan of ours says which model it is for"
        assert asked.search_s is not None
        problem = PlanningProblem(asked.snapshot, asked.plan.architecture, workload, asked.fitted)
        return plan(problem, SearchOptions(time_limit_s=asked.search_s, alternatives=0))

    cluster = asked.snapshot.cluster
    if losses_by(asked.plan, asked.recovery, cluster, asked.label) is None:
        known = sorted({label for node in cluster.nodes for label in node.labels} | {"node"})
        raise InvalidInput(
            "label", asked.label, "is not carried by every node of the plan", close_name(asked.label, known)
        )
    rate = FAILURES_PER_NODE_DAY if asked.failures_per_node_day is None else asked.failures_per_node_day
    training = effective_training(
        asked.plan, asked.recovery, cluster, failures_per_node_day=rate, write_s=asked.write_s
    )
    return Resilience(
        survives=survives(asked.plan, asked.recovery, cluster),
        training=training,
        hardenings=hardenings(
            asked.plan,
            asked.recovery,
            asked.snapshot,
            asked.label,
            replan=None if asked.search_s is None else replan,
        ),
    )


def judge_beside(asked: ResilienceQuestion) -> Resilience:
    """The same beside the web process, for questions with a search; raises ``NotReady`` as well."""
    assert asked.search_s is not None
    return in_subprocess(
        judge,
        asked,
        limit_s=asked.search_s + _BESIDE_SEARCH_S,
        what="search_time_limit_s",
        command="meshwright resilience",
    )


def _of_provenance(session: Session, plan: Plan) -> ClusterSnapshot:
    try:
        return snapshots.get_snapshot(session, snapshot_id=plan.provenance.snapshot_id)
    except NotFound as unknown:
        raise InvalidInput(
            "plan.provenance.snapshot_id",
            plan.provenance.snapshot_id,
            "is not a snapshot of this service",
            "name the cluster",
        ) from unknown
