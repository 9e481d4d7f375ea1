"""Inputs of the solver, and its reports while it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.routing.counts import ExpertLoads, loads_of_model
from cluster_models.serving.goal import ServingObjective
from cluster_models.training.plan import Plan
from cluster_models.training.run_settings import RunSettings
from cluster_models.training.workload import TrainingWorkload

FIRST_DRAFT_S: Final = 1.0
"""Searches that end earlier make no draft."""
DRAFT_SHARE: Final = 0.1
"""Share of the time limit between two drafts, at least."""
FINISH_S: Final = 5.0
"""Time for the last steps of a search that is called off."""


class Backend(StrEnum):
    """Integer programming solver that proves the placement."""

    CBC = "cbc"
    HIGHS = "highs"


@dataclass(frozen=True, slots=True)
class PlanningProblem:
    """A snapshot of a cluster, a model and a workload.

    ``fitted``: parameters of the cost model that the user fitted; the shipped ones stand in for the rest.
    ``routing``: counts of the model's routing under its own layer numbers (``loads_of_model``); empty where the
    calibrated imbalance stands for it.  ``keep_expert_order``: experts stay in contiguous blocks all the same, for
    checkpoints that cannot be permuted.  Raises ``InvalidInput`` where the counts are not of this model.
    """

    snapshot: ClusterSnapshot
    architecture: Architecture
    workload: TrainingWorkload
    fitted: FittedParameters | None = None
    routing: tuple[ExpertLoads, ...] = ()
    keep_expert_order: bool = False

    def __post_init__(self) -> None:
        for given, known in zip(self.routing, loads_of_model(self.architecture, self.routing), strict=True):
            if given.layers != known.layers:
                raise InvalidInput(
                    f"routing.{given.name}.layers", given.layers[0], "is not a layer with experts of the model"
                )

    def under(self, settings: RunSettings) -> PlanningProblem:
        """The problem with its framework as it runs with ``settings``."""
        if not settings.chosen:
            return self
        framework = settings.under(self.workload.framework)
        return replace(self, workload=replace(self.workload, framework=framework))


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
    """One line of progress; times in seconds, ``incumbent_s`` is the best step time so far.

    Searches for serving have an ``objective`` instead, ``best`` and ``bound`` in its unit; their candidates are the
    groups of workers priced so far, all of which may be in the plan.
    """

    elapsed_s: float
    phase: str
    candidates_total: int
    candidates_left: int
    incumbent_s: float | None
    bound_s: float | None
    gap: float | None
    incumbent: str | None
    objective: ServingObjective | None = None
    best: float | None = None
    bound: float | None = None


OnProgress = Callable[[Progress], None]
OnDraft = Callable[[Plan], None]
IsCancelled = Callable[[], bool]
