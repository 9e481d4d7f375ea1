"""Remaining lead of a plan when links change by the spread seen.

Every link is drawn around its median, for the plan and its alternatives alike, and their fixed placements are
priced again (docs/robustness.md).  Letters: D draws, N nodes of the cluster, u ordered pairs of nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cluster_models.links.model import LinkModel, effective_links
from cluster_models.links.spread import LinkSpread, Spread, SpreadOrigin, link_spread
from cluster_models.remarks import Remark, remark
from cluster_models.training.robustness import Drifted, Rival, Robustness
from cluster_models.training.workload import LinkBandwidth, TrainingWorkload
from solver.answer.warnings import used_links
from solver.candidates import CandidateBatch, FloatArray, IntArray
from solver.compiled import Arrays, step_seconds
from solver.kernels import kernel
from solver.placement.link_times import times_over
from solver.placement.problem import PlacementProblem
from solver.problem import PlanningProblem
from solver.refine import Candidate, prepare

FEWEST_DRAWS: Final = 100
MOST_DRAWS: Final = 400
"""The share of draws in which a plan leads is then known to 2.5 % (one standard deviation)."""
PASSES: Final = 3e8
"""Forwards and backwards simulated in all draws of all contenders together, about a second's."""
ROUNDING: Final = 1e-9
"""Share of a step below which two are the same."""
NOTICEABLE: Final = 1e-3
"""Share of a step by which an alternative must do better at p90 to be called safer."""


@dataclass(frozen=True, slots=True, eq=False)
class Drift:
    """How the links of a problem's cluster may change.

    ``median_links`` are given where candidates are made on others.
    """

    problem: PlanningProblem
    spread: LinkSpread
    median_links: LinkModel | None
    draws: int
    seed: int

    def step_s(self, candidate: Candidate, assignment: IntArray) -> FloatArray:
        """Step time (D,) of ``candidate`` with slot ``k`` on unit ``assignment[k]`` of its fabric, in each draw.

        All links between two units of several nodes change together.
        """
        if self.median_links is not None:
            times = times_over(self.median_links, candidate.fabric.times.flows)
            fabric = replace(candidate.fabric, times=times)
            candidate = prepare(self.problem, fabric, candidate.batch, candidate.layout, candidate.stage_kinds)
        pairs = used_links(candidate.placement, assignment)
        return drifted_steps(candidate.placement, assignment, pairs, self.factors(candidate.fabric.index[pairs]))

    def spread_of(self, candidate: Candidate, assignment: IntArray) -> Spread | None:
        """The spread of most links of the plan that change; ``None`` where it sends nothing between nodes."""
        pairs = candidate.fabric.index[used_links(candidate.placement, assignment)]
        if len(pairs) == 0:
            return None
        used = np.bincount(self.spread.link_classes[pairs[:, 0], pairs[:, 1]], minlength=len(self.spread.by_class))
        changing = np.array([spread.decile > 0 for spread in self.spread.by_class])
        return self.spread.by_class[int(np.where(changing, used * len(pairs), used > 0).argmax())]

    def factors(self, pairs: IntArray) -> FloatArray:
        """(D, u) how many times its median a transfer takes from ``pairs[:, 0]`` to ``pairs[:, 1]``.

        Each node and each ordered pair has a stream of its own, so a link changes alike whoever asks.
        """
        nodes = len(self.spread.link_classes)
        classes = self.spread.link_classes[pairs[:, 0], pairs[:, 1]]
        share = np.array([spread.node_share for spread in self.spread.by_class])[classes]
        ends, position = np.unique(pairs, return_inverse=True)
        of_node = self._normals(nodes * nodes + ends)[:, position.reshape(pairs.shape)].sum(axis=2)
        of_pair = self._normals(pairs[:, 0] * nodes + pairs[:, 1])
        strays = np.sqrt(share / 2) * of_node + np.sqrt(1 - share) * of_pair
        factors: FloatArray = np.exp(self.spread.deviation(pairs) * strays)
        return factors

    def _normals(self, streams: IntArray) -> FloatArray:
        """(D, n) standard normal draws of each stream."""
        normals = np.empty((len(streams), self.draws))
        for row, stream in enumerate(streams.tolist()):
            key = np.array([self.seed % 2**64, stream], dtype=np.uint64)
            np.random.Generator(np.random.Philox(key=key)).standard_normal(out=normals[row])
        return normals.T


def drift_of(problem: PlanningProblem, seed: int, contenders: CandidateBatch) -> Drift:
    """The drift that the rows of ``contenders`` are put through; fewer draws where schedules are long."""
    workload = problem.workload
    median = workload.link_bandwidth is LinkBandwidth.MEDIAN
    draws = int(np.clip(PASSES / max(1, _passes(contenders, workload)), FEWEST_DRAWS, MOST_DRAWS))
    links = None if median else effective_links(problem.snapshot)
    return Drift(problem, link_spread(problem.snapshot), links, draws, seed)


def _passes(contenders: CandidateBatch, workload: TrainingWorkload) -> int:
    """Forwards and backwards of one step of each contender, all together."""
    chunks = contenders.pipeline * contenders.virtual_pipeline
    return int((2 * chunks * (workload.global_batch // contenders.micro_batch)).sum())


def drifted_steps(
    placement: PlacementProblem, assignment: IntArray, pairs: IntArray, factors: FloatArray
) -> FloatArray:
    """Step time (D,) with transfers between ``pairs`` (u, 2) of nodes ``factors`` (D, u) times as long.

    Transfers that share an uplink keep its limit, and those inside a node their time.
    """
    arrays = placement.arrays
    changing = arrays._replace(
        hop_s=arrays.hop_s.copy(),
        cross_s=arrays.cross_s.copy(),
        reduce_s=arrays.reduce_s.copy(),
        gather_s=arrays.gather_s.copy(),
    )
    return _steps(assignment, changing, np.ascontiguousarray(pairs), np.ascontiguousarray(factors))


@kernel
def _steps(assignment: IntArray, arrays: Arrays, pairs: IntArray, factors: FloatArray) -> FloatArray:
    """Step time (D,) in each draw, whose times are left in ``arrays``."""
    hop_s, cross_s = arrays.hop_s.copy(), arrays.cross_s.copy()
    reduce_s, gather_s = arrays.reduce_s.copy(), arrays.gather_s.copy()
    steps = np.empty(len(factors))
    for draw in range(len(factors)):
        for u in range(len(pairs)):
            a, b, factor = pairs[u, 0], pairs[u, 1], factors[draw, u]
            arrays.hop_s[a, b] = hop_s[a, b] * factor
            for x in range(len(cross_s)):
                arrays.cross_s[x, a, b] = cross_s[x, a, b] * factor
            for y in range(len(reduce_s)):
                arrays.reduce_s[y, a, b] = reduce_s[y, a, b] * factor
                arrays.gather_s[y, a, b] = gather_s[y, a, b] * factor
        steps[draw] = step_seconds(assignment, arrays)[0]
    return steps


@dataclass(frozen=True, slots=True, eq=False)
class Contender:
    """A placed candidate in every draw: step time (D,), and what the objective pays for a second of it."""

    step_s: FloatArray
    weight: float

    @property
    def objective(self) -> FloatArray:
        """In each draw (D,)."""
        return self.step_s * self.weight

    @property
    def step(self) -> Drifted:
        """Deciles and median."""
        return Drifted(*(float(value) for value in np.quantile(self.step_s, (0.1, 0.5, 0.9))))


def robustness(plan: Contender, rivals: Sequence[Contender], spread: Spread | None) -> Robustness:
    """How the plan's lead over ``rivals``, the plan's alternatives in their order, stands the draws."""
    best = np.min([rival.objective for rival in rivals], axis=0) if rivals else plan.objective
    loss = np.maximum(0.0, plan.objective / best - 1)
    loss[loss < ROUNDING] = 0.0
    faced = tuple(
        Rival(index, rival.step, float((plan.objective <= rival.objective * (1 + ROUNDING)).mean()))
        for index, rival in enumerate(rivals)
    )
    return Robustness(
        draws=len(plan.step_s),
        slow_link=0.0 if spread is None else 1 - math.exp(-spread.decile),
        spread_from=_source(spread),
        step=plan.step,
        rivals=faced,
        mean_loss=float(loss.mean()),
        worst_loss=float(loss.max()),
        safer=_safer(plan, rivals),
    )


def _safer(plan: Contender, rivals: Sequence[Contender]) -> int | None:
    """The rival with the least objective at p90, where that is noticeably less than the plan's."""
    slow = [float(np.quantile(each.objective, 0.9)) for each in (plan, *rivals)]
    safest = int(np.argmin(slow))
    return safest - 1 if slow[safest] < slow[0] * (1 - NOTICEABLE) else None


def _source(spread: Spread | None) -> Remark:
    if spread is None:
        return remark("drift_no_traffic")
    if spread.origin is SpreadOrigin.PUBLISHED:
        return remark("drift_inside_domains") if spread.decile == 0 else remark("drift_published")
    same_class = spread.origin is SpreadOrigin.CLASS
    return remark("drift_repeated_tests", repeats=spread.repeats, same_class=same_class, agree=spread.decile == 0)
