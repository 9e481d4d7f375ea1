"""A decision on a terminal, for somebody who was just woken up: what to do, what becomes of each job, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.cli.failures.replan_files import JobFiles, launch_command
from app.cli.failures.serving_view import serving_sections
from app.cli.terminal import bullets, section
from app.presentation.decision_reasons import keep_out, objection, reason_of
from app.presentation.figures import count, duration, plural, spans
from app.presentation.recovery import OTHER_ACTIONS, STATES, Step, change, entity_words, fallback_words
from app.presentation.replan_steps import steps
from app.presentation.replans import ACTION_VERBS, lost_gpu_hours, moved_bytes, proof, starts_anew
from cluster_models.health.conditions import Condition
from cluster_models.jobs.recovery import BatchDecision, JobDecision, Migration, RecoveryAction
from cluster_models.serving.plan import ServingPlan
from cluster_models.training.plan import Plan, StopReason
from cluster_models.wording import joined

_MOST_EXPLAINED: Final = 4
"""Jobs up to which the actions that lost are shown, too: those that would have been worth something."""
_COLOURS: Final = {
    RecoveryAction.NONE: "green",
    RecoveryAction.WAIT: "yellow",
    RecoveryAction.PAUSE: "red",
}


@dataclass(frozen=True, slots=True)
class AskedView:
    """Facts beside a decision: names and plans before by job id (``served``: of deployments), conditions, files."""

    names: Mapping[str, str]
    before: Mapping[str, Plan]
    served: Mapping[str, ServingPlan] = field(default_factory=dict)
    conditions: Sequence[Condition] = ()
    written: Mapping[str, JobFiles] = field(default_factory=dict)
    free: Sequence[str] = ()
    writes_with: str = "--output DIR"
    """Option or command for files of jobs that start anew."""
    is_stored: bool = False
    """Whether it is a decision of the service, which searches for better ones by itself."""
    is_over: bool = False
    """Whether it was carried out, or will not be any more."""


def decision_view(decision: BatchDecision, asked: AskedView) -> RenderableType:
    """A decision in full, its steps first."""
    decided, to_do = decision.jobs, "What was to be done" if asked.is_over else "Do this"
    jobs = [section("Jobs", _jobs(decided, asked.before)), section("Why", _why(decided))] if decided else []
    is_asked = bool(decided or decision.serving)
    return Group(
        *_headline(decision, asked),
        *([section(to_do, _numbered(steps(decision, asked.before), asked.written))] if is_asked else []),
        *jobs,
        *serving_sections(decision.serving, asked.served),
        section("Nodes", bullets(_nodes(decision, asked))),
        *([section("How sure", bullets(_sure(decision, asked)))] if is_asked else []),
        *_hint(decision, asked),
    )


def _headline(decision: BatchDecision, asked: AskedView) -> Iterator[RenderableType]:
    if decision.fallback:
        ready = "" if asked.is_over else ": it can be carried out now"
        yield Text(f"Safe answer, made without a search{ready}.", style="bold yellow")
    touched = sum(made.action is not RecoveryAction.NONE for made in decision.jobs)
    touched += sum(made.is_to_be_done for made in decision.serving)
    total = len(decision.jobs) + len(decision.serving) + len(decision.untouched)
    if not touched:
        yield Text(f"Nothing to do: {_every(total)} on as before.", style="bold green")
    else:
        verb = "is" if touched == 1 else "are"
        yield Text(f"{touched} of {plural(total, 'job')} {verb} touched.", style="bold")
    for state, words in STATES.items():
        if parts := [entity_words(each.entity) for each in asked.conditions if each.state is state]:
            yield Text(f"{words[:1].upper()}{words[1:]}: {joined(parts)}.")
    if decision.untouched and touched:
        yield Text(f"As before: {joined([asked.names.get(job, job) for job in decision.untouched])}.")


def _every(total: int) -> str:
    return "the job runs" if total == 1 else f"all {total} jobs run"


def _numbered(found: Sequence[Step], written: Mapping[str, JobFiles]) -> RenderableType:
    """Numbered sentences, each with the command to copy below where one was written for its job."""
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for number, step in enumerate(found, 1):
        text = Text(step.sentence)
        if command := launch_command(written.get(step.starts)):
            text.append(f"\n{command}", style="green")
        table.add_row(Text(f"{number}."), text)
    return table


def _jobs(decided: Sequence[JobDecision], before: Mapping[str, Plan]) -> RenderableType:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("job", overflow="fold")
    table.add_column("does", no_wrap=True)
    for name in ("GPUs", "tokens/s", "change", "back within", "GPU-hours lost"):
        table.add_column(name, justify="right")
    for made in decided:
        table.add_row(
            Text(made.job_name),
            Text(ACTION_VERBS[made.action], style=_COLOURS.get(made.action, "")),
            _arrow(_gpus(before.get(made.job_id)), _gpus_after(made, before)),
            Text(count(made.tokens_per_s_after)),
            Text(change(made.tokens_per_s_before, made.tokens_per_s_after) if made.tokens_per_s_after else "all"),
            Text(_still(made)),
            Text(lost_gpu_hours(made)),
        )
    return table


def _gpus(plan: Plan | None) -> str:
    return "?" if plan is None else str(len(plan.placement.ranks))


def _gpus_after(made: JobDecision, before: Mapping[str, Plan]) -> str:
    if made.action is RecoveryAction.WAIT:
        return _gpus(before.get(made.job_id))
    return "0" if made.plan is None else str(len(made.plan.placement.ranks))


def _arrow(before: str, after: str) -> Text:
    return Text(after if before == after else f"{before} \N{RIGHTWARDS ARROW} {after}", no_wrap=True)


def _still(made: JobDecision) -> str:
    if made.action is RecoveryAction.WAIT:
        return "nodes return"
    if made.action is RecoveryAction.PAUSE:
        return "room again"
    return duration(made.migration.downtime.high_s) if starts_anew(made) else "\N{EN DASH}"


def _why(decided: Sequence[JobDecision]) -> RenderableType:
    """For each job its reason, what it costs, and the alternatives that lost."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for made in decided:
        text = Text(reason_of(made))
        for line in _costs(made.migration):
            text.append(f"\n{line}")
        for other in made.considered if len(decided) <= _MOST_EXPLAINED else ():
            if other.value_flop is not None and other.value_flop > 0:
                text.append(f"\n{OTHER_ACTIONS[other.action]}? {objection(other)}", style="dim")
        table.add_row(Text(made.job_name, style="bold"), text)
    return table


def _costs(migration: Migration) -> Iterator[str]:
    if migration.moved:
        ranks = spans(rank.rank for rank in migration.moved)
        yield f"{_ranks(len(migration.moved))} {ranks}; {_sizes(migration)}."
    elif migration.bytes.total >= 1:
        yield f"No rank moves; {_sizes(migration)}."
    if words := fallback_words(migration):
        yield words


def _sizes(migration: Migration) -> str:
    return ", ".join(f"{size} {words}" for words, size in moved_bytes(migration)) or "no bytes move"


def _ranks(number: int) -> str:
    return "1 rank moves:" if number == 1 else f"{number} ranks move:"


def _nodes(decision: BatchDecision, asked: AskedView) -> Iterator[str]:
    """Spares, repeat offenders, and what the next failure would meet."""
    used, left = decision.spares_used, decision.spares_left
    if decision.spares_before:
        free = joined(left) if left else "none"
        yield f"Spares used: {joined(used) if used else 'none'}. Left: {free}."
    else:
        yield "No spares."
    acts = any(made.action is not RecoveryAction.NONE for made in decision.jobs)
    if asked.free and (acts or decision.serving):
        yield (
            f"{plural(len(asked.free), 'node')} free and no spare: {joined(asked.free)}. "
            f"Jobs may take {'it' if len(asked.free) == 1 else 'them'} with --spare all."
        )
    yield from map(keep_out, decision.quarantine)
    fragile = [
        made.job_name
        for made in decision.jobs
        for losses in made.survives
        if losses.label == "node" and not losses.count
    ]
    if fragile:
        yield f"The next lost node takes {joined(fragile)} back to the last checkpoint."


def _sure(decision: BatchDecision, asked: AskedView) -> Iterator[str]:
    yield from proof(decision)
    if decision.fallback and decision.stopped_by is StopReason.NO_SEARCH:
        yield "The service searches by itself." if asked.is_stored else "Without --safe this command searches."


def _hint(decision: BatchDecision, asked: AskedView) -> Iterator[RenderableType]:
    has_files = any(starts_anew(made) for made in decision.jobs) or any(made.plan for made in decision.serving)
    if asked.written or not asked.writes_with or not has_files:
        return
    yield Text(f"\nNew plans and launch files: {asked.writes_with}", style="dim")
