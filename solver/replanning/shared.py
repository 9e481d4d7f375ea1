"""Training jobs and serving deployments on one cluster, and a decision about both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.jobs.recovery import BatchDecision
from cluster_models.jobs.serving import ServingAction, ServingDecision, ServingJob
from solver.replanning.check import gap_of
from solver.replanning.problem import ReplanProblem
from solver.serving.recovery.problem import Gpu, RecoveryProblem


@dataclass(frozen=True)
class SharedProblem:
    """A cluster with training jobs (``training``) and deployments (``serving``), none on a GPU of another.

    GPUs of neither are in use in ``training.snapshot``, whose spares and horizon are those of both.
    """

    training: ReplanProblem
    serving: tuple[ServingJob, ...]

    @property
    def hit(self) -> tuple[ServingJob, ...]:
        """Deployments that lost a GPU, must leave one, or answer less than is asked for."""
        return tuple(job for job in self.serving if job.is_short or self.recovery_of(job).lost)

    def without_serving(self) -> ReplanProblem:
        """The problem of the training jobs: GPUs of deployments are in use."""
        if not self.serving:
            return self.training
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


def with_serving(
    batch: BatchDecision, problem: SharedProblem, serving: Sequence[ServingDecision], bound: float
) -> BatchDecision:
    """The decision ``batch`` about training jobs with those about deployments; ``bound`` is that of both."""
    decided, jobs = {made.job_id for made in serving}, {job.id: job for job in problem.serving}
    taken = {node for made in serving for node, _ in made.held - jobs[made.job_id].gpus}
    used = tuple(name for name in batch.spares_before if name in batch.spares_used or name in taken)
    objective = math.fsum([batch.objective, *(made.value_flop for made in serving)])
    bound = max(bound, objective)
    return replace(
        batch,
        serving=tuple(sorted(serving, key=lambda made: made.job_id)),
        untouched=tuple(sorted([*batch.untouched, *(job.id for job in problem.serving if job.id not in decided)])),
        spares_used=used,
        spares_left=tuple(name for name in batch.spares_before if name not in used),
        objective=objective,
        objective_if_waiting=math.fsum([batch.objective_if_waiting, *map(_if_waiting, serving)]),
        bound=bound,
        gap=gap_of(objective, bound),
    )


def _if_waiting(made: ServingDecision) -> float:
    """Value of the deployment if nothing is started."""
    still = (ServingAction.CARRY_ON, ServingAction.STOP)
    values = [made.value_flop] if made.action in still else []
    values += [each.value_flop for each in made.considered if each.action in still and each.value_flop is not None]
    return max(values, default=0.0)


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
