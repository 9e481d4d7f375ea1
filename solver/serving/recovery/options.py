"""Options of one serving deployment after failures, each priced: carry on, start replicas, plan all anew."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from cluster_models.jobs.serving import (
    ConsideredServing,
    ServedLoad,
    ServingAction,
    ServingDecision,
    gpus_of,
)
from cluster_models.jobs.times import TimeRange
from cluster_models.serving.goal import ServedModel, ServingGoal, ServingObjective
from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.refusal import NoServingPlan
from cluster_models.serving.replicas import Replica, ReplicaGroup
from solver.problem import SearchOptions
from solver.serving.plan import plan_serving
from solver.serving.problem import ServingProblem
from solver.serving.recovery.problem import Gpu, RecoveryProblem
from solver.serving.recovery.settling import Together, as_plan, together, with_free
from solver.serving.recovery.standing import living_groups
from solver.serving.recovery.swapping import swapped_groups

GAP: Final = 0.01
"""Proven gap at which one search for replicas ends."""
LEAST_SHARE: Final = 1e-3
"""Share of a load below which no replica is started for it."""


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """Decisions that one deployment can take, the best first, and what no decision is worth more than."""

    options: tuple[ServingDecision, ...]
    bound_flop: float


def serving_options(problem: RecoveryProblem, options: SearchOptions) -> ServingOptions:
    """Every action on ``problem.job``, with none, few and all of the spares."""
    options = replace(options, gap=max(options.gap, GAP), alternatives=0)
    living = living_groups(problem.job.plan.groups, problem.lost)
    own = problem.job.gpus - problem.lost
    free = frozenset(gpu for gpu in own | problem.spare_gpus if problem.nodes[gpu[0]].usable)
    asked = problem.job.asked
    anew = _Anew(ServingProblem(with_free(problem.snapshot, free), asked.models, asked.goal), options)
    standing = together(problem, living, own)
    tried, refused = _tried(problem, living, standing, free, options)
    if isinstance(anew.best, NoServingPlan):
        refused.append(ConsideredServing(ServingAction.REPLAN, 0, None, anew.best.reason))
    elif problem.job.policy.may_replan:
        tried.append((anew.best.groups, free))
    found: dict[object, ServingDecision] = {}
    for groups, gpus in ((living, own), *tried):
        made = decision_of(problem, together(problem, groups, gpus), anew.plan_of, living)
        found.setdefault((made.action, made.held, len(made.started)), made)
    ranked = sorted(found.values(), key=lambda each: (-each.value_flop, len(each.held), each.action))
    rivals = tuple(ConsideredServing(each.action, len(each.held), each.value_flop) for each in ranked)
    all_options = tuple(
        replace(each, considered=(*rivals[:index], *rivals[index + 1 :], *refused))
        for index, each in enumerate(ranked)
    )
    return ServingOptions(all_options, max(ranked[0].value_flop, _bound_flop(problem, standing, anew.best)))


def _tried(
    problem: RecoveryProblem,
    living: Sequence[ReplicaGroup],
    standing: Together,
    free: frozenset[Gpu],
    options: SearchOptions,
) -> tuple[list[tuple[Sequence[ReplicaGroup], Collection[Gpu]]], list[ConsideredServing]]:
    """Groups that keep what lives, each with the GPUs that they may use, and why there are no others."""
    own = problem.job.gpus - problem.lost
    tried: list[tuple[Sequence[ReplicaGroup], Collection[Gpu]]] = []
    refused: list[ConsideredServing] = []
    if (same := swapped_groups(problem)) is not None:
        tried.append((same, free | own))
    for spares in _spares(problem) if living else ():
        started = _started(problem, living, standing, own | spares, options)
        if isinstance(started, NoServingPlan):
            refused.append(ConsideredServing(ServingAction.START_REPLICAS, 0, None, started.reason))
        elif started:
            tried.append(((*living, *started), own | spares))
    return tried, refused


def _spares(problem: RecoveryProblem) -> Iterator[frozenset[Gpu]]:
    """None of the spares, those of half of the nodes where more serve more, all."""
    nodes = sorted({name for name, _ in problem.spare_gpus if problem.nodes[name].usable})
    half = (len(nodes) + 1) // 2 if problem.job.asked.goal.objective.is_maximum else 0
    for count in sorted({0, half, len(nodes)}):
        chosen = set(nodes[:count])
        yield frozenset(gpu for gpu in problem.spare_gpus if gpu[0] in chosen)


@dataclass(eq=False)
class _Anew:
    """Plans on all that is left, each with its bound, for the load and for as much as can be; made when needed."""

    problem: ServingProblem
    options: SearchOptions

    @cached_property
    def for_load(self) -> ServingPlan | NoServingPlan:
        """The best plan for what is asked for."""
        return plan_serving(self.problem, self.options)

    @cached_property
    def for_most(self) -> ServingPlan | NoServingPlan:
        """The best plan for as much as the limits allow."""
        if self.problem.goal.objective is ServingObjective.GOODPUT:
            return self.for_load
        most = replace(self.problem.goal, objective=ServingObjective.GOODPUT)
        return plan_serving(replace(self.problem, goal=most), self.options)

    @property
    def best(self) -> ServingPlan | NoServingPlan:
        """For the load, or where that is too much, for as much as can be."""
        return self.for_load if isinstance(self.for_load, ServingPlan) else self.for_most

    def plan_of(self, found: Together) -> ServingPlan | None:
        """The plan of groups side by side, under the bound of its goal."""
        bound = self.for_load if found.carried else self.for_most
        if isinstance(bound, NoServingPlan):
            bound = self.for_most
        if isinstance(bound, NoServingPlan):
            return None
        return as_plan(found, bound.certificate, bound.goal, self.options)


def _started(
    problem: RecoveryProblem,
    living: Sequence[ReplicaGroup],
    standing: Together,
    allowed: Collection[Gpu],
    options: SearchOptions,
) -> tuple[ReplicaGroup, ...] | NoServingPlan:
    """Groups for what those that live do not carry, on the GPUs of ``allowed`` that these leave."""
    asked_for = problem.job.asked
    held = {gpu for group in living for replica in group.replicas for gpu in gpus_of(replica)}
    free = [gpu for gpu in allowed if gpu not in held and problem.nodes[gpu[0]].usable]
    rest = [
        (model, left)
        for model, served in enumerate(asked_for.models)
        if (left := _rest(served, living, model, standing.room[model], asked_for.goal)) is not None
    ]
    if not rest or not free:
        return ()
    kinds = problem.snapshot.cluster.gpu_kinds
    watts = sum(replica.watts(kinds) for group in living for replica in group.replicas)
    goal = _goal_of_rest(len(held), watts, asked_for.goal)
    asked = ServingProblem(with_free(problem.snapshot, free), tuple(served for _, served in rest), goal)
    found = plan_serving(asked, options)
    if isinstance(found, NoServingPlan) and goal.objective is not ServingObjective.GOODPUT:
        most = replace(goal, objective=ServingObjective.GOODPUT)
        found = plan_serving(replace(asked, goal=most), options)
    if isinstance(found, NoServingPlan):
        return found
    return tuple(replace(group, model=rest[group.model][0]) for group in found.groups)


def _rest(
    served: ServedModel, living: Sequence[ReplicaGroup], model: int, room: float, goal: ServingGoal
) -> ServedModel | None:
    """The model under the load that is left over; ``None`` where there is hardly any."""
    workload = served.workload
    if goal.objective is ServingObjective.GOODPUT:
        return served
    load = workload.concurrency if workload.requests_per_s is None else workload.requests_per_s
    assert load is not None  # a workload has one of them
    if goal.objective is ServingObjective.THROUGHPUT and workload.concurrency is not None:
        # more replicas for the same requests in flight answer faster: those that live keep what they had
        room = min(room, sum(group.concurrency for group in living if group.model == model))
    left = load - room
    if left <= LEAST_SHARE * load:
        return None
    if workload.concurrency is None:
        return replace(served, workload=replace(workload, requests_per_s=left))
    return replace(served, workload=replace(workload, concurrency=left))


def _goal_of_rest(held: int, watts: float, goal: ServingGoal) -> ServingGoal:
    """The goal with what living replicas use taken from its limits."""
    gpus, power = goal.max_gpus, goal.max_power_watts
    return replace(
        goal,
        max_gpus=None if gpus is None else max(1, gpus - held),
        max_power_watts=None if power is None else max(1.0, power - watts),
    )


def decision_of(
    problem: RecoveryProblem,
    found: Together,
    plan_of: Callable[[Together], ServingPlan | None],
    living: Sequence[ReplicaGroup],
) -> ServingDecision:
    """The decision to serve by ``found`` as ``plan_of`` makes a plan of it, with what it is worth."""
    plan = plan_of(found)
    before = problem.job.plan
    alive = [each for each in before.replicas if problem.lost.isdisjoint(gpus_of(each))]
    old = {_identity(each): each.number for each in alive}
    now = () if plan is None else plan.replicas
    kept = tuple((old[_identity(each)], each.number) for each in now if _identity(each) in old)
    started = tuple(each.number for each in now if _identity(each) not in old)
    lost = tuple(each.number for each in before.replicas if each not in alive and not problem.job.is_paused)
    stays = {number for number, _ in kept}
    stopped = tuple(each.number for group in living for each in group.replicas if each.number not in stays)
    fresh = {gpu for each in now if each.number in started for gpu in gpus_of(each)}
    after = found.rates if plan is not None else tuple(0.0 for _ in before.models)
    during = after
    if plan is not None and started:
        waiting = living_groups(plan.groups, fresh)
        during = together(problem, waiting, [gpu for each in now for gpu in gpus_of(each)]).rates
    weights = sum(each.memory.weight_bytes * each.worker.gpus for each in now if each.number in started)
    start = _start(problem, weights) if started else TimeRange()
    made = ServingDecision(
        job_id=problem.job.id,
        job_name=problem.job.name,
        action=_action(plan, started, stopped),
        plan=plan,
        lost=lost,
        stopped=stopped,
        kept=kept,
        started=started,
        loads=tuple(
            ServedLoad(model, *rates)
            for model, rates in enumerate(
                zip(problem.asked_per_s, problem.before_per_s, during, after, strict=True)
            )
        ),
        start=start,
        weight_bytes=weights,
        value_flop=0.0,
    )
    return replace(made, value_flop=value_flop(problem, made))


def _action(plan: ServingPlan | None, started: Collection[int], stopped: Collection[int]) -> ServingAction:
    if plan is None:
        return ServingAction.STOP
    if stopped:
        return ServingAction.REPLAN
    return ServingAction.START_REPLICAS if started else ServingAction.CARRY_ON


def _identity(replica: Replica) -> tuple[object, ...]:
    return replica.phase, replica.worker, replica.places


def _start(problem: RecoveryProblem, weight_bytes: float) -> TimeRange:
    """From the decision to the first answers of replicas that read ``weight_bytes`` from storage together."""
    policy = problem.job.policy
    read_s = weight_bytes / policy.storage_bytes_per_s
    return TimeRange(policy.start_low_s + read_s, policy.start_high_s + read_s)


def value_flop(problem: RecoveryProblem, made: ServingDecision) -> float:
    """Weighted FLOPs of the answers over the horizon, less what spares and stopped replicas must be worth.

    Requests beyond those asked for are worth nothing.
    """
    horizon_s, asked = problem.horizon_s, problem.job.asked
    usual = problem.worth_flop(tuple(each.requests_per_s for each in asked.figures))
    start_s = min(made.start.middle_s, horizon_s)

    def worth(rates: Sequence[float]) -> float:
        return problem.worth_flop(
            tuple(min(rate, load.asked_per_s) for rate, load in zip(rates, made.loads, strict=True))
        )

    worked = worth([load.during_per_s for load in made.loads]) * start_s
    worked += worth([load.after_per_s for load in made.loads]) * (horizon_s - start_s)
    taken = len(made.held - problem.job.gpus)
    spares = problem.spare_worth_share * usual / asked.gpus * taken * horizon_s
    gain = problem.job.policy.least_gain_share * usual * horizon_s if made.stopped else 0.0
    return worked - spares - gain


def _bound_flop(problem: RecoveryProblem, standing: Together, anew: ServingPlan | NoServingPlan) -> float:
    """No decision is worth more: what is asked for, as far as the proven bound allows, once replicas started."""
    if isinstance(anew, NoServingPlan):
        return 0.0
    horizon_s, asked = problem.horizon_s, problem.asked_per_s
    carried = tuple(min(rate, most) for rate, most in zip(standing.rates, asked, strict=True))
    best = problem.worth_flop(carried)
    start_s = min(0.5 * (problem.job.policy.start_low_s + problem.job.policy.start_high_s), horizon_s)
    if all(math.isfinite(most) for most in asked):
        full = problem.worth_flop(asked)
    else:
        ahead = anew.certificate.bound / max(anew.certificate.objective, 1e-12)
        full = ahead * problem.worth_flop(tuple(each.most_requests_per_s for each in anew.figures))
    return max(best, min(best, full) * start_s + full * (horizon_s - start_s), best * horizon_s)
