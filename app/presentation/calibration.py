"""A calibration in words and figures, the same on the terminal and in a page."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from app.documents.calibration import CalibrationDocument, FitDocument, ParameterDocument, PatternDocument, ToldBy
from app.presentation.figures import percent, plural
from cluster_models.wording import named
from solver.fitting.report import Explanation

LARGE: Final = 0.15
"""Mean error from which the fit is worth a remark."""
NAMED: Final = 6
"""Outliers that are named; the document has all."""
_EXPLAINED: Final = {
    Explanation.NOTHING: "The runs differ in nothing from what is taken without them that would predict other runs "
    "better: the values stay, with intervals that rest on these runs.",
    Explanation.FACTOR: "All runs are slower or faster by one factor; more parameters would predict runs that were "
    "left out no better for sure.",
    Explanation.PARAMETERS: "These parameters predict runs that were left out better than one factor does.",
}


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
        line = f"peak memory: {before} before, {after} now"
        if fit.memory_error_held_out_fraction is not None:
            line += f", {percent(fit.memory_error_held_out_fraction)} for peaks that the fit did not see"
        found.append(line)
    return tuple(found)


def finding_lines(fit: FitDocument) -> tuple[str, ...]:
    """Findings of the runs beside their parameters: how they differ, and which of them nothing explains."""
    found = [] if fit.explanation is None else [_EXPLAINED[fit.explanation]]
    if fit.outliers:
        runs = [f"{each.run} ({each.measured_over_predicted:.2g} times as predicted)" for each in fit.outliers]
        found.append(
            f"The fit does not explain {plural(len(runs), 'step')}: {named(runs, NAMED)}; check the "
            "unit and the configuration, and whether something disturbed them. They hardly count."
        )
    return (*found, *map(_pattern, fit.patterns), *_unexplained(fit), *fit.warnings)


def _pattern(each: PatternDocument) -> str:
    where = each.setting if each.threshold is None else f"{each.threshold:g} or more {each.setting}"
    also = f", or at {' or '.join(each.alike)}, by which these runs differ alike" if each.alike else ""
    return (
        f"{plural(each.runs, 'run')} with {where} {'takes' if each.runs == 1 else 'take'} "
        f"{each.measured_over_predicted:.2f} times as long as the fit says, the others "
        f"{each.others_measured_over_predicted:.2f} times: look at {each.mechanism}{also}."
    )


def _unexplained(fit: FitDocument) -> tuple[str, ...]:
    """Sentence where errors are large without a pattern."""
    error = fit.error_after_fraction
    if error is None or error < LARGE or fit.patterns or fit.outliers:
        return ()
    sentence = (
        f"Steps are still {percent(error)} off, by no setting of the runs: repeat one of them to see how far two "
        "steps of one configuration differ."
    )
    return (sentence,)


def not_told_lines(fit: FitDocument) -> tuple[str, ...]:
    """Parameters that the measurements do not tell, a line for each GPU kind and framework."""
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
