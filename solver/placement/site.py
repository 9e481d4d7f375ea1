"""A placement problem under the rules of its workload and the switches of its cluster."""

from __future__ import annotations

from dataclasses import replace

from solver.candidates import ORDER_CODES, CandidateBatch
from solver.costs.step_costs import StepCosts
from solver.placement.build import degrees_of
from solver.placement.fabric import Fabric
from solver.placement.geometry import geometry
from solver.placement.problem import PlacementProblem
from solver.placement.rules import compile_rules, terrain_of
from solver.placement.uplinks import compile_uplinks, loads_of
from solver.problem import PlanningProblem


def on_site(
    placement: PlacementProblem, problem: PlanningProblem, fabric: Fabric, batch: CandidateBatch, costs: StepCosts
) -> PlacementProblem:
    """``placement``, that of a batch with one row and its costs, with what the workload and the cluster ask."""
    cluster, arrays = problem.snapshot.cluster, placement.arrays
    degrees, order = degrees_of(batch), ORDER_CODES[int(batch.rank_order[0])]
    if problem.workload.placement:
        terrain = terrain_of(cluster, problem.workload, fabric)
        arrays = arrays._replace(rules=compile_rules(terrain, degrees, order, arrays.rules.eligible))
    if cluster.switches:
        shape = geometry(degrees, order, fabric.gpus_per_unit, batch.runs)
        loads = loads_of(degrees, costs, shape, fabric.gpus_per_unit)
        arrays = arrays._replace(uplinks=compile_uplinks(cluster, fabric.index, loads))
    return replace(placement, arrays=arrays)
