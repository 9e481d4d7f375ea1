"""The resilience of a plan on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.cli.terminal import bullets, section
from app.presentation.figures import count, duration, gib, percent, plural, seconds
from app.presentation.sentences import sentence
from app.presentation.survival import losses_sentence
from app.services.planning.resilience import Resilience
from cluster_models.jobs.running import RecoveryPolicy
from cluster_models.training.plan import Plan
from solver.replanning.resilience import Hardening, HardeningKind

_WORDS: Final = {
    HardeningKind.MEMORY_CHECKPOINT: "checkpoints in memory",
    HardeningKind.OPTIMIZER_INSTANCES: "more optimizer copies",
    HardeningKind.UNSHARDED: "no sharding",
    HardeningKind.SPREAD: "another placement",
}
_SETTINGS: Final = {
    HardeningKind.MEMORY_CHECKPOINT: "recovery: memory_checkpoint: true",
    HardeningKind.UNSHARDED: "workload: sharding: [none]",
}


@dataclass(frozen=True, slots=True)
class JudgedPlan:
    """A judged plan; ``label``: the failure domains of which one more is to be survived."""

    plan: Plan
    recovery: RecoveryPolicy
    label: str
    knows_links: bool
    searched: bool = False


def resilience_view(found: Resilience, judged: JudgedPlan) -> RenderableType:
    """Losses that it survives, the time in which it makes progress, and ways to survive more."""
    degrees, model = judged.plan.configuration.degrees, judged.plan.model
    nodes = plural(len(judged.plan.placement.hosts), "node")
    ratio = percent(found.training.ratio)
    return Group(
        Text(f"{model} as {degrees} on {nodes}: {ratio} of the time makes lasting progress.", style="bold"),
        section("What it survives", bullets(losses_sentence(losses) for losses in found.survives)),
        section("Effective training time", bullets(_training(found, judged))),
        section(f"To survive one more {_domain(judged.label)}, the cheapest first", _hardenings(found, judged)),
    )


def _training(found: Resilience, judged: JudgedPlan) -> Iterator[str]:
    training = found.training
    rate = training.failures_per_day
    if rate <= 0:
        yield "No failures are expected: nothing is lost."
    else:
        days = f"one every {duration(86_400 / rate)}"
        yield f"Failures of the whole job: {days}; each costs {duration(training.restart_s)} until it steps again."
    steps = judged.recovery.checkpoint_interval_steps
    every = f"every {plural(steps, 'step')} ({duration(training.interval_s)})"
    yield f"Checkpoints {every} hold it up for {seconds(training.write_s)} each."
    if training.best_interval_s is None:
        yield "A lost node takes no state: rarer checkpoints are better."
        return
    best = max(1, round(training.best_interval_s / judged.plan.time.step_s))
    yield (
        f"Best: every {plural(best, 'step')} ({duration(training.best_interval_s)}): "
        f"{percent(training.best_ratio)} instead of {percent(training.ratio)}."
    )


def _hardenings(found: Resilience, judged: JudgedPlan) -> RenderableType:
    if not judged.knows_links:
        return Text("Prices need the links: give --cluster FILE.")
    if not found.hardenings:
        kept = "No way leaves degrees and placement as they are"
        if judged.searched:
            return Text(f"{kept}, and the planner finds no other plan that does on the nodes that it may use.")
        return Text(f"{kept}; --search 20s looks for another plan.")
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("how", overflow="fold")
    for name in ("may be lost", "step", "GPU memory", "host memory", "fits"):
        table.add_column(name, justify="right")
    for way in found.hardenings:
        table.add_row(
            Text(_WORDS[way.kind]),
            Text(count(way.count)),
            Text(f"+ {seconds(way.step_s)}" if way.step_s else "as before"),
            Text(_more(way.gpu_bytes)),
            Text(_more(way.host_bytes)),
            Text("yes" if way.is_possible else "no", style="" if way.is_possible else "red"),
        )
    possible = [way for way in found.hardenings if way.is_possible]
    return Group(table, *(Text(line) for line in _advice(possible, judged)))


def _advice(possible: list[Hardening], judged: JudgedPlan) -> Iterator[str]:
    if not possible:
        yield "None of them fits into the GPUs' memory."
        return
    best = possible[0]
    yield sentence(best.means)
    setting = _SETTINGS.get(best.kind)
    if best.kind is HardeningKind.OPTIMIZER_INSTANCES:
        setting = f"recovery: optimizer_instances: {2 * judged.recovery.optimizer_instances}"
    if best.kind is HardeningKind.SPREAD:
        setting = f"workload: survive: {{{best.label}: {best.count}}}"
    if setting is not None:
        yield f"Write it as {setting}"


def _more(size: float) -> str:
    return f"{'+' if size > 0 else '-'} {gib(abs(size))}" if size else "as before"


def _domain(label: str) -> str:
    return label.replace("nvlink_domain", "NVLink domain")
