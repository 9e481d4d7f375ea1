"""Steps of a serving plan's replicas with the expert map that they are to load."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.serving.goal import ServedModel
from cluster_models.serving.replicas import Phase, Replica
from cluster_models.serving.workload import Pool, ServingConfiguration
from solver.serving.cases import ServingCase, imbalance_of
from solver.serving.loads import WorkerLinks
from solver.serving.rates import rates_of
from solver.serving.steps import busiest_load


@dataclass(frozen=True, slots=True)
class MapTimes:
    """A step of one phase as planned and with a map; ``imbalance`` is what a workload says of that map."""

    phase: Phase
    imbalance: float
    planned_s: float
    mapped_s: float
    planned_experts_s: float
    mapped_experts_s: float


def map_times(served: ServedModel, replica: Replica, busiest: float) -> tuple[MapTimes, ...]:
    """The steps of ``replica`` with a map whose ``busiest`` expert rank has so many times the mean load.

    The imbalance of many ranks is that whose busiest of the replica's ranks has the load of the map's.
    """
    groups = np.array([float(replica.worker.expert)])
    imbalance = (busiest - 1.0) / (1.0 - 1.0 / groups[0])
    found = []
    for phase, step in ((Phase.PREFILL, replica.prefill), (Phase.DECODE, replica.decode)):
        if step is not None:
            as_planned = float(busiest_load(np.array([_planned(served, replica, phase)]), groups)[0])
            experts = step.expert_s * busiest / as_planned
            total = step.total_s - step.expert_s + experts
            found.append(MapTimes(phase, imbalance, step.total_s, total, step.expert_s, experts))
    return tuple(found)


def _planned(served: ServedModel, replica: Replica, phase: Phase) -> float:
    """The imbalance that the plan was priced with."""
    workload = served.workload
    split = replica.phase is not Phase.BOTH
    said = imbalance_of(workload, replica.worker, phase.value, split=split)
    if said is not None:
        return said
    case = ServingCase(
        served.architecture,
        gpu_kind(replica.gpu_kind),
        WorkerLinks(1, 1.0, 1.0, 0.0),
        workload,
        ServingConfiguration(Pool(replica.worker)),
        own=served.own,
    )
    return float(rates_of([case.properties], shifts=[case.shifts]).imbalance[0])
