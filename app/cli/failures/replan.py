"""``meshwright replan``: decide in this process what becomes of running jobs after failures."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import typer

from app.cli.endings import Ending, Failed, complain
from app.cli.failures.failure_options import ToldFailures, looked_up, reported
from app.cli.failures.replan_files import DecisionFiles
from app.cli.failures.replan_options import (
    TypedJobs,
    read_fitted,
    read_jobs,
    seconds_of,
    spares_of,
    without_own_use,
)
from app.cli.failures.replan_progress import progress_line
from app.cli.failures.replan_view import AskedView, decision_view
from app.cli.failures.serving_jobs import check_apart, split_jobs
from app.cli.files import read_snapshot
from app.cli.progress import cancelled_by_interrupt, shown_progress
from app.cli.terminal import console, error_console
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster, NodeState
from cluster_models.errors import InvalidInput, SolverFailed
from cluster_models.health.conditions import Condition, conditions_of
from cluster_models.health.degraded import degraded
from cluster_models.jobs.recovery import BatchDecision
from cluster_models.jobs.serving import ServingJob
from solver.replanning.check_shared import check_shared
from solver.replanning.joint_decision import decide_together
from solver.replanning.problem import HORIZON_S, SPARE_WORTH_SHARE, ReplanOptions, ReplanProblem
from solver.replanning.safe_shared import safe_shared
from solver.replanning.shared import SharedProblem


@dataclass(frozen=True, slots=True)
class AskedReplan:
    """The options of ``replan`` as typed."""

    cluster: str
    jobs: TypedJobs
    told: ToldFailures
    calibrations: Sequence[str] = ()
    spares: Sequence[str] = ()
    horizon: str | None = None
    back_after: str | None = None
    gpu_budget: int | None = None
    spare_worth: float | None = None
    time_limit: float | None = None
    effort: int | None = None
    seed: int | None = None
    safe: bool = False
    as_json: bool = False
    files: DecisionFiles = field(default_factory=DecisionFiles)


def run_replan(asked: AskedReplan) -> None:
    """Decide and hand out the decision; Ctrl-C ends the search with the best found so far."""
    options = _options(asked)
    asked.files.check()
    stored = read_snapshot(asked.cluster)
    typed, serving = split_jobs(asked.jobs, stored.cluster)
    asked = replace(asked, jobs=typed)
    training, conditions = _problem(asked, stored, serving)
    problem = SharedProblem(training, serving)
    decision, cancelled = _decided(problem, options, safe=asked.safe)
    if broken := check_shared(problem, decision):
        raise Failed(f"internal error: the decision breaks its own rules: {' '.join(broken[:3])}")

    names = {job.id: job.name for job in training.jobs} | {job.id: job.name for job in serving}
    before = {job.id: job.plan for job in training.jobs}

    def document() -> str:
        from app.cli.failures.replan_answer import decision_text  # noqa: PLC0415 - loads the answers of the service

        return decision_text(decision, names, before)

    written = asked.files.write(decision, document)
    if asked.as_json:
        sys.stdout.write(document())
    else:
        served = {job.id: job.plan for job in serving}
        free = _free_not_spare(problem)
        shown = AskedView(names, before, served, conditions, written, free)
        console().print(decision_view(decision, shown), crop=False)
    sys.stdout.flush()
    if cancelled:
        complain("meshwright: interrupted; this is the best decision found until then")
        raise typer.Exit(Ending.INTERRUPTED)


def _options(asked: AskedReplan) -> ReplanOptions:
    default = ReplanOptions()
    limit = asked.time_limit
    if limit is not None and not (math.isfinite(limit) and limit > 0):
        raise InvalidInput("--time-limit", limit, "must be a positive number of seconds")
    return ReplanOptions(
        time_limit_s=default.time_limit_s if limit is None else limit,
        effort=default.effort if asked.effort is None else asked.effort,
        seed=default.seed if asked.seed is None else asked.seed,
    )


def _problem(
    asked: AskedReplan, stored: ClusterSnapshot, serving: Sequence[ServingJob]
) -> tuple[ReplanProblem, tuple[Condition, ...]]:
    """The problem of the training jobs as typed, and the parts that are not well in it."""
    horizon_s = HORIZON_S if asked.horizon is None else seconds_of("--horizon", asked.horizon)
    back_after_s = HORIZON_S if asked.back_after is None else seconds_of("--back-after", asked.back_after)
    jobs = read_jobs(asked.jobs, stored.cluster) if asked.jobs.plans or not serving else ()
    check_apart(jobs, serving)
    told = looked_up(reported(asked.told, stored.cluster), stored.cluster)
    events = tuple(each.event for each in told if each.known)
    conditions = conditions_of(events, now=datetime.now(UTC))
    if asked.told.says_nothing and all(node.state is NodeState.READY for node in stored.cluster.nodes):
        remedy = "give --lost, --degraded, --draining or --events"
        raise InvalidInput("--lost", None, "nothing is said to have failed", remedy)
    healthy = _freed(stored, without_own_use(stored.cluster, jobs, serving))
    problem = ReplanProblem(
        snapshot=degraded(healthy, conditions),
        jobs=jobs,
        spares=spares_of(asked.spares, stored.cluster, jobs, serving),
        horizon_s=horizon_s,
        back_after_s=back_after_s,
        gpu_budget=asked.gpu_budget,
        spare_worth_share=SPARE_WORTH_SHARE if asked.spare_worth is None else asked.spare_worth,
        events=events,
        fitted=read_fitted(asked.calibrations, jobs),
    )
    return problem, conditions


def _freed(stored: ClusterSnapshot, cluster: Cluster) -> ClusterSnapshot:
    if cluster == stored.cluster:
        return stored
    digest = hashlib.sha256(repr(cluster).encode()).hexdigest()[:12]
    return replace(stored, id=f"{stored.id}+{digest}", cluster=cluster)


def _free_not_spare(problem: SharedProblem) -> tuple[str, ...]:
    """Usable nodes that no job is on and that are not spares."""
    training = problem.training
    taken = {*training.spares, *training.holders, *(node for job in problem.serving for node, _ in job.gpus)}
    return tuple(
        node.name
        for node in training.snapshot.cluster.nodes
        if node.usable and node.free_gpus and node.name not in taken
    )


def _decided(problem: SharedProblem, options: ReplanOptions, *, safe: bool) -> tuple[BatchDecision, bool]:
    """The decision, and whether Ctrl-C ended the search for it."""
    try:
        if safe:
            return safe_shared(problem), False
        with (
            cancelled_by_interrupt() as is_cancelled,
            shown_progress(error_console(), progress_line) as on_progress,
        ):
            decision = decide_together(problem, options, on_progress=on_progress, is_cancelled=is_cancelled)
            return decision, is_cancelled()
    except SolverFailed as error:
        raise Failed(str(error)) from error
