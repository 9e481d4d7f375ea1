"""What the solver is asked, and what it says while it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from cluster_models.architecture import Architecture
from cluster_models.fitted import FittedParameters
from cluster_models.snapshot import ClusterSnapshot
from cluster_models.workload import TrainingWorkload


class Backend(StrEnum):
    """Which integer programming solver proves the placement."""

    CBC = "cbc"
    HIGHS = "highs"


@dataclass(frozen=True, slots=True)
class PlanningProblem:
    """A snapshot of a cluster, a model and a workload.

    ``fitted``: parameters of the cost model that the user fitted; the shipped ones stand in for the rest.
    """

    snapshot: ClusterSnapshot
    architecture: Architecture
    workload: TrainingWorkload
    fitted: FittedParameters | None = None


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How hard to try.

    ``effort`` scales every work budget (local search moves, branch-and-bound nodes) and decides the answer;
    ``time_limit_s`` only cuts the search short.  The search also stops once the gap is at most ``gap``.
    """

    time_limit_s: float = 60.0
    effort: int = 1
    seed: int = 0
    gap: float = 0.001
    backend: Backend = Backend.CBC
    alternatives: int = 5


@dataclass(frozen=True, slots=True)
class Progress:
    """One line of progress; times in seconds, ``incumbent_s`` is the best step time so far."""

    elapsed_s: float
    phase: str
    candidates_total: int
    candidates_left: int
    incumbent_s: float | None
    bound_s: float | None
    gap: float | None
    incumbent: str | None


OnProgress = Callable[[Progress], None]
IsCancelled = Callable[[], bool]
