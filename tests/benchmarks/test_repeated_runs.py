"""Several runs of one benchmark as one output."""

from __future__ import annotations

from benchmarks.repeated_runs import merged


def test_each_figure_is_the_median_and_its_range_is_told() -> None:
    """Names with digits stay, equal figures have no range, and columns stay where they were."""
    runs = [
        ["   128  tp4 dp8   9.9 s  proven", "same 1,024 nodes"],
        ["   128  tp4 dp8  12.5 s  proven", "same 1,024 nodes"],
        ["   128  tp4 dp8  10.1 s  proven", "same 1,024 nodes"],
    ]
    medians, ranges = merged(runs)
    assert medians == ["   128  tp4 dp8  10.1 s  proven", "same 1,024 nodes"]
    assert ranges == ["128  tp4 dp8  9.9..12.5 s  proven"]


def test_lines_that_say_something_else_stand_as_they_were_printed() -> None:
    """A run that ended otherwise is not a figure to take the median of."""
    medians, ranges = merged([["gap 0.5 % proven"], ["gap 0.7 % time_limit"], ["gap 0.5 % proven"]])
    assert medians == ["gap 0.5 % proven"]
    assert ranges == ["run 1: gap 0.5 % proven", "run 2: gap 0.7 % time_limit", "run 3: gap 0.5 % proven"]


def test_runs_of_other_lengths_all_stand_there() -> None:
    """Nothing is merged that may not belong together."""
    assert merged([["a 1"], ["a 1", "b 2"], ["a 1"]])[1] == ["run 1: a 1", "run 2: a 1", "run 2: b 2", "run 3: a 1"]


def test_figures_of_science_signs_and_shares_are_figures() -> None:
    """Figures as benchmarks print them: 4.7e+21, -0.5 %, 1.2% and 3/s."""
    assert merged([["4.7e+21 -0.5 % 1.2% 30/s"], ["4.9e+21 +0.5 % 1.4% 32/s"], ["4.8e+21 +0.1 % 1.3% 31/s"]]) == (
        ["4.8e+21 +0.1 % 1.3% 31/s"],
        ["4.7e+21..4.9e+21 -0.5..+0.5 % 1.2..1.4% 30..32/s"],
    )
