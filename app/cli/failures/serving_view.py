"""Deployments of a decision on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from app.cli.terminal import bullets, section
from app.presentation.serving_decisions import serving_reasons, serving_rows
from cluster_models.jobs.serving import ServingDecision
from cluster_models.serving.plan import ServingPlan


def serving_sections(
    decisions: Sequence[ServingDecision], before: Mapping[str, ServingPlan]
) -> Iterator[RenderableType]:
    """Throughput of each deployment, and why; ``before`` are the plans by which they served, by job id."""
    if not decisions:
        return
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("deployment", overflow="fold")
    table.add_column("does", overflow="fold")
    for name in ("GPUs", "before", "meanwhile", "after", "back within"):
        table.add_column(name, justify="right")
    why = []
    for made in decisions:
        old = before.get(made.job_id)
        for row in serving_rows(made, old):
            table.add_row(Text(row.name), row.action, row.gpus, row.before, row.during, row.after, row.back)
        why += [f"{made.job_name}: {line}" for line in serving_reasons(made, old)]
    yield section("Deployments, requests a second", table)
    yield section("Why they do", bullets(why))
