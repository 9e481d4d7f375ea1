"""A decision on failures in words, the same on terminal, page and in answers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Protocol

from app.presentation.figures import duration, percent
from app.presentation.recovery import ACTIONS, data_size
from app.presentation.serving_decisions import SERVING_ACTIONS
from app.services.decisions.replan_answers import DecisionSummary
from cluster_models.jobs.recovery import BatchDecision, JobDecision, Migration, RecoveryAction
from cluster_models.jobs.serving import ServingAction
from cluster_models.training.plan import StopReason
from cluster_models.wording import named

ACTION_VERBS: Final[Mapping[RecoveryAction, str]] = {
    RecoveryAction.NONE: "runs on",
    RecoveryAction.RESTART_IN_PLACE: "starts again in place",
    RecoveryAction.SWAP: "swaps in spares",
    RecoveryAction.SHRINK_DATA_PARALLEL: "drops replicas",
    RecoveryAction.REROUTE: "routes around the loss",
    RecoveryAction.RESHAPE: "takes another shape",
    RecoveryAction.WAIT: "waits",
    RecoveryAction.PAUSE: "pauses",
}
"""Action of one job; ``verb`` has the form for several."""
_STOPPED: Final = {
    StopReason.TIME_LIMIT: "The search ended because its time was used up; a longer one may find better.",
    StopReason.WORK_LIMIT: "The search ended because its work budget was used up; a larger effort may find better.",
    StopReason.CANCELLED: "The search was called off.",
}
_TOO_SMALL_TO_SAY: Final = 5e-5


class Judged(Protocol):
    """Figures that a decision and its summary share."""

    @property
    def spares_used(self) -> Collection[str]:
        """Spare nodes that it takes."""

    @property
    def spares_left(self) -> Collection[str]:
        """Spare nodes that stay free."""

    @property
    def gap(self) -> float:
        """(bound - objective) / bound."""

    @property
    def stopped_by(self) -> str:
        """Reason for which the search ended."""

    @property
    def fallback(self) -> bool:
        """Whether it is the safe answer."""


def explanation(
    decision: Judged,
    actions: Collection[tuple[str, RecoveryAction]],
    serving: Collection[tuple[str, ServingAction]] = (),
) -> str:
    """The batch in a few sentences: what each job does, with which spares, and how sure it is the best.

    ``actions`` are those on training jobs, ``serving`` those on deployments, by name.
    """
    trained = [
        f"{named(jobs)} {verb(action, len(jobs))}"
        for action in RecoveryAction
        if (jobs := sorted(job for job, does in actions if does is action))
    ]
    done = "; ".join([*trained, *(f"{job} {SERVING_ACTIONS[action]}" for job, action in sorted(serving))])
    used, left = len(decision.spares_used), len(decision.spares_left)
    first = f"{done}." if done else "No job is touched: nothing changes."
    return f"{first} {used} of {used + left} spare nodes are used. {verdict(decision)}"


def decision_explanation(decision: BatchDecision) -> str:
    """A decision in a few sentences."""
    return explanation(
        decision,
        [(made.job_name, made.action) for made in decision.jobs],
        [(made.job_name, made.action) for made in decision.serving],
    )


def summary_words(summary: DecisionSummary, *, most: int) -> list[str]:
    """The first jobs of a decision with their actions, a few words each, and how many more there are."""
    told = [f"{job.job} {ACTIONS[job.action]}" for job in summary.jobs]
    told += [f"{job.job} {SERVING_ACTIONS[job.action]}" for job in summary.serving]
    return [*told[:most], *([f"and {len(told) - most} more"] if len(told) > most else [])]


def unprepared_words(jobs: Sequence[str]) -> str:
    """Warning that no other shape was looked for; empty where there is nothing to warn of."""
    if not jobs:
        return ""
    return (
        f"Nothing is prepared yet for the loss of one node of {named(jobs)}, so only fewer replicas and a pause "
        "were compared. Ask again in some minutes."
    )


def verb(action: RecoveryAction, jobs: int) -> str:
    """Action of one job or several in words."""
    first, _, rest = ACTION_VERBS[action].partition(" ")
    return f"{first if jobs == 1 else first.removesuffix('s')} {rest}".rstrip()


def verdict(decision: Judged) -> str:
    """How good it is, in a sentence or two; a safe answer stays one where the search found nothing better."""
    if decision.stopped_by == StopReason.NO_SEARCH:
        if decision.fallback:
            return "This answer was made without a search: it is safe, and there may be a better one."
        return "Nothing better was searched for."
    found = "The search found nothing better than the safe answer. " if decision.fallback else ""
    if decision.gap < _TOO_SMALL_TO_SAY:
        return f"{found}Proven best: no other decision is worth more."
    return f"{found}No other decision can be worth more than {percent(decision.gap, places=2)} more."


def proof(decision: BatchDecision) -> Iterator[str]:
    """How good it is, why the search ended, and what it does beside waiting."""
    yield verdict(decision)
    if decision.stopped_by in _STOPPED:
        yield _STOPPED[decision.stopped_by]
    horizon = duration(decision.horizon_s)
    if decision.objective > decision.objective_if_waiting > 0:
        times = decision.objective / decision.objective_if_waiting
        more = f"{percent(times - 1, places=0)} more" if times < 2 else f"{times:.1f} times as much"
        yield f"It makes {more} of the next {horizon} {'than' if times < 2 else 'as'} if every job here waited."
    else:
        yield f"Weighed over the next {horizon}."


def moved_bytes(migration: Migration) -> tuple[tuple[str, str], ...]:
    """Sizes by the links that they cross, where any do."""
    parts = (
        ("inside nodes", migration.bytes.nvlink),
        ("under one leaf switch", migration.bytes.leaf),
        ("between leaf switches", migration.bytes.fabric),
        ("from storage", migration.bytes.storage),
    )
    return tuple((words, data_size(size)) for words, size in parts if size >= 1)


def lost_gpu_hours(made: JobDecision) -> str:
    """GPU-hours without useful work: "0.5 to 2"."""
    low, high = (f"{hours:.3g}" for hours in made.lost_gpu_hours)
    return low if low == high else f"{low} to {high}"


def starts_anew(made: JobDecision) -> bool:
    """Whether the job is started by its plan because of the decision."""
    return made.action not in (RecoveryAction.NONE, RecoveryAction.WAIT, RecoveryAction.PAUSE)
