"""How far predicted step times are from measured ones, and what has been calibrated.

A family is the runs of one framework generation on one GPU kind with dense or sparse models.  Its errors are those
of runs as predicted without their own group (``python -m benchmarks.fit``), so that they say what to expect of a
configuration that was never measured.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Final

from cluster_models.architecture import Architecture
from cluster_models.fitted import ErrorSpread, FittedParameters
from cluster_models.gpus import GpuKind
from cluster_models.plan import Confidence, Configuration
from cluster_models.workload import TrainingWorkload
from solver.costs.calibration import has_framework, has_kind, kind_family

LEVEL: Final = 0.8
"""Share of measured steps that the interval is meant to hold: from the 10th to the 90th percentile."""
FEWEST_RUNS: Final = 8
"""A family with fewer runs is not kept: a wider one speaks for it."""
EVERY_RUN: Final = "every measured run"
NEW_KIND: Final = "a GPU kind of which no run was measured"
NEW_FRAMEWORK: Final = "a framework generation of which no run was measured"
OWN_RUNS: Final = "own runs, drawn towards "
"""How the name of a family begins whose errors were blended with those of own runs."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What an interval is asked for: a whole configuration on one kind of GPU."""

    gpu: GpuKind
    architecture: Architecture
    workload: TrainingWorkload
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class Family:
    """Errors of the measured runs of a family and the ranges that they cover.

    ``extents`` holds the smallest and largest value of each number in ``EXTENTS``; ``choices`` the values met of
    each setting in ``CHOICES``.
    """

    name: str
    spread: ErrorSpread
    extents: Mapping[str, tuple[int, int]]
    choices: Mapping[str, tuple[str, ...]]


EXTENTS: Final[Mapping[str, str]] = {
    "gpus": "GPUs",
    "hidden": "hidden size",
    "sequence_length": "sequence length",
    "tensor": "tensor parallel size",
    "pipeline": "pipeline parallel size",
    "context": "context parallel size",
    "expert": "expert parallel size",
    "micro_batch": "micro-batch",
}
"""The numbers whose calibrated range is known, and what they are called."""
CHOICES: Final[Mapping[str, str]] = {
    "precision": "precision",
    "sharding": "sharding",
    "recompute": "recomputation",
}
"""The settings whose calibrated values are known, and what they are called."""


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


def family_names(subject: Subject) -> tuple[str, ...]:
    """The families that a run belongs to, narrowest first."""
    models = "sparse models" if subject.architecture.experts else "dense models"
    kind, framework = kind_family(subject.gpu), subject.workload.framework.calibrated_as
    product = re.sub(r"-[\d.]+$", "", framework)
    return (
        f"{framework} on {kind}, {models}",
        f"every {product} on {kind}, {models}",
        f"every framework on {kind}, {models}",
        f"every framework on {subject.gpu.vendor} GPUs, {models}",
        f"every framework on every GPU, {models}",
        EVERY_RUN,
    )


def family_of(subject: Subject, own: FittedParameters | None = None) -> Family:
    """The narrowest family with enough runs, or what stands for GPU kinds and frameworks never seen.

    What ``own`` parameters are of was seen by those who fitted them.
    """
    tables = _tables()
    if not _kind_is_known(subject, own):
        return tables.families[NEW_KIND]
    if not _framework_is_known(subject, own):
        return tables.families[NEW_FRAMEWORK]
    for name in family_names(subject):
        if name in tables.families:
            return tables.families[name]
    return tables.families[EVERY_RUN]


def confidence_of(subject: Subject, step_s: float, own: FittedParameters | None = None) -> Confidence:
    """The interval around the predicted ``step_s``, always around it, from the errors of the subject's family.

    ``own`` are the user's fitted parameters: where they are of the GPU kind and framework of ``subject`` and know
    their errors, those are blended with the family's, which count as ``FEWEST_RUNS`` runs.
    """
    own = own if own is not None and _concerns(own, subject) else None
    family = family_of(subject, own)
    spread, name = family.spread, family.name
    if own is not None and own.errors is not None:
        spread = blend(own.errors, family.spread)
        name = f"{OWN_RUNS}{family.name}"
    return Confidence(
        step_low_s=step_s * math.exp(min(spread.p10, 0.0)),
        step_high_s=step_s * math.exp(max(spread.p90, 0.0)),
        level=LEVEL,
        family=name,
        runs=spread.runs,
        outside=outside_calibration(subject, own),
    )


def confidence_of_mix(
    subjects: Sequence[Subject], step_s: float, own: FittedParameters | None = None
) -> Confidence:
    """The interval of a step on several GPU kinds, one subject each: the widest of both ends of each kind's own.

    Errors on mixed nodes are known of too few runs to make a family (V100 and T4, AMP's paper).
    """
    each = [confidence_of(subject, step_s, own) for subject in subjects]
    if len(each) == 1:
        return each[0]
    names = ", ".join(subject.gpu.name for subject in subjects)
    mixed = f"Stages on several GPU kinds ({names}) were not calibrated, only each kind by itself."
    widest = max(each, key=lambda sure: sure.step_high_s - sure.step_low_s)
    return replace(
        widest,
        step_low_s=min(sure.step_low_s for sure in each),
        step_high_s=max(sure.step_high_s for sure in each),
        outside=tuple(dict.fromkeys([mixed, *(sentence for sure in each for sentence in sure.outside)])),
    )


def blend(few: ErrorSpread, many: ErrorSpread) -> ErrorSpread:
    """The quantiles of ``few`` drawn towards those of ``many``, which counts as ``FEWEST_RUNS`` runs."""
    share = few.runs / (few.runs + FEWEST_RUNS)

    def between(one: float, other: float) -> float:
        return share * one + (1.0 - share) * other

    return ErrorSpread(
        p10=between(few.p10, many.p10),
        p50=between(few.p50, many.p50),
        p90=between(few.p90, many.p90),
        runs=few.runs,
    )


def outside_calibration(subject: Subject, own: FittedParameters | None = None) -> tuple[str, ...]:
    """One sentence for each respect in which no run of the family was like this configuration."""
    family = family_of(subject, own)
    sentences = []
    if not _kind_is_known(subject, own):
        sentences.append(f"No measured run on {subject.gpu.name} was at hand: its parameters are estimated.")
    if not _framework_is_known(subject, own):
        name = subject.workload.framework.calibrated_as
        sentences.append(f"No measured run of {name} was at hand: its parameters are estimated.")
    for name, value in extents_of(subject).items():
        low, high = family.extents[name]
        if not low <= value <= high:
            limits = f"{low}" if low == high else f"{low}..{high}"
            sentences.append(f"{_capital(EXTENTS[name])} {value} lies outside the calibrated {limits}.")
    for name, choice in choices_of(subject).items():
        if choice not in family.choices[name]:
            met = ", ".join(family.choices[name])
            sentences.append(f"{_capital(CHOICES[name])} {choice} was not calibrated, only {met}.")
    return tuple(sentences)


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


def _kind_is_known(subject: Subject, own: FittedParameters | None) -> bool:
    return kind_family(subject.gpu) in _tables().kinds or (own is not None and has_kind(own, subject.gpu))


def _framework_is_known(subject: Subject, own: FittedParameters | None) -> bool:
    name = subject.workload.framework.calibrated_as
    return name in _tables().frameworks or (own is not None and has_framework(own, subject.workload.framework))


def _concerns(own: FittedParameters, subject: Subject) -> bool:
    """Whether runs that told ``own`` can have been like this: of no other GPU kind alone, nor framework alone."""
    kind, framework = has_kind(own, subject.gpu), has_framework(own, subject.workload.framework)
    return (kind or not own.gpus) and (framework or not own.frameworks) and (kind or framework)


@dataclass(frozen=True, slots=True)
class _Tables:
    families: Mapping[str, Family]
    kinds: Mapping[str, int]
    frameworks: Mapping[str, int]


@cache
def _tables() -> _Tables:
    text = resources.files("solver.costs").joinpath("data", "confidence.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    return _Tables(
        families={name: _family(name, entry) for name, entry in tables["families"].items()},
        kinds=tables["kinds"],
        frameworks=tables["frameworks"],
    )


def _family(name: str, entry: Mapping[str, Any]) -> Family:
    return Family(
        name=name,
        spread=ErrorSpread(**entry["errors"]),
        extents={each: (low, high) for each, (low, high) in entry["extents"].items()},
        choices={each: tuple(values) for each, values in entry["choices"].items()},
    )
