"""Step time and memory of a run on nominal links: no cluster, no placement.

The planner's own prediction uses measured links and the simulated schedule; here every link between nodes has
the same nominal bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.fitted import FittedParameters
from cluster_models.measurements import Collective
from cluster_models.training_run import TrainingRun
from cluster_models.workload import Sharding
from solver.candidates import FloatArray, batch_of
from solver.costs.calibration import calibration_of
from solver.costs.collectives import domain_collective_s
from solver.costs.memory import stage_memory
from solver.costs.parameters import by_rank
from solver.costs.step_costs import CrossTraffic, StepCosts, step_costs
from solver.degrees.layout import chunk_layers

NETWORK_SHARE: Final = 0.8
"""Of the nominal bandwidth, what collectives reach between nodes (NCCL on InfiniBand: 0.75 to 0.9)."""
HOP_LATENCY_S: Final = 20e-6
"""NCCL between two nodes: 18 us on Slingshot, 70 us on EFA (published nccl-tests)."""


@dataclass(frozen=True, slots=True)
class RunPrediction:
    """Seconds of a step and of its parts."""

    step_s: float
    pipeline_s: float
    bubble_s: float
    exposed_data_s: float
    optimizer_s: float
    compute_s: float
    tensor_s: float
    expert_s: float


def predict_run(run: TrainingRun, fitted: FittedParameters | None = None) -> RunPrediction:
    """Pipeline fill and steady state, exposed gradient traffic and the optimizer.

    Non-interleaved: sum of stages + (m - 1) slowest stage; interleaving with v chunks divides the fill by v
    (arXiv 2104.04473, section 2.2).  Transfers block unless interleaved, where Megatron overlaps them.
    """
    batch = batch_of(run.configuration)
    costs = step_costs(
        batch,
        chunk_layers(run.architecture, run.configuration.stage_layers),
        architecture=run.architecture,
        workload=run.workload,
        gpu=run.gpu,
        gpus_per_domain=run.gpus_per_domain,
        gpus_per_node=run.gpus_per_node,
        calibration=calibration_of(run.gpu, run.workload.framework, fitted),
    )
    degrees = run.configuration.degrees
    stages, virtual = degrees.pipeline, degrees.virtual_pipeline
    micro_batches = run.configuration.micro_batches(run.workload.global_batch)
    crossing = _crossing_s(run, costs)
    per_rank = by_rank(costs.forward_s + costs.backward_s + crossing, stages)[0]
    if stages > 1 and virtual == 1:
        per_rank = per_rank + 2.0 * _transfer_s(run, costs)
    fill = (per_rank.sum() - per_rank.max()) / virtual
    pipeline = fill + micro_batches * per_rank.max()
    exposed = _exposed_data_s(run, costs)
    optimizer = float(costs.optimizer_s.max())
    slowest = int(per_rank.argmax())
    return RunPrediction(
        step_s=float(pipeline + exposed + optimizer),
        pipeline_s=float(pipeline),
        bubble_s=float(fill),
        exposed_data_s=exposed,
        optimizer_s=optimizer,
        compute_s=micro_batches * float(by_rank(costs.compute_s, stages)[0, slowest]),
        tensor_s=micro_batches * float(by_rank(costs.tensor_s, stages)[0, slowest]),
        expert_s=micro_batches * float(by_rank(costs.expert_s + crossing, stages)[0, slowest]),
    )


def predict_peak_memory(run: TrainingRun, fitted: FittedParameters | None = None) -> float:
    """Peak bytes on a GPU of the fullest pipeline rank."""
    parts = stage_memory(
        batch_of(run.configuration),
        chunk_layers(run.architecture, run.configuration.stage_layers),
        architecture=run.architecture,
        workload=run.workload,
        gpu=run.gpu,
        micro_batches=np.array([run.configuration.micro_batches(run.workload.global_batch)]),
        calibration=calibration_of(run.gpu, run.workload.framework, fitted),
    )
    return float(parts.total_bytes.max())


def _crossing_s(run: TrainingRun, costs: StepCosts) -> FloatArray:
    total = np.zeros_like(costs.forward_s)
    traffic: CrossTraffic
    for traffic in (costs.context_traffic, costs.expert_traffic, costs.parameter_traffic):
        hop = traffic.message_bytes / (NETWORK_SHARE * run.network_bytes_per_s) + HOP_LATENCY_S
        total += np.maximum(hop - traffic.forward_hidden_s, 0.0)[:, None] * traffic.forward_count
        total += np.maximum(hop - traffic.backward_hidden_s, 0.0)[:, None] * traffic.backward_count
    return total


def _transfer_s(run: TrainingRun, costs: StepCosts) -> float:
    return float(costs.transfer_bytes[0]) / (NETWORK_SHARE * run.network_bytes_per_s) + HOP_LATENCY_S


def _exposed_data_s(run: TrainingRun, costs: StepCosts) -> float:
    degrees = run.configuration.degrees
    tensor, expert = degrees.tensor, degrees.expert
    ranks = degrees.data * degrees.context
    routed_ranks = max(tensor * ranks // expert, 1)
    rounds = 2.0 if run.configuration.sharding is Sharding.NONE else 1.0  # an all-reduce
    exposed = np.zeros(costs.reduce_bytes.shape[1])
    for kind, common, routed, hidden in (
        (Collective.REDUCE_SCATTER, costs.reduce_bytes, costs.expert_reduce_bytes, costs.reduce_hidden_s),
        (Collective.ALL_GATHER, costs.gather_bytes, costs.expert_gather_bytes, costs.gather_hidden_s),
    ):
        seconds = _group_s(run, kind, common[0], ranks, tensor)
        seconds = seconds + _group_s(run, kind, routed[0], routed_ranks, max(expert, 1))
        if kind is Collective.REDUCE_SCATTER:
            seconds = rounds * seconds
        exposed += np.maximum(seconds - hidden[0], 0.0)
    return float(exposed.max())


def _group_s(run: TrainingRun, kind: Collective, nbytes: FloatArray, ranks: int, stride: int) -> FloatArray:
    """One ring over ``ranks`` GPUs, ``stride`` apart; a node's members share its network cards."""
    if ranks == 1:
        return np.zeros_like(nbytes)
    if ranks * stride <= max(run.gpus_per_domain, run.gpus_per_node):
        return domain_collective_s(run.gpu, kind, np.full(nbytes.shape, float(ranks)), nbytes)
    members = max(run.gpus_per_node // stride, 1)
    rate = members * NETWORK_SHARE * run.network_bytes_per_s
    return np.asarray(nbytes * (ranks - 1) / ranks / rate + HOP_LATENCY_S)
