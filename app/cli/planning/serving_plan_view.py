"""A serving plan on a terminal: the decision first, then latencies against limits, memory, proof and what lost."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from app.cli.terminal import bullets, command_line, more_line, pairs, section
from app.exports.serving.contract import serving_refusal
from app.exports.serving.registry import SERVING_EXPORTS
from app.presentation.figures import count, plural
from app.presentation.serving_plan import ServingReport, serving_report
from app.presentation.serving_tables import FrontRow
from cluster_models.serving.plan import ServingPlan

MOST_POINTS: Final = 9
"""Points of the front that a terminal shows."""


def serving_plan_view(
    plan: ServingPlan, *, everything: bool = False, written: Path | None = None
) -> RenderableType:
    """A plan as an engineer judges it; with ``everything`` replicas, steps and the Pareto front at length.

    ``written``: the file that the plan is in.
    """
    report = serving_report(plan)
    return Group(
        _headline(plan, report),
        section("Latencies, means with 80 % intervals", _latencies(report)),
        *([section("Simulated step by step", _replays(report))] if report.replays else []),
        section("Start it", _launch(plan, written)),
        section("Memory of each GPU", _memory(report)),
        section("How good is this plan?", _proof(report)),
        *([section("Warnings", bullets(report.warnings))] if report.warnings else []),
        *([section("Idle GPUs", bullets(report.idle))] if report.idle else []),
        *([section("What lost, and why", _alternatives(report))] if report.alternatives else []),
        *([section("Throughput against speed for each user", _front(report))] if report.front else []),
        *(_at_length(report) if everything else []),
        _footer(report, everything=everything),
    )


def exports_view(written: Sequence[str], refused: Sequence[tuple[str, str]]) -> RenderableType:
    """Folders that hold exports, and why others do not."""
    lines = [f"written: {folder}" for folder in written]
    lines += [f"{name} cannot take it: {reason}" for name, reason in refused]
    return section("Exports", bullets(lines))


def _headline(plan: ServingPlan, report: ServingReport) -> RenderableType:
    nodes = {place.node for replica in plan.replicas for place in replica.places}
    figures = dict(report.headline)
    throughput, each = figures.pop("throughput"), figures.pop("per GPU")
    text = Text.assemble(
        *((f"{line}\n", "bold green") for line in report.decision),
        f"{plural(plan.gpus, 'GPU')} of {plural(len(nodes), 'node')}",
        (f"\n{throughput}", "bold"),
        f"   {each} a GPU",
        *(f"\n{name}: {value}" for name, value in figures.items() if name != "GPUs used"),
    )
    return Panel(text, box=box.ROUNDED, border_style="green", expand=False)


def _latencies(report: ServingReport) -> RenderableType:
    several = len({row.model for row in report.latencies}) > 1
    table = _table(*(["model"] if several else []), "", ">value", ">interval", ">limit", "")
    for row in report.latencies:
        verdict = Text(row.verdict, style="green" if row.meets else "bold red")
        cells = (row.name, row.value, row.interval, row.limit or "none", verdict)
        table.add_row(*((row.model,) if several else ()), *cells)
    return table


def _replays(report: ServingReport) -> RenderableType:
    """Percentiles of the simulation, each with that of the closed form behind it."""
    table = _table("", ">50 %", ">90 %", ">99 %", "")
    for row in report.replays:
        cells = (f"{one}\n({two})" for one, two in zip(row.simulated, row.expected, strict=True))
        table.add_row(f"{row.name}\n{row.model}", *cells, Text(row.misses, style="bold red"))
    return Group(
        table, Text("In brackets what the closed form expects, by which the plan was chosen.", style="dim")
    )


def _launch(plan: ServingPlan, written: Path | None) -> RenderableType:
    """The command that makes the launch files; the plan has to be in a file for it."""
    family = plan.models[0].workload.engine.family
    export = SERVING_EXPORTS.get(family)
    if export is None or (error := serving_refusal(export, plan)) is not None:
        reason = f"exports have no words for {family}" if export is None else str(error)
        return Text(f"There is no launch file for it: {reason}")
    first = [] if written else [Text("With --output PLAN.json the plan is kept; then", style="dim")]
    output = f"--output {family}" if export.is_folder else f"--output {export.file_name}"
    words = f"meshwright export {shlex.quote(str(written or 'PLAN.json'))} --format {family} {output}"
    return Group(*first, command_line(words, indent=0))


def _memory(report: ServingReport) -> RenderableType:
    table = _table("replicas", ">weights", ">steps", ">cache", ">free", ">requests at once", "limits")
    for row in report.pools:
        name = f"{row.replicas} x {row.shape}, {row.phase}\n{row.model} on {row.gpu_kind}"
        table.add_row(name, row.weights, row.steps, row.cache, row.free, row.requests, row.limits)
    return table


def _proof(report: ServingReport) -> RenderableType:
    proof = report.proof
    return Group(Text(proof.verdict, style="bold"), Text(proof.explanation), pairs(proof.figures))


def _alternatives(report: ServingReport) -> RenderableType:
    table = _table("workers", ">first token", ">token", ">output", ">worse by", "why")
    for other in report.alternatives:
        figures = (other.first_token, other.token, other.output, other.worse)
        table.add_row(other.workers, *figures, Text(other.reason, overflow="fold"))
    return table


def _front(report: ServingReport) -> RenderableType:
    table = _table("workers", ">in flight", ">tokens/s of a user", ">tokens/s of a GPU", ">first token", "")
    shown, hidden = shown_points(report.front)
    for row in shown:
        style = "bold green" if row.verdict == "chosen" else ""
        cells = (row.workers, row.concurrency, row.per_user, row.per_gpu, row.first_token, row.verdict)
        table.add_row(*cells, style=style)
    return Group(table, *([more_line(hidden, "point")] if hidden else []))


def shown_points(rows: Sequence[FrontRow]) -> tuple[list[FrontRow], int]:
    """Some points of the front, evenly, the first, the last and those chosen among them; how many are left out."""
    if len(rows) <= MOST_POINTS:
        return list(rows), 0
    step = (len(rows) - 1) / (MOST_POINTS - 1)
    kept = {round(index * step) for index in range(MOST_POINTS)}
    shown = [row for index, row in enumerate(rows) if index in kept or row.verdict == "chosen"]
    return shown, len(rows) - len(shown)


def _at_length(report: ServingReport) -> Iterator[RenderableType]:
    replicas = _table(">replica", "model", "phase", "workers", "GPUs", ">share", ">load")
    for row in report.replicas:
        places = "\n".join(row.places)
        replicas.add_row(count(row.number), row.model, row.phase, row.shape, places, row.share, row.load)
    yield section("Who sits where", replicas)
    steps = _table("replicas", "part", ">prefill of a prompt", ">decode step")
    for step in report.steps:
        steps.add_row(step.pool, step.part, step.prefill, step.decode)
    yield section("Where a step's time goes", steps)


def _footer(report: ServingReport, *, everything: bool) -> RenderableType:
    made_from = dict(report.provenance)
    more = "" if everything else "\n--verbose adds replicas with their GPUs and steps by part."
    return Text(
        f"\nMade from snapshot {made_from['snapshot']} of {made_from['cluster']}, seed {made_from['seed']}, "
        f"effort {made_from['effort']}, calibration {made_from['calibration']}.{more}",
        style="dim",
    )


def _table(*titles: str) -> Table:
    """A table with these columns; ``>`` in front of a title puts figures to the right."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    for title in titles:
        table.add_column(title.removeprefix(">"), justify="right" if title.startswith(">") else "left")
    return table
