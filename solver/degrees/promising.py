"""Prices of the candidates that may hold the best plan; the others are counted, and a floor rules them out.

Worlds, numbers of GPUs, are priced one after the other, the lowest floor first.  Once ``WHOLE`` candidates are
priced, a plan made of them is a limit: what cannot come below it is no longer priced.  Three floors say so, each
dearer and higher than the one before:

* of a world, the arithmetic of all matrix products at the best rate of its GPUs;
* of candidates that share their grid and shardings, the memory that they hold whatever else they do;
* of a family, candidates that differ in their virtual stages alone, its work spread evenly over ranks.

Families are priced the lowest floor first, too, so that the next one's holds for all that is left when time is up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from cluster_models.flops import BACKWARD_TO_FORWARD, layer_forward_flops
from cluster_models.units import HOUR
from cluster_models.workload import Objective
from solver.candidates import BoolArray, CandidateBatch, FloatArray, IntArray
from solver.costs.calibration import calibration_of
from solver.costs.compute import processor
from solver.costs.memory import least_bytes
from solver.costs.straggling import straggling
from solver.degrees.enumeration import joined_batches, virtual_sizes
from solver.degrees.priced import (
    MOST_CELLS,
    LeftOut,
    PricedCandidates,
    Prices,
    alike_prices,
    enumeration_of,
    joined_prices,
    mixed_prices,
    worlds_on,
)
from solver.degrees.staging import costs_of, micro_batches_of
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem

WHOLE: Final = 20_000
"""Candidates that are priced before any limit is asked for, so that small spaces are priced whole."""
BLOCK: Final = 20_000
"""Candidates of a fabric, of one world or several, from which on they are priced: few at once cost as much."""
SLICE: Final = 100_000
"""Candidates of a block that are priced between two looks at limit and clock."""

Limit = Callable[[PricedCandidates], float]
"""An objective that the best plan surely does not exceed, from candidates priced so far; ``inf`` where none is."""
IsTimeUp = Callable[[], bool]


class World(NamedTuple):
    """Candidates with so many GPUs on a fabric; ``floor``: an objective that none of them beats."""

    floor: float
    fabric: int
    gpus: int


@dataclass(slots=True)
class _Pricing:
    """What has been priced so far.

    ``limit`` is the objective from which on candidates are left out, ``inf`` until one is known; it is asked for
    when ``asks_at`` candidates are ``looked_at``.
    """

    problem: PlanningProblem
    fabrics: Sequence[Fabric]
    limit_of: Limit
    is_time_up: IsTimeUp
    parts: list[Prices] = field(default_factory=list)
    looked_at: int = 0
    limit: float = np.inf
    asks_at: int = field(default_factory=lambda: WHOLE)
    infeasible: int = 0
    pruned: int = 0
    unpriced: int = 0
    bound: float = np.inf

    def prune(self, count: int, floor: float) -> None:
        """``count`` candidates are ruled out by their ``floor``."""
        if count:
            self.pruned += count
            self.bound = min(self.bound, floor)

    def leave(self, count: int, floor: float) -> None:
        """``count`` candidates are not looked at, and none beats ``floor``."""
        if count:
            self.unpriced += count
            self.bound = min(self.bound, floor)

    @property
    def must_stop(self) -> bool:
        """Whether time is up and some candidate fits; without one the answer would be that none does."""
        return bool(self.parts) and self.is_time_up()

    def add(self, prices: Prices) -> None:
        """Keep what fits into memory and may come below the limit, and of the rest the nearest miss."""
        self.looked_at += len(prices.batch)
        fits = prices.excess_bytes <= 0
        self.infeasible += int((~fits).sum())
        objective = prices.bound_s * prices.weight
        near = fits & (objective < self.limit)
        self.prune(int((fits & ~near).sum()), self.limit)
        if near.any():
            self.parts.append(prices.take(near))

    def price(self, fabric: int, batch: CandidateBatch) -> None:
        """Price and add candidates on a fabric with GPUs of one kind."""
        for prices in alike_prices(self.problem, self.fabrics[fabric], fabric, batch):
            self.add(prices)

    def settle(self) -> None:
        """Ask for a limit once enough is priced."""
        if np.isinf(self.limit) and self.looked_at >= self.asks_at and self.parts:
            self.limit = self.limit_of(joined_prices(self.parts))
            self.asks_at *= 2

    def result(self) -> PricedCandidates:
        """The table: where nothing fits the nearest miss alone."""
        if self.parts or not self.infeasible:
            return joined_prices(self.parts, LeftOut(self.infeasible, self.pruned, self.unpriced, self.bound))
        nearest = _nearest_miss(self.problem, self.fabrics, families=self.infeasible > WHOLE)
        return joined_prices([nearest], LeftOut(infeasible=self.infeasible - 1))


def price_promising(
    problem: PlanningProblem, fabrics: Sequence[Fabric], *, limit_of: Limit, is_time_up: IsTimeUp
) -> PricedCandidates:
    """The candidates below the limit that fit into memory with their prices, and how many are left out and why.

    Where none fits, the table has the candidate that misses by least.  ``is_time_up`` is asked between parts; what
    is then not priced yet counts as ``unpriced``.
    """
    pricing = _Pricing(problem, fabrics, limit_of, is_time_up)
    for index, fabric in enumerate(fabrics):
        if fabric.is_mixed:
            for prices in mixed_prices(problem, fabric, index):
                pricing.add(prices)
    waiting: list[list[Families]] = [[] for _ in fabrics]
    for world in worlds(problem, fabrics):
        own = waiting[world.fabric]
        own.append(_families_of(problem, fabrics, world))
        if sum(families.count for families in own) >= BLOCK:
            _price_block(pricing, own)
            own.clear()
    for own in waiting:
        _price_block(pricing, own)
    return pricing.result()


@dataclass(frozen=True, slots=True, eq=False)
class Families:
    """The families of a ``world``, and (n,) how many candidates each has."""

    world: World
    batch: CandidateBatch
    sizes: IntArray

    @property
    def count(self) -> int:
        """Candidates of all families."""
        return int(self.sizes.sum())


def _families_of(problem: PlanningProblem, fabrics: Sequence[Fabric], world: World) -> Families:
    batch = enumeration_of(problem, fabrics[world.fabric], families=True).on(world.gpus)
    return Families(world, batch, family_sizes(problem, batch))


def worlds(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> list[World]:
    """Every world on fabrics with GPUs of one kind, the lowest floor first."""
    found: list[World] = []
    for index, fabric in enumerate(fabrics):
        if not fabric.is_mixed:
            gpus = np.array(worlds_on(problem, fabric), dtype=np.int64)
            floors = floors_s(problem, fabric, gpus) * _weight(problem.workload.objective, fabric, gpus)
            found += [World(floor, index, size) for floor, size in zip(floors.tolist(), gpus.tolist(), strict=True)]
    return sorted(found)


def _weight(objective: Objective, fabric: Fabric, gpus: IntArray) -> FloatArray:
    """(n,) what a second of a step on ``gpus`` (n,) counts in the objective."""
    match objective:
        case Objective.STEP_TIME:
            return np.ones(len(gpus))
        case Objective.GPU_TIME:
            return gpus.astype(np.float64)
        case Objective.COST:
            return np.asarray(gpus * (fabric.gpu.price_usd_per_hour or np.nan) / HOUR)


def floors_s(problem: PlanningProblem, fabric: Fabric, gpus: IntArray) -> FloatArray:
    """(n,) seconds that no step on ``gpus`` (n,) takes less than: the layers' matrix products at full rate.

    Each runs three times, once forward and twice backward.  Head, attention scores, transfers and everything bound
    by memory come on top.
    """
    architecture, workload = problem.architecture, problem.workload
    calibration = calibration_of(fabric.gpu, workload.framework, problem.fitted)
    per_token = 0.0
    for sparse in architecture.sparse_pattern:
        part = layer_forward_flops(architecture, workload.sequence_length, sparse=sparse, windowed=False)
        routed = part.routed_experts * min(1.0, calibration.expert_imbalance)
        per_token += part.attention_projections + part.dense_mlp + part.shared_experts + routed
    rate = processor(fabric.gpu, workload.precision, calibration).matmul_flops * max(1.0, calibration.grouped_share)
    flops = (1 + BACKWARD_TO_FORWARD) * per_token * workload.sequence_length * workload.global_batch
    return np.asarray(straggling(gpus / fabric.gpus_per_node, calibration) * flops / (rate * gpus))


def family_sizes(problem: PlanningProblem, families: CandidateBatch) -> IntArray:
    """(n,) candidates of each family: one without virtual stages, or all with them."""
    sizes = np.ones(len(families), dtype=np.int64)
    rounds = micro_batches_of(families, problem.workload)
    several = np.flatnonzero(families.virtual_pipeline > 1)
    _, first, shape_of = _distinct(families.pipeline[several], rounds[several])
    shapes = zip(families.pipeline[several][first].tolist(), rounds[several][first].tolist(), strict=True)
    counts = [len(_stages(problem, pipeline, count)) for pipeline, count in shapes]
    sizes[several] = np.array(counts, dtype=np.int64)[shape_of]
    return sizes


def _distinct(*columns: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Distinct rows of ``columns``, (n,) each: numbers, the first row of each, and (n,) which one each row is."""
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        codes = np.unique(codes * (column.max(initial=0) + 1) + column, return_inverse=True)[1].reshape(-1)
    return np.unique(codes, return_index=True, return_inverse=True)


def _stages(problem: PlanningProblem, pipeline: int, micro_batches: int) -> list[int]:
    """Legal numbers of several virtual stages."""
    legal = virtual_sizes(problem.architecture, problem.workload, pipeline, micro_batches)
    return [virtual for virtual in legal if virtual > 1]


def _price_block(pricing: _Pricing, block: Sequence[Families]) -> None:
    """Price worlds of one fabric together: families by their least virtual stages, then what else may matter."""
    pricing.settle()
    must_stop, open_block = pricing.must_stop, []
    for families in block:
        if families.world.floor >= pricing.limit:
            pricing.prune(families.count, families.world.floor)
        elif must_stop:
            pricing.leave(families.count, families.world.floor)
        else:
            open_block.append(families)
    if open_block:
        _price_open(pricing, open_block)


def _price_open(pricing: _Pricing, block: Sequence[Families]) -> None:
    index = block[0].world.fabric
    fabric = pricing.fabrics[index]
    every, sizes = joined_batches([each.batch for each in block]), np.concatenate([each.sizes for each in block])
    holds = ~_too_large(pricing.problem, fabric, every)
    pricing.infeasible += int(sizes[~holds].sum())
    every, sizes = every.take(holds), sizes[holds]
    floors = family_floors(pricing.problem, fabric, every)
    order = np.argsort(floors, kind="stable")
    slices = np.searchsorted(np.cumsum(sizes[order]), np.arange(SLICE, sizes.sum(), SLICE))
    for rows in np.split(order, slices):
        pricing.settle()
        if not len(rows):
            continue
        lowest = float(floors[rows[0]])
        if lowest >= pricing.limit:
            pricing.prune(int(sizes[rows].sum()), lowest)
        elif pricing.must_stop:
            pricing.leave(int(sizes[rows].sum()), lowest)
        else:
            _price_slice(pricing, index, every.take(rows), sizes[rows], floors[rows])


def _price_slice(
    pricing: _Pricing, index: int, families: CandidateBatch, sizes: IntArray, floors: FloatArray
) -> None:
    """Price families by their least virtual stages, then their other members where those may matter."""
    near = floors < pricing.limit
    pricing.prune(int(sizes[~near].sum()), pricing.limit)
    pricing.price(index, families.take(near))
    pricing.settle()
    larger = near & (sizes > 1) & (floors < pricing.limit)
    pricing.prune(int((sizes - 1)[near & ~larger].sum()), pricing.limit)
    for batch in _larger(pricing.problem, families.take(larger)):
        if pricing.must_stop:
            pricing.leave(len(batch), float(floors[larger][0]))
        else:
            pricing.price(index, batch)


def _nearest_miss(problem: PlanningProblem, fabrics: Sequence[Fabric], *, families: bool) -> Prices:
    """The candidate that misses the memory by least, or of ``families`` alone."""
    nearest: Prices | None = None
    for index, fabric in enumerate(fabrics):
        if fabric.is_mixed:
            parts = mixed_prices(problem, fabric, index)
        else:
            enumeration = enumeration_of(problem, fabric, families=families)
            every = (enumeration.on(gpus) for gpus in worlds_on(problem, fabric))
            parts = (part for batch in every for part in alike_prices(problem, fabric, index, batch))
        for part in parts:
            least = int(part.excess_bytes.argmin())
            if nearest is None or part.excess_bytes[least] < nearest.excess_bytes[0]:
                nearest = part.take(np.array([least]))
    assert nearest is not None
    return nearest


def family_floors(problem: PlanningProblem, fabric: Fabric, families: CandidateBatch) -> FloatArray:
    """(n,) objective that no member of each family beats.

    Some rank works for at least the mean of all ranks, once a micro-batch.  The sum over all ranks does not depend
    on how layers are spread, so that pipelines are priced as if they had two ranks; that can only make them
    faster, for fewer GPUs straggle less and fewer transfers leave a domain.
    """
    floors = np.empty(len(families))
    sparse = np.array(problem.architecture.sparse_pattern)
    for piped in (False, True):
        rows = np.flatnonzero((families.pipeline > 1) == piped)
        for first in range(0, len(rows), MOST_CELLS // 2):
            own = rows[first : first + MOST_CELLS // 2]
            batch = families.take(own)
            ranks = 2 if piped else 1
            layers = np.zeros((ranks, 2), dtype=np.int64)
            layers[0] = (~sparse).sum(), sparse.sum()
            layers[-1, int(sparse[-1])] += problem.architecture.prediction_layers
            kinds = np.zeros((len(own), ranks), dtype=np.int64)
            short = replace(batch, pipeline=np.full(len(own), ranks, dtype=np.int64))
            costs = costs_of(problem, fabric, short, layers, kinds)
            work_s = (costs.forward_s + costs.backward_s).sum(axis=1) / batch.pipeline
            gpus = batch.tensor * batch.context * batch.data * batch.pipeline
            weight = _weight(problem.workload.objective, fabric, gpus)
            floors[own] = work_s * micro_batches_of(batch, problem.workload) * weight
    return floors


def _larger(problem: PlanningProblem, families: CandidateBatch) -> Iterator[CandidateBatch]:
    """The members of families with more virtual stages than the one that stands for them, by their number."""
    rounds = micro_batches_of(families, problem.workload)
    shapes = sorted(set(zip(families.pipeline.tolist(), rounds.tolist(), strict=True)))
    by_virtual: dict[int, list[CandidateBatch]] = {}
    for pipeline, count in shapes:
        own = families.take((families.pipeline == pipeline) & (rounds == count))
        for virtual in _stages(problem, pipeline, count)[1:]:
            by_virtual.setdefault(virtual, []).append(with_virtual(own, virtual))
    for _, members in sorted(by_virtual.items()):
        yield joined_batches(members)


def with_virtual(batch: CandidateBatch, virtual: int) -> CandidateBatch:
    """``batch`` with another number of virtual stages."""
    return replace(batch, virtual_pipeline=np.full(len(batch), virtual, dtype=np.int64))


def _too_large(problem: PlanningProblem, fabric: Fabric, families: CandidateBatch) -> BoolArray:
    """(n,) whether weights, gradients and optimizer states alone are more than a GPU may hold."""
    columns = (
        families.pipeline,
        families.tensor,
        families.data,
        families.context,
        families.expert,
        families.expert_tensor,
        families.sharding,
    )
    _, first, shape_of = _distinct(*columns)
    shapes = families.take(first)
    calibration = calibration_of(fabric.gpu, problem.workload.framework, problem.fitted)
    held = np.empty(len(shapes))
    for pipeline in np.unique(shapes.pipeline):
        rows = shapes.pipeline == pipeline
        held[rows] = least_bytes(
            shapes.take(rows),
            architecture=problem.architecture,
            workload=problem.workload,
            calibration=calibration,
        )
    limit = fabric.gpu.memory_bytes * (1.0 - problem.workload.memory_headroom)
    return np.asarray((held > limit)[shape_of])
