"""Result of planning a fleet: what each job gets, what it makes of it, and how far from optimal that can be."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cluster_models.fleet.jobs import FleetObjective
from cluster_models.training.plan import Plan, StopReason


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A job on so many nodes of a pool.

    ``bound_step_s``: a step that no plan there beats; ``step_s``: that of the plan that was made on these nodes as
    if the job were alone, ``None`` where none was needed.
    """

    job: str
    pool: str
    nodes: int
    gpus: int
    bound_step_s: float
    step_s: float | None


@dataclass(frozen=True, slots=True)
class FleetShare:
    """Share of one job.

    ``flops_per_s``: model FLOP a second; ``ends_after_s`` and ``usd_in_all``: of all its tokens, where it says how
    many; ``nodes`` are those it is given, of which ``plan`` may leave some unused.
    """

    job: str
    pool: str
    nodes: tuple[str, ...]
    gpus: int
    plan: Plan
    tokens_per_s: float
    flops_per_s: float
    usd_per_hour: float
    ends_after_s: float | None
    usd_in_all: float | None


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """Shares of all jobs that run, and the names of those that wait.

    ``value`` is the objective (weighted FLOP/s, or US dollars an hour), ``bound`` what no fleet plan reaches whose
    jobs use a number of nodes that was looked at (``curves``), ``gap`` their distance over ``value``.
    """

    objective: FleetObjective
    shares: tuple[FleetShare, ...]
    waiting: tuple[str, ...]
    curves: tuple[CurvePoint, ...]
    value: float
    bound: float
    gap: float
    usd_per_hour: float
    stopped_by: StopReason
    plans_made: int
    solver: str


class NoFleetReason(StrEnum):
    """Obstacle to every fleet plan."""

    JOB_FITS_NOWHERE = "job_fits_nowhere"
    """Some job that must run fits on no number of nodes that pools and budget allow."""
    DEADLINE = "deadline"
    """Some job cannot keep its deadline, or its budget, even alone."""
    NOT_TOGETHER = "not_together"
    """Each job that must run could alone, but not all at once within nodes and budget."""
    NOTHING_RUNS = "nothing_runs"
    """No job fits anywhere within its limits."""
    NOT_FOUND = "not_found"
    """Bounds rule no fleet plan out, but the search found none in its time."""


@dataclass(frozen=True, slots=True)
class NoFleetPlan:
    """Why there is none: the reason, the jobs that it concerns, and the curves that it follows from."""

    reason: NoFleetReason
    jobs: tuple[str, ...]
    curves: tuple[CurvePoint, ...]
