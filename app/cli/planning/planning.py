"""``meshwright plan``: search in this process or on a service, check, and hand out."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from app.cli.endings import Ending, complain
from app.cli.files import (
    check_writable,
    read_architecture,
    read_calibration,
    read_snapshot,
    read_workload,
    write_text,
)
from app.cli.planning import outcomes
from app.cli.planning.plan_view import plan_view
from app.cli.planning.routed import Routed
from app.cli.server import chosen_server
from app.cli.terminal import console
from app.documents.plan import result_document
from app.documents.quantities import token_count
from app.presentation.decision import NO_BUDGET, Budget
from app.presentation.figures import gib
from app.presentation.refusal import reason_of
from app.presentation.sentences import sentences
from cluster_models.errors import InvalidInput
from cluster_models.training.plan import NoPlan, Plan
from cluster_models.training.workload import Choice
from solver import search
from solver.check import check_plan
from solver.problem import Backend, PlanningProblem, SearchOptions


@dataclass(frozen=True, slots=True)
class ProblemFiles:
    """The files that describe a problem, as named on the command line."""

    cluster: str
    model: str
    workload: str
    framework: str | None
    calibration: str | None
    routed: Routed
    choice: Choice | None = None
    """Rule that takes the place of the workload's."""


def run_plan(
    files: ProblemFiles,
    *,
    options: SearchOptions,
    as_json: bool,
    output: Path | None,
    everything: bool = False,
    budget: Budget = NO_BUDGET,
) -> None:
    """Search here or on the chosen service, and hand out the best plan.

    Ctrl-C ends a search here with the best found so far, and calls one on a service off.
    """
    check_writable(output)
    if chosen_server().address is None:
        result, cancelled = searched(read_problem(files), options)
    else:
        from app.cli.planning.remote_planning import remote_plan  # noqa: PLC0415 - a plan here needs no client

        result, cancelled = remote_plan(files, options), False
    deliver(result, as_json=as_json, output=output, everything=everything, budget=budget)
    outcomes.end_if(cancelled)


def searched(problem: PlanningProblem, options: SearchOptions) -> tuple[Plan | NoPlan, bool]:
    """Result of a search, checked, and whether Ctrl-C ended it; raises ``Failed`` on a fault of our own."""
    return outcomes.searched(search.plan, problem, options, check=check_plan, refusal=NoPlan)


def options_of(
    *,
    time_limit: float | None,
    effort: int | None,
    seed: int | None,
    gap: float | None,
    backend: str | None,
) -> SearchOptions:
    """The search options, with the solver's own defaults for whatever was not given."""
    if time_limit is not None and not (math.isfinite(time_limit) and time_limit > 0):
        raise InvalidInput("--time-limit", time_limit, "must be a positive number of seconds")
    if gap is not None and not 0 <= gap < 1:
        raise InvalidInput("--gap", gap, "must lie in [0, 1)", "0.01 stops within 1 % of optimal")
    if backend is not None and backend not in tuple(Backend):
        raise InvalidInput("--backend", backend, "unknown solver", f"use {' or '.join(Backend)}")
    default = SearchOptions()
    return SearchOptions(
        time_limit_s=default.time_limit_s if time_limit is None else time_limit,
        effort=default.effort if effort is None else effort,
        seed=default.seed if seed is None else seed,
        gap=default.gap if gap is None else gap,
        backend=default.backend if backend is None else Backend(backend),
    )


def read_problem(files: ProblemFiles) -> PlanningProblem:
    """The problem of these files."""
    architecture = read_architecture(files.model)
    fitted = None if files.calibration is None else read_calibration(files.calibration)
    workload = read_workload(files.workload, framework_file=files.framework, fitted=fitted)
    return PlanningProblem(
        snapshot=read_snapshot(files.cluster),
        architecture=architecture,
        workload=workload if files.choice is None else replace(workload, choice=files.choice),
        fitted=fitted,
        routing=files.routed.loads(architecture),
        keep_expert_order=files.routed.keep_order,
    )


def choice_of(*, robust: bool, fastest: bool) -> Choice | None:
    """Choice that the options of the command line make; ``None`` leaves it to the workload."""
    if robust and fastest:
        raise InvalidInput("--robust", robust, "contradicts --fastest", "give one of the two")
    return Choice.ROBUST if robust else Choice.FASTEST if fastest else None


def budget_of(tokens: str | None, gpu_price: float | None) -> Budget:
    """The size and price of the run that the options of the command line give."""
    if gpu_price is not None and not (math.isfinite(gpu_price) and gpu_price > 0):
        raise InvalidInput("--gpu-price", gpu_price, "must be a positive number of US dollars")
    return Budget(None if tokens is None else token_count(tokens, field="--tokens"), gpu_price)


def deliver(
    result: Plan | NoPlan,
    *,
    as_json: bool,
    output: Path | None,
    everything: bool = False,
    budget: Budget = NO_BUDGET,
) -> None:
    """Print and write a result that passed the check; ends with code 3 where nothing fits."""
    text = result_document(result).model_dump_json(indent=2) + "\n"
    if as_json:
        sys.stdout.write(text)
        sys.stdout.flush()
    elif not isinstance(result, NoPlan):
        console().print(plan_view(result, everything=everything, budget=budget, written=output))
    if output is not None:
        write_text(output, text)
    if isinstance(result, NoPlan):
        _explain(result)
        raise typer.Exit(Ending.NO_PLAN)


def _explain(answer: NoPlan) -> None:
    """Why nothing fits, on standard error."""
    complain(f"meshwright: no plan fits: {reason_of(answer)}")
    if answer.closest is not None and answer.missing_bytes is not None:
        complain(f"closest: {answer.closest.degrees} misses {gib(answer.missing_bytes)} on each GPU")
    for remedy in sentences(answer.remedies):
        complain(f"remedy: {remedy}")
