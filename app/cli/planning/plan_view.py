"""A plan on a terminal: what was chosen, where it sits, what it costs, and how sure that is."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from app.cli.planning.plan_details import BAR_CELLS, drift_account, hosts_grid, memory_account
from app.cli.terminal import bullets, command_line, pairs, section
from app.exports.contract import why_not
from app.exports.registry import EXPORTS
from app.presentation.decision import NO_BUDGET, Budget, decision_figures
from app.presentation.figures import count, interval, interval_name, percent, plural, seconds, tflops
from app.presentation.plan import PlanReport, plan_report
from cluster_models.training.plan import Plan
from cluster_models.training.workload import LinkBandwidth

_TIME_COLOURS: Final = (
    "green",
    "cyan",
    "blue",
    "magenta",
    "yellow",
    "bright_yellow",
    "red",
    "bright_black",
    "bright_red",
)
"""For each of ``TIME_PARTS``, the last where something is offloaded."""
_LAUNCHERS: Final = {
    "slurm": ("run.sh", " && sbatch run.sh"),
    "torchtitan": ("train.toml", ""),
    "nemo": ("nemo_overrides.sh", ""),
}
"""Formats that start a plan, by preference: the file to write, and what runs it."""


def plan_view(
    plan: Plan, *, everything: bool = False, budget: Budget = NO_BUDGET, written: Path | None = None
) -> RenderableType:
    """A plan as an engineer judges it, most important first; with ``everything`` memory, hosts and drift at length.

    ``written``: the file that the plan is in.
    """
    report = plan_report(plan, budget=budget)
    return Group(
        *([Text(f"Less sure than usual: {report.caution}", style="bold yellow")] if report.caution else []),
        _headline(plan, budget),
        section("Start it", _launch(plan, written)),
        section("Configuration", pairs(report.settings)),
        *([section("Why this plan, and what may be better", bullets(report.choice))] if report.choice else []),
        *([Text(report.spares)] if report.spares else []),
        *([section("Memory of each GPU", memory_account(plan))] if everything else []),
        section("Where a step's time goes", _time(report)),
        section("How good is this plan?", _proof(report)),
        *([section("Experts", Text(report.experts))] if plan.expert_balance else []),
        *([section("Warnings", bullets(report.warnings))] if report.warnings else []),
        *([section("What lost, and why", _alternatives(report))] if report.alternatives else []),
        *(_at_length(plan, report) if everything else []),
        _footer(plan, everything=everything),
    )


def _at_length(plan: Plan, report: PlanReport) -> Iterator[RenderableType]:
    yield _hosts(plan)
    if report.survives:
        yield section("What it survives", bullets(report.survives))
    if report.drift:
        yield section("When links change", drift_account(report))


def _hosts(plan: Plan) -> RenderableType:
    return section("Hosts: a row for each pipeline stage, a column for each replica", hosts_grid(plan))


def _footer(plan: Plan, *, everything: bool) -> RenderableType:
    made_from = plan.provenance
    more = "" if everything else "\n--verbose adds hosts, memory by part, what it survives and drift of links."
    return Text(
        f"\nMade from snapshot {made_from.snapshot_id} of {made_from.cluster_name}, seed {made_from.seed}, "
        f"effort {made_from.effort}, calibration {made_from.calibration or 'as shipped'}, "
        f"{made_from.link_bandwidth} link bandwidth.{more}",
        style="dim",
    )


def _launch(plan: Plan, written: Path | None) -> RenderableType:
    """The commands that make and start the launch file; the plan has to be in a file for them."""
    found = next((name for name in _LAUNCHERS if why_not(EXPORTS[name], plan) is None), None)
    if found is None:
        return Text(f"There is no launch file for it: {why_not(EXPORTS['slurm'], plan)}")
    first = [] if written else [Text("With --output PLAN.json the plan is kept; then", style="dim")]
    file, start = _LAUNCHERS[found]
    command = (
        f"meshwright export {shlex.quote(str(written or 'PLAN.json'))} --format {found} --output {file}{start}"
    )
    return Group(*first, command_line(command, indent=0))


def _headline(plan: Plan, budget: Budget) -> RenderableType:
    degrees = plan.configuration.degrees
    careful = plan.provenance.link_bandwidth is LinkBandwidth.PESSIMISTIC
    figures = dict(decision_figures(plan, budget))
    memory, run = figures.pop("memory"), figures.pop("whole run", "")
    tokens = f"{figures.pop('tokens a day')} tokens a day"
    text = Text.assemble(
        (f"{plan.model}  ", "bold"),
        (str(degrees), "bold green"),
        (f" mb{plan.configuration.micro_batch}", "green"),
        f"  on {plural(degrees.gpus, 'GPU')} of {plural(len(plan.placement.hosts), 'node')}\n",
        (f"{seconds(plan.time.step_s)} a step", "bold"),
        f" ({interval_name(plan.confidence)} {interval(plan.confidence)})" if plan.confidence else "",
        f"   {count(plan.tokens_per_s)} tokens/s   {count(plan.tokens_per_s_per_gpu)} tokens/s/GPU\n",
        "   ".join([tokens, *figures.values()]),
        (f"\n{run}", "bold") if run else "",
        f"\n{memory}",
        f"\n{tflops(plan.model_flops_per_s_per_gpu)} of model arithmetic per GPU   MFU {percent(plan.mfu)}",
        "\non pessimistic links: each at its p10" if careful else "",
    )
    return Panel(text, box=box.ROUNDED, border_style="green", expand=False)


def _time(report: PlanReport) -> RenderableType:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    for part, colour in zip(report.time, _TIME_COLOURS, strict=False):
        if part.fraction > 0:
            bar = Text("█" * max(1, round(part.fraction * BAR_CELLS)), style=colour)
            table.add_row(part.name, part.time, part.share, bar)
    return table


def _proof(report: PlanReport) -> RenderableType:
    proof = report.proof
    lines = (proof.explanation, proof.candidates)
    hint = [Text(proof.hint, style="dim")] if proof.hint else []
    return Group(Text(proof.verdict, style="bold"), *map(Text, filter(None, lines)), *hint)


def _alternatives(report: PlanReport) -> RenderableType:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name, justify in (("configuration", "left"), ("step", "right"), ("slower by", "right"), ("peak", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]  # a literal that mypy widens
    table.add_column("why", overflow="fold")
    for other in report.alternatives:
        details = other.details.replace(", ", "\n")
        figures = (other.step, other.slower, other.peak_memory)
        table.add_row(Text(f"{other.configuration}\n{details}"), *figures, Text(other.reason))
    return table
