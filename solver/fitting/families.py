"""Errors of measured runs by family: what ``solver.costs.confidence`` reads.

Runs of one unit (a model, a framework, ...) err together, and the next run is of a unit never seen: quantiles are
those of a run drawn at random from a unit drawn at random, every unit weighing the same however many runs it has
(pooled distributions of two layers, Dunn, Wasserman and Ramdas 2023, JASA 118; Lee, Barber and Willett 2023).  They
are set as if from n_eff independent errors: with the intraclass correlation rho a unit's mean of n has the variance
rho + (1 - rho) / n, and n_eff is what makes that of the mean of all units (Kish 1965, Survey Sampling).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cluster_models.calibration.fitted import ErrorSpread
from cluster_models.calibration.training_run import TrainingRun
from solver.candidates import FloatArray
from solver.costs.calibration import kind_family
from solver.costs.confidence import (
    CHOICES,
    EXTENTS,
    LEVEL,
    Family,
    Novelty,
    Subject,
    blend,
    choices_of,
    doublings_outside,
    extents_of,
    family_names,
    widened,
)
from solver.costs.overheads import overhead_doublings
from solver.fitting.left_out import Rows
from solver.fitting.unseen import HeldOut

FEWEST_UNITS: Final = 2
"""A family whose runs are all of one unit is not kept: how units differ is not known from it."""
WORST: Final = 0.05
"""Share of the errors at either end that the intraclass correlation takes as no worse than the rest."""


@dataclass(frozen=True, slots=True)
class Families:
    """Families by name, whose intervals widen by ``per_doubling`` outside of their ranges.

    Where overheads are guessed the upper end moves by ``per_overhead`` for each doubling beyond the family's.
    ``kinds`` and ``frameworks``: how many runs were fitted of each; ``kinds_of``: the kinds that each framework ran
    on.
    """

    families: Mapping[str, Family]
    per_doubling: float
    per_overhead: float
    kinds: Mapping[str, int]
    frameworks: Mapping[str, int]
    kinds_of: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Judged:
    """The interval that families which never saw the likes of a run give it.

    Its ends are exp(-``low``) and exp(``high``) of the predicted step inside their ranges, from which the run is so
    many ``doublings`` away; its step holds ``overhead`` doublings beyond the family's, guessed ones.
    """

    held: HeldOut
    low: float
    high: float
    doublings: float
    overhead: float = 0.0

    def is_inside(self, per_doubling: float, per_overhead: float = 0.0) -> bool:
        """Whether the interval, widened by that much per doubling of either, holds the measured step."""
        low, high = self._ends(per_doubling, per_overhead)
        return -low <= self.held.error <= high

    def width(self, per_doubling: float, per_overhead: float = 0.0) -> float:
        """Upper over lower end of the widened interval."""
        return math.exp(sum(self._ends(per_doubling, per_overhead)))

    def needed(self, per_doubling: float) -> float:
        """The square of the least ``per_overhead`` with which the step is not above the interval."""
        _, high = self._ends(per_doubling, 0.0)
        return max(0.0, max(0.0, self.held.error) ** 2 - high**2) / self.overhead

    def _ends(self, per_doubling: float, per_overhead: float) -> tuple[float, float]:
        low, high = (widened(end, self.doublings, per_doubling) for end in (self.low, self.high))
        return low, widened(high, self.overhead, per_overhead)

    @property
    def reach(self) -> float:
        """The end on the side of the error."""
        return self.high if self.held.error > 0 else self.low


def subject_of(run: TrainingRun) -> Subject:
    """Subject of an interval for ``run``."""
    return Subject(run.gpu, run.architecture, run.workload, run.configuration)


def error_spread(errors: FloatArray, weights: FloatArray | None = None) -> ErrorSpread:
    """Percentiles of ``errors``, log(measured / predicted), each worth ``weights`` (default 1) independent ones.

    The p-quantile is the order statistic p (n + 1), with which the next of n + 1 like errors lies inside with the
    stated probability; with fewer than 9 it is the extreme one.
    """
    weights = np.ones(len(errors)) if weights is None else weights
    independent = weights.sum()
    order = np.argsort(errors, kind="stable")
    below = (np.cumsum(weights[order]) - weights[order] / 2) / independent
    tails = LEVEL / 2 * (independent + 1) / independent * np.array([-1.0, 0.0, 1.0])
    low, middle, high = np.interp(0.5 + tails, below, errors[order])
    return ErrorSpread(float(low), float(middle), float(high), len(errors))


def intraclass_correlation(errors: FloatArray, units: Sequence[str]) -> float:
    """Share of the variance of ``errors`` that lies between units, by one-way analysis of variance."""
    names, member, sizes = np.unique(np.array(units), return_inverse=True, return_counts=True)
    if not 1 < len(names) < len(errors):
        return 1.0
    errors = np.clip(errors, *np.quantile(errors, (WORST, 1 - WORST)))
    means = np.bincount(member, errors) / sizes
    between = float((sizes * (means - errors.mean()) ** 2).sum()) / (len(names) - 1)
    within = float(((errors - means[member]) ** 2).sum()) / (len(errors) - len(names))
    size = (len(errors) - float((sizes**2).sum()) / len(errors)) / (len(names) - 1)
    return float(np.clip((between - within) / max(between + (size - 1) * within, 1e-12), 0.0, 1.0))


def families_of(runs: Sequence[TrainingRun], held: Sequence[HeldOut]) -> Families:
    """The families of ``held`` out predictions, with what was fitted of the ``runs``."""
    families: dict[str, Family] = {}
    for novelty in Novelty:
        if judge := Judge.of(held, novelty):
            families |= judge.families(np.arange(len(judge.held)))
    kinds_of: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        kinds_of[run.workload.framework.name].add(kind_family(run.gpu))
    wider = per_doubling(judged(held, Novelty.MODEL))
    guessed = [each for novelty in Novelty if novelty.guesses_overheads for each in judged(held, novelty)]
    return Families(
        families=dict(sorted(families.items())),
        per_doubling=wider,
        per_overhead=per_overhead(guessed, wider),
        kinds=dict(sorted(Counter(kind_family(run.gpu) for run in runs).items())),
        frameworks=dict(sorted(Counter(run.workload.framework.name for run in runs).items())),
        kinds_of={name: tuple(sorted(kinds)) for name, kinds in sorted(kinds_of.items())},
    )


def judged(held: Sequence[HeldOut], novelty: Novelty, *, by_source: bool = False) -> list[Judged]:
    """The predictions of one novelty with the interval that the others give: those of other units, or sources."""
    judge = Judge.of(held, novelty)
    if judge is None:
        return []
    labels = np.array([each.source if by_source else each.unit for each in judge.held])
    return [found for label in sorted(set(labels.tolist())) for found in judge.judged(labels == label)]


def per_doubling(predictions: Sequence[Judged]) -> float:
    """The widening with which intervals hold what they say outside of their ranges, too; 0 where none is."""
    outside = [each for each in predictions if each.doublings > 0]
    if not outside:
        return 0.0
    needed = [max(0.0, each.held.error**2 - each.reach**2) / each.doublings for each in outside]
    weights = independence(np.array([each.held.error for each in outside]), [each.held.unit for each in outside])
    order = np.argsort(needed, kind="stable")
    below = np.cumsum(weights[order]) / weights.sum()
    return float(np.sqrt(np.array(needed)[order][np.searchsorted(below, LEVEL)]))


def per_overhead(predictions: Sequence[Judged], per_doubling: float) -> float:
    """The widening with which intervals hold what they say where overheads are guessed and above the usual.

    By runs, not by units: a framework of much overhead has many configurations that hold more of it than others.
    """
    needed = [each.needed(per_doubling) for each in predictions if each.overhead > 0]
    return float(np.sqrt(np.quantile(needed, LEVEL))) if needed else 0.0


def independence(errors: FloatArray, units: Sequence[str], correlation: float | None = None) -> FloatArray:
    """(r,) how many independent errors each is worth: those of every unit as many together."""
    rho = intraclass_correlation(errors, units) if correlation is None else correlation
    names, member, sizes = np.unique(np.array(units), return_inverse=True, return_counts=True)
    each = len(names) / (rho * len(names) + (1.0 - rho) * (1.0 / sizes).sum())
    return np.asarray(each / sizes, dtype=np.float64)[member]


@dataclass(frozen=True, slots=True, eq=False)
class Judge:
    """Held-out predictions of one novelty, with the families of each, narrowest first, and their correlation."""

    held: tuple[HeldOut, ...]
    names: tuple[tuple[str, ...], ...]
    numbers: FloatArray
    settings: tuple[tuple[str, ...], ...]
    overheads: FloatArray
    correlation: float

    @classmethod
    def of(cls, every: Sequence[HeldOut], novelty: Novelty) -> Judge | None:
        """The predictions of ``novelty`` among ``every`` one; ``None`` where there are none."""
        held = tuple(each for each in every if each.novelty is novelty)
        if not held:
            return None
        subjects = [subject_of(each.run) for each in held]
        return cls(
            held=held,
            names=tuple(family_names(subject, novelty) for subject in subjects),
            numbers=np.array([[*extents_of(subject).values()] for subject in subjects]),
            settings=tuple(tuple(choices_of(subject).values()) for subject in subjects),
            overheads=np.array([_overhead(each) for each in held]),
            correlation=intraclass_correlation(
                np.array([each.error for each in held]), [each.unit for each in held]
            ),
        )

    def families(self, rows: Rows) -> dict[str, Family]:
        """The families of some of the predictions, each drawn towards the next wider one."""
        members: dict[str, list[int]] = defaultdict(list)
        chains: dict[str, tuple[str, ...]] = {}
        for row in rows.tolist():
            for place, name in enumerate(self.names[row]):
                members[name].append(row)
                chains[name] = self.names[row][place + 1 :]
        found: dict[str, Family] = {}
        for name in sorted(members, key=lambda each: (len(chains[each]), each)):
            if chains[name] and len({self.held[row].unit for row in members[name]}) < FEWEST_UNITS:
                continue
            own = self._family(name, members[name])
            wider = next((found[each] for each in chains[name] if each in found), None)
            found[name] = (
                own if wider is None else replace(own, spread=blend(own.spread, wider.spread, own.independent))
            )
        return found

    def judged(self, left_out: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Iterator[Judged]:
        """The predictions ``left_out`` with the interval that the others give."""
        families = self.families(np.flatnonzero(~left_out))
        for row in np.flatnonzero(left_out).tolist():
            family = next((families[name] for name in self.names[row] if name in families), None)
            if family is not None:
                low, high = max(0.0, -family.spread.p10), max(0.0, family.spread.p90)
                doublings = doublings_outside(subject_of(self.held[row].run), family)
                guessed = self.held[row].novelty.guesses_overheads
                beyond = max(0.0, float(self.overheads[row]) - family.overhead) if guessed else 0.0
                yield Judged(self.held[row], low, high, doublings, beyond)

    def _family(self, name: str, rows: list[int]) -> Family:
        errors = np.array([self.held[row].error for row in rows])
        weights = independence(errors, [self.held[row].unit for row in rows], self.correlation)
        low, high = self.numbers[rows].min(axis=0), self.numbers[rows].max(axis=0)
        return Family(
            name=name,
            spread=error_spread(errors, weights),
            independent=float(weights.sum()),
            overhead=float(np.median(self.overheads[rows])),
            extents={key: (int(low[i]), int(high[i])) for i, key in enumerate(EXTENTS)},
            choices={key: tuple(sorted({self.settings[row][i] for row in rows})) for i, key in enumerate(CHOICES)},
        )


def _overhead(held: HeldOut) -> float:
    """Doublings of overhead in the step as it was predicted."""
    run = held.run
    predicted_s = (run.step_s or 1.0) * math.exp(-held.error)
    gpus = run.configuration.degrees.gpus
    return overhead_doublings(run.gpu, run.architecture, run.workload, gpus=gpus, step_s=predicted_s)
