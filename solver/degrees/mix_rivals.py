"""Layers of candidates under all mixes of memory options, and which mixes rule out one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from solver.candidates import BoolArray, CandidateBatch, FloatArray
from solver.costs.layers import Layers
from solver.costs.recomputation import RecomputePolicies
from solver.degrees.memory_mixes import FULL, Mix, mixes_of, modules_used, policies_of, with_mix
from solver.degrees.stage_costs import LayersByKind, layers_by_kind
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem


@dataclass(frozen=True, slots=True, eq=False)
class KnownLayers:
    """Layers of candidates for each GPU kind; ``apart``: where no other pass runs beside dispatch.

    The same where the framework overlaps none.
    """

    usual: LayersByKind
    apart: LayersByKind
    added: AddedSeconds

    @classmethod
    def of(cls, problem: PlanningProblem, fabric: Fabric, batch: CandidateBatch) -> Self:
        """Layers of any candidates, with all modules that they may run again."""
        usual = apart = layers_by_kind(problem, fabric, batch, modules_used(problem))
        if (beside := overlaps(problem, batch)).any():
            apart = layers_by_kind(problem, fabric, with_mix(batch, Mix(FULL)), modules_used(problem))
        policies = policies_of(mixes_of(problem), problem.workload.framework)
        added = tuple(
            _added_s(policies, each.layers, alone.layers) for each, alone in zip(usual, apart, strict=True)
        )
        whole = tuple(tuple(np.asarray(again.whole.total) for again in each.layers.again) for each in apart)
        return cls(usual, apart, AddedSeconds(added, whole, Crossing.of(usual[0].layers, beside)))


@dataclass(frozen=True, slots=True, eq=False)
class AddedSeconds:
    """Seconds that candidates' layers take longer, by GPU kind and kind of layer, and what placements add to them.

    ``mixes`` (n, m): under each mix; ``whole`` (n,): where the layer runs again as a whole.
    """

    mixes: tuple[tuple[FloatArray, ...], ...]
    whole: tuple[tuple[FloatArray, ...], ...]
    crossing: Crossing


def _added_s(policies: RecomputePolicies, usual: Layers, apart: Layers) -> tuple[FloatArray, ...]:
    """Seconds (n, m) that each of (m, 1) policies adds to a layer of each kind."""
    found = []
    for each, alone in zip(usual.again, apart.again, strict=True):
        sent = np.where(policies.full, alone.whole.total, alone.selective(policies).total)
        total = np.where(policies.dispatch_again, sent, each.selective(policies).total)
        found.append(np.broadcast_to(total, (len(policies.full), len(usual.seconds[0].forward))).T)
    return tuple(found)


def overlaps(problem: PlanningProblem, batch: CandidateBatch) -> BoolArray:
    """(n,) whether dispatch runs beside the compute of another micro-batch unless something is dispatched again."""
    beside = (batch.expert > 1) & ((batch.pipeline == 1) | (batch.virtual_pipeline > 1))
    return np.asarray(beside & batch.chosen.under(problem.workload.framework).expert_overlap)


@dataclass(frozen=True, slots=True, eq=False)
class Crossing:
    """Candidates (n,) whose rings of attention, or whose dispatch, leave a domain, so that the placement decides.

    ``beside``: dispatch runs beside the compute of another micro-batch.
    """

    attention: BoolArray
    dispatch: BoolArray
    beside: BoolArray

    @classmethod
    def of(cls, layers: Layers, beside: BoolArray) -> Self:
        """By the layers of the candidates."""
        rings, dispatch = (
            np.logical_or.reduce([each.forward_count > 0 for each in traffic])
            for traffic in (layers.context, layers.expert)
        )
        return cls(rings, dispatch, beside)


def least_of(added: Sequence[FloatArray], fits: BoolArray) -> BoolArray:
    """(n, mixes) which of those that fit no other one adds less than: less in one of ``added`` and more in none.

    Among equal ones the first.
    """
    kept = fits.copy()
    if len(added) > 2 or not fits.size:
        for column in range(fits.shape[1]):
            for other in range(fits.shape[1]):
                no_more = [each[:, other] <= each[:, column] for each in added]
                less = [each[:, other] < each[:, column] for each in added]
                beats = np.logical_and.reduce(no_more) & (np.logical_or.reduce(less) | (other < column))
                kept[:, column] &= ~(fits[:, other] & beats) | (other == column)
        return kept
    first, last = (np.where(fits, each, np.inf) for each in (added[0], added[-1]))
    order = np.argsort(last, axis=1, kind="stable")
    order = np.take_along_axis(order, np.argsort(np.take_along_axis(first, order, 1), axis=1, kind="stable"), 1)
    ordered = np.take_along_axis(last, order, 1)
    least = np.minimum.accumulate(ordered, axis=1)
    is_less = ordered < np.concatenate([np.full((len(least), 1), np.inf), least[:, :-1]], axis=1)
    np.put_along_axis(kept, order, is_less, 1)
    return kept & fits
