"""A fleet plan in words and figures, the same on the terminal and in a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.presentation.figures import count, duration, percent, plural, seconds
from cluster_models.fleet.jobs import FleetObjective
from cluster_models.fleet.plan import CurvePoint, FleetPlan, FleetShare, NoFleetPlan, NoFleetReason
from cluster_models.training.plan import StopReason
from cluster_models.units import TFLOP
from cluster_models.wording import joined

SHARE_COLUMNS: Final = ("job", "pool", "GPUs", "nodes", "shape", "step", "tokens/s", "ends after", "$ an hour")
CURVE_COLUMNS: Final = ("job", "pool", "GPUs", "step at least", "step of a plan")
_REASONS: Final[Mapping[NoFleetReason, str]] = {
    NoFleetReason.JOB_FITS_NOWHERE: "{jobs} must run and fits on no number of nodes that pools and budget allow",
    NoFleetReason.DEADLINE: "{jobs} cannot keep its deadline or its budget, even alone",
    NoFleetReason.NOT_TOGETHER: "{jobs} must run, and nodes and budget do not suffice for all at once",
    NoFleetReason.NOTHING_RUNS: "none of {jobs} fits within its budget on the nodes that pools and budgets allow",
    NoFleetReason.NOT_FOUND: "no plan was found in time for {jobs}, though no bound rules it out",
}
_REMEDIES: Final[Mapping[NoFleetReason, str]] = {
    NoFleetReason.JOB_FITS_NOWHERE: "offer GPUs with more memory, or allow more recomputation and sharding",
    NoFleetReason.DEADLINE: "give it more time, more money, or more nodes to choose from",
    NoFleetReason.NOT_TOGETHER: "let some of them wait, move deadlines, or offer more nodes to rent",
    NoFleetReason.NOTHING_RUNS: "offer GPUs with more memory, allow more recomputation, or raise budgets",
    NoFleetReason.NOT_FOUND: "search for longer, or give it more time, money or nodes",
}


def share_cells(share: FleetShare) -> tuple[str, ...]:
    """The share of a job as a line of a table with ``SHARE_COLUMNS``."""
    return (
        share.job,
        share.pool,
        count(share.gpus),
        count(len(share.nodes)),
        str(share.plan.configuration.degrees),
        seconds(share.plan.time.step_s),
        count(share.tokens_per_s),
        "" if share.ends_after_s is None else duration(share.ends_after_s),
        f"{share.usd_per_hour:,.2f}" if share.usd_per_hour else "",
    )


def curve_cells(point: CurvePoint) -> tuple[str, ...]:
    """A point of a curve as a line of a table with ``CURVE_COLUMNS``."""
    return (point.job, point.pool, count(point.gpus), seconds(point.bound_step_s), seconds(point.step_s))


def headline(plan: FleetPlan) -> str:
    """Throughput and cost of the fleet."""
    work = sum(share.flops_per_s for share in plan.shares)
    gpus = sum(share.gpus for share in plan.shares)
    told = f"{plural(len(plan.shares), 'job')} on {plural(gpus, 'GPU')}, {count(work / TFLOP)} model TFLOP/s in all"
    if plan.usd_per_hour:
        told += f", {plan.usd_per_hour:,.2f} $ an hour of rent"
    return told + (f"; {joined(plan.waiting)} must wait" if plan.waiting else "")


def proof(plan: FleetPlan) -> str:
    """How good the fleet plan is, and what the proof covers."""
    what = "does more weighted work" if plan.objective is FleetObjective.WORK else "costs less"
    stopped = {
        StopReason.PROVEN: "every choice that could be better was planned",
        StopReason.CANCELLED: "the search was stopped",
        StopReason.WORK_LIMIT: "the integer program was not solved to its end",
    }.get(plan.stopped_by, "the time limit came first")
    return (
        f"No fleet plan {what} by more than {percent(plan.gap, places=2)} whose jobs use a number of nodes that "
        f"was looked at, each of one pool ({plural(plan.plans_made, 'plan')} made; {stopped})."
    )


def refusal(answer: NoFleetPlan) -> tuple[str, str]:
    """Why there is no fleet plan, and what would help."""
    return _REASONS[answer.reason].format(jobs=joined(answer.jobs)), _REMEDIES[answer.reason]
