"""Warnings about a plan's failure domains and the switches that it shares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cluster_models.cluster.switches import Figure
from cluster_models.cluster.topology import Cluster
from cluster_models.remarks import Remark, remark
from cluster_models.training.placement_rules import PlacementRules, RankGroup, Spread
from cluster_models.training.plan import Degrees, RankOrder
from cluster_models.training.workload import Sharding
from solver.candidates import ORDER_CODES, SHARDING_CODES, IntArray
from solver.compiled import step_seconds, violations
from solver.placement.build import degrees_of
from solver.placement.problem import no_uplinks
from solver.placement.rule_counting import kept_by_nodes
from solver.placement.rules import NODE, Terrain, compile_rules, terrain_of
from solver.problem import PlanningProblem
from solver.refine import Candidate

NOTICEABLE = 0.002
"""Shares of the step below which a shared switch is not worth a word."""


def site_warnings(problem: PlanningProblem, candidate: Candidate, assignment: IntArray) -> Iterator[Remark]:
    """Rules that are not kept, kinds of state without a copy, and what switches cost."""
    yield from _broken_rules(problem, candidate, assignment)
    yield from _states_without_copy(problem, candidate)
    yield from _switches(problem, candidate, assignment)


def _broken_rules(problem: PlanningProblem, candidate: Candidate, assignment: IntArray) -> Iterator[Remark]:
    """Only configurations given in full may break rules: what a search returns keeps them."""
    asked = problem.workload.placement
    if not asked:
        return
    terrain = terrain_of(problem.snapshot.cluster, problem.workload, candidate.fabric)
    degrees, order = degrees_of(candidate.batch), ORDER_CODES[int(candidate.batch.rank_order[0])]
    eligible = np.ones_like(candidate.placement.arrays.rules.eligible)
    for words, rules in _one_by_one(asked):
        alone = compile_rules(replace(terrain, asked=rules), degrees, order, eligible)
        if violations(assignment, alone) or not _kept_by_degrees(rules, terrain, degrees, order):
            yield remark("rule_not_kept", rule=words)


def _kept_by_degrees(rules: PlacementRules, terrain: Terrain, degrees: Degrees, order: RankOrder) -> bool:
    """Whether the ranks that share a node, or a slot, keep the rules: no rule on slots tells them apart."""
    for rule in rules.neighbours:
        strict = isinstance(rule, Spread) and rule.at_least is None
        together = terrain.gpus_per_node if rule.label == NODE else terrain.gpus_per_unit
        if (strict or rule.label == NODE) and not kept_by_nodes(rule, degrees, order, together):
            return False
    return True


def _one_by_one(asked: PlacementRules) -> Iterator[tuple[str, PlacementRules]]:
    """Every rule in words and on its own."""
    for spread in asked.spread:
        yield str(spread), PlacementRules(spread=(spread,))
    for together in asked.keep_together:
        yield str(together), PlacementRules(keep_together=(together,))
    for spares in asked.spares:
        yield f"leave {spares}", PlacementRules(spares=(spares,))
    if asked.require_nodes:
        yield "use the nodes required", PlacementRules(require_nodes=asked.require_nodes)


def _states_without_copy(problem: PlanningProblem, candidate: Candidate) -> Iterator[Remark]:
    rules = [str(rule) for rule in problem.workload.placement.spread if rule.group is RankGroup.DATA]
    sharding = SHARDING_CODES[int(candidate.batch.sharding[0])]
    in_groups = int(candidate.batch.sharding_ranks[0]) > 0
    if not rules or int(candidate.batch.data[0]) == 1 or sharding is Sharding.NONE or in_groups:
        return
    yield remark("single_copy", sharding=sharding, rule=rules[0])


def _switches(problem: PlanningProblem, candidate: Candidate, assignment: IntArray) -> Iterator[Remark]:
    """Cost of sharing switches, and those of their figures that nobody measured."""
    arrays, cluster = candidate.placement.arrays, problem.snapshot.cluster
    if not len(arrays.uplinks.bytes_per_s):
        return
    used = np.unique(assignment)
    crossed = {
        label for label in cluster.uplinks() if len({_place(candidate, cluster, label, n) for n in used}) > 1
    }
    step_s = step_seconds(assignment, arrays)[0]
    free = arrays._replace(
        uplinks=no_uplinks(arrays.hop_pairs, arrays.cross_pairs, arrays.ring_pairs, candidate.placement.nodes)
    )
    lost = 1 - step_seconds(assignment, free)[0] / step_s
    if lost > NOTICEABLE:
        yield remark("shared_uplinks", share=lost)
    nominal = sorted(
        f"{label} {place}"
        for label in crossed
        for place, uplink in cluster.uplinks()[label].items()
        if uplink.figure is Figure.NOMINAL and place in {_place(candidate, cluster, label, n) for n in used}
    )
    if nominal:
        yield remark("nominal_uplinks", switches=tuple(nominal))


def _place(candidate: Candidate, cluster: Cluster, label: str, unit: int) -> str | None:
    return cluster.nodes[int(candidate.fabric.index[unit])].place(label)
