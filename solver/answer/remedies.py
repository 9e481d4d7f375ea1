"""Why nothing fits, by how much, and what would make something fit: each remedy is tried before it is named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from cluster_models.links.model import LinkModel
from cluster_models.remarks import Remark, remark
from cluster_models.training.offload import can_offload
from cluster_models.training.plan import Configuration, NoPlan
from cluster_models.training.workload import Offload, Recompute, Sharding, TrainingWorkload
from solver.answer.assemble import configuration_of, provenance
from solver.degrees.priced import PricedCandidates, mix_fits_memory
from solver.degrees.promising import fits_memory
from solver.placement.cluster_fabrics import fabrics as fabrics_of
from solver.placement.cluster_fabrics import mixed_fabrics
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem, SearchOptions
from solver.refine import prepare

LEAST_HEADROOM: Final = 0.01
SHARD_OPTIMIZER: Final = "shard_optimizer"
SHARD_PARAMETERS: Final = "shard_parameters"
OFFLOAD_OPTIMIZER: Final = "offload_optimizer"


def no_plan(
    problem: PlanningProblem,
    options: SearchOptions,
    fabrics: Sequence[Fabric],
    candidates: PricedCandidates,
) -> NoPlan:
    """The result when no candidate is legal or none fits into memory."""
    remedies = tuple(_working_remedies(problem, [fabric for fabric in fabrics if not fabric.is_mixed]))
    origin = provenance(problem, options)
    if candidates.total == 0:
        illegal = remark("no_legal_degrees", global_batch=problem.workload.global_batch)
        return NoPlan((illegal,), None, None, remedies, origin)
    closest = int(np.argmin(candidates.excess_bytes))
    missing = float(candidates.excess_bytes[closest])
    configuration = _configuration(problem, fabrics, candidates, closest)
    too_large = remark(
        "nothing_fits",
        candidates=candidates.total,
        degrees=str(configuration.degrees),
        micro_batch=configuration.micro_batch,
        recompute=configuration.recomputation,
        sharding=configuration.sharding,
        missing_bytes=missing,
    )
    return NoPlan((too_large,), configuration, missing, remedies, origin)


def _configuration(
    problem: PlanningProblem, fabrics: Sequence[Fabric], candidates: PricedCandidates, index: int
) -> Configuration:
    batch = candidates.batch.take(np.array([index]))
    return configuration_of(
        prepare(problem, fabrics[int(candidates.fabric[index])], batch, *candidates.staging_of(index))
    )


def _working_remedies(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> Iterator[Remark]:
    """The relaxations under which something fits; the largest shortage if none does."""
    found = False
    for remedy, workload in _relaxations(problem.workload):
        if _fits(replace(problem, workload=workload), fabrics[0].links):
            found = True
            yield remedy
    grown = _nodes_needed(problem, fabrics)
    if grown is not None:
        yield remark("more_nodes", nodes=grown, present=max(f.nodes * f.nodes_per_unit for f in fabrics))
    elif not found:
        yield remark("nothing_simple_fits")


def _relaxations(workload: TrainingWorkload) -> Iterator[tuple[Remark, TrainingWorkload]]:
    if Recompute.FULL not in workload.recompute or workload.pinned.get("recompute_layers"):
        free = {name: size for name, size in workload.pinned.items() if name != "recompute_layers"}
        yield remark("allow_recomputation"), replace(workload, recompute=tuple(Recompute), pinned=free)
    if Sharding.OPTIMIZER not in workload.sharding:
        yield remark(SHARD_OPTIMIZER), replace(workload, sharding=(*workload.sharding, Sharding.OPTIMIZER))
    if Sharding.PARAMETERS not in workload.sharding:
        yield remark(SHARD_PARAMETERS), replace(workload, sharding=(*workload.sharding, Sharding.PARAMETERS))
    if Offload.OPTIMIZER not in workload.offload and can_offload(workload):
        yield remark(OFFLOAD_OPTIMIZER), replace(workload, offload=(*workload.offload, Offload.OPTIMIZER))
    for degree, size in workload.pinned.items():
        rest = {name: other for name, other in workload.pinned.items() if name != degree}
        yield remark("unpin", degree=degree, size=size), replace(workload, pinned=rest)
    if workload.forbidden:
        yield remark("allow_degrees"), replace(workload, forbidden={})
    yield from _more_gpus(workload)
    if workload.memory_headroom > LEAST_HEADROOM:
        lower = remark("lower_headroom", headroom=workload.memory_headroom, least=LEAST_HEADROOM)
        yield lower, replace(workload, memory_headroom=LEAST_HEADROOM)


def _more_gpus(workload: TrainingWorkload) -> Iterator[tuple[Remark, TrainingWorkload]]:
    if workload.max_gpus is not None:
        yield remark("allow_gpus", gpus=workload.max_gpus), replace(workload, max_gpus=None)
    if workload.max_power_watts is not None:
        yield remark("allow_power", watts=workload.max_power_watts), replace(workload, max_power_watts=None)
    if workload.avoid_nodes:
        yield remark("use_avoided_nodes"), replace(workload, avoid_nodes=())


def _fits(problem: PlanningProblem, links: LinkModel) -> bool:
    alone = any(
        fits_memory(problem, fabric.gpu, gpus_per_node=fabric.gpus_per_unit, nodes=fabric.nodes)
        for fabric in fabrics_of(problem.snapshot, problem.workload, links)
    )
    mixed = mixed_fabrics(problem.snapshot, problem.workload, links)
    return alone or any(mix_fits_memory(problem, fabric) for fabric in mixed)


def _nodes_needed(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> int | None:
    """Nodes that would hold the model, to within a twentieth; ``None`` if 64 times those at hand do not."""
    if problem.workload.max_gpus is not None or problem.workload.max_power_watts is not None:
        return None
    largest = max(fabrics, key=lambda fabric: (fabric.gpu.memory_bytes, fabric.nodes * fabric.gpus_per_unit))

    def enough(units: int) -> bool:
        return fits_memory(problem, largest.gpu, gpus_per_node=largest.gpus_per_unit, nodes=units)

    doublings = [largest.nodes * factor for factor in (2, 4, 8, 16, 32, 64)]
    most: int | None = next((nodes for nodes in doublings if enough(nodes)), None)
    if most is None:
        return None
    least = most // 2
    while most - least > max(1, most // 20):
        middle = (least + most) // 2
        least, most = (least, middle) if enough(middle) else (middle, most)
    return most * largest.nodes_per_unit
