"""Small grids with every feature, their placement problems, and the rules that their orders must keep."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from cluster_models.training.frameworks import DEFAULT_FRAMEWORK
from cluster_models.training.interleaving import micro_batch_group
from solver.candidates import BoolArray, FloatArray, IntArray
from solver.compiled import Arrays, Rules, Uplinks
from solver.pipeline.schedule import build_schedule
from solver.placement.problem import NO_SLOT, PlacementProblem, no_rules, no_uplinks
from solver.refine import Candidate
from tests.solver.every_order import Grid, Switches, every_order, every_step_s

MOST_NODES = 8
SHAPES = [(dp, pp) for dp in range(1, MOST_NODES + 1) for pp in range(1, MOST_NODES // dp + 1)]
"""(replicas, pipeline) of all grids of up to eight nodes."""
FEATURES = ("slowdown", "directed", "interleaved", "blocking", "alike", "rules", "switches")


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A grid, the same as a placement problem, and which of its orders keep the rules (M,)."""

    grid: Grid
    problem: PlacementProblem
    allowed: BoolArray

    @property
    def best_s(self) -> float:
        """The step of the best order that keeps all rules; ``inf`` where there is none."""
        return float(every_step_s(self.grid)[self.allowed].min(initial=np.inf))


def random_case(shape: tuple[int, int], nodes: int, features: Collection[str], seed: int) -> Case:
    """Links of a few classes with a spread, compute and communication of the same size, and some ``features``.

    "directed": each way of a link on its own; "alike": links of two speeds and no spread, so that nodes are
    interchangeable and many orders are the best.
    """
    random = np.random.default_rng(seed)
    replicas, pipeline = shape
    virtual = 2 if "interleaved" in features and 1 < pipeline <= 4 else 1
    micro_batches = int(random.integers(pipeline if virtual > 1 else 1, 7))
    chunks = pipeline * virtual
    hop_s = _links(random, nodes, features)
    ring_s = np.stack([hop_s * size for size in random.uniform(1.0, 6.0, 2 * pipeline)])
    slow = "slowdown" in features
    grid = Grid(
        replicas=replicas,
        pipeline=pipeline,
        virtual=virtual,
        micro_batches=micro_batches,
        group=micro_batch_group(DEFAULT_FRAMEWORK, pipeline, micro_batches),
        blocking="blocking" in features,
        forward_s=random.uniform(0.8, 1.2, chunks),
        backward_s=random.uniform(1.6, 2.4, chunks),
        slowdown=1.0 + random.choice([0.0, 0.0, 0.1, 0.6], nodes) * slow,
        hop_s=hop_s,
        reduce_s=ring_s[:pipeline],
        gather_s=ring_s[pipeline:],
        reduce_hidden_s=random.uniform(0.0, 2.0, pipeline),
        gather_hidden_s=random.uniform(0.0, 2.0, pipeline),
        optimizer_s=random.uniform(0.0, 1.0, pipeline),
        switches=_switches(random, grid_ranks=pipeline, nodes=nodes) if "switches" in features else None,
    )
    rules = no_rules(grid.slots, nodes)
    if "rules" in features:
        rules = _rules(random, shape, nodes)
    return Case(grid, problem_of(grid, rules), keeps(every_order(nodes, grid.slots), rules))


def _links(random: np.random.Generator, nodes: int, features: Collection[str]) -> FloatArray:
    leaf = random.integers(0, 2, nodes)
    links = np.where(leaf[:, None] == leaf[None, :], 0.2, 0.6)
    if "alike" not in features:
        links = links * random.uniform(1.0, 1.4, links.shape) * random.choice([1.0, 1.0, 1.0, 3.0], links.shape)
    return links if "directed" in features else np.maximum(links, links.T)


def _switches(random: np.random.Generator, *, grid_ranks: int, nodes: int) -> Switches:
    """Leaves over most nodes, and spines over pairs of them."""
    return Switches(
        above=np.stack([random.integers(-1, 3, nodes), random.integers(3, 5, nodes)]),
        bytes_per_s=random.choice([0.5, 2.0, 8.0], 5),
        hop_bytes=0.5,
        reduce_bytes=random.uniform(0.2, 2.0, grid_ranks),
        gather_bytes=random.uniform(0.2, 1.0, grid_ranks),
    )


def _rules(random: np.random.Generator, shape: tuple[int, int], nodes: int) -> Rules:
    """Slots that some nodes cannot take, a stage spread over places, a replica kept together, a quota."""
    replicas, pipeline = shape
    slots = np.arange(replicas * pipeline).reshape(pipeline, replicas)
    width = max(shape)
    groups = np.full((2, width), NO_SLOT)
    groups[0, :replicas], groups[1, :pipeline] = slots[-1], slots[:, 0]
    return Rules(
        eligible=random.random((slots.size, nodes)) < 0.85,
        group_slots=groups,
        fewest_places=np.array([min(2, replicas), 1]),
        most_places=np.array([width, 2]),
        places=random.integers(0, min(3, nodes), (2, nodes)),
        quota_of=random.integers(-1, 2, (1, nodes)),
        fewest_used=np.array([0, 1]),
        most_used=np.array([nodes - 1, nodes]),
    )


def keeps(orders: IntArray, rules: Rules) -> BoolArray:
    """(M,) whether an order keeps all rules, from the words of ``Rules``."""
    kept = [rules.eligible[np.arange(orders.shape[1]), orders].all(axis=1)]
    groups = zip(rules.group_slots, rules.places, rules.fewest_places, rules.most_places, strict=True)
    for slots, places, fewest, most in groups:
        used = np.sort(places[orders[:, slots[slots != NO_SLOT]]], axis=1)
        different = 1 + (np.diff(used, axis=1) != 0).sum(axis=1)
        kept.append((fewest <= different) & (different <= most))
    for quota, (fewest, most) in enumerate(zip(rules.fewest_used, rules.most_used, strict=True)):
        count = (rules.quota_of[:, orders] == quota).sum(axis=(0, 2))
        kept.append((fewest <= count) & (count <= most))
    every: BoolArray = np.logical_and.reduce(kept)
    return every


def problem_of(grid: Grid, rules: Rules) -> PlacementProblem:
    """A grid as the planner sees it: slots ``s * replicas + r`` and the pairs that exchange data."""
    replicas, pipeline = grid.replicas, grid.pipeline
    cells = np.ascontiguousarray(np.arange(grid.slots).reshape(pipeline, replicas).T)
    hop_pairs = np.full((replicas, 2, pipeline, 1, 2), NO_SLOT)
    for r, s in np.ndindex(cells.shape):
        for way, other in ((0, s + 1), (1, s - 1)):
            if pipeline > 1 and (grid.virtual > 1 or 0 <= other < pipeline):
                hop_pairs[r, way, s, 0] = cells[r, s], cells[r, other % pipeline]
    ring_pairs = np.full((1, pipeline, replicas, 2), NO_SLOT)
    if replicas > 1:
        ring_pairs[0] = np.stack([cells.T, np.roll(cells.T, -1, axis=1)], axis=-1)
    cross_pairs = np.full((1, replicas, pipeline, 1, 2), NO_SLOT)
    schedule = build_schedule(pipeline, grid.virtual, grid.micro_batches, group=grid.group, blocking=grid.blocking)
    arrays = Arrays(
        events=schedule.events,
        last=schedule.last,
        duration_s=np.stack([grid.forward_s, grid.backward_s]),
        local_hop_s=0.0,
        slowdown=grid.slowdown,
        hop_pairs=hop_pairs,
        hop_s=grid.hop_s,
        cross_pairs=cross_pairs,
        cross_s=np.zeros((1, grid.nodes, grid.nodes)),
        cross_count=np.zeros((1, 2, pipeline * grid.virtual)),
        cross_hidden_s=np.zeros((1, 2)),
        cell_slots=cells[:, :, None],
        ring_pairs=ring_pairs,
        ring_times=np.arange(pipeline)[None],
        reduce_s=grid.reduce_s,
        gather_s=grid.gather_s,
        reduce_local_s=np.zeros((1, pipeline)),
        gather_local_s=np.zeros((1, pipeline)),
        reduce_hidden_s=grid.reduce_hidden_s,
        gather_hidden_s=grid.gather_hidden_s,
        optimizer_s=grid.optimizer_s,
        rules=rules,
        uplinks=_uplinks(grid, hop_pairs, cross_pairs, ring_pairs),
    )
    return PlacementProblem(grid.slots, grid.nodes, schedule, arrays)


def _uplinks(grid: Grid, hop_pairs: IntArray, cross_pairs: IntArray, ring_pairs: IntArray) -> Uplinks:
    uplinks = no_uplinks(hop_pairs, cross_pairs, ring_pairs, grid.nodes)
    if (switches := grid.switches) is None:
        return uplinks
    return uplinks._replace(
        above=switches.above,
        bytes_per_s=switches.bytes_per_s,
        hop_bytes=np.where(hop_pairs[..., 0] == NO_SLOT, 0.0, switches.hop_bytes),
        ring_bytes=np.stack([switches.reduce_bytes, switches.gather_bytes])[:, None],
    )


def grid_of(candidate: Candidate) -> Grid:
    """A dense candidate whose cells have a node of one GPU each, from its costs and its fabric."""
    batch, costs, fabric = candidate.batch, candidate.costs, candidate.fabric
    assert fabric.gpus_per_unit == int(batch.tensor[0] * batch.context[0] * batch.expert[0]) == 1
    replicas, pipeline = int(batch.data[0]), int(batch.pipeline[0])

    def ring_s(payload: float) -> FloatArray:
        return fabric.ring_s(payload, ranks=replicas, members=1, ring_nodes=replicas)

    return Grid(
        replicas=replicas,
        pipeline=pipeline,
        virtual=int(batch.virtual_pipeline[0]),
        micro_batches=candidate.placement.schedule.micro_batches,
        group=candidate.placement.schedule.group,
        blocking=candidate.placement.schedule.blocking,
        forward_s=costs.forward_s[0],
        backward_s=costs.backward_s[0],
        slowdown=fabric.slowdown,
        hop_s=fabric.hop_s(float(costs.transfer_bytes[0])),
        reduce_s=np.stack([ring_s(float(payload)) for payload in costs.reduce_bytes[0]]),
        gather_s=np.stack([ring_s(float(payload)) for payload in costs.gather_bytes[0]]),
        reduce_hidden_s=costs.reduce_hidden_s[0],
        gather_hidden_s=costs.gather_hidden_s[0],
        optimizer_s=costs.optimizer_s[0] + costs.tail_transfers[0] * fabric.latency_s,
    )
