"""Runs to leave out to see how far off something new is predicted, and the errors of those that were."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster_models.calibration.training_run import TrainingRun
from solver.costs.calibration import Owner, kind_family
from solver.costs.confidence import Novelty
from solver.fitting.left_out import Omission, Rows
from solver.fitting.unseen import HeldOut, model_of, unit_of

Labels = NDArray[Any]


def subjects_of(runs: Sequence[TrainingRun]) -> Mapping[Novelty, Labels]:
    """For each novelty, what is new about each run: model, framework, GPU kind, or framework and kind together."""
    kinds = [kind_family(run.gpu) for run in runs]
    frameworks = [run.workload.framework.name for run in runs]
    pairs = [f"{framework} on {kind}" for framework, kind in zip(frameworks, kinds, strict=True)]
    columns = {
        Novelty.MODEL: [model_of(run.architecture) for run in runs],
        Novelty.PAIR: pairs,
        Novelty.FRAMEWORK: frameworks,
        Novelty.KIND: kinds,
        Novelty.BOTH: pairs,
    }
    return {novelty: np.array(labels) for novelty, labels in columns.items()}


def omissions_of(
    runs: Sequence[TrainingRun], alike: Sequence[Sequence[str]]
) -> Mapping[Novelty, tuple[Omission, ...]]:
    """Omissions for each novelty; ``alike`` are labels of runs that err together: sweeps, sources.

    A run is predicted without its model, sweep and source where others know its framework and GPU kind.  A kind is
    new only to runs of a framework that is known from another, and the reverse: a run without others is not a test.
    """
    new = subjects_of(runs)
    kinds, frameworks, models = (new[each] for each in (Novelty.KIND, Novelty.FRAMEWORK, Novelty.MODEL))
    labels = [np.array(each) for each in alike]
    found: dict[Novelty, list[Omission]] = {novelty: [] for novelty in Novelty}
    for rows in _together(models, *labels):
        first = rows[0]
        like = np.logical_or.reduce([column == column[first] for column in (models, *labels)])
        _add(found[Novelty.MODEL], rows, like, kinds, frameworks)
    for rows in _together(new[Novelty.PAIR]):
        kind, framework = kinds[rows[0]], frameworks[rows[0]]
        of_kind, of_framework = kinds == kind, frameworks == framework
        _add(found[Novelty.PAIR], rows, of_kind & of_framework, kinds, frameworks)
        unseen = frozenset({(Owner.GPU, str(kind)), (Owner.FRAMEWORK, str(framework))})
        found[Novelty.BOTH].append(Omission(rows, np.flatnonzero(of_kind | of_framework), unseen))
    for novelty, owner, others in (
        (Novelty.FRAMEWORK, Owner.FRAMEWORK, kinds),
        (Novelty.KIND, Owner.GPU, frameworks),
    ):
        for rows in _together(new[novelty]):
            unseen = frozenset({(owner, str(new[novelty][rows[0]]))})
            tests = np.isin(others[rows], others[new[novelty] != new[novelty][rows[0]]])
            if tests.any():
                found[novelty].append(Omission(rows[tests], rows, unseen))
    return {novelty: tuple(each) for novelty, each in found.items()}


def _together(*labels: Labels) -> list[Rows]:
    """Rows that agree in all ``labels``, in the order of these."""
    rows: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for row, key in enumerate(zip(*(column.tolist() for column in labels), strict=True)):
        rows[key].append(row)
    return [np.array(rows[key]) for key in sorted(rows)]


def _add(found: list[Omission], rows: Rows, like: NDArray[np.bool_], kinds: Labels, frameworks: Labels) -> None:
    """Add the omission of what is ``like`` the rows, unless nothing else then knows their kind or framework."""
    first = rows[0]
    if (kinds[~like] == kinds[first]).any() and (frameworks[~like] == frameworks[first]).any():
        found.append(Omission(rows, np.flatnonzero(like)))


def held_out(
    runs: Sequence[TrainingRun], sources: Sequence[str], errors: Mapping[Novelty, Sequence[float]]
) -> list[HeldOut]:
    """Every run under every novelty that it tests: where ``errors``, log(predicted / measured), are known."""
    return [
        HeldOut(run, novelty, unit_of(run, novelty), source, -errors[novelty][row])
        for novelty in Novelty
        for row, (run, source) in enumerate(zip(runs, sources, strict=True))
        if not np.isnan(errors[novelty][row])
    ]


def never_fitted(
    runs: Sequence[TrainingRun], sources: Sequence[str], errors: Sequence[float], fitted: Sequence[TrainingRun]
) -> list[HeldOut]:
    """``runs`` under what those ``fitted`` do not tell of them; ``errors`` are log(predicted / measured)."""
    known, new = subjects_of(fitted), subjects_of(runs)
    kinds, frameworks, pairs = (
        np.isin(new[each], known[each]).tolist() for each in (Novelty.KIND, Novelty.FRAMEWORK, Novelty.PAIR)
    )
    novelties = [
        Novelty.MODEL
        if pair
        else Novelty.PAIR
        if kind and framework
        else Novelty.FRAMEWORK
        if kind
        else Novelty.KIND
        if framework
        else Novelty.BOTH
        for kind, framework, pair in zip(kinds, frameworks, pairs, strict=True)
    ]
    return [
        HeldOut(run, novelty, unit_of(run, novelty), source, -errors[row])
        for row, (run, novelty, source) in enumerate(zip(runs, novelties, sources, strict=True))
    ]
