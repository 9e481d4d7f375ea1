"""The first answer about training jobs and deployments, without a search for other plans."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cluster_models.jobs.recovery import BatchDecision
from cluster_models.jobs.serving import ServingDecision
from solver.replanning.check import held_after
from solver.replanning.prepared import PreparedJob
from solver.replanning.safe import safe_answer
from solver.replanning.shared import SharedProblem, with_serving
from solver.serving.recovery.problem import Gpu
from solver.serving.recovery.safe import safe_serving


def safe_shared(problem: SharedProblem, prepared: Sequence[PreparedJob] = ()) -> BatchDecision:
    """The safe answer of the training jobs, then that of each deployment on the spares that are left.

    Deployments of most weight come first.  The bound is that of the options looked at, job by job.
    """
    training = problem.without_serving()
    batch = safe_answer(training, prepared)
    taken: frozenset[Gpu] = frozenset(gpu for gpus in held_after(training, batch).values() for gpu in gpus)
    serving: list[ServingDecision] = []
    for job in sorted(problem.hit, key=lambda job: (-job.weight, job.id)):
        made = safe_serving(problem.recovery_of(job, taken))
        taken |= made.held - job.gpus
        serving.append(made)
    if not problem.serving:
        return batch
    bound = math.fsum([batch.bound, *(made.value_flop for made in serving)])
    return with_serving(batch, problem, serving, bound)
