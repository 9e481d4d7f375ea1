"""Step time of one configuration on nominal links, in closed form: what the accuracy benchmark scores.

The planner's own prediction uses measured links and the simulated schedule; here every link between nodes has
the same nominal bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.training_rows import Case
from cluster_models.fitted import FittedParameters
from cluster_models.measurements import Collective
from cluster_models.workload import Sharding
from solver.candidates import SHARDING_CODES, FloatArray
from solver.costs.calibration import Calibration, calibration_of
from solver.costs.collectives import domain_collective_s
from solver.costs.parameters import by_rank
from solver.costs.step_costs import CrossTraffic, StepCosts, step_costs

NETWORK_SHARE: Final = 0.8
"""Of the nominal bandwidth, what collectives reach between nodes (NCCL on InfiniBand: 0.75 to 0.9)."""
HOP_LATENCY_S: Final = 20e-6
"""NCCL between two nodes: 18 us on Slingshot, 70 us on EFA (published nccl-tests)."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds of a step and of its parts."""

    step_s: float
    pipeline_s: float
    bubble_s: float
    exposed_data_s: float
    optimizer_s: float
    compute_s: float
    tensor_s: float
    expert_s: float


def calibration_for(case: Case, own: FittedParameters | None = None) -> Calibration:
    """The GPU's parameters under the row's framework."""
    return calibration_of(case.gpu, case.workload.framework, own)


def predict(case: Case, own: FittedParameters | None = None) -> Prediction:
    """Pipeline fill and steady state, exposed gradient traffic and the optimizer.

    Non-interleaved: sum of stages + (m - 1) slowest stage; interleaving with v chunks divides the fill by v
    (arXiv 2104.04473, section 2.2).  Transfers block unless interleaved, where Megatron overlaps them.
    """
    costs = step_costs(
        case.batch,
        case.layers,
        architecture=case.architecture,
        workload=case.workload,
        gpu=case.gpu,
        gpus_per_domain=case.gpus_per_domain,
        gpus_per_node=case.gpus_per_node,
        calibration=calibration_for(case, own),
    )
    stages, virtual = int(case.batch.pipeline[0]), int(case.batch.virtual_pipeline[0])
    crossing = _crossing_s(case, costs)
    per_rank = by_rank(costs.forward_s + costs.backward_s + crossing, stages)[0]
    if stages > 1 and virtual == 1:
        per_rank = per_rank + 2.0 * _transfer_s(case, costs)
    fill = (per_rank.sum() - per_rank.max()) / virtual
    pipeline = fill + case.micro_batches * per_rank.max()
    exposed = _exposed_data_s(case, costs)
    optimizer = float(costs.optimizer_s.max())
    slowest = int(per_rank.argmax())
    return Prediction(
        step_s=float(pipeline + exposed + optimizer),
        pipeline_s=float(pipeline),
        bubble_s=float(fill),
        exposed_data_s=exposed,
        optimizer_s=optimizer,
        compute_s=case.micro_batches * float(by_rank(costs.compute_s, stages)[0, slowest]),
        tensor_s=case.micro_batches * float(by_rank(costs.tensor_s, stages)[0, slowest]),
        expert_s=case.micro_batches * float(by_rank(costs.expert_s + crossing, stages)[0, slowest]),
    )


def _crossing_s(case: Case, costs: StepCosts) -> FloatArray:
    total = np.zeros_like(costs.forward_s)
    traffic: CrossTraffic
    for traffic in (costs.context_traffic, costs.expert_traffic, costs.parameter_traffic):
        hop = traffic.message_bytes / (NETWORK_SHARE * case.network_bytes_per_s) + HOP_LATENCY_S
        total += np.maximum(hop - traffic.forward_hidden_s, 0.0)[:, None] * traffic.forward_count
        total += np.maximum(hop - traffic.backward_hidden_s, 0.0)[:, None] * traffic.backward_count
    return total


def _transfer_s(case: Case, costs: StepCosts) -> float:
    return float(costs.transfer_bytes[0]) / (NETWORK_SHARE * case.network_bytes_per_s) + HOP_LATENCY_S


def _exposed_data_s(case: Case, costs: StepCosts) -> float:
    batch = case.batch
    tensor, expert = int(batch.tensor[0]), int(batch.expert[0])
    ranks = int(batch.data[0] * batch.context[0])
    routed_ranks = max(tensor * ranks // expert, 1)
    rounds = 2.0 if SHARDING_CODES[int(batch.sharding[0])] is Sharding.NONE else 1.0  # an all-reduce
    exposed = np.zeros(costs.reduce_bytes.shape[1])
    for kind, common, routed, hidden in (
        (Collective.REDUCE_SCATTER, costs.reduce_bytes, costs.expert_reduce_bytes, costs.reduce_hidden_s),
        (Collective.ALL_GATHER, costs.gather_bytes, costs.expert_gather_bytes, costs.gather_hidden_s),
    ):
        seconds = _group_s(case, kind, common[0], ranks, tensor)
        seconds = seconds + _group_s(case, kind, routed[0], routed_ranks, max(expert, 1))
        if kind is Collective.REDUCE_SCATTER:
            seconds = rounds * seconds
        exposed += np.maximum(seconds - hidden[0], 0.0)
    return float(exposed.max())


def _group_s(case: Case, kind: Collective, nbytes: FloatArray, ranks: int, stride: int) -> FloatArray:
    """One ring over ``ranks`` GPUs, ``stride`` apart; a node's members share its network cards."""
    if ranks == 1:
        return np.zeros_like(nbytes)
    if ranks * stride <= max(case.gpus_per_domain, case.gpus_per_node):
        return domain_collective_s(case.gpu, kind, np.full(nbytes.shape, float(ranks)), nbytes)
    members = max(case.gpus_per_node // stride, 1)
    rate = members * NETWORK_SHARE * case.network_bytes_per_s
    return np.asarray(nbytes * (ranks - 1) / ranks / rate + HOP_LATENCY_S)
