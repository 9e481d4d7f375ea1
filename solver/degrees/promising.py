"""Prices of the candidates that may hold the best plan; the others are counted, and a floor rules them out.

Worlds, numbers of GPUs, are priced one after the other, the lowest floor first.  Once ``WHOLE`` candidates are
priced, a plan made of them is a limit: what cannot come below it is no longer priced.  Three floors say so, each
dearer and higher than the one before:

* of a world, the arithmetic of all matrix products at the best rate of its GPUs;
* of candidates that share their grid and shardings, the memory that they hold whatever else they do;
* of a family, candidates that differ in their schedule and their several virtual stages alone, its work spread
  over ranks as its pipeline takes it fastest.

Families are priced the lowest floor first, too, so that the next one's holds for all that is left when time is up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from cluster_models.cluster.gpus import GpuKind
from cluster_models.training.offload import must_offload_layers
from cluster_models.training.schedules import PipelineSchedule
from solver.candidates import CandidateBatch, FloatArray, IntArray, joined_batches
from solver.costs.recomputation import RecomputePolicies
from solver.degrees.enumeration import Enumeration, worlds_of
from solver.degrees.floors import (
    World,
    family_floors,
    family_sizes,
    least_waits,
    mixed_floor,
    other_members,
    too_large,
    worlds,
)
from solver.degrees.layout import chunk_layers
from solver.degrees.leaner_settings import leanest
from solver.degrees.memory_mixes import levels_of, with_mix
from solver.degrees.mix_choice import Tried
from solver.degrees.priced import (
    LeftOut,
    PricedCandidates,
    Prices,
    alike_prices,
    enumeration_of,
    joined_prices,
    mixed_prices,
    worlds_on,
)
from solver.degrees.row_groups import count_of, groups
from solver.degrees.stage_costs import kind_rows, layout_of, memory_accounts
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem

WHOLE: Final = 20_000
"""Candidates that are priced before any limit is asked for, so that small spaces are priced whole."""
BLOCK: Final = 20_000
"""Candidates of a fabric, of one world or several, from which on they are priced: few at once cost as much."""
SLICE: Final = 100_000
"""Candidates of a block that are priced between two looks at limit and clock, fewer while there is no limit."""

Limit = Callable[[PricedCandidates], float]
"""An objective that the best plan surely does not exceed, from candidates priced so far; ``inf`` where none is."""
IsTimeUp = Callable[[], bool]


class _Near(NamedTuple):
    """Families that their ``floors`` (n,) do not rule out, and (n,) how many candidates each has."""

    families: CandidateBatch
    sizes: IntArray
    floors: FloatArray


@dataclass(slots=True)
class _Pricing:
    """State of the pricing so far.

    ``limit`` is the objective from which on candidates are left out, ``inf`` until one is known; it is worked out
    when ``asks_at`` candidates are ``looked_at``.  ``near``: by fabric, families that wait for their prices.
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
    worlds: int = 0
    bound: float = np.inf
    near: dict[int, list[_Near]] = field(default_factory=lambda: defaultdict(list))

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

    def leave_world(self, floor: float) -> None:
        """The candidates of a world are not listed; unless its ``floor`` rules them out, nothing else is known."""
        if floor < self.limit:
            self.worlds += 1
            self.bound = min(self.bound, floor)

    @property
    def must_stop(self) -> bool:
        """Whether time is up and some candidate fits; without one the answer would be that none does."""
        return bool(self.parts) and self.is_time_up()

    def add(self, prices: Prices) -> None:
        """Keep what fits into memory and may come below the limit, and of the rest the nearest miss."""
        self.looked_at += count_of(prices.candidate)
        fits = prices.excess_bytes <= 0
        self.infeasible += int((~fits).sum())
        objective = prices.bound_s * prices.weight
        near = fits & (objective < self.limit)
        if (fits & ~near).any():
            self.pruned += count_of(prices.candidate[fits]) - count_of(prices.candidate[near])
            self.bound = min(self.bound, self.limit)
        if near.any():
            self.parts.append(prices.take(near))

    def price(self, fabric: int, batch: CandidateBatch, floor: float) -> None:
        """Price and add candidates on a fabric with GPUs of one kind while time lasts; none beats ``floor``."""
        last = self.looked_at + len(batch)
        for prices in alike_prices(self.problem, self.fabrics[fabric], fabric, batch, self.limit):
            self.add(prices)
            if self.must_stop:
                break
        self.leave(last - self.looked_at, floor)

    def settle(self, *, now: bool = False) -> None:
        """Ask for a limit once enough is priced, or ``now``."""
        if np.isinf(self.limit) and (now or self.looked_at >= self.asks_at) and self.parts:
            self.limit = self.limit_of(joined_prices(self.parts))
            self.asks_at *= 2

    def result(self) -> PricedCandidates:
        """The table: where nothing fits the nearest miss alone."""
        if self.parts or not self.infeasible:
            return joined_prices(
                self.parts, LeftOut(self.infeasible, self.pruned, self.unpriced, self.worlds, self.bound)
            )
        nearest = _nearest_miss(self.problem, self.fabrics, families=self.infeasible > WHOLE)
        return joined_prices([nearest], LeftOut(infeasible=self.infeasible - 1))


def price_promising(
    problem: PlanningProblem, fabrics: Sequence[Fabric], *, limit_of: Limit, is_time_up: IsTimeUp
) -> PricedCandidates:
    """The candidates below the limit that fit into memory with their prices, and how many are left out and why.

    Where none fits, the table has the candidate that misses by least.  ``is_time_up`` is asked between parts; what
    is then not priced yet is left, once something fits.
    """
    pricing = _Pricing(problem, fabrics, limit_of, is_time_up)
    waiting: list[list[Families]] = [[] for _ in fabrics]
    for world in worlds(problem, fabrics):
        if pricing.must_stop:
            pricing.leave_world(world.floor)
            continue
        own = waiting[world.fabric]
        own.append(_families_of(problem, fabrics, world))
        if sum(families.count for families in own) >= BLOCK:
            _price_block(pricing, own)
            own.clear()
    for index, own in enumerate(waiting):
        _price_block(pricing, own)
        if pricing.near[index]:
            _price_near(pricing, index)
    for index, fabric in enumerate(fabrics):
        if fabric.is_mixed:
            _price_mixed(pricing, index, fabric)
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


def _price_mixed(pricing: _Pricing, index: int, fabric: Fabric) -> None:
    """Price the ways to mix all kinds of a fabric, until time is up."""
    floor = mixed_floor(pricing.problem, fabric)
    if floor >= pricing.limit:
        return
    for prices in mixed_prices(pricing.problem, fabric, index):
        if pricing.must_stop:
            pricing.leave_world(floor)
            return
        pricing.add(prices)


def price_fitting(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> PricedCandidates:
    """All candidates that fit into memory with their prices, however good."""
    return price_promising(problem, fabrics, limit_of=lambda _: np.inf, is_time_up=lambda: False)


def fits_memory(problem: PlanningProblem, gpu: GpuKind, *, gpus_per_node: int, nodes: int) -> bool:
    """Whether any legal candidate fits on ``nodes`` nodes of one kind, whatever its time."""
    families = Enumeration(problem.architecture, problem.workload, gpus_per_node, families=True)
    limit = problem.workload.most_gpus(gpu.power_watts)
    tight: list[CandidateBatch] = []
    for world in reversed(worlds_of(problem.workload, gpus_per_node=gpus_per_node, nodes=nodes, limit=limit)):
        batch = families.on(world)
        batch = batch.take(~too_large(problem, gpu, batch))
        if _any_fits(problem, gpu, batch, domain=gpus_per_node):
            return True
        tight.append(batch)
    return any(
        _any_fits(problem, gpu, others, domain=gpus_per_node)
        for batch in tight
        for others in other_members(problem, batch)
    )


def _any_fits(problem: PlanningProblem, gpu: GpuKind, batch: CandidateBatch, *, domain: int) -> bool:
    asked = problem
    for rows in groups(batch := leanest(batch, asked.workload.framework)):
        part = batch.take(rows)
        problem = asked.under(part.chosen)
        layers = chunk_layers(problem.architecture, layout_of(problem, part), part.runs)
        tried = Tried(problem, part, layers, kind_rows(part), memory_accounts(problem, [gpu], part, layers, domain))
        tried = tried.offloading(tried.most_percent()) if tried.may_offload else tried
        if (
            tried.may_offload_layers
            and (tried.offloading_layers(tried.most_layers()).plain_excess_bytes() <= 0).any()
        ):
            return True
        if must_offload_layers(problem.workload):
            continue
        for level in reversed(levels_of(problem)):
            policies = RecomputePolicies.of(with_mix(part, *level), problem.workload.framework)
            if (tried.accounts[0].excess_bytes(policies) <= 0).all(axis=1).any():
                return True
    return False


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
    rough = np.concatenate([np.full(len(each.batch), each.world.floor) for each in block])
    near = rough * least_waits(pricing.problem.workload, every) < pricing.limit
    pricing.prune(int(sizes[~near].sum()), pricing.limit)
    every, sizes = every.take(near), sizes[near]
    holds = ~too_large(pricing.problem, fabric.gpu, every)
    pricing.infeasible += int(sizes[~holds].sum())
    every, sizes = every.take(holds), sizes[holds]
    floors = family_floors(pricing.problem, fabric, every)
    near = floors < pricing.limit
    pricing.prune(int(sizes[~near].sum()), pricing.limit)
    pricing.near[index].append(_Near(every.take(near), sizes[near], floors[near]))
    if np.isinf(pricing.limit) or sum(len(each.floors) for each in pricing.near[index]) >= BLOCK:
        _price_near(pricing, index)


def _price_near(pricing: _Pricing, index: int) -> None:
    """Price what floors did not rule out on a fabric, the lowest floor first."""
    near = pricing.near[index]
    every, sizes = joined_batches([each.families for each in near]), np.concatenate([each.sizes for each in near])
    floors = np.concatenate([each.floors for each in near])
    near.clear()
    order = np.argsort(floors, kind="stable")
    most = SLICE if np.isfinite(pricing.limit) else 2 * WHOLE
    slices = np.searchsorted(np.cumsum(sizes[order]), np.arange(most, sizes.sum(), most))
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
    pricing.price(index, families.take(near), float(floors[0]))
    pricing.settle(now=_has_other_schedules(pricing.problem))
    larger = near & (sizes > 1) & (floors < pricing.limit)
    pricing.prune(int((sizes - 1)[near & ~larger].sum()), pricing.limit)
    for batch in _together(other_members(pricing.problem, families.take(larger))):
        if pricing.must_stop:
            pricing.leave(len(batch), float(floors[larger][0]))
        else:
            pricing.price(index, batch, float(floors[larger][0]))


def _together(batches: Iterable[CandidateBatch]) -> Iterator[CandidateBatch]:
    """``batches``, small ones together: few candidates cost as much as many."""
    waiting: list[CandidateBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= BLOCK:
            yield joined_batches(waiting)
            waiting.clear()
    if waiting:
        yield joined_batches(waiting)


def _has_other_schedules(problem: PlanningProblem) -> bool:
    """Whether schedules other than 1F1B may be planned, whose bounds are dear without a limit."""
    workload = problem.workload
    return bool({*workload.schedule} & {*workload.framework.schedules} - {PipelineSchedule.ONE_F_ONE_B})


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
