"""How far measured steps are from predictions, by cluster, framework and node, and which parts they point to."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from statistics import median
from typing import Final

from sqlalchemy.orm import Session

from app.services.feedback.measured_runs import MeasuredRunRecord, RunFilter, newest_runs
from solver.fitting.drift import Drift, drift_of
from solver.fitting.slow_parts import Observation, SlowPart, slow_parts

MOST_RUNS: Final = 2000
"""The newest runs that are looked at."""
NEWEST_TIMES: Final = 5
"""Runs whose own times of a node are looked at."""
SLOW_NODE: Final = 1.05
"""Compute time over that of the run's other nodes from which a node is slow."""
JOINED: Final = " - "


class Grouping(StrEnum):
    """Property that runs of one group share."""

    CLUSTER = "cluster"
    FRAMEWORK = "framework"
    NODE = "node"


class Evidence(StrEnum):
    """Kind of evidence of a slow part."""

    RUNS = "runs"
    """All newest runs that used it were slow, and others were not."""
    COMPUTE_TIMES = "compute_times"
    """Its ranks compute longer than those of the other nodes of the same runs."""


class PartKind(StrEnum):
    """Kind of part that can be slow."""

    NODE = "node"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class GroupDrift:
    """Drift of the runs of one group; ``changed_at``: end of the first run after the change."""

    by: Grouping
    name: str
    drift: Drift
    changed_at: datetime | None
    memory_ratio: float | None


@dataclass(frozen=True, slots=True)
class SuspectedPart:
    """Nodes, or links (``a - b``), of which one is slow: no run tells them apart.

    ``runs``: ids of the runs that say so, newest last.  ``chance``: probability of such runs without a cause;
    ``None`` where compute times say so.
    """

    kind: PartKind
    names: tuple[str, ...]
    cluster_name: str
    slowdown: float
    evidence: Evidence
    runs: tuple[str, ...]
    chance: float | None


@dataclass(frozen=True, slots=True)
class Drifts:
    """All that measured runs say; ``runs`` in the order of time."""

    runs: tuple[MeasuredRunRecord, ...]
    groups: tuple[GroupDrift, ...]
    suspects: tuple[SuspectedPart, ...]


def measure_drifts(session: Session, *, wanted: RunFilter) -> Drifts:
    """Drift of the newest measured runs, and the slow parts that they point to."""
    return drifts_of(newest_runs(session, wanted=wanted, most=MOST_RUNS))


def drifts_of(runs: Sequence[MeasuredRunRecord]) -> Drifts:
    """The same of runs in the order of time."""
    groups = [
        *_groups(runs, Grouping.CLUSTER, lambda run: (run.cluster_name,)),
        *_groups(runs, Grouping.FRAMEWORK, lambda run: (run.framework,)),
        *_groups(runs, Grouping.NODE, lambda run: (_on(run, host) for host in run.predicted.hosts)),
    ]
    return Drifts(tuple(runs), tuple(groups), (*_slow_by_times(runs), *_slow_by_runs(runs)))


def _on(run: MeasuredRunRecord, node: str) -> str:
    return f"{run.cluster_name}: {node}"


def _groups(
    runs: Sequence[MeasuredRunRecord], by: Grouping, names_of: Callable[[MeasuredRunRecord], Iterable[str]]
) -> list[GroupDrift]:
    """Groups by name."""
    found: dict[str, list[MeasuredRunRecord]] = defaultdict(list)
    for run in runs:
        for name in names_of(run):
            found[name].append(run)
    return [_group(by, name, own) for name, own in sorted(found.items())]


def _group(by: Grouping, name: str, runs: Sequence[MeasuredRunRecord]) -> GroupDrift:
    drift = drift_of([math.log(run.ratio) for run in runs])
    changed_at = None if drift.changed_at is None else runs[drift.changed_at].ended_at
    memory = [run.memory_ratio for run in runs if run.memory_ratio is not None]
    return GroupDrift(by, name, drift, changed_at, median(memory) if memory else None)


def _slow_by_runs(runs: Sequence[MeasuredRunRecord]) -> list[SuspectedPart]:
    """Nodes whose newest runs were slow; then links, for runs that no slow node explains."""
    nodes = slow_parts([_observed(run, frozenset(run.predicted.hosts)) for run in runs])
    explained = {place for each in nodes for place in each.runs}
    left = [run for place, run in enumerate(runs) if place not in explained]
    links = slow_parts([_observed(run, frozenset(map(JOINED.join, run.predicted.pairs))) for run in left])
    return [
        *(_suspected(PartKind.NODE, each, runs) for each in nodes),
        *(_suspected(PartKind.LINK, each, left) for each in links),
    ]


def _observed(run: MeasuredRunRecord, parts: frozenset[str]) -> Observation:
    """A run as its part of the evidence; only runs of one cluster, framework and GPU kind are comparable."""
    group = "|".join((run.cluster_name, run.framework, *run.predicted.gpu_kinds))
    return Observation(math.log(run.ratio), group, frozenset(f"{run.cluster_name}: {part}" for part in parts))


def _suspected(kind: PartKind, found: SlowPart, runs: Sequence[MeasuredRunRecord]) -> SuspectedPart:
    cluster = runs[found.runs[-1]].cluster_name
    names = tuple(part.removeprefix(f"{cluster}: ") for part in found.parts)
    places = tuple(runs[place].id for place in found.runs)
    return SuspectedPart(kind, names, cluster, found.slowdown, Evidence.RUNS, places, found.chance)


def _slow_by_times(runs: Sequence[MeasuredRunRecord]) -> list[SuspectedPart]:
    """Nodes that compute longer than the others of their runs, by what the runs' own timers said."""
    ratios: dict[tuple[str, str], list[tuple[float, str]]] = defaultdict(list)
    for run in runs:
        if len(run.report.nodes) > 1:
            usual = median(each.compute_s for each in run.report.nodes)
            for each in run.report.nodes:
                ratios[run.cluster_name, each.node].append((each.compute_s / usual, run.id))
    found = []
    for (cluster, node), told in sorted(ratios.items()):
        newest = told[-NEWEST_TIMES:]
        slowdown = median(ratio for ratio, _ in newest)
        if slowdown > SLOW_NODE:
            ids = tuple(run_id for _, run_id in newest)
            found.append(
                SuspectedPart(PartKind.NODE, (node,), cluster, slowdown, Evidence.COMPUTE_TIMES, ids, None)
            )
    return found
