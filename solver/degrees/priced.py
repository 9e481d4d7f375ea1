"""Every candidate on every fabric with its optimistic step time, its memory and its weight in the objective."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cluster_models.training.run_settings import leaner
from solver.candidates import (
    SCHEDULE_CODES,
    BoolArray,
    CandidateBatch,
    FloatArray,
    IntArray,
    joined_batches,
    select_rows,
)
from solver.costs.layer_counts import chunk_kinds
from solver.costs.recomputation import RecomputePolicies
from solver.degrees.enumeration import Enumeration, enumerate_candidates, worlds_of
from solver.degrees.kind_mixes import can_mix, mixed_rows, most_gpus_on
from solver.degrees.leaner_settings import changes, every_leaner, fitting_or_nearest, with_settings
from solver.degrees.memory_mixes import PLAIN, levels_of, with_mix
from solver.degrees.mix_choice import MixedRows, Screened, screened
from solver.degrees.mix_rivals import KnownLayers
from solver.degrees.pricing import optimistic_step_s
from solver.degrees.row_groups import bundles, count_of, groups
from solver.degrees.speeds import chunk_seconds, layouts_by_speed, probe_layers
from solver.degrees.stage_costs import (
    Staging,
    Stagings,
    costs_by_kind,
    costs_of,
    excess_bytes_of,
    kind_rows,
    layers_of_all,
    layout_of,
    micro_batches_of,
    objective_weight,
    stagings_of,
)
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem


class LeftOut(NamedTuple):
    """Candidates that have no row.

    ``infeasible`` of them do not fit into memory, ``pruned`` cannot be the best plan, and ``unpriced`` were not
    looked at in the time; on ``worlds``, numbers of GPUs on one fabric each, there was none to list them. ``bound``
    is an objective that none of the last three beats.
    """

    infeasible: int = 0
    pruned: int = 0
    unpriced: int = 0
    worlds: int = 0
    bound: float = np.inf


NOTHING: Final = LeftOut()


@dataclass(frozen=True, slots=True, eq=False)
class PricedCandidates:
    """``n`` candidates, one row each.

    ``fabric`` is the index of the fabric, ``staging`` that of what its stages hold and run on in ``stagings``,
    ``bound_s`` a step time no placement can beat (infinite where memory does not hold it), ``excess_bytes`` the
    fullest GPU's need beyond its limit (negative = free) and ``weight`` what a second of step time counts in the
    objective.  Rows of one ``candidate``, a number, differ in their memory options alone.  ``left`` counts
    candidates without a row.
    """

    batch: CandidateBatch
    candidate: IntArray
    fabric: IntArray
    staging: IntArray
    stagings: tuple[Staging, ...]
    bound_s: FloatArray
    excess_bytes: FloatArray
    weight: FloatArray
    left: LeftOut = NOTHING

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def total(self) -> int:
        """All candidates that were listed, those without a row included."""
        return count_of(self.candidate) + self.left.infeasible + self.left.pruned + self.left.unpriced

    @property
    def infeasible(self) -> int:
        """Candidates that do not fit into memory."""
        return int((self.excess_bytes > 0).sum()) + self.left.infeasible

    def staging_of(self, index: int) -> Staging:
        """Layers and GPU kinds of the stages of one candidate."""
        return self.stagings[int(self.staging[index])]


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Prices of candidates on the fabric with index ``fabric``; ``staging`` (n,) points into ``stagings``.

    Rows of one ``candidate`` (n,), a number, differ in their memory options alone.
    """

    fabric: int
    batch: CandidateBatch
    candidate: IntArray
    staging: IntArray
    stagings: list[Staging]
    bound_s: FloatArray
    excess_bytes: FloatArray
    weight: FloatArray

    def take(self, rows: BoolArray | IntArray) -> Prices:
        """Prices of ``rows``."""
        return replace(
            self,
            batch=self.batch.take(rows),
            candidate=self.candidate[rows],
            staging=self.staging[rows],
            bound_s=self.bound_s[rows],
            excess_bytes=self.excess_bytes[rows],
            weight=self.weight[rows],
        )


def mix_fits_memory(problem: PlanningProblem, fabric: Fabric) -> bool:
    """Whether any mix of all kinds of ``fabric`` fits, whatever its time."""
    return any((part.excess_bytes <= 0).any() for part in mixed_prices(problem, fabric, 0))


def price_candidates(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> PricedCandidates:
    """All legal candidates with their prices; none at all where no rule leaves one."""
    parts: list[Prices] = []
    for index, fabric in enumerate(fabrics):
        if fabric.is_mixed:
            parts += mixed_prices(problem, fabric, index)
        else:
            batch = enumeration_of(problem, fabric).over(worlds_on(problem, fabric))
            parts += alike_prices(problem, fabric, index, batch)
    return joined_prices(parts)


def joined_prices(parts: Sequence[Prices], left: LeftOut = NOTHING) -> PricedCandidates:
    """All ``parts`` as one table."""
    offsets = np.cumsum([0, *(len(part.stagings) for part in parts)])[:-1]

    def joined(arrays: Iterable[npt.NDArray[Any]], kind: type) -> npt.NDArray[Any]:
        return np.concatenate([np.empty(0, dtype=kind), *arrays])

    firsts = np.cumsum([0, *(part.candidate.max(initial=-1) + 1 for part in parts)])[:-1]
    return PricedCandidates(
        batch=joined_batches([part.batch for part in parts]),
        candidate=joined((p.candidate + first for p, first in zip(parts, firsts, strict=True)), np.int64),
        fabric=joined((np.full(len(part.batch), part.fabric) for part in parts), np.int64),
        staging=joined((p.staging + first for p, first in zip(parts, offsets, strict=True)), np.int64),
        stagings=tuple(staging for part in parts for staging in part.stagings),
        bound_s=joined((part.bound_s for part in parts), np.float64),
        excess_bytes=joined((part.excess_bytes for part in parts), np.float64),
        weight=joined((part.weight for part in parts), np.float64),
        left=left,
    )


def enumeration_of(problem: PlanningProblem, fabric: Fabric, *, families: bool = False) -> Enumeration:
    """The legal candidates on a fabric with GPUs of one kind."""
    wider, size = tuple(fabric.wider), fabric.gpus_per_unit
    return Enumeration(problem.architecture, problem.workload, size, wider, families=families)


def worlds_on(problem: PlanningProblem, fabric: Fabric) -> list[int]:
    """Numbers of GPUs that plans on ``fabric`` may use, increasing."""
    size, parts = fabric.gpus_per_unit, fabric.nodes_per_unit == 1
    limit = most_gpus_on(fabric, problem.workload)
    return worlds_of(problem.workload, gpus_per_node=size, nodes=fabric.nodes, parts=parts, limit=limit)


def alike_prices(
    problem: PlanningProblem, fabric: Fabric, index: int, every: CandidateBatch, limit: float = np.inf
) -> Iterator[Prices]:
    """Prices of candidates on a fabric with GPUs of one kind, by pipeline, virtual stages, schedule and settings.

    Those that do not fit also with leaner settings.  Beyond ``limit``, an objective, bounds need not be sharp.
    """
    for bundle in bundles(every):
        found = [_alike_group(problem, fabric, every.take(rows)) for rows in bundle]
        leaner_ones = [
            ({number: rows for number, (rows, _) in again.items()}, _prices(problem, fabric, index, own, limit))
            for again in _with_less(problem, fabric, found)
            for own in [[group for _, group in again.values()]]
        ]
        for number, prices in enumerate(_prices(problem, fabric, index, found, limit)):
            yield _joined(prices, [(rows[number], next(own)) for rows, own in leaner_ones if number in rows])


def _with_less(
    problem: PlanningProblem, fabric: Fabric, found: Sequence[_Group]
) -> Iterator[dict[int, tuple[IntArray, _Group]]]:
    """For each leaner way to run, by the number of a group its rows that do not fit otherwise, and they so."""
    tight = [np.flatnonzero(~group.screened.fits) for group in found]
    codes = leaner(int(found[0].batch.settings[0]), problem.workload.framework)
    for code in codes:
        again = {}
        for number, group in enumerate(found):
            rows = tight[number]
            own = rows[changes(group.batch.take(rows), code)]
            if not len(own):
                continue
            tried = _alike_group(problem, fabric, with_settings(group.batch.take(own), code))
            again[number] = own, tried
            if code == codes[0]:  # what does not fit with the leanest settings fits with none
                tight[number] = np.setdiff1d(rows, np.delete(own, tried.priced))
        yield again


def _joined(prices: Prices, leaner_ones: Sequence[tuple[IntArray, Prices]]) -> Prices:
    """``prices`` and those of some of its candidates, by their numbers there, with settings that take less memory.

    Rows that fit, and of a candidate that has none the one that misses by least.
    """
    if not leaner_ones:
        return prices
    every = [prices, *(own for _, own in leaner_ones)]
    candidate = np.concatenate([prices.candidate, *(rows[own.candidate] for rows, own in leaner_ones)])
    excess = np.concatenate([each.excess_bytes for each in every])
    joined = replace(
        prices,
        batch=joined_batches([each.batch for each in every]),
        candidate=candidate,
        staging=np.concatenate([each.staging for each in every]),
        bound_s=np.concatenate([each.bound_s for each in every]),
        excess_bytes=excess,
        weight=np.concatenate([each.weight for each in every]),
    )
    return joined.take(fitting_or_nearest(candidate, excess))


def _alike_group(problem: PlanningProblem, fabric: Fabric, batch: CandidateBatch) -> _Group:
    problem, kinds = problem.under(batch.chosen), kind_rows(batch)
    layers, staging = layers_of_all(problem, batch)
    found = screened(problem, fabric.kinds, batch, layers, kinds, domain=fabric.gpus_per_unit, spread=staging[0])
    return _Group(batch, layers, kinds, staging, found)


def mixed_prices(asked: PlanningProblem, fabric: Fabric, index: int) -> Iterator[Prices]:
    """Prices of every way to mix all kinds of ``fabric``; layers follow speed and memory of each stage's GPUs.

    V-shaped schedules are left out: their ranks hold stages of both ends.  Memory decides with nothing recomputed;
    where that does not fit, also with all that may be.
    """
    workload, architecture = asked.workload, asked.architecture
    legal = enumerate_candidates(
        architecture,
        workload,
        gpus_per_node=fabric.gpus_per_unit,
        nodes=fabric.nodes,
        wanted=lambda grid: can_mix(grid, fabric, workload),
        limit=most_gpus_on(fabric, workload),
    )
    looped = ~np.isin(legal.schedule, [code for code, each in enumerate(SCHEDULE_CODES) if each.is_v_shaped])
    every, mixes = mixed_rows(every_leaner(legal.take(looped), workload.framework), fabric, workload)
    for rows in groups(every):
        batch, kinds = every.take(rows), np.array([mixes[row] for row in rows], dtype=np.int64)
        problem = asked.under(batch.chosen)
        for level in levels_of(problem):
            counts = mixed_layouts(problem, fabric, with_mix(batch, *level), kinds)
            layers = chunk_kinds(architecture, counts)
            staging, domain = stagings_of(counts, kinds), fabric.gpus_per_unit
            mixed = screened(problem, fabric.kinds, batch, layers, kinds, domain=domain, spread=staging[0])
            group = _Group(batch, layers, kinds, staging, mixed)
            (found,) = _prices(problem, fabric, index, [group])
            yield found
            own = batch.optimizer_offload[found.candidate]
            plain = found.candidate[
                (found.excess_bytes <= 0)
                & (found.batch.recompute == PLAIN)
                & (found.batch.optimizer_offload == own)
            ]
            left = np.setdiff1d(np.arange(len(batch)), plain)
            batch, kinds = batch.take(left), kinds[left]
            if not len(batch):
                break


def mixed_layouts(problem: PlanningProblem, fabric: Fabric, batch: CandidateBatch, kinds: IntArray) -> IntArray:
    """(n, C) layers of each chunk of candidates with stages on ``kinds`` (n, P), or as the framework fills them."""
    virtual, architecture = int(batch.virtual_pipeline[0]), problem.architecture
    if problem.workload.framework.fills_stages:
        return np.tile(np.ravel(layout_of(problem, batch)), (len(batch), 1))

    def excess(rows: IntArray, layers: IntArray) -> FloatArray:
        taken = batch.take(rows)
        return excess_bytes_of(problem, fabric.kinds, taken, layers, kinds[rows], domain=fabric.gpus_per_unit)

    probes = costs_by_kind(problem, fabric, batch, probe_layers(architecture, kinds.shape[1]))
    seconds = chunk_seconds(probes, kinds, virtual, architecture)
    return layouts_by_speed(seconds, virtual, architecture, excess)


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Candidates that are priced together (``row_groups.bundles``), and who of them fits."""

    batch: CandidateBatch
    layers: IntArray
    kinds: IntArray
    staging: Stagings
    screened: Screened

    @property
    def priced(self) -> IntArray:
        """Candidates that fit, or may with some mix of memory options."""
        settled = self.screened.settled
        return np.concatenate([settled.candidate[settled.excess_bytes <= 0], self.screened.open])


def _prices(
    problem: PlanningProblem, fabric: Fabric, index: int, parts: Sequence[_Group], limit: float = np.inf
) -> Iterator[Prices]:
    """Prices of candidates with their memory options, their layers worked out for all ``parts`` at once.

    These share their schedule and settings.
    """
    if not parts:
        return
    problem = problem.under(parts[0].batch.chosen)
    together = joined_batches([part.batch.take(part.priced) for part in parts])
    every, first = KnownLayers.of(problem, fabric, together), 0
    for part in parts:
        priced, place = part.priced, np.zeros(len(part.batch), dtype=np.int64)
        place[priced] = np.arange(first, first := first + len(priced))
        mixed = part.screened.chosen(select_rows(every.added, place[part.screened.open]))
        mixed = mixed.take(np.argsort(mixed.batch.virtual_pipeline, kind="stable"))
        layers = part.layers[mixed.candidate] if part.layers.ndim > 2 else part.layers
        kinds = part.kinds[mixed.candidate]
        weight = objective_weight(problem.workload.objective, fabric.kinds, mixed.batch, kinds)
        found = _Found(mixed, layers, kinds, every, place[mixed.candidate], limit / weight)
        yield Prices(
            fabric=index,
            batch=mixed.batch,
            candidate=mixed.candidate,
            staging=part.staging[0][mixed.candidate],
            stagings=part.staging[1],
            bound_s=_bounds_s(problem, fabric, found),
            excess_bytes=mixed.excess_bytes,
            weight=weight,
        )


class _Found(NamedTuple):
    """Rows with their mixes, chunk ``layers`` and stage ``kinds``; ``known`` has the layers of each at ``place``.

    ``limit_s`` (n,): a step beyond which a bound need not be sharp.
    """

    mixed: MixedRows
    layers: IntArray
    kinds: IntArray
    known: KnownLayers
    place: IntArray
    limit_s: FloatArray


def _bounds_s(problem: PlanningProblem, fabric: Fabric, found: _Found) -> FloatArray:
    """(n,) a step time no placement can beat, infinite for candidates that do not fit into memory."""
    mixed, known, framework = found.mixed, found.known, problem.workload.framework
    bound_s, fits = np.full(len(mixed.batch), np.inf), mixed.excess_bytes <= 0
    again = RecomputePolicies.of(mixed.batch, framework).dispatch_again & (known.apart is not known.usual)
    for rows, sized in ((fits & ~again, known.usual), (fits & again, known.apart)):
        if rows.any():
            batch, kinds = mixed.batch.take(rows), found.kinds[rows]
            chunks = int((batch.pipeline * batch.virtual_pipeline).max())
            layers = found.layers[rows, :chunks] if found.layers.ndim > 2 else found.layers
            costs = costs_of(problem, fabric, batch, layers, kinds, select_rows(sized, found.place[rows]))
            micro_batches = micro_batches_of(batch, problem.workload)
            bound_s[rows] = optimistic_step_s(
                batch, costs, micro_batches, fabric, kinds, framework=framework, limit_s=found.limit_s[rows]
            )
    return bound_s
