"""Every mix of GPU kinds by trying all kinds on all stages, as plainly as ``tests.solver.naive``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby, product

from cluster_models.links.model import effective_links
from cluster_models.training.plan import RankOrder
from solver.candidates import ORDER_CODES
from solver.degrees.memory_mixes import levels_of, with_mix
from solver.degrees.priced import mixed_layouts
from solver.degrees.stage_costs import StageKinds, kind_rows, objective_weight
from solver.placement.cluster_fabrics import mixed_fabrics
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem
from solver.refine import prepare
from tests.solver.cost_cases import candidates
from tests.solver.naive import best_placement, legal_degrees
from tests.solver.naive_mixes import every_mix


def mixes_of(asked: PlanningProblem) -> tuple[Fabric, ...]:
    """The fabrics with several kinds of a problem."""
    return mixed_fabrics(asked.snapshot, asked.workload, effective_links(asked.snapshot))


def legal_mixes(degrees: Mapping[str, int], fabric: Fabric, asked: PlanningProblem) -> Iterator[StageKinds]:
    """Kinds in blocks, nodes of one kind each, the faster kinds on as many stages as any such choice allows."""
    rates = [k.peak_flops[asked.workload.precision] * k.achievable_fraction for k in fabric.kinds]
    fastest_first = sorted(range(len(rates)), key=lambda kind: (-rates[kind], kind))
    possible = [
        kinds
        for kinds in product(range(len(rates)), repeat=degrees["pipeline"])
        if len([kind for kind, _ in groupby(kinds)]) == len(set(kinds)) and _has_nodes(kinds, degrees, fabric)
    ]
    fullest = max(([kinds.count(kind) for kind in fastest_first] for kinds in possible), default=[0])
    gpus = degrees["tensor"] * degrees["context"] * degrees["data"]
    together = sum(gpus * count * rates[kind] for kind, count in zip(fastest_first, fullest, strict=False))
    alone = max(rate * fabric.gpus_per_unit * list(fabric.kind).count(kind) for kind, rate in enumerate(rates))
    if min(fullest) > 0 and together > alone:
        yield from (kinds for kinds in possible if [kinds.count(kind) for kind in fastest_first] == fullest)


def _has_nodes(kinds: StageKinds, degrees: Mapping[str, int], fabric: Fabric) -> bool:
    """Whether whole nodes of one kind carry the stages, and there are enough of them."""
    cell, data, pipeline = degrees["tensor"] * degrees["context"], degrees["data"], degrees["pipeline"]
    if ORDER_CODES[degrees["rank_order"]] is RankOrder.DATA_BEFORE_PIPELINE:
        by_rank = [kinds[s] for s in range(pipeline) for _ in range(data * cell)]
    else:
        by_rank = [kinds[s] for _ in range(data) for s in range(pipeline) for _ in range(cell)]
    size = fabric.gpus_per_unit
    hosts = [set(by_rank[first : first + size]) for first in range(0, len(by_rank), size)]
    enough = all(hosts.count({kind}) <= list(fabric.kind).count(kind) for kind in range(len(fabric.kinds)))
    return len(by_rank) % size == 0 and all(len(found) == 1 for found in hosts) and enough


def best_mix(asked: PlanningProblem) -> tuple[float, int]:
    """The least objective over all mixes that fit and all their placements, and how many fit."""
    best, fitting = float("inf"), 0
    for fabric in mixes_of(asked):
        for degrees in legal_degrees(
            asked.architecture, asked.workload, gpus_per_node=fabric.gpus_per_unit, nodes=fabric.nodes
        ):
            for kinds in legal_mixes(degrees, fabric, asked):
                steps = list(_fitting_steps(asked, fabric, degrees, kinds))
                fitting += bool(steps)
                best = min([best, *steps])
    return best, fitting


def _fitting_steps(
    asked: PlanningProblem, fabric: Fabric, degrees: Mapping[str, int], kinds: StageKinds
) -> Iterator[float]:
    """Objectives of every recomputation that fits, with layers spread as for the least and the most of them."""
    rows = kind_rows(candidates(degrees), kinds)
    for level in levels_of(asked):
        batch = with_mix(candidates(degrees), *level)
        counts = mixed_layouts(asked, fabric, batch, rows)
        layout = tuple(map(tuple, counts.reshape(-1, len(kinds)).tolist()))
        for mix in every_mix(asked):
            candidate = prepare(asked, fabric, candidates(degrees | mix), layout, kinds)
            if (candidate.memory.total_bytes <= candidate.memory.limit_bytes).all():
                weight = objective_weight(asked.workload.objective, fabric.kinds, batch, rows)[0]
                yield best_placement(candidate) * float(weight)
                if not any(mix.values()):
                    return
