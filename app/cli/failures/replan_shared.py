"""``meshwright replan`` where deployments run beside training jobs: one decision about all spares."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from app.cli.endings import Ending, Failed, complain
from app.cli.failures.replan_files import DecisionFiles
from app.cli.failures.replan_progress import progress_line
from app.cli.failures.replan_view import AskedView, decision_view
from app.cli.failures.serving_view import serving_view
from app.cli.progress import cancelled_by_interrupt, shown_progress
from app.cli.terminal import console, error_console
from cluster_models.errors import SolverFailed
from cluster_models.health.conditions import Condition
from solver.replanning.problem import ReplanOptions
from solver.replanning.together import SharedDecision, SharedProblem, check_shared, decide_together


def run_shared(
    files: DecisionFiles,
    problem: SharedProblem,
    options: ReplanOptions,
    conditions: Sequence[Condition],
    *,
    as_json: bool,
) -> None:
    """Decide about all jobs and hand the decision out; Ctrl-C ends the search with the best found so far."""
    decision, cancelled = _decided(problem, options)
    if broken := check_shared(problem, decision):
        raise Failed(f"internal error: the decision breaks its own rules: {' '.join(broken[:3])}")
    training = problem.training.jobs

    def document() -> str:
        from app.cli.failures.replan_answer import shared_text  # noqa: PLC0415 - loads the answers of the service

        return shared_text(decision, training)

    written = files.write(decision.batch, document)
    servers = files.write_serving(decision.serving)
    if as_json:
        sys.stdout.write(document())
    else:
        names = {job.id: job.name for job in training}
        before = {job.id: job.plan for job in training}
        if training:
            console().print(
                decision_view(decision.batch, AskedView(names, before, conditions, written)), crop=False
            )
        console().print(serving_view(decision, problem.serving, servers), crop=False)
    sys.stdout.flush()
    if cancelled:
        complain("meshwright: interrupted; this is the best decision found until then")
        raise typer.Exit(Ending.INTERRUPTED)


def _decided(problem: SharedProblem, options: ReplanOptions) -> tuple[SharedDecision, bool]:
    try:
        with (
            cancelled_by_interrupt() as is_cancelled,
            shown_progress(error_console(), progress_line) as on_progress,
        ):
            found = decide_together(problem, options, on_progress=on_progress, is_cancelled=is_cancelled)
            return found, is_cancelled()
    except SolverFailed as error:
        raise Failed(str(error)) from error
