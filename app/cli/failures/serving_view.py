"""A decision about deployments on a terminal, beside that about training jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.cli.failures.replan_files import JobFiles
from app.cli.terminal import bullets, section
from app.presentation.figures import percent
from app.presentation.serving_decisions import serving_reasons, serving_rows, serving_steps
from cluster_models.jobs.serving import ServingJob
from cluster_models.wording import joined
from solver.replanning.together import SharedDecision


def serving_view(
    decision: SharedDecision, jobs: Sequence[ServingJob], written: Mapping[str, JobFiles]
) -> RenderableType:
    """Steps, what each deployment answers, and why; then the proof of all jobs together."""
    plans = {job.id: job.plan for job in jobs}
    steps = [step for made in decision.serving for step in serving_steps(made)]
    steps += [f"Its servers: {path}" for each in written.values() for path in each.launch]
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("deployment", overflow="fold")
    table.add_column("does", overflow="fold")
    for name in ("GPUs", "before", "meanwhile", "after", "back within"):
        table.add_column(name, justify="right")
    for made in decision.serving:
        for row in serving_rows(made, plans[made.job_id]):
            table.add_row(row.name, row.action, row.gpus, row.before, row.during, row.after, row.back)
    why = [
        f"{made.job_name}: {line}"
        for made in decision.serving
        for line in serving_reasons(made, plans[made.job_id])
    ]
    names = [job.name for job in jobs if job.id in decision.untouched]
    sure = [f"All jobs together: at most {percent(decision.gap, places=2)} from the best of these options."]
    if decision.spares_left:
        sure.append(f"Spares that nobody took: {joined(decision.spares_left)}.")
    return Group(
        *([Text(f"Serve on as before: {joined(names)}.")] if names else []),
        *(
            [
                section("Deployments: do this", bullets(steps)),
                section("Deployments, requests a second", table),
                section("Why", bullets(why)),
            ]
            if decision.serving
            else []
        ),
        section("How sure, of all jobs", bullets(sure)),
    )
