"""A calibration in words and figures, the same on the terminal and in a page."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from app.documents.calibration import CalibrationDocument, FitDocument, ParameterDocument, ToldBy
from app.presentation.figures import percent, plural


@dataclass(frozen=True, slots=True)
class ParameterLine:
    """One fitted parameter."""

    owner: str
    parameter: str
    before: str
    value: str
    interval: str
    told_by: str


def parameter_lines(document: CalibrationDocument) -> tuple[ParameterLine, ...]:
    """Every parameter, those of GPU kinds first."""
    return tuple(
        ParameterLine(
            owner=name,
            parameter=parameter,
            before="" if each.before is None else plain(each.before),
            value=plain(each.value),
            interval=f"{plain(each.low)} to {plain(each.high)}",
            told_by=_told_by(each),
        )
        for table in (document.gpus, document.frameworks)
        for name, entry in table.items()
        for parameter, each in entry.items()
    )


def error_lines(fit: FitDocument) -> tuple[str, ...]:
    """How far predictions were off, and are now."""
    found = []
    if fit.error_before_fraction is not None:
        line = f"{plural(fit.runs, 'step')}: {percent(fit.error_before_fraction)} before"
        if fit.error_after_fraction is not None:
            line += f", {percent(fit.error_after_fraction)} now"
        if fit.error_held_out_fraction is not None:
            line += f", {percent(fit.error_held_out_fraction)} for steps that the fit did not see"
        found.append(line)
    if fit.kernel_error_before_fraction is not None and fit.kernel_error_after_fraction is not None:
        before, after = percent(fit.kernel_error_before_fraction), percent(fit.kernel_error_after_fraction)
        found.append(f"{plural(fit.kernels, 'kernel')}: {before} before, {after} now")
    if fit.memory_error_before_fraction is not None and fit.memory_error_after_fraction is not None:
        before, after = percent(fit.memory_error_before_fraction), percent(fit.memory_error_after_fraction)
        found.append(f"peak memory: {before} before, {after} now")
    return tuple(found)


def not_told_lines(fit: FitDocument) -> tuple[str, ...]:
    """What the measurements do not tell, a line for each GPU kind and framework."""
    owners: dict[str, list[str]] = defaultdict(list)
    for each in fit.not_told:
        owner, _, parameter = each.rpartition(" ")
        owners[owner].append(parameter)
    return tuple(f"{owner}: {', '.join(parameters)}".removeprefix(": ") for owner, parameters in owners.items())


def plain(value: float) -> str:
    """A parameter with three digits."""
    return f"{value:.3g}"


def _told_by(each: ParameterDocument) -> str:
    return plural(each.steps, "run" if each.told_by is ToldBy.RUNS else "kernel")
