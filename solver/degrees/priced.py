"""Every candidate on every fabric with its optimistic step time, its memory and its weight in the objective."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from cluster_models.gpus import GpuKind
from solver.candidates import BoolArray, CandidateBatch, FloatArray, IntArray
from solver.degrees.enumeration import enumerate_candidates
from solver.degrees.layout import chunk_layers
from solver.degrees.mixing import can_mix, mixed_rows
from solver.degrees.pricing import optimistic_step_s
from solver.degrees.speeds import chunk_seconds, chunk_types, layouts_by_speed, probe_layers
from solver.degrees.staging import (
    Staging,
    costs_by_kind,
    costs_of,
    excess_bytes_of,
    kind_rows,
    layout_of,
    micro_batches_of,
    objective_weight,
)
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem


@dataclass(frozen=True, slots=True, eq=False)
class PricedCandidates:
    """``n`` candidates, one row each.

    ``fabric`` is the index of the fabric, ``staging`` that of what its stages hold and run on in ``stagings``,
    ``bound_s`` a step time no placement can beat (infinite where memory does not hold it), ``excess_bytes`` the
    fullest GPU's need beyond its limit (negative = free) and ``weight`` what a second of step time counts in the
    objective.
    """

    batch: CandidateBatch
    fabric: IntArray
    staging: IntArray
    stagings: tuple[Staging, ...]
    bound_s: FloatArray
    excess_bytes: FloatArray
    weight: FloatArray

    def __len__(self) -> int:
        return len(self.batch)

    def staging_of(self, index: int) -> Staging:
        """What the stages of one candidate hold and run on."""
        return self.stagings[int(self.staging[index])]


@dataclass(frozen=True, slots=True, eq=False)
class _Prices:
    """Prices of candidates on one fabric; ``staging`` (n,) points into ``stagings``."""

    batch: CandidateBatch
    staging: IntArray
    stagings: list[Staging]
    bound_s: FloatArray
    excess_bytes: FloatArray
    weight: FloatArray


def fits_memory(problem: PlanningProblem, gpu: GpuKind, *, gpus_per_node: int, nodes: int) -> bool:
    """Whether any legal candidate fits on ``nodes`` nodes of one kind, whatever its time."""
    every = enumerate_candidates(problem.architecture, problem.workload, gpus_per_node=gpus_per_node, nodes=nodes)
    for rows in _groups(every):
        batch = every.take(rows)
        layers = chunk_layers(problem.architecture, layout_of(problem, batch))
        excess = excess_bytes_of(problem, [gpu], batch, layers, kind_rows(batch), domain=gpus_per_node)
        if (excess <= 0).all(axis=1).any():
            return True
    return False


def mix_fits_memory(problem: PlanningProblem, fabric: Fabric) -> bool:
    """Whether any mix of all kinds of ``fabric`` fits, whatever its time."""
    return any((part.excess_bytes <= 0).any() for part in _mixed_prices(problem, fabric))


def price_candidates(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> PricedCandidates:
    """All legal candidates with their prices; none at all where no rule leaves one."""
    parts: list[_Prices] = []
    members: list[int] = []
    for index, fabric in enumerate(fabrics):
        found = _mixed_prices(problem, fabric) if fabric.is_mixed else _single_prices(problem, fabric)
        for part in found:
            parts.append(part)
            members.append(index)
    offsets = np.cumsum([0, *(len(part.stagings) for part in parts)])[:-1]

    def joined(arrays: Iterable[npt.NDArray[Any]], kind: type) -> npt.NDArray[Any]:
        return np.concatenate([np.empty(0, dtype=kind), *arrays])

    return PricedCandidates(
        batch=CandidateBatch(
            *(
                joined((getattr(part.batch, column.name) for part in parts), np.int64)
                for column in fields(CandidateBatch)
            )
        ),
        fabric=joined((np.full(len(p.batch), index) for p, index in zip(parts, members, strict=True)), np.int64),
        staging=joined((p.staging + first for p, first in zip(parts, offsets, strict=True)), np.int64),
        stagings=tuple(staging for part in parts for staging in part.stagings),
        bound_s=joined((part.bound_s for part in parts), np.float64),
        excess_bytes=joined((part.excess_bytes for part in parts), np.float64),
        weight=joined((part.weight for part in parts), np.float64),
    )


def _single_prices(problem: PlanningProblem, fabric: Fabric) -> Iterator[_Prices]:
    """Prices on a fabric with GPUs of one kind, by pipeline and virtual pipeline size."""
    every = enumerate_candidates(
        problem.architecture,
        problem.workload,
        gpus_per_node=fabric.gpus_per_unit,
        nodes=fabric.nodes,
        wider=fabric.wider,
        parts=fabric.nodes_per_unit == 1,
    )
    for rows in _groups(every):
        batch = every.take(rows)
        layout = layout_of(problem, batch)
        layers, kinds = chunk_layers(problem.architecture, layout), kind_rows(batch)
        staging = np.zeros(len(batch), dtype=np.int64)
        yield _prices(problem, fabric, batch, layers, kinds, (staging, [Staging(layout)]))


def _mixed_prices(problem: PlanningProblem, fabric: Fabric) -> Iterator[_Prices]:
    """Prices of every way to mix all kinds of ``fabric``; layers follow speed and memory of each stage's GPUs."""
    workload, architecture = problem.workload, problem.architecture
    legal = enumerate_candidates(
        architecture,
        workload,
        gpus_per_node=fabric.gpus_per_unit,
        nodes=fabric.nodes,
        wanted=lambda grid: can_mix(grid, fabric, workload),
    )
    every, mixes = mixed_rows(legal, fabric, workload)
    for rows in _groups(every):
        batch, kinds = every.take(rows), np.array([mixes[row] for row in rows], dtype=np.int64)
        counts = mixed_layouts(problem, fabric, batch, kinds)
        layers = chunk_types(architecture, counts)
        yield _prices(problem, fabric, batch, layers, kinds, _stagings(counts, kinds))


def mixed_layouts(problem: PlanningProblem, fabric: Fabric, batch: CandidateBatch, kinds: IntArray) -> IntArray:
    """(n, C) layers of each chunk of candidates with stages on ``kinds`` (n, P)."""
    virtual, architecture = int(batch.virtual_pipeline[0]), problem.architecture

    def excess(rows: IntArray, layers: IntArray) -> FloatArray:
        taken = batch.take(rows)
        return excess_bytes_of(problem, fabric.kinds, taken, layers, kinds[rows], domain=fabric.gpus_per_unit)

    probes = costs_by_kind(problem, fabric, batch, probe_layers(kinds.shape[1]))
    seconds = chunk_seconds(probes, kinds, virtual, architecture)
    return layouts_by_speed(seconds, virtual, architecture, excess)


def _stagings(counts: IntArray, kinds: IntArray) -> tuple[IntArray, list[Staging]]:
    """The distinct stagings of layers ``counts`` (n, C) on ``kinds`` (n, P), and (n,) which one each row has."""
    ranks = kinds.shape[1]
    known: dict[bytes, int] = {}
    found: list[Staging] = []
    which = np.empty(len(counts), dtype=np.int64)
    for row, (held, on) in enumerate(zip(counts, kinds, strict=True)):
        key = held.tobytes() + on.tobytes()
        if key not in known:
            known[key] = len(found)
            found.append(Staging(tuple(map(tuple, held.reshape(-1, ranks).tolist())), tuple(on.tolist())))
        which[row] = known[key]
    return which, found


def _prices(
    problem: PlanningProblem,
    fabric: Fabric,
    batch: CandidateBatch,
    layers: IntArray,
    kinds: IntArray,
    staging: tuple[IntArray, list[Staging]],
) -> _Prices:
    """Prices of candidates that share their pipeline and virtual pipeline sizes."""
    excess = excess_bytes_of(problem, fabric.kinds, batch, layers, kinds, domain=fabric.gpus_per_unit).max(axis=1)
    return _Prices(
        batch=batch,
        staging=staging[0],
        stagings=staging[1],
        bound_s=_bounds_s(problem, fabric, batch, layers, kinds, excess <= 0),
        excess_bytes=excess,
        weight=objective_weight(problem.workload.objective, fabric.kinds, batch, kinds),
    )


def _bounds_s(
    problem: PlanningProblem,
    fabric: Fabric,
    batch: CandidateBatch,
    layers: IntArray,
    kinds: IntArray,
    fits: BoolArray,
) -> FloatArray:
    """(n,) a step time no placement can beat, infinite for candidates that do not fit into memory."""
    bound_s = np.full(len(batch), np.inf)
    if fits.any():
        own = layers[fits] if layers.ndim > 2 else layers
        costs = costs_of(problem, fabric, batch.take(fits), own, kinds[fits])
        micro_batches = micro_batches_of(batch, problem.workload)[fits]
        bound_s[fits] = optimistic_step_s(batch.take(fits), costs, micro_batches, fabric, kinds[fits])
    return bound_s


def _groups(batch: CandidateBatch) -> list[IntArray]:
    """Rows of equal pipeline and virtual pipeline size."""
    key = batch.pipeline * (batch.virtual_pipeline.max(initial=0) + 1) + batch.virtual_pipeline
    order = np.argsort(key, kind="stable")
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    return [rows for rows in np.split(order, cuts) if len(rows)]
