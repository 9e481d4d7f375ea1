"""Training jobs and serving deployments after one batch of failures: one decision about all spares.

A deployment enters the master program of the training jobs (``program``) with options that were worked out for it
alone, and with a promise for all that it did not work out: no option is worth more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.jobs.recovery import BatchDecision, Migration, RecoveryAction
from cluster_models.jobs.serving import ServingAction, ServingDecision, ServingJob
from solver.check.serving import check_serving_plan
from solver.problem import IsCancelled, SearchOptions
from solver.replanning.check import TOLERANCE, check_decision, gap_of, held_after
from solver.replanning.decide import Beside, DecidedBeside, OnReplanProgress, decide_beside
from solver.replanning.problem import RecoveryOption, ReplanOptions, ReplanProblem
from solver.replanning.program import Promise
from solver.serving.problem import ServingProblem
from solver.serving.recovery.options import serving_options
from solver.serving.recovery.problem import Gpu, RecoveryProblem
from solver.serving.recovery.settling import with_free

_ACTIONS: Final = MappingProxyType(
    {
        ServingAction.CARRY_ON: RecoveryAction.NONE,
        ServingAction.START_REPLICAS: RecoveryAction.SWAP,
        ServingAction.REPLAN: RecoveryAction.RESHAPE,
        ServingAction.STOP: RecoveryAction.PAUSE,
    }
)


@dataclass(frozen=True, slots=True)
class SharedDecision:
    """Decision about training jobs (``batch``) and deployments; the bound and the gap are those of all together.

    ``untouched``: deployments that lost nothing.  ``spares_left``: spare nodes that neither took.
    """

    batch: BatchDecision
    serving: tuple[ServingDecision, ...]
    untouched: tuple[str, ...]
    objective: float
    bound: float
    gap: float
    spares_left: tuple[str, ...]


@dataclass(frozen=True)
class SharedProblem:
    """A cluster with training jobs (``training``) and deployments (``serving``), none on a GPU of another.

    GPUs of neither are in use in ``training.snapshot``, whose spares and horizon are those of both.
    """

    training: ReplanProblem
    serving: tuple[ServingJob, ...]

    @property
    def hit(self) -> tuple[ServingJob, ...]:
        """Deployments that lost a GPU or must leave one."""
        return tuple(job for job in self.serving if self.recovery_of(job).lost)

    def without_serving(self) -> ReplanProblem:
        """The problem of the training jobs: GPUs of deployments are in use."""
        held = frozenset(gpu for job in self.serving for gpu in job.gpus)
        return replace(self.training, snapshot=_in_use(self.training.snapshot, held))

    def recovery_of(self, job: ServingJob, taken: frozenset[Gpu] = frozenset()) -> RecoveryProblem:
        """The problem of one deployment: GPUs of all other jobs, and those ``taken``, are in use."""
        others = {gpu for other in self.serving if other.id != job.id for gpu in other.gpus}
        others |= {(node, gpu) for node, holders in self.training.holders.items() for gpu in holders}
        return RecoveryProblem(
            snapshot=_in_use(self.training.snapshot, frozenset(others - job.gpus) | taken),
            job=job,
            spares=self.training.spares,
            horizon_s=self.training.horizon_s,
            spare_worth_share=self.training.spare_worth_share,
        )


def decide_together(
    problem: SharedProblem,
    options: ReplanOptions | None = None,
    *,
    on_progress: OnReplanProgress | None = None,
    is_cancelled: IsCancelled | None = None,
) -> SharedDecision:
    """The best decision about all jobs that the failures touched.

    Deployments get options on all spares, on those that deployments before them leave, and once more on those that
    the first decision leaves.  GPUs of training jobs are not theirs, nor the reverse.
    """
    options = options or ReplanOptions()
    known = _first_options(problem, options)
    training = problem.without_serving()
    found = decide_beside(training, _beside(known), options, on_progress=on_progress, is_cancelled=is_cancelled)
    if _more_options(problem, known, found, options):
        found = decide_beside(training, _beside(known), options, on_progress=on_progress, is_cancelled=is_cancelled)
    serving = tuple(known[job_id].decision(option) for job_id, option in sorted(found.chosen.items()))
    objective = math.fsum([found.batch.objective, *(made.value_flop for made in serving)])
    bound = max(found.bound, objective)
    taken = {node for made in serving for node, _ in made.held}
    return SharedDecision(
        batch=found.batch,
        serving=serving,
        untouched=tuple(sorted(job.id for job in problem.serving if job.id not in known)),
        objective=objective,
        bound=bound,
        gap=gap_of(objective, bound),
        spares_left=tuple(name for name in found.batch.spares_left if name not in taken),
    )


@dataclass(slots=True, eq=False)
class _Known:
    """Decisions that one deployment can take, each by its option."""

    job: ServingJob
    bound_flop: float
    made: dict[RecoveryOption, ServingDecision]

    def add(self, decisions: Sequence[ServingDecision]) -> None:
        for each in decisions:
            self.made.setdefault(_option(each), each)

    def decision(self, option: RecoveryOption) -> ServingDecision:
        return self.made[option]

    @property
    def best(self) -> RecoveryOption:
        return max(self.made, key=lambda option: (option.value_flop, -len(option.holds)))


def _first_options(problem: SharedProblem, options: ReplanOptions) -> dict[str, _Known]:
    known: dict[str, _Known] = {}
    taken: frozenset[Gpu] = frozenset()
    for job in sorted(problem.hit, key=lambda job: job.id):
        found = serving_options(problem.recovery_of(job), _search(options))
        known[job.id] = _Known(job, found.bound_flop, {})
        known[job.id].add(found.options)
        if taken & known[job.id].best.holds:
            known[job.id].add(serving_options(problem.recovery_of(job, taken), _search(options)).options)
        taken |= known[job.id].best.holds - job.gpus
    return known


def _more_options(
    problem: SharedProblem, known: Mapping[str, _Known], found: DecidedBeside, options: ReplanOptions
) -> bool:
    """Work out options on the spares that ``found`` leaves, for deployments that did not get their best."""
    held = {gpu for option in found.chosen.values() for gpu in option.holds}
    held |= {
        (place.node, place.gpu)
        for made in found.batch.jobs
        for place in (made.plan.placement.ranks if made.plan is not None else ())
    }
    more = False
    for job_id, own in known.items():
        if found.chosen[job_id] != own.best:
            before = len(own.made)
            taken = frozenset(held - found.chosen[job_id].holds)
            own.add(serving_options(problem.recovery_of(own.job, taken), _search(options)).options)
            more |= len(own.made) > before
    return more


def _search(options: ReplanOptions) -> SearchOptions:
    return SearchOptions(
        time_limit_s=options.time_limit_s,
        effort=options.effort,
        seed=options.seed,
        gap=options.gap,
        backend=options.backend,
        alternatives=0,
    )


def _beside(known: Mapping[str, _Known]) -> Beside:
    return Beside(
        tuple(option for own in known.values() for option in own.made),
        tuple(Promise(job_id, own.bound_flop) for job_id, own in known.items()),
    )


def _option(made: ServingDecision) -> RecoveryOption:
    """The decision as the master program takes it."""
    return RecoveryOption(
        job_id=made.job_id,
        action=_ACTIONS[made.action],
        holds=made.held,
        value_flop=made.value_flop,
        tokens_per_s=0.0,
        limited_by="",
        migration=Migration(),
        plan=None,
        reason="",
    )


def _in_use(snapshot: ClusterSnapshot, gpus: frozenset[Gpu]) -> ClusterSnapshot:
    """The snapshot with ``gpus`` in use as well."""
    nodes = tuple(
        replace(
            node,
            gpus_in_use=tuple(
                gpu for gpu in range(node.gpu_count) if gpu not in node.free_gpus or (node.name, gpu) in gpus
            ),
        )
        for node in snapshot.cluster.nodes
    )
    return replace(snapshot, cluster=replace(snapshot.cluster, nodes=nodes))


def check_shared(problem: SharedProblem, decision: SharedDecision) -> tuple[str, ...]:
    """Sentences about what is wrong with ``decision``; empty where all holds."""
    return (*check_decision(problem.without_serving(), decision.batch), *_serving_rules(problem, decision))


def _serving_rules(problem: SharedProblem, decision: SharedDecision) -> tuple[str, ...]:
    """Every deployment decided once; no GPU lost, given twice, or another job's; plans sound; figures add up."""
    broken = []
    jobs = {job.id: job for job in problem.serving}
    told = sorted([*(made.job_id for made in decision.serving), *decision.untouched])
    if told != sorted(jobs):
        broken.append("The deployments decided about are not those that run here, each once.")
    after = held_after(problem.without_serving(), decision.batch)
    held = {gpu: job_id for job_id, gpus in after.items() for gpu in gpus}
    for made in decision.serving:
        own = problem.recovery_of(jobs[made.job_id])
        for gpu in sorted(made.held):
            if gpu in own.lost or gpu not in own.job.gpus | own.spare_gpus:
                broken.append(f"{made.job_name} gets GPU {gpu[0]}:{gpu[1]}, which is neither spare nor its own.")
            if (other := held.setdefault(gpu, made.job_id)) != made.job_id:
                broken.append(f"GPU {gpu[0]}:{gpu[1]} is given to {other} and to {made.job_id}.")
        broken += _plan_rules(own, made)
    total = math.fsum([decision.batch.objective, *(made.value_flop for made in decision.serving)])
    size = max(abs(total), 1.0)
    if abs(total - decision.objective) > TOLERANCE * size or decision.bound < total - TOLERANCE * size:
        broken.append(f"Objective {decision.objective:g} and bound {decision.bound:g} do not go with {total:g}.")
    return tuple(broken)


def _plan_rules(own: RecoveryProblem, made: ServingDecision) -> list[str]:
    """What an independent reading of the plan finds, on the GPUs that the deployment may use."""
    if made.plan is None:
        return []
    offered = {(idle.node, gpu) for idle in made.plan.idle for gpu in idle.gpus} | made.held
    asked = ServingProblem(with_free(own.snapshot, offered), own.job.plan.models, made.plan.goal)
    return [f"{made.job_name}: {text}" for text in check_serving_plan(made.plan, asked)]
