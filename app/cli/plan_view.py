"""A plan on a terminal: what was chosen, where it sits, what it costs, and how sure that is."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from app.cli.plan_details import BAR_CELLS, drift_account, hosts_grid, memory_account
from app.cli.terminal import bullets, command_line, section
from app.exports.contract import refusal, why_not
from app.exports.registry import EXPORTS
from app.presentation.choice import caution_of, choice_sentences
from app.presentation.decision import NO_BUDGET, Budget, decision_figures
from app.presentation.experts import expert_summary
from app.presentation.figures import count, gib, interval, interval_name, percent, plural, seconds, spans, tflops
from app.presentation.frameworks import framework_words
from app.presentation.proof import unpriced
from app.presentation.survival import survival_sentences
from cluster_models.plan import TIME_PARTS, Plan, StopReason
from cluster_models.workload import LinkBandwidth

_TIME_COLOURS: Final = (
    "green",
    "cyan",
    "blue",
    "magenta",
    "yellow",
    "bright_yellow",
    "red",
    "bright_black",
)
_LAUNCHERS: Final = {"slurm": ("run.sh", " && sbatch run.sh"), "torchtitan": ("train.toml", "")}
"""Formats that start a plan, by preference: the file to write, and what runs it."""
_HINTS: Final = {
    StopReason.TIME_LIMIT: "A longer --time-limit may narrow the gap.",
    StopReason.WORK_LIMIT: "A larger --effort may narrow the gap.",
}


def plan_view(
    plan: Plan, *, everything: bool = False, budget: Budget = NO_BUDGET, written: Path | None = None
) -> RenderableType:
    """What an engineer decides by, most important first; with ``everything`` memory, hosts and drift at length.

    ``written``: the file that the plan is in.
    """
    caution, choice = caution_of(plan), choice_sentences(plan)
    warnings = [warning for warning in plan.warnings if not caution or not warning.startswith(caution)]
    memory, links = [section("Memory of each GPU", memory_account(plan))], []
    if plan.robustness:
        links = [section("When links change", drift_account(plan))]
    return Group(
        *([Text(f"Outside of what was measured: {caution}", style="bold yellow")] if caution else []),
        _headline(plan, budget),
        section("Start it", _launch(plan, written)),
        section("Configuration", _configuration(plan)),
        *([section("Why this plan, and what may be better", bullets(choice))] if choice else []),
        *([Text(f"Kept as spares: {', '.join(plan.spare_nodes)}")] if plan.spare_nodes else []),
        *(memory if everything else []),
        section("Where a step's time goes", _time(plan)),
        section("Proof", _proof(plan)),
        *([section("Experts", Text(expert_summary(plan)))] if plan.expert_balance else []),
        *([section("Warnings", bullets(warnings))] if warnings else []),
        *([section("What lost, and why", _alternatives(plan))] if plan.alternatives else []),
        *([_hosts(plan)] if everything else []),
        *([section("What it survives", bullets(survival_sentences(plan)))] if everything and plan.survives else []),
        *(links if everything else []),
        _footer(plan, everything=everything),
    )


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
        return Text(f"There is no launch file for it: {refusal(EXPORTS['slurm'], plan)}")
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
    memory, tokens, run = figures.pop("memory"), figures.pop("tokens a day"), figures.pop("whole run", "")
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


def _configuration(plan: Plan) -> RenderableType:
    configuration, workload = plan.configuration, plan.workload
    degrees = configuration.degrees
    rows = []
    if workload is not None:
        rows.append(("framework", f"{framework_words(workload.framework)}, {workload.precision.upper()}"))
    rows += [
        ("micro-batch", f"{configuration.micro_batch} sequence{'s' if configuration.micro_batch > 1 else ''}"),
        ("recomputation", str(configuration.recompute)),
        ("sharding", str(configuration.sharding)),
        ("rank order", str(configuration.rank_order)),
        ("layers", "  then  ".join(" ".join(map(str, row)) for row in configuration.stage_layers)),
    ]
    if degrees.virtual_pipeline > 1:
        rows.append(("interleaving", f"{degrees.virtual_pipeline} model chunks on each pipeline rank"))
    rows += [("GPUs", f"{kind} under {stages}") for kind, stages in _stages_by_kind(plan)]
    return _pairs(rows)


def _stages_by_kind(plan: Plan) -> Iterator[tuple[str, str]]:
    """Which stages run on which GPUs, where these differ."""
    for kind, members in groupby(enumerate(plan.mixed_kinds), key=itemgetter(1)):
        numbers = [stage for stage, _ in members]
        yield kind, f"stage{'s' if len(numbers) > 1 else ''} {spans(numbers)}"


def _time(plan: Plan) -> RenderableType:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    for (part, name), colour in zip(TIME_PARTS.items(), _TIME_COLOURS, strict=True):
        value = getattr(plan.time, part)
        if value <= 0:
            continue
        share = value / plan.time.step_s
        bar = Text("█" * max(1, round(share * BAR_CELLS)), style=colour)
        table.add_row(name, seconds(value), percent(share), bar)
    return table


def _proof(plan: Plan) -> RenderableType:
    proof = plan.certificate
    lines = [Text(proof.explanation)]
    if proof.stopped_by is not StopReason.NO_SEARCH:
        given_up = plan.selection.given_up if plan.selection else 0.0
        verdict = f"At most {percent(proof.gap, places=2)} from the best plan there can be."
        if given_up:
            verdict = f"The best found is at most {percent(proof.gap, places=2)} from the best plan there can be."
        lines.append(Text(verdict, style="bold"))
        late = unpriced(proof)
        left = f", and for {count(late)} there was no time" if late else ""
        lines.append(
            Text(
                f"Of {count(proof.candidates_total)} candidates {count(proof.candidates_infeasible)} do not fit "
                f"the memory, {count(proof.candidates_pruned)} are ruled out by their bound and "
                f"{count(proof.candidates_placed)} were placed{left} ({proof.solver})."
            )
        )
    if proof.stopped_by in _HINTS:
        lines.append(Text(_HINTS[proof.stopped_by], style="dim"))
    return Group(*lines)


def _alternatives(plan: Plan) -> RenderableType:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name, justify in (("configuration", "left"), ("step", "right"), ("worse by", "right"), ("peak", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]  # a literal that mypy widens
    table.add_column("why", overflow="fold")
    limit = max((memory.limit_bytes for memory in plan.memory), default=0.0)
    for other in plan.alternatives:
        configuration = other.configuration
        name = (
            f"{configuration.degrees} mb{configuration.micro_batch}\n"
            f"recompute {configuration.recompute}\nsharding {configuration.sharding}"
        )
        worse = percent(other.slower_by) if other.peak_memory_bytes <= limit else "too large"
        figures = (seconds(other.step_s), worse, gib(other.peak_memory_bytes))
        table.add_row(Text(name), *figures, Text(other.reason))
    return table


def _pairs(rows: list[tuple[str, str]]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(Text(name, style="dim"), Text(value))
    return table
