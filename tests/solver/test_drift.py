"""Runs that became slower are told from runs that vary."""

from __future__ import annotations

import numpy as np
import pytest

from solver.fitting.drift import drift_of


@pytest.mark.parametrize(("runs", "changed"), [(24, 12), (40, 33), (300, 101)])
def test_a_change_is_found_where_it_is(runs: int, changed: int) -> None:
    """At most two runs off, with the medians before and after."""
    for seed in range(10):
        values = 0.02 * np.random.default_rng(seed).standard_normal(runs) + 0.1
        values[changed:] += np.log(1.1)
        drift = drift_of(values.tolist())
        assert drift.changed_at is not None
        assert abs(drift.changed_at - changed) <= 2
        assert drift.after / drift.before == pytest.approx(1.1, rel=0.03)  # type: ignore[operator]  # both are told


def test_what_only_varies_has_not_changed() -> None:
    """Chance makes a change of fewer than one of twenty series."""
    found = [drift_of((0.1 * np.random.default_rng(seed).standard_normal(40)).tolist()) for seed in range(200)]
    assert sum(each.changed_at is not None for each in found) <= 10


@pytest.mark.parametrize("runs", [1, 2, 5])
def test_few_runs_have_a_median_and_no_change(runs: int) -> None:
    """Nothing can be told of a handful."""
    drift = drift_of([0.2] * runs)
    assert (drift.runs, drift.changed_at) == (runs, None)
    assert drift.ratio == pytest.approx(np.exp(0.2))
