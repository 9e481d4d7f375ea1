"""Sentences about a fit, as the terminal and the page show them."""

from __future__ import annotations

from app.documents.calibration import FitDocument, OutlierDocument, PatternDocument
from app.presentation.calibration import NAMED, finding_lines
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
    explained, sentence = finding_lines(FitDocument(explanation=Explanation.FACTOR, patterns=[pattern]))
    assert "one factor" in explained
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
