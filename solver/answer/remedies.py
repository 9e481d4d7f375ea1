"""Why nothing fits, by how much, and what would make something fit: each remedy is tried before it is named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from cluster_models.links.model import LinkModel
from cluster_models.training.plan import Configuration, NoPlan
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.answer.assemble import configuration_of, provenance
from solver.degrees.priced import PricedCandidates, mix_fits_memory
from solver.degrees.promising import fits_memory
from solver.placement.cluster_fabrics import fabrics as fabrics_of
from solver.placement.cluster_fabrics import mixed_fabrics
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem, SearchOptions
from solver.refine import prepare


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
        reason = (
            "No combination of degrees obeys all rules: the pinned and forbidden degrees, a global batch of "
            f"{problem.workload.global_batch} sequences and the GPUs allowed leave none."
        )
        return NoPlan(reason, None, None, remedies, origin)
    closest = int(np.argmin(candidates.excess_bytes))
    missing = float(candidates.excess_bytes[closest])
    configuration = _configuration(problem, fabrics, candidates, closest)
    reason = (
        f"None of {candidates.total} legal candidates fits into memory; the closest ({configuration.degrees}, "
        f"micro-batch {configuration.micro_batch}, recompute {configuration.recompute}, sharding "
        f"{configuration.sharding}) misses by {missing / 2**30:.1f} GiB per GPU."
    )
    return NoPlan(reason, configuration, missing, remedies, origin)


def _configuration(
    problem: PlanningProblem, fabrics: Sequence[Fabric], candidates: PricedCandidates, index: int
) -> Configuration:
    batch = candidates.batch.take(np.array([index]))
    return configuration_of(
        prepare(problem, fabrics[int(candidates.fabric[index])], batch, *candidates.staging_of(index))
    )


def _working_remedies(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> Iterator[str]:
    """Sentences of the relaxations under which something fits; the largest shortage if none does."""
    found = False
    for sentence, workload in _relaxations(problem.workload):
        if _fits(replace(problem, workload=workload), fabrics[0].links):
            found = True
            yield sentence
    grown = _nodes_needed(problem, fabrics)
    if grown is not None:
        yield f"Use about {grown} such nodes instead of {max(f.nodes * f.nodes_per_unit for f in fabrics)}."
    elif not found:
        yield "Nothing simple helps: use GPUs with more memory, a smaller model or a shorter sequence."


def _relaxations(workload: TrainingWorkload) -> Iterator[tuple[str, TrainingWorkload]]:
    if set(workload.recompute) != set(Recompute):
        yield "Allow full recomputation.", replace(workload, recompute=tuple(Recompute))
    if Sharding.OPTIMIZER not in workload.sharding:
        sharding = (*workload.sharding, Sharding.OPTIMIZER)
        yield "Allow optimizer sharding (distributed optimizer, ZeRO-1).", replace(workload, sharding=sharding)
    if Sharding.PARAMETERS not in workload.sharding:
        sharding = (*workload.sharding, Sharding.PARAMETERS)
        yield "Allow parameter sharding (ZeRO-3, FSDP).", replace(workload, sharding=sharding)
    for degree in workload.pinned:
        rest = {name: size for name, size in workload.pinned.items() if name != degree}
        yield f"Do not pin {degree} to {workload.pinned[degree]}.", replace(workload, pinned=rest)
    if workload.forbidden:
        yield "Do not forbid degrees.", replace(workload, forbidden={})
    if workload.max_gpus is not None:
        yield f"Allow more than {workload.max_gpus} GPUs.", replace(workload, max_gpus=None)
    if workload.avoid_nodes:
        yield "Use the avoided nodes too.", replace(workload, avoid_nodes=())
    if workload.memory_headroom > 0.01:
        sentence = f"Lower the memory head-room from {100 * workload.memory_headroom:.0f} % to 1 %."
        yield sentence, replace(workload, memory_headroom=0.01)


def _fits(problem: PlanningProblem, links: LinkModel) -> bool:
    alone = any(
        fits_memory(problem, fabric.gpu, gpus_per_node=fabric.gpus_per_unit, nodes=fabric.nodes)
        for fabric in fabrics_of(problem.snapshot, problem.workload, links)
    )
    mixed = mixed_fabrics(problem.snapshot, problem.workload, links)
    return alone or any(mix_fits_memory(problem, fabric) for fabric in mixed)


def _nodes_needed(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> int | None:
    """Nodes that would hold the model, to within a twentieth; ``None`` if 64 times those at hand do not."""
    if problem.workload.max_gpus is not None:
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
