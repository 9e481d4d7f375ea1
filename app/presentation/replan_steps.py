"""Steps that carry a decision out, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from app.presentation.figures import duration
from app.presentation.recovery import Step, duration_range
from app.presentation.replans import starts_anew
from app.presentation.serving_decisions import serving_steps
from cluster_models.jobs.recovery import BatchDecision, JobDecision, Migration, RecoveryAction
from cluster_models.jobs.times import TimeRange
from cluster_models.training.plan import Plan
from cluster_models.wording import joined


def steps(decision: BatchDecision, before: Mapping[str, Plan]) -> list[Step]:
    """Steps to take, in this order; ``before`` are the plans by which jobs ran, by job id.

    Everything that changes is stopped before anything is started: nodes may go from one job to another.
    """
    stopped = [made.job_name for made in decision.jobs if starts_anew(made)]
    saved = [made.job_name for made in decision.jobs if made.migration.saves_first]
    found = []
    if saved:
        found.append(Step(f"Save a checkpoint of {joined(saved)} while it still can be: a cold restart reads it."))
    if stopped:
        they = "it still runs" if len(stopped) == 1 else "they still run"
        found.append(Step(f"Stop {joined(stopped)}, as far as {they}."))
    found += [Step(_paused(made, before.get(made.job_id))) for made in _with(decision, RecoveryAction.PAUSE)]
    for made in decision.jobs:
        if starts_anew(made) and made.plan is not None:
            found.append(Step(_started(made, made.plan, before.get(made.job_id)), made.job_id))
    for made in _with(decision, RecoveryAction.WAIT):
        found.append(Step(f"Leave {made.job_name} where it is; it starts again when its nodes are back."))
    found += [step for serving in decision.serving for step in serving_steps(serving)]
    if not found:
        found.append(Step("Nothing: every job here runs on as it is."))
    elif decision.quarantine:
        names = joined([each.node for each in decision.quarantine])
        found.append(Step(f"Keep {names} out until repaired, even if it comes back."))
    return found


def _with(decision: BatchDecision, action: RecoveryAction) -> Iterator[JobDecision]:
    return (made for made in decision.jobs if made.action is action)


def _paused(made: JobDecision, before: Plan | None) -> str:
    nodes = "its nodes" if before is None else joined(before.placement.hosts)
    return f"Stop {made.job_name}: it frees {nodes} and goes on from its checkpoint when there is room."


def _started(made: JobDecision, after: Plan, before: Plan | None) -> str:
    old = () if before is None else before.placement.hosts
    new = after.placement.hosts
    left = [name for name in old if name not in new]
    newcomers = [name for name in new if name not in old]
    where = "on the same nodes"
    if newcomers and left:
        where = f"with {joined(newcomers)} in place of {joined(left)}"
    elif newcomers:
        where = f"with {joined(newcomers)} more"
    elif left:
        where = f"without {joined(left)}"
    shape = ""
    if before is not None and before.configuration.degrees != after.configuration.degrees:
        shape = f" as {after.configuration.degrees} (was {before.configuration.degrees})"
    start = f"Start {made.job_name}"
    if made.action is RecoveryAction.REROUTE:
        start = f"Tell the framework of {made.job_name} to route around the lost ranks, or start it"
    return f"{start}{shape} {where}. {_times(made.migration)}"


def _times(migration: Migration) -> str:
    """Times until it steps again and until it is where it was."""
    low_s = migration.transfer.low_s + migration.restart.low_s
    high_s = migration.transfer.high_s + migration.restart.high_s
    again = f"It steps again in {duration_range(TimeRange(low_s, high_s))}"
    if not migration.steps_lost:
        return f"{again}, and repeats nothing."
    return f"{again}, and is where it was within {duration(migration.downtime.high_s)}."
