"""Errors of groups held out: what rows that were not fitted may and may not change."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.accuracy import OWN_TABLE
from benchmarks.fit import select
from benchmarks.held_out import held_out_errors


def test_rows_that_were_not_fitted_are_predicted_but_tell_nothing() -> None:
    """The others' errors are those without them; as fitted rows they would pull the others' parameters."""
    measured = select([OWN_TABLE], None, None)
    fitted, unfitted = measured[:4], measured[4:6]
    alone, beside, all_fitted = (
        held_out_errors(fitted),
        held_out_errors(fitted, unfitted),
        held_out_errors([*fitted, *unfitted]),
    )
    assert len(beside.sweep) == 6
    assert beside.shipped == pytest.approx(all_fitted.shipped)
    assert beside.sweep[:4] == pytest.approx(alone.sweep, abs=1e-9)
    assert np.abs(all_fitted.sweep[:4] - alone.sweep).max() > 1e-4
