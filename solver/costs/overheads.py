"""How much of a step its matrix products do not explain, which a framework decides."""

from __future__ import annotations

import math

from cluster_models.cluster.gpus import GpuKind
from cluster_models.model.architecture import Architecture
from cluster_models.training.model_work import workload_flops_per_token
from cluster_models.training.workload import TrainingWorkload


def overhead_doublings(
    gpu: GpuKind, architecture: Architecture, workload: TrainingWorkload, *, gpus: int, step_s: float
) -> float:
    """Doublings from the products of a step, at the rate that ``gpus`` cards reach in large ones, to ``step_s``.

    0 where the step takes no longer than they do.  Half of the rate that large products reach is one doubling: what
    well-tuned steps of large dense models have.  Hosts, collectives, bubbles and small products make the rest.
    """
    flops = workload_flops_per_token(architecture, workload) * workload.global_batch * workload.sequence_length
    rate = gpus * gpu.peak_flops[workload.precision] * gpu.achievable_fraction
    return max(0.0, math.log2(step_s * rate / flops))
