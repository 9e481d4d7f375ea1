"""Measured runs, their drift and what it points to, in words; the same on the terminal and in a page."""

from __future__ import annotations

from typing import Final

from app.answers.measured_runs import (
    DriftAnswer,
    GroupDriftAnswer,
    JobEffectAnswer,
    MeasuredRunAnswer,
    RecalibrationAnswer,
    SuspectedPartAnswer,
)
from app.presentation.calibration import error_lines
from app.presentation.figures import percent, plural, seconds
from app.presentation.recovery import moment
from app.services.feedback.drifts import Evidence, PartKind
from cluster_models.wording import joined

_KINDS: Final = {PartKind.NODE: "node", PartKind.LINK: "link"}
RUN_COLUMNS: Final = ("ended", "model", "framework", "shape", "measured", "predicted", "off", "memory")
DRIFT_COLUMNS: Final = ("by", "which", "runs", "off", "80 % of runs", "memory off", "change")


def off(measured_over_predicted: float) -> str:
    """How far a measured figure is from its prediction: "+6.2 %"."""
    return f"{100 * (measured_over_predicted - 1):+.1f} %"


def run_cells(run: MeasuredRunAnswer) -> tuple[str, ...]:
    """A run as a line of a table with ``RUN_COLUMNS``."""
    memory = "" if run.peak_memory_gib is None else off(run.peak_memory_gib / run.predicted_memory_gib)
    outside = " *" if run.within_interval is False else ""
    return (
        moment(run.ended_at),
        run.model,
        run.framework,
        run.degrees,
        seconds(run.step_time_s),
        seconds(run.predicted_step_time_s),
        off(run.measured_over_predicted) + outside,
        memory,
    )


def drift_cells(group: GroupDriftAnswer) -> tuple[str, ...]:
    """The drift of a group as a line of a table with ``DRIFT_COLUMNS``."""
    memory = group.memory_measured_over_predicted
    return (
        group.by,
        group.name,
        str(group.runs),
        off(group.measured_over_predicted),
        f"{off(group.p10)} to {off(group.p90)}",
        "" if memory is None else off(memory),
        change_words(group),
    )


def change_words(group: GroupDriftAnswer) -> str:
    """Since when steps are longer or shorter than before; empty where they are not."""
    if group.changed_at is None or group.before is None or group.after is None:
        return ""
    ratio = group.after / group.before
    return f"{percent(abs(ratio - 1))} {'slower' if ratio > 1 else 'faster'} since {moment(group.changed_at)}"


def suspect_sentence(found: SuspectedPartAnswer) -> str:
    """Evidence of a slow part, and how sure it is."""
    kind, slower = _KINDS[found.kind], percent(found.slowdown - 1)
    if len(found.names) == 1:
        subject = f"{kind.capitalize()} {found.names[0]} of {found.cluster}"
    else:
        named = joined(found.names[:6])
        subject = f"One of {plural(len(found.names), kind)} of {found.cluster} ({named}), which no run tells apart,"
    if found.evidence is Evidence.COMPUTE_TIMES:
        return (
            f"{subject} computes {slower} longer than the other nodes of its last {plural(len(found.runs), 'run')}."
        )
    chance = "" if found.chance is None else f"; chance makes that so with a probability of {found.chance:.1g}"
    return (
        f"{subject} slows runs by {slower}: its last {plural(len(found.runs), 'run')} were slow, runs without it "
        f"were not{chance}."
    )


def summary(drift: DriftAnswer) -> str:
    """The first sentence about all runs."""
    if not drift.runs:
        return "No run was reported yet."
    changed = [group for group in drift.groups if group.changed_at is not None]
    found = f"{plural(drift.runs, 'run')} reported"
    if drift.suspects:
        found += f"; {plural(len(drift.suspects), 'slow part')} suspected"
    return f"{found}; {plural(len(changed), 'group')} changed." if changed else f"{found}; no group changed."


def effect_lines(offered: RecalibrationAnswer) -> tuple[str, ...]:
    """Changes that a calibration on offer would make."""
    span = f"{moment(offered.oldest)} to {moment(offered.newest)}"
    fit = offered.calibration.fit
    return (
        f"fitted to {plural(offered.runs, 'run')}, {span}",
        *(() if fit is None else error_lines(fit)),
        *map(_job_line, offered.jobs),
    )


def _job_line(effect: JobEffectAnswer) -> str:
    now = f"{effect.job} on {effect.cluster}: {seconds(effect.step_time_s)} a step as planned"
    if effect.new_step_time_s is None:
        return f"{now}; a node of it is out of order, so it is not predicted anew"
    return f"{now}, {seconds(effect.new_step_time_s)} with it ({off(effect.new_step_time_s / effect.step_time_s)})"
