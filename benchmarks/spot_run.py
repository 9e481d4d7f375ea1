"""A cluster of spot nodes lived through: jobs work, lose nodes, are decided on, stand still, work again.

The clock advances from window to window; what a decision costs is what it says itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.replanning_cases import Kind
from benchmarks.spot_jobs import cluster_at, jobs_on, report_of
from benchmarks.spot_traces import Batch, SpotEvent, batches
from cluster_models.jobs.recovery import BatchDecision, JobDecision, RecoveryAction
from cluster_models.jobs.running import RunningJob
from cluster_models.training.plan import StopReason
from solver.replanning.check import check_decision, held_after
from solver.replanning.problem import ReplanProblem
from solver.replanning.values import flops_per_token, transfer_flop

Decide = Callable[[ReplanProblem], BatchDecision]


class Broken(AssertionError):
    """A decision or the state after it breaks a rule; the message says which."""


@dataclass(slots=True)
class JobState:
    """A job as it is: what it runs by, the steps it has made, and from when on it works.

    ``full_flops_per_s``: weighted, on all the nodes that it wants.  ``stands``: it waits for nodes.  ``down_s``:
    seconds in which it had GPUs and did no new work.  ``hits``: windows in which it lost nodes.  ``moves_flop``:
    weighted FLOPs that its owner asks for the bytes that it moved.
    """

    job: RunningJob
    ready_s: float
    full_flops_per_s: float
    tokens: float = 0.0
    steps: float = 0.0
    stands: bool = False
    down_s: float = 0.0
    paused_s: float = 0.0
    hits: int = 0
    moves_flop: float = 0.0

    def work(self, since_s: float, lost_s: float, until_s: float) -> None:
        """Let it work from ``since_s`` until it loses a node at ``lost_s``; then it stands until ``until_s``."""
        stands = self.job.is_paused or self.stands
        self.hits += lost_s < until_s and not self.job.is_paused
        seconds = 0.0 if stands else max(0.0, lost_s - max(since_s, self.ready_s))
        self.tokens += self.job.plan.tokens_per_s * seconds
        self.steps += seconds / self.job.plan.time.step_s
        if self.job.is_paused:
            self.paused_s += until_s - since_s
        else:
            self.down_s += until_s - since_s - seconds

    @property
    def asked(self) -> RunningJob:
        """The job as a decision is told of it, with the steps since its checkpoint."""
        since = int(self.steps % self.job.recovery.checkpoint_interval_steps)
        return replace(self.job, recovery=replace(self.job.recovery, steps_since_checkpoint=since))

    @property
    def work_flop(self) -> float:
        """Weighted useful FLOPs so far."""
        return self.job.weight * flops_per_token(self.job) * self.tokens


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision of a run; ``cpu_s``: processor time, ``bound`` ``None`` where none was looked for."""

    at_s: float
    cpu_s: float
    objective: float
    bound: float | None
    horizon_s: float
    moved_bytes: float
    actions: tuple[RecoveryAction, ...]
    pauses: int


@dataclass(slots=True)
class Run:
    """Outcome of a trace under one way of deciding."""

    states: list[JobState]
    started_s: float
    ended_s: float = 0.0
    decided: list[Decided] = field(default_factory=list)

    @property
    def work_flop(self) -> float:
        """Weighted useful FLOPs of all jobs."""
        return math.fsum(state.work_flop for state in self.states)

    @property
    def net_flop(self) -> float:
        """Work less what the owners of the jobs ask for the bytes moved: what decisions are to make most of."""
        return self.work_flop - math.fsum(state.moves_flop for state in self.states)

    @property
    def moved_bytes(self) -> float:
        """All bytes that all decisions moved."""
        return math.fsum(each.moved_bytes for each in self.decided)

    @property
    def most_flop(self) -> float:
        """Weighted useful FLOPs of all jobs had nothing ever been taken from them."""
        return (self.ended_s - self.started_s) * math.fsum(state.full_flops_per_s for state in self.states)

    def count(self, action: RecoveryAction) -> int:
        """How often a job got that answer."""
        return sum(each.actions.count(action) for each in self.decided)


def replay(
    events: Sequence[SpotEvent], kinds: Sequence[Kind], decide: Decide, *, window_s: float, horizon_s: float
) -> Run:
    """Live through ``events`` from the moment at which every job has its nodes.

    A window's removals and additions are decided on together when it ends; jobs that lost a node stand still from
    its removal.  ``horizon_s`` bounds the time that decisions look ahead.  Raises ``Broken``.
    """
    wanted = sum(kind.nodes for kind in kinds)
    alive: list[str] = []
    seen: list[SpotEvent] = []
    run: Run | None = None
    now_s = 0.0
    for batch in batches(events, window_s):
        if run is not None:
            _work(run, now_s, batch)
        alive = [name for name in alive if name not in batch.removed]
        alive += [each.node for each in batch.events if each.added and each.node not in batch.removed]
        seen += batch.events
        now_s = batch.ends_s
        if run is None:
            if len(alive) >= wanted:
                run = Run([_begun(job, now_s) for job in jobs_on(alive, kinds)], now_s)
            continue
        ahead_s = min(horizon_s, _quiet_s(run, now_s))
        _step(run, decide, _problem(run, alive, seen, batch, ahead_s), now_s)
        _state_is_whole(run, set(alive))
    if run is None:
        raise Broken(f"the trace never has {wanted} nodes at once")
    run.ended_s = now_s
    return run


def _begun(job: RunningJob, now_s: float) -> JobState:
    return JobState(job, now_s, job.weight * flops_per_token(job) * job.plan.tokens_per_s)


def _quiet_s(run: Run, now_s: float) -> float:
    """Expected seconds until a job is hit, from what hit all of them so far."""
    paused_s = math.fsum(state.paused_s for state in run.states)
    at_work_s = len(run.states) * (now_s - run.started_s) - paused_s
    return expected_quiet_s(sum(state.hits for state in run.states), at_work_s=at_work_s)


def _problem(
    run: Run, alive: Sequence[str], seen: Iterable[SpotEvent], batch: Batch, horizon_s: float
) -> ReplanProblem:
    jobs = tuple(state.asked for state in run.states)
    named = {*alive, *(host for job in jobs for host in job.plan.placement.hosts)}
    held = {host for job in jobs for host in job.nodes}
    return ReplanProblem(
        snapshot=cluster_at((event for event in seen if event.node in named), named, batch.ends_s),
        jobs=jobs,
        spares=tuple(name for name in alive if name not in held),
        horizon_s=horizon_s,
        back_after_s=horizon_s,
        spare_worth_share=0.0,  # what comes next is in the trace, and the horizon ends with it
        events=tuple(report_of(event) for event in batch.events if event.node in named),
    )


def _work(run: Run, since_s: float, batch: Batch) -> None:
    """Let the jobs work until the end of the window, those that lose a node until they lose it."""
    for state in run.states:
        gone = [batch.removed[host] for host in state.job.nodes if host in batch.removed]
        state.work(since_s, min(gone, default=batch.ends_s), batch.ends_s)


def _step(run: Run, decide: Decide, problem: ReplanProblem, now_s: float) -> None:
    started = time.process_time()
    decision = decide(problem)
    cpu_s = time.process_time() - started
    if wrong := check_decision(problem, decision):
        raise Broken(f"after {now_s:.0f} s: {' '.join(wrong)}")
    if sorted(held_after(problem, decision)) != sorted(job.id for job in problem.jobs):
        raise Broken(f"after {now_s:.0f} s: a job is lost")
    made = {each.job_id: each for each in decision.jobs}
    ran = {state.job.id for state in run.states if not state.job.is_paused}
    for state in run.states:
        if state.job.id in made:
            _apply(state, made[state.job.id], now_s)
    run.decided.append(
        Decided(
            at_s=now_s,
            cpu_s=cpu_s,
            objective=decision.objective,
            bound=None if decision.stopped_by is StopReason.NO_SEARCH else decision.bound,
            horizon_s=problem.horizon_s,
            moved_bytes=math.fsum(each.migration.bytes.total for each in decision.jobs),
            actions=tuple(each.action for each in decision.jobs),
            pauses=sum(each.action is RecoveryAction.PAUSE and each.job_id in ran for each in decision.jobs),
        )
    )


def _apply(state: JobState, made: JobDecision, now_s: float) -> None:
    """The job as the decision leaves it; what it repeats after a fall-back is downtime."""
    if made.action is RecoveryAction.PAUSE:
        state.job, state.stands = replace(state.job, is_paused=True), False
        return
    state.moves_flop += transfer_flop(state.job, made.migration.bytes.outside)
    if made.plan is None:
        state.stands = True
        return
    if made.action is not RecoveryAction.NONE:
        state.ready_s = now_s + made.migration.downtime.middle_s
    state.job, state.stands = replace(state.job, plan=made.plan, is_paused=False), False


def _state_is_whole(run: Run, alive: set[str]) -> None:
    """No GPU is held twice, and no job that runs holds one that is gone."""
    held: dict[tuple[str, int], str] = {}
    for state in run.states:
        for place in () if state.job.is_paused else state.job.plan.placement.ranks:
            if place.node not in alive and not state.stands:
                raise Broken(f"{state.job.name} runs on {place.node}, which is gone")
            if held.setdefault((place.node, place.gpu), state.job.name) != state.job.name:
                raise Broken(f"{place.node}:{place.gpu} is held twice")


def expected_quiet_s(hits: int, *, at_work_s: float) -> float:
    """Expected seconds until a job is hit, from ``hits`` seen while jobs were at work for ``at_work_s`` in all.

    The time looked at over the hits seen: the likeliest mean where they come at random at one rate
    (docs/replanning.md); infinite where none was.
    """
    return at_work_s / hits if hits else math.inf
