"""Throughput of a job against the number of nodes that it gets, from our own planner.

A few sizes are planned; between them what fewer nodes reach holds, and from above what no plan of at most so many
GPUs beats (docs/replanning.md).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cluster_models.plan import Plan
from solver.degrees.ruled import kept_candidates
from solver.problem import SearchOptions
from solver.replanning.optimistic import SizeBounds, bounds_of, loose_prices
from solver.replanning.reshaping import asked_on
from solver.replanning.site import JobSite
from solver.search import SearchSpace, plan_within

MOST_SIZES: Final = 5
"""Sizes that are planned where none are asked for."""
GAP: Final = 0.01


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The best plan found on at most ``nodes`` nodes; its certificate is about all nodes of the site."""

    nodes: int
    plan: Plan

    @property
    def tokens_per_s(self) -> float:
        """Throughput of the plan."""
        return self.plan.tokens_per_s


@dataclass(frozen=True, slots=True, eq=False)
class ThroughputCurve:
    """What a job reaches on parts of ``nodes`` nodes, each offering ``gpus_per_node`` GPUs.

    ``points`` by increasing size: those that hold the job.  ``bounds``: of all shapes, by GPUs.
    """

    nodes: int
    gpus_per_node: int
    points: tuple[CurvePoint, ...]
    bounds: SizeBounds

    def reached(self, nodes: int) -> CurvePoint | None:
        """The fastest plan known on at most ``nodes`` nodes; ``None`` where none is."""
        known = [point for point in self.points if point.nodes <= nodes]
        return max(known, key=lambda point: point.tokens_per_s, default=None)

    def upper(self, nodes: int) -> float:
        """Tokens per second that no plan on at most ``nodes`` of the nodes beats; grows with ``nodes``."""
        return self.bounds.at(nodes * self.gpus_per_node)

    def hull(self) -> tuple[float, ...]:
        """The least concave function over 0 to ``nodes`` nodes that is nowhere below ``upper``.

        The gain of one more node never grows along it, as prices of nodes need it.
        """
        corners: list[tuple[int, float]] = []
        for nodes in range(self.nodes + 1):
            point = (nodes, self.upper(nodes) if nodes else 0.0)
            while len(corners) > 1 and _bends_up(corners[-2], corners[-1], point):
                corners.pop()
            corners.append(point)
        at, value = zip(*corners, strict=True)
        return tuple(np.interp(np.arange(self.nodes + 1), at, value).tolist())


def _bends_up(a: tuple[int, float], b: tuple[int, float], c: tuple[int, float]) -> bool:
    """Whether the way from ``b`` to ``c`` is at least as steep as that from ``a`` to ``b``."""
    return (c[1] - b[1]) * (b[0] - a[0]) >= (b[1] - a[1]) * (c[0] - b[0])


def throughput_curve(
    site: JobSite, limit_s: float, *, sizes: Sequence[int] = (), effort: int = 1, seed: int = 0
) -> ThroughputCurve:
    """The curve of the job on its live nodes and the others of its site.

    ``sizes`` are planned (a few up to all nodes where none are given), the largest first, each in its share of what
    is left of ``limit_s``.
    """
    started = time.monotonic()
    asked = asked_on(site, site.others)
    own = [host for host in site.job.nodes if site.resources.offers(host, site.gpus)]
    nodes = len(own) + len(site.others)
    fabrics, priced = loose_prices(asked, site.links)
    bounds = bounds_of(asked, priced, least_gpus=site.job.recovery.least_gpus)
    fits = priced.excess_bytes <= 0
    if not fits.any():
        return ThroughputCurve(nodes, site.gpus, (), bounds)
    kept = kept_candidates(asked, fabrics, priced)
    gpus = priced.batch.tensor * priced.batch.context * priced.batch.data * priced.batch.pipeline
    points: list[CurvePoint] = []
    left = sorted({size for size in sizes or _sizes(nodes) if 0 < size <= nodes}, reverse=True)
    for index, size in enumerate(left):
        mask = kept.mask & (gpus <= size * site.gpus) & (gpus >= site.job.recovery.least_gpus)
        if not (fits & mask).any():
            break
        share_s = max(0.0, limit_s - (time.monotonic() - started)) / (len(left) - index)
        options = SearchOptions(time_limit_s=share_s, effort=effort, seed=seed, gap=GAP, alternatives=0)
        found = plan_within(asked, SearchSpace(fabrics, priced, replace(kept, mask=mask)), options)
        if isinstance(found, Plan):
            points.append(CurvePoint(size, found))
    return ThroughputCurve(nodes, site.gpus, tuple(reversed(points)), bounds)


def _sizes(nodes: int) -> list[int]:
    """All nodes, one less, and halves."""
    halves = [nodes // 2**power for power in range(nodes.bit_length())]
    return sorted({nodes, nodes - 1, *halves}, reverse=True)[:MOST_SIZES]
