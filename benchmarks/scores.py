"""Errors of predictions, summed up by family, and which of the project's aims they miss."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.measured import Measured
from benchmarks.rows import Row, text
from benchmarks.sweeps import SHORT_LIST, SweepSummary

SOURCE_LETTERS: Final = 44
"""Sources are grouped by so many leading letters; what follows names tables and files."""
SCALES: Final = (8, 64, 512)
"""Runs are grouped by their GPUs, up to and including each."""
LEAST_FAMILY: Final = 10
"""Rows of a family that has an aim of its own."""
AIM_STEP: Final = 0.08
AIM_FAMILY: Final = 0.12
AIM_MEMORY: Final = 0.08
AIM_REJECTED: Final = 0.05
AIM_MEAN_REGRET: Final = 0.03
AIM_WORST_REGRET: Final = 0.10
AIM_SHORT_LIST: Final = 0.90
AIM_SPEARMAN: Final = 0.8
ALL: Final = "all"
BELIEVED: Final = "all without doubtful rows"
DOUBTFUL: Final = "doubtful rows"


@dataclass(frozen=True, slots=True)
class Score:
    """Relative errors (predicted / measured - 1) of one group of rows."""

    group: str
    rows: int
    mean_absolute: float
    median_absolute: float
    p90_absolute: float
    bias: float


def score(group: str, errors: Sequence[float]) -> Score:
    """Summary of relative errors."""
    values = np.array(errors)
    absolute = np.abs(values)
    return Score(
        group=group,
        rows=len(values),
        mean_absolute=float(absolute.mean()),
        median_absolute=float(np.median(absolute)),
        p90_absolute=float(np.quantile(absolute, 0.9)),
        bias=float(np.median(values)),
    )


def families(each: Measured) -> Iterable[str]:
    """The groups that a row belongs to, beside all: framework, GPU and precision together and alone, and source."""
    row, run = each.row, each.run
    name, kind, sparse = run.workload.framework.name, run.gpu.name, "moe" if run.architecture.experts else "dense"
    mixed = " mixed" if run.groups else ""
    return (
        f"family {name} {kind}{mixed} {run.workload.precision} {sparse}",
        f"framework {name}",
        f"kind {kind}{mixed}",
        f"gpus {_scale(run.configuration.degrees.gpus)}",
        f"source {source_of(row)}",
    )


def source_of(row: Row) -> str:
    """The publisher of a row, without tables and files."""
    return text(row, "source")[:SOURCE_LETTERS]


def _scale(gpus: int) -> str:
    low = 1
    for edge in SCALES:
        if gpus <= edge:
            return f"{low} to {edge}"
        low = edge + 1
    return f"{low} and more"


def grouped(kept: Sequence[Measured], errors: Sequence[float]) -> list[Score]:
    """Scores of all rows, of all without doubtful ones, and of each family (doubtful rows left out) by name."""
    if not kept:
        return []
    groups: dict[str, list[float]] = defaultdict(list)
    for each, error in zip(kept, errors, strict=True):
        groups[ALL].append(error)
        if each.doubt:
            groups[DOUBTFUL].append(error)
            continue
        groups[BELIEVED].append(error)
        for name in families(each):
            groups[name].append(error)
    first = [ALL, BELIEVED, DOUBTFUL]
    names = [name for name in first if name in groups] + sorted(set(groups) - set(first))
    return [score(name, groups[name]) for name in names]


def missed_aims(
    steps: Sequence[Score],
    memory: Sequence[Score],
    sweeps: SweepSummary | None,
    *,
    rejected: float,
    oom_missed: int,
) -> list[str]:
    """The aims that these figures miss, a line each; ``rejected``: share of runs that ran but do not fit."""
    missed = []
    for line in steps:
        aim = AIM_STEP if line.group == BELIEVED else AIM_FAMILY
        counts = line.group == BELIEVED or (
            line.group.startswith(("family", "source")) and line.rows >= LEAST_FAMILY
        )
        if counts and line.mean_absolute > aim:
            missed.append(f"step time, {line.group}: {line.mean_absolute:.1%} of {aim:.0%}")
    missed += [
        f"memory, {line.group}: {line.mean_absolute:.1%} of {AIM_MEMORY:.0%}"
        for line in memory
        if line.group == BELIEVED and line.mean_absolute > AIM_MEMORY
    ]
    if sweeps is not None:
        missed += [f"choice, {line}" for line in _missed_choices(sweeps)]
    if rejected > AIM_REJECTED:
        missed.append(f"runs that ran but are rejected: {rejected:.1%} of {AIM_REJECTED:.0%}")
    if oom_missed:
        missed.append(f"runs out of memory that are not caught: {oom_missed} of 0")
    return missed


def _missed_choices(sweeps: SweepSummary) -> list[str]:
    missed = [
        f"{name} regret {regret:.1%} of {aim:.0%}"
        for name, regret, aim in (
            ("mean", sweeps.mean_regret, AIM_MEAN_REGRET),
            ("worst", sweeps.worst_regret, AIM_WORST_REGRET),
        )
        if regret > aim
    ]
    if sweeps.best_in_short_list < AIM_SHORT_LIST:
        missed.append(
            f"best among the first {SHORT_LIST} in {sweeps.best_in_short_list:.0%} of {AIM_SHORT_LIST:.0%}"
        )
    if sweeps.median_spearman < AIM_SPEARMAN - 1e-9:  # ranks of four rows are multiples of 0.2, give or take a bit
        missed.append(f"median Spearman {sweeps.median_spearman:.2f} of {AIM_SPEARMAN:g}")
    return missed
