"""Errors of measured runs by family: what ``solver.costs.confidence`` reads."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster_models.fitted import ErrorSpread
from cluster_models.training_run import TrainingRun
from solver.candidates import FloatArray
from solver.costs.calibration import kind_family
from solver.costs.confidence import (
    CHOICES,
    EVERY_RUN,
    EXTENTS,
    FEWEST_RUNS,
    NEW_FRAMEWORK,
    NEW_KIND,
    Family,
    Subject,
    blend,
    choices_of,
    extents_of,
    family_names,
)


@dataclass(frozen=True, slots=True)
class HeldOut:
    """log(measured / predicted) of runs without their like, and as if GPU kind or framework were new."""

    alike: FloatArray
    kinds: FloatArray
    frameworks: FloatArray


@dataclass(frozen=True, slots=True)
class Families:
    """Families by name, and how many runs there are of each GPU kind and framework generation."""

    families: Mapping[str, Family]
    kinds: Mapping[str, int]
    frameworks: Mapping[str, int]


def error_spread(errors: FloatArray) -> ErrorSpread:
    """Percentiles of ``errors``, log(measured / predicted).

    The p-quantile is the order statistic p (n + 1), with which the next of n + 1 like errors lies inside with the
    stated probability; with fewer than 9 it is the extreme one.
    """
    low, middle, high = np.quantile(errors, (0.1, 0.5, 0.9), method="weibull")
    return ErrorSpread(float(low), float(middle), float(high), len(errors))


def families_of(runs: Sequence[TrainingRun], errors: HeldOut) -> Families:
    """The families of ``runs`` that have enough of them, each drawn towards the next wider one."""
    members: dict[str, list[int]] = defaultdict(list)
    chains: dict[str, tuple[str, ...]] = {}
    for i, run in enumerate(runs):
        names = family_names(subject_of(run))
        for place, name in enumerate(names):
            members[name].append(i)
            chains[name] = names[place + 1 :]
    families: dict[str, Family] = {}
    for name in sorted(members, key=lambda each: (len(chains[each]), each)):
        if len(members[name]) >= FEWEST_RUNS or name == EVERY_RUN:
            own = _family(name, [runs[i] for i in members[name]], errors.alike[members[name]])
            wider = next((families[each] for each in chains[name] if each in families), None)
            families[name] = own if wider is None else replace(own, spread=blend(own.spread, wider.spread))
    families[NEW_KIND] = _family(NEW_KIND, runs, errors.kinds)
    families[NEW_FRAMEWORK] = _family(NEW_FRAMEWORK, runs, errors.frameworks)
    return Families(
        families=dict(sorted(families.items())),
        kinds=dict(sorted(Counter(kind_family(run.gpu) for run in runs).items())),
        frameworks=dict(sorted(Counter(run.workload.framework.name for run in runs).items())),
    )


def subject_of(run: TrainingRun) -> Subject:
    """What an interval for ``run`` is asked for."""
    return Subject(run.gpu, run.architecture, run.workload, run.configuration)


def _family(name: str, runs: Sequence[TrainingRun], errors: FloatArray) -> Family:
    extents = [extents_of(subject_of(run)) for run in runs]
    choices = [choices_of(subject_of(run)) for run in runs]
    return Family(
        name=name,
        spread=error_spread(errors),
        extents={key: (min(each[key] for each in extents), max(each[key] for each in extents)) for key in EXTENTS},
        choices={key: tuple(sorted({each[key] for each in choices})) for key in CHOICES},
    )
