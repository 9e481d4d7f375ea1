"""How far predicted step times are from measured ones, and what has been calibrated (docs/calibration.md).

The errors of a family are those of runs predicted without their like: without their model, sweep and source where
framework and GPU kind are known, without all runs of the framework for one that is new, and so on
(``python -m benchmarks.fit``).  Runs of one unit err together, so each unit counts once.  An interval widens with
every doubling by which a configuration lies outside of what its family covers, and under a framework that nobody
measured with every doubling by which its step is farther from its matrix products than usual, upwards: overheads
that nobody knew of make steps longer.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any, Final

from cluster_models.calibration.fitted import ErrorSpread, FittedParameters
from cluster_models.cluster.gpus import GpuKind
from cluster_models.model.architecture import Architecture
from cluster_models.remarks import Remark, remark
from cluster_models.training.plan import Confidence, Configuration
from cluster_models.training.workload import TrainingWorkload
from solver.costs.calibration import has_framework, has_kind, kind_family
from solver.costs.overheads import overhead_doublings

LEVEL: Final = 0.8
"""Share of measured steps that the interval is meant to hold: from the 10th to the 90th percentile."""
WIDER_WEIGHT: Final = 8
"""Independent runs that the next wider family counts as."""
LEAST_TOLD: Final = 0.25
"""Doublings of overhead that a plan says nothing of."""
EVERY_RUN: Final = "every measured run"
OWN_RUNS: Final = "own runs, drawn towards "
"""How the name of a family begins whose errors were blended with those of own runs."""


class Novelty(StrEnum):
    """Parts of a configuration that were never measured; each value names the family that speaks for it."""

    MODEL = "a model or cluster of which no run was measured"
    PAIR = "a framework generation on a GPU kind on which no run of it was measured"
    FRAMEWORK = "a framework generation of which no run was measured"
    KIND = "a GPU kind of which no run was measured"
    BOTH = "a framework generation and a GPU kind of which no run was measured"

    @property
    def guesses_overheads(self) -> bool:
        """Whether hosts, collectives and schedules are priced with defaults: the framework was never measured."""
        return self in {Novelty.FRAMEWORK, Novelty.BOTH}


@dataclass(frozen=True, slots=True)
class Subject:
    """Subject of an interval: a whole configuration on one kind of GPU."""

    gpu: GpuKind
    architecture: Architecture
    workload: TrainingWorkload
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class Family:
    """Errors of the measured runs of a family and the ranges that they cover.

    ``independent``: how many independent runs they are worth.  ``overhead``: the median of what their steps hold
    beside matrix products (``overhead_doublings``).  ``extents`` holds smallest and largest of each number
    in ``EXTENTS``; ``choices`` the values met of each setting in ``CHOICES``.
    """

    name: str
    spread: ErrorSpread
    independent: float
    overhead: float
    extents: Mapping[str, tuple[int, int]]
    choices: Mapping[str, tuple[str, ...]]


EXTENTS: Final = ("gpus", "hidden", "sequence_length", "tensor", "pipeline", "context", "expert", "micro_batch")
"""The numbers whose calibrated range is known."""
CHOICES: Final = ("precision", "sharding", "recompute")
"""The settings whose calibrated values are known."""


def extents_of(subject: Subject) -> dict[str, int]:
    """The numbers of ``EXTENTS``."""
    degrees = subject.configuration.degrees
    return {
        "gpus": degrees.gpus,
        "hidden": subject.architecture.hidden,
        "sequence_length": subject.workload.sequence_length,
        "tensor": degrees.tensor,
        "pipeline": degrees.pipeline,
        "context": degrees.context,
        "expert": degrees.expert,
        "micro_batch": subject.configuration.micro_batch,
    }


def choices_of(subject: Subject) -> dict[str, str]:
    """The settings of ``CHOICES``."""
    return {
        "precision": subject.workload.precision.value,
        "sharding": subject.configuration.sharding.value,
        "recompute": subject.configuration.recompute.value,
    }


def family_names(subject: Subject, novelty: Novelty = Novelty.MODEL) -> tuple[str, ...]:
    """The families that a run belongs to, narrowest first; one of a described framework has no like among ours."""
    if novelty is not Novelty.MODEL:
        return (str(novelty),)
    models = "sparse models" if subject.architecture.experts else "dense models"
    kind, framework = kind_family(subject.gpu), subject.workload.framework
    measured = framework.calibrated_as
    every = f"every {product_of(measured)} on {kind}, {models}"
    own = () if framework.like else (f"{measured} on {kind}, {models}", every)
    return (
        *own,
        f"every framework on {kind}, {models}",
        f"every framework on {subject.gpu.vendor} GPUs, {models}",
        f"every framework on every GPU, {models}",
        EVERY_RUN,
    )


def product_of(framework: str) -> str:
    """The framework without its generation: ``nemo`` of ``nemo-25.04``."""
    return re.sub(r"-[\d.]+$", "", framework)


def novelty_of(subject: Subject, own: FittedParameters | None = None) -> Novelty:
    """Part of ``subject`` that was never measured; those who fitted ``own`` saw what its parameters are of."""
    tables, name = _tables(), subject.workload.framework.calibrated_as
    kind_name = kind_family(subject.gpu)
    own_kind = own is not None and has_kind(own, subject.gpu)
    own_framework = own is not None and has_framework(own, subject.workload.framework)
    kind, framework = own_kind or kind_name in tables.kinds, own_framework or name in tables.frameworks
    if kind and framework:
        together = (own_kind and own_framework) or kind_name in tables.kinds_of.get(name, ())
        return Novelty.MODEL if together else Novelty.PAIR
    return Novelty.FRAMEWORK if kind else Novelty.KIND if framework else Novelty.BOTH


def family_of(subject: Subject, own: FittedParameters | None = None) -> Family:
    """The narrowest family that speaks for what is new about ``subject``."""
    families = _tables().families
    names = (*family_names(subject, novelty_of(subject, own)), EVERY_RUN)
    return next(families[name] for name in names if name in families)


def held_out_families() -> tuple[Family, ...]:
    """Every family with its errors on runs that were predicted without their group, by name."""
    return tuple(_tables().families.values())


def confidence_of(subject: Subject, step_s: float, own: FittedParameters | None = None) -> Confidence:
    """The interval around the predicted ``step_s``, always around it, from the errors of the subject's family.

    ``own`` are the user's fitted parameters: where they are of the GPU kind and framework of ``subject`` and know
    their errors, those are blended with the family's.
    """
    own = own if own is not None and _concerns(own, subject) else None
    family = family_of(subject, own)
    spread, name, independent = family.spread, family.name, family.independent
    if own is not None and own.errors is not None:
        spread = blend(own.errors, family.spread, own.errors.runs)
        name, independent = f"{OWN_RUNS}{family.name}", float(own.errors.runs)
    outside = doublings_outside(subject, family)
    guessed = overhead_beyond(subject, family, step_s) if novelty_of(subject, own).guesses_overheads else 0.0
    low, high = (widened(max(reach, 0.0), outside, shipped_widening()) for reach in (-spread.p10, spread.p90))
    high = widened(high, guessed, _tables().per_overhead)
    return Confidence(
        step_low_s=step_s * math.exp(-low),
        step_high_s=step_s * math.exp(high),
        level=LEVEL,
        family=name,
        runs=spread.runs,
        independent_runs=independent,
        doublings_outside=outside,
        outside=(*outside_calibration(subject, own), *_on_overheads(guessed)),
    )


def overhead_beyond(subject: Subject, family: Family, step_s: float) -> float:
    """Doublings by which the step holds more beside its matrix products than the median run of ``family``."""
    overhead = overhead_doublings(
        subject.gpu,
        subject.architecture,
        subject.workload,
        gpus=subject.configuration.degrees.gpus,
        step_s=step_s,
    )
    return max(0.0, overhead - family.overhead)


def _on_overheads(doublings: float) -> tuple[Remark, ...]:
    return () if doublings < LEAST_TOLD else (remark("unmeasured_overheads", ratio=2.0**doublings),)


def widened(reach: float, doublings: float, per_doubling: float) -> float:
    """How far an end of the interval of a logarithm lies from 0 where that is ``reach`` inside the range measured.

    Errors wander with the distance like a random walk: their variance grows with the doublings.
    """
    return math.sqrt(reach**2 + per_doubling**2 * doublings)


def shipped_widening() -> float:
    """The ``per_doubling`` of published runs."""
    return _tables().per_doubling


def doublings_outside(subject: Subject, family: Family) -> float:
    """Doublings and halvings from the range of ``family`` to ``subject``; a setting never met counts as one."""
    numbers = extents_of(subject)
    beyond = sum(
        max(0.0, math.log2(low / numbers[name]), math.log2(numbers[name] / high))
        for name, (low, high) in family.extents.items()
    )
    return beyond + sum(choice not in family.choices[name] for name, choice in choices_of(subject).items())


def confidence_of_mix(
    subjects: Sequence[Subject], step_s: float, own: FittedParameters | None = None
) -> Confidence:
    """The interval of a step on several GPU kinds, one subject each: the widest of both ends of each kind's own.

    Errors on mixed nodes are known of too few runs to make a family (V100 and T4, AMP's paper).
    """
    each = [confidence_of(subject, step_s, own) for subject in subjects]
    if len(each) == 1:
        return each[0]
    mixed = remark("uncalibrated_mix", gpu_kinds=tuple(subject.gpu.name for subject in subjects))
    widest = max(each, key=lambda sure: sure.step_high_s - sure.step_low_s)
    return replace(
        widest,
        step_low_s=min(sure.step_low_s for sure in each),
        step_high_s=max(sure.step_high_s for sure in each),
        outside=tuple(dict.fromkeys([mixed, *(respect for sure in each for respect in sure.outside)])),
    )


def blend(few: ErrorSpread, many: ErrorSpread, independent: float) -> ErrorSpread:
    """The quantiles of ``few``, worth ``independent`` runs, drawn towards those of ``many``."""
    share = independent / (independent + WIDER_WEIGHT)

    def between(one: float, other: float) -> float:
        return share * one + (1.0 - share) * other

    return ErrorSpread(
        p10=between(few.p10, many.p10),
        p50=between(few.p50, many.p50),
        p90=between(few.p90, many.p90),
        runs=few.runs,
    )


def outside_calibration(subject: Subject, own: FittedParameters | None = None) -> tuple[Remark, ...]:
    """Every respect in which no run of the family was like this configuration."""
    family, novelty = family_of(subject, own), novelty_of(subject, own)
    kind, framework = subject.gpu.name, subject.workload.framework
    name, found = framework.calibrated_as, []
    if novelty in {Novelty.KIND, Novelty.BOTH}:
        found.append(remark("unmeasured_gpu_kind", gpu_kind=kind))
    if novelty in {Novelty.FRAMEWORK, Novelty.BOTH}:
        found.append(remark("unmeasured_framework", framework=name, like=framework.like))
    if novelty is Novelty.PAIR:
        found.append(remark("unmeasured_pair", framework=name, gpu_kind=kind))
    for size, value in extents_of(subject).items():
        low, high = family.extents[size]
        if not low <= value <= high:
            found.append(remark("uncalibrated_size", size=size, value=value, low=low, high=high))
    for setting, choice in choices_of(subject).items():
        met = family.choices[setting]
        if choice not in met:
            found.append(remark("uncalibrated_setting", setting=setting, value=choice, calibrated=met))
    return tuple(found)


def _concerns(own: FittedParameters, subject: Subject) -> bool:
    """Whether runs that told ``own`` can have been like this: of no other GPU kind alone, nor framework alone."""
    kind, framework = has_kind(own, subject.gpu), has_framework(own, subject.workload.framework)
    return (kind or not own.gpus) and (framework or not own.frameworks) and (kind or framework)


@dataclass(frozen=True, slots=True)
class _Tables:
    """``kinds_of``: the GPU kinds on which each framework was measured.

    ``per_doubling`` and ``per_overhead``: see ``widened``.
    """

    families: Mapping[str, Family]
    kinds: Mapping[str, int]
    frameworks: Mapping[str, int]
    kinds_of: Mapping[str, Sequence[str]]
    per_doubling: float
    per_overhead: float


@cache
def confidence_tables() -> dict[str, Any]:
    """Results of ``python -m benchmarks.fit``, as they stand in the file."""
    text = resources.files("solver.costs").joinpath("data", "confidence.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def _tables() -> _Tables:
    tables = confidence_tables()
    return _Tables(
        families={name: _family(name, entry) for name, entry in tables["families"].items()},
        kinds=tables["kinds"],
        frameworks=tables["frameworks"],
        kinds_of=tables["kinds_of"],
        per_doubling=tables["widening"]["per_doubling"],
        per_overhead=tables["widening"]["per_overhead"],
    )


def _family(name: str, entry: Mapping[str, Any]) -> Family:
    return Family(
        name=name,
        spread=ErrorSpread(**entry["errors"]),
        independent=entry["independent"],
        overhead=entry["overhead"],
        extents={each: (low, high) for each, (low, high) in entry["extents"].items()},
        choices={each: tuple(values) for each, values in entry["choices"].items()},
    )
