"""A calibration in words and figures, the same on the terminal and in a page."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from app.documents.calibration import CalibrationDocument, FitDocument, ParameterDocument, PatternDocument, ToldBy
from app.presentation.figures import percent, plural
from cluster_models.wording import named
from solver.fitting.explanations import FEWEST_FOR_CHOICE, SURELY
from solver.fitting.report import Explanation
from solver.fitting.unknowns import MEMORY_PARAMETERS

LARGE: Final = 0.15
"""Mean error from which the fit is worth a remark."""
NAMED: Final = 6
"""Outliers that are named; the document has all."""


_SERVED: Final = {
    Explanation.NOTHING: "Its rates stay: no fit surely predicts points better that it did not see.",
    Explanation.FACTOR: "Decode steps and prefills are slower or faster by a factor each.",
    Explanation.PARAMETERS: "These rates surely predict points better that the fit did not see.",
}
_FIGURES: Final = {
    "token": "time per output token",
    "first_token": "time to first token",
    "throughput": "throughput",
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
    """Every parameter, those of GPU kinds first; of serving engines, factors over the shipped rates."""
    return tuple(
        ParameterLine(
            owner=name,
            parameter=parameter,
            before="" if each.before is None else plain(each.before),
            value=plain(each.value),
            interval=f"{plain(each.low)} to {plain(each.high)}",
            told_by=_told_by(each),
        )
        for table in (
            document.gpus,
            document.frameworks,
            {name: each.factors for name, each in document.serving.items()},
        )
        for name, entry in table.items()
        for parameter, each in entry.items()
    )


def outcome_lines(document: CalibrationDocument) -> tuple[str, ...]:
    """Changes by the runs, with the errors of runs that the fit did not see; nothing without runs."""
    fit = document.fit
    if fit is None:
        return ()
    told = [
        parameter
        for table in (document.gpus, document.frameworks)
        for entry in table.values()
        for parameter, each in entry.items()
        if each.told_by is ToldBy.RUNS
    ]
    of_memory = sum(parameter in MEMORY_PARAMETERS for parameter in told)
    found, tested = [], fit.runs >= FEWEST_FOR_CHOICE
    if fit.explanation is not None and fit.error_before_fraction is not None:
        changes = {
            Explanation.NOTHING: "",
            Explanation.FACTOR: "one factor on all steps of a framework",
            Explanation.PARAMETERS: plural(len(told) - of_memory, "parameter"),
        }
        errors = fit.error_before_fraction, fit.error_held_out_fraction
        found.append(_outcome("Step times", changes[fit.explanation], errors, tested=tested))
    if fit.memory_error_before_fraction is not None:
        changed = plural(of_memory, "parameter") if of_memory else ""
        errors = fit.memory_error_before_fraction, fit.memory_error_held_out_fraction
        found.append(_outcome("Peak memory", changed, errors, tested=tested))
    return tuple(found)


def _outcome(what: str, changed: str, errors: tuple[float, float | None], *, tested: bool) -> str:
    before, unseen = errors
    if not changed:
        return (
            f"{what}: nothing changed. Predictions are {percent(before)} off on average; no fit is better on runs "
            f"that it did not see, with {percent(SURELY)} confidence."
        )
    if unseen is None or not tested:
        off = f"predictions were {percent(before)} off"
        return f"{what}: {changed} fitted, untested, for too few configurations; {off}."
    return (
        f"{what}: {changed} fitted. Runs that the fit did not see are predicted {percent(unseen)} off on average, "
        f"{percent(before)} before."
    )


def serving_lines(document: CalibrationDocument) -> tuple[str, ...]:
    """For each engine on a kind of GPU how far its figures were off and are now, and points not explained."""
    found = []
    for name, each in document.serving.items():
        engine, _, gpu = name.rpartition("@")
        errors = ", ".join(
            f"{_FIGURES[figure]} {percent(error.before_fraction)} before, {percent(error.after_fraction)} now, "
            f"{percent(error.held_out_fraction)} for sweeps that the fit did not see"
            for figure, error in each.errors.items()
        )
        found.append(f"{engine} on {gpu}, {plural(each.points, 'point')}: mean error of {errors}.")
        if each.explanation is not None:
            found.append(_SERVED[each.explanation])
        if each.outliers:
            found.append(f"The fit does not explain {named(each.outliers, NAMED)}; they hardly count.")
    return tuple(found)


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
    """Findings of the runs beside their parameters: which of them nothing explains, and by what they differ."""
    found = []
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
        f"{each.measured_over_predicted:.3g} times as long as the fit says, the others "
        f"{each.others_measured_over_predicted:.3g} times: look at {each.mechanism}{also}."
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
