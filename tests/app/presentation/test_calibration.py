"""Sentences about a fit, as the terminal and the page show them."""

from __future__ import annotations

from app.documents.calibration import (
    CalibrationDocument,
    FitDocument,
    OutlierDocument,
    ParameterDocument,
    PatternDocument,
    ToldBy,
)
from app.presentation.calibration import NAMED, finding_lines, outcome_lines
from solver.fitting.report import Explanation


def test_what_is_missing_is_a_sentence() -> None:
    """The setting, both ratios, what to look at, and what cannot be told apart from it."""
    pattern = PatternDocument(
        setting="pipeline stages",
        threshold=4,
        runs=7,
        measured_over_predicted=1.42,
        others_measured_over_predicted=0.98,
        mechanism="transfers between stages",
        alike=["nodes"],
    )
    (sentence,) = finding_lines(FitDocument(patterns=[pattern]))
    assert sentence == (
        "7 runs with 4 or more pipeline stages take 1.42 times as long as the fit says, the others 0.98 times: "
        "look at transfers between stages, or at nodes, by which these runs differ alike."
    )


def test_many_outliers_are_counted() -> None:
    """The worst are named, the others counted."""
    outliers = [OutlierDocument(run=f"r{i}", measured_over_predicted=9.0 - i / 10) for i in range(NAMED + 2)]
    (sentence,) = finding_lines(FitDocument(outliers=outliers))
    assert "does not explain 8 steps: r0 (9 times as predicted)" in sentence
    assert "and 2 more" in sentence


def test_large_errors_without_a_pattern_ask_for_a_repetition() -> None:
    """Only where nothing else is said of them."""
    (sentence,) = finding_lines(FitDocument(error_after_fraction=0.3))
    assert "repeat one of them" in sentence
    assert finding_lines(FitDocument(error_after_fraction=0.05)) == ()


def calibration(explanation: Explanation, **names: float) -> CalibrationDocument:
    """A calibration of 20 runs by parameters with these values."""
    fitted = {
        name: ParameterDocument(value=value, low=value, high=value, steps=20, before=value, told_by=ToldBy.RUNS)
        for name, value in names.items()
    }
    fit = FitDocument(
        runs=20,
        explanation=explanation,
        error_before_fraction=0.63,
        error_held_out_fraction=0.39,
        memory_error_before_fraction=0.27,
        memory_error_held_out_fraction=0.195,
    )
    return CalibrationDocument(name="ours", frameworks={"our-megatron": fitted}, fit=fit)


def test_the_outcome_says_what_changed_and_what_unseen_runs_make_of_it() -> None:
    """Parameters of steps and of memory are counted apart."""
    fitted = calibration(Explanation.PARAMETERS, slowdown=1.1, layer_host_s=1e-3, fragmentation_share=0.1)
    steps, memory = outcome_lines(fitted)
    assert steps.startswith("Step times: 2 parameters fitted.")
    assert "39.0 % off on average, 63.0 % before" in steps
    assert memory.startswith("Peak memory: 1 parameter fitted.")


def test_the_outcome_says_that_nothing_changed() -> None:
    """The factor that stays 1 is not a change."""
    steps, memory = outcome_lines(calibration(Explanation.NOTHING, slowdown=1.0))
    assert steps.startswith("Step times: nothing changed.")
    assert memory.startswith("Peak memory: nothing changed.")
