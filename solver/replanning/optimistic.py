"""Throughput that no placement and no shape of a job beats; docs/replanning.md has the proofs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Final

import numpy as np

from cluster_models.links.model import LinkModel
from solver.candidates import FloatArray, IntArray, batch_of, joined_batches
from solver.costs.training_state import least_rank_bytes
from solver.degrees.layout import chunk_layers
from solver.degrees.priced import PricedCandidates
from solver.degrees.pricing import optimistic_step_s
from solver.degrees.promising import price_fitting
from solver.degrees.stage_costs import costs_of, kind_rows
from solver.placement.bounds import placement_bound_s
from solver.placement.cluster_fabrics import fabrics, mixed_fabrics
from solver.placement.fabric import Fabric
from solver.placement.problem import PlacementProblem
from solver.problem import PlanningProblem
from solver.replanning.shrinking import DataSize, data_sizes, thin_widths
from solver.replanning.site import JobSite


@dataclass(frozen=True, slots=True, eq=False)
class SizeBounds:
    """Bounds on options, (n,) each: every option is no better than one of the rows with as many GPUs.

    ``rank_bytes``: state that each of its ranks holds at least.
    """

    gpus: IntArray
    tokens_per_s: FloatArray
    rank_bytes: FloatArray


SITES: Final = 64
"""Sites whose bounds are remembered: those of all jobs in question are asked for in every round."""
NO_SIZES: Final = SizeBounds(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))


@lru_cache(maxsize=SITES)
def swap_rate(site: JobSite) -> float:
    """Tokens per second that the job's own configuration cannot beat on any units that serve; 0 with too few."""
    usable = np.flatnonzero(site.serves)
    if len(usable) < site.slots:
        return 0.0
    best_s = placement_bound_s(restricted(site.candidate.placement, usable))
    return site.asked.workload.tokens_per_step / best_s


def restricted(placement: PlacementProblem, units: IntArray) -> PlacementProblem:
    """The same problem with some of its units only."""
    arrays, square = placement.arrays, np.ix_(units, units)
    rules, uplinks = arrays.rules, arrays.uplinks
    kept = arrays._replace(
        slowdown=arrays.slowdown[units],
        hop_s=np.ascontiguousarray(arrays.hop_s[square]),
        cross_s=np.ascontiguousarray(arrays.cross_s[:, units][:, :, units]),
        reduce_s=np.ascontiguousarray(arrays.reduce_s[:, units][:, :, units]),
        gather_s=np.ascontiguousarray(arrays.gather_s[:, units][:, :, units]),
        rules=rules._replace(
            eligible=np.ascontiguousarray(rules.eligible[:, units]),
            places=np.ascontiguousarray(rules.places[:, units]),
            quota_of=np.ascontiguousarray(rules.quota_of[:, units]),
        ),
        uplinks=uplinks._replace(above=np.ascontiguousarray(uplinks.above[:, units])),
    )
    return replace(placement, nodes=len(units), arrays=kept)


@lru_cache(maxsize=SITES)
def shrink_bounds(site: JobSite) -> SizeBounds:
    """Bounds of all legal data sizes smaller than the job's own."""
    most = site.job.plan.configuration.degrees.data - 1
    sizes = [size for width in (site.gpus, *thin_widths(site)) for size in data_sizes(site, most, width)]
    if not sizes:
        return NO_SIZES
    gpus = np.array([size.configuration.degrees.gpus for size in sizes], dtype=np.int64)
    tokens = np.array([size.global_batch for size in sizes]) * site.asked.workload.tokens_per_sequence
    return SizeBounds(gpus, tokens / _steps(site, sizes), np.zeros(len(sizes)))


def _steps(site: JobSite, sizes: Sequence[DataSize]) -> FloatArray:
    """(n,) seconds of a step that no placement on units of the site beats; sizes below a node stand alone."""
    steps = np.empty(len(sizes))
    per_node = np.array([size.node_gpus for size in sizes])
    candidate = site.candidate
    layers = chunk_layers(site.asked.architecture, candidate.layout, candidate.batch.runs)
    for count in np.unique(per_node):
        rows = np.flatnonzero(per_node == count)
        fabric = _loosened(candidate.fabric.with_gpus(int(count)), _FreeInside)
        batch = joined_batches([batch_of(sizes[row].configuration) for row in rows.tolist()])
        kinds = kind_rows(batch, candidate.stage_kinds)
        rounds = [sizes[row].configuration.micro_batches(sizes[row].global_batch) for row in rows.tolist()]
        costs = costs_of(site.asked, fabric, batch, layers, kinds)
        counts = np.array(rounds, dtype=np.int64)
        steps[rows] = optimistic_step_s(
            batch, costs, counts, fabric, kinds, framework=site.asked.workload.framework
        )
    return steps


def loose_prices(asked: PlanningProblem, links: LinkModel) -> tuple[tuple[Fabric, ...], PricedCandidates]:
    """Candidates of a problem that fit, with bounds that hold on any part of its nodes too, and their fabrics."""
    alike = fabrics(asked.snapshot, asked.workload, links, fitted=asked.fitted)
    mixed = mixed_fabrics(asked.snapshot, asked.workload, links, fitted=asked.fitted)
    joined = any(fabric.nodes_per_unit > 1 for fabric in alike)
    loose = tuple(_loosened(fabric, _FreeLinks if joined else _FreeInside) for fabric in (*alike, *mixed))
    return loose, price_fitting(asked, loose)


def bounds_of(asked: PlanningProblem, priced: PricedCandidates, *, least_gpus: int = 1) -> SizeBounds:
    """Bounds on the candidates that fit into memory, by GPUs."""
    batch = priced.batch
    gpus = batch.tensor * batch.context * batch.data * batch.pipeline
    wanted = (priced.excess_bytes <= 0) & (gpus >= least_gpus)
    held = least_rank_bytes(asked.architecture, asked.workload, batch, _least_layers(priced))
    return SizeBounds(gpus[wanted], asked.workload.tokens_per_step / priced.bound_s[wanted], held[wanted])


def _least_layers(priced: PricedCandidates) -> IntArray:
    """(n,) layers of the stage with fewest; on GPUs of several kinds one, for it depends on which are there."""
    least = [1 if staging.kinds else int(np.sum(staging.layout, axis=0).min()) for staging in priced.stagings]
    return np.array(least, dtype=np.int64)[priced.staging]


class _FreeInside(Fabric):
    """A fabric with free transfers inside units: what the slowest unit takes depends on which are there."""

    __slots__ = ()

    def best_inside_s(self, message_bytes: FloatArray) -> FloatArray:
        return np.zeros_like(message_bytes)


class _FreeLinks(_FreeInside):
    """A fabric with links that take no time: which nodes make a unit depends on which are there."""

    __slots__ = ()

    def best_s(self, message_bytes: FloatArray) -> FloatArray:
        return np.zeros_like(message_bytes)

    def joining_s(self, message_bytes: FloatArray, units: IntArray) -> FloatArray:  # noqa: ARG002
        return np.zeros_like(message_bytes)


def _loosened(fabric: Fabric, kind: type[Fabric]) -> Fabric:
    """``fabric`` with the links of ``kind``, for every candidate, whatever wider units there are."""
    values = {field.name: getattr(fabric, field.name) for field in fields(fabric) if field.init}
    return kind(**{**values, "wider": ()})
