"""Steps of a serving plan's replicas with the expert map that they are to load."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.serving.goal import ServedModel
from cluster_models.serving.replicas import Phase, Replica
from cluster_models.serving.workload import Pool, ServingConfiguration
from solver.serving.cases import ServingCase, crossing_of, imbalance_of
from solver.serving.loads import STREAM_BYTES, WorkerLinks
from solver.serving.rates import Rates, rates_of
from solver.serving.steps import busiest_load


@dataclass(frozen=True, slots=True)
class MapTimes:
    """A step of one phase as planned and with a map; ``imbalance`` is what a workload says of that map.

    ``*_crossing``: other nodes that a token needs, ``None`` where the map was made without nodes.
    """

    phase: Phase
    imbalance: float
    planned_s: float
    mapped_s: float
    planned_experts_s: float
    mapped_experts_s: float
    planned_crossing: float | None = None
    mapped_crossing: float | None = None


@dataclass(frozen=True, slots=True)
class MapCrossing:
    """Other ``nodes`` that a token needs with a map, on the busiest, over links of ``bytes_per_s`` a GPU.

    The ranks of a stage lie on ``hosts``; a decode step has ``decode_tokens`` of each GPU.
    """

    nodes: float
    bytes_per_s: float
    hosts: int
    decode_tokens: float


def map_times(
    served: ServedModel, replica: Replica, busiest: float, crossing: MapCrossing | None = None
) -> tuple[MapTimes, ...]:
    """The steps of ``replica`` with a map whose ``busiest`` expert rank has so many times the mean load.

    The imbalance of many ranks is that whose busiest of the replica's ranks has the load of the map's.  Dispatch
    and combine take longer by what more of the tokens cross, less by what fewer do.
    """
    groups = np.array([float(replica.worker.expert)])
    imbalance = (busiest - 1.0) / (1.0 - 1.0 / groups[0])
    rates, workload, worker = _rates(served, replica), served.workload, replica.worker
    split = replica.phase is not Phase.BOTH
    found = []
    for phase, step in ((Phase.PREFILL, replica.prefill), (Phase.DECODE, replica.decode)):
        if step is None:
            continue
        said = imbalance_of(workload, worker, phase.value, split=split)
        given = rates.imbalance if said is None else np.array([said])
        experts = step.expert_s * busiest / float(busiest_load(given, groups)[0])
        total, planned = step.total_s - step.expert_s + experts, None
        if crossing is not None:
            domain = worker.stage_gpus // crossing.hosts
            planned = crossing_of((workload, served.architecture), worker, domain, phase.value, split=split)
            is_decode = phase is Phase.DECODE
            tokens = crossing.decode_tokens if is_decode else workload.new_tokens / worker.tensor
            factor = float((rates.decode_factor if is_decode else rates.prefill_factor)[0])
            sent = 2.0 * served.architecture.sparse_layers * tokens * STREAM_BYTES * served.architecture.hidden
            longer = factor * sent * (crossing.nodes - planned) / crossing.bytes_per_s
            total += max(longer, -step.collective_s)
        mapped = None if crossing is None else crossing.nodes
        found.append(MapTimes(phase, imbalance, step.total_s, total, step.expert_s, experts, planned, mapped))
    return tuple(found)


def _rates(served: ServedModel, replica: Replica) -> Rates:
    """The rates that the plan was priced with."""
    workload = served.workload
    case = ServingCase(
        served.architecture,
        gpu_kind(replica.gpu_kind),
        WorkerLinks(1, 1.0, 1.0, 0.0),
        workload,
        ServingConfiguration(Pool(replica.worker)),
        own=served.own,
    )
    return rates_of([case.properties], shifts=[case.shifts])
