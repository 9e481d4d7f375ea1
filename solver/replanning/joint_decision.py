"""Training jobs and serving deployments after one batch of failures: one decision about all spares.

A deployment enters the master program of the training jobs (``program``) with options that were worked out for it
alone, and with a promise for all that it did not work out: no option is worth more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cluster_models.jobs.recovery import AS_RECOVERY, BatchDecision, Migration
from cluster_models.jobs.serving import ServingDecision, ServingJob
from cluster_models.remarks import remark
from solver.problem import IsCancelled, SearchOptions
from solver.replanning.decide import Beside, DecidedBeside, OnReplanProgress, decide, decide_beside
from solver.replanning.problem import RecoveryOption, ReplanOptions
from solver.replanning.program import Promise
from solver.replanning.shared import SharedProblem, with_serving
from solver.serving.recovery.options import serving_options
from solver.serving.recovery.problem import Gpu

_UNSAID: Final = remark("text", text="")
"""Why a deployment does something is told by its own decision, not by the option that stands for it."""


def decide_together(
    problem: SharedProblem,
    options: ReplanOptions | None = None,
    *,
    on_progress: OnReplanProgress | None = None,
    is_cancelled: IsCancelled | None = None,
) -> BatchDecision:
    """The best decision about all jobs that the failures touched; without deployments it is that of ``decide``.

    Deployments get options on all spares, on those that deployments before them leave, and once more on those that
    the first decision leaves.  GPUs of training jobs are not theirs, nor the reverse.
    """
    if not problem.serving:
        return decide(problem.training, options, on_progress=on_progress, is_cancelled=is_cancelled)
    options = options or ReplanOptions()
    known = _first_options(problem, options)
    training = problem.without_serving()
    found = decide_beside(training, _beside(known), options, on_progress=on_progress, is_cancelled=is_cancelled)
    if _more_options(problem, known, found, options):
        found = decide_beside(training, _beside(known), options, on_progress=on_progress, is_cancelled=is_cancelled)
    serving = [known[job_id].decision(option) for job_id, option in found.chosen.items()]
    return with_serving(found.batch, problem, serving, found.bound)


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
        action=AS_RECOVERY[made.action],
        holds=made.held,
        value_flop=made.value_flop,
        tokens_per_s=0.0,
        limited_by=_UNSAID,
        migration=Migration(),
        plan=None,
        reason=_UNSAID,
    )
