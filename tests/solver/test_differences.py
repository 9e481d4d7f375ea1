"""How well two configurations are known against each other."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from benchmarks.differences import difference_error_of
from cluster_models.training.plan import Degrees
from solver.candidates import CandidateBatch
from solver.costs.differences import HALF_WIDTH, DifferenceError, difference_error, doublings, drawn_errors
from tests.solver.cost_cases import candidates
from tests.solver.test_fitting import run

SHAPES = candidates(
    {"tensor": 1, "pipeline": 8, "data": 2},
    {"tensor": 1, "pipeline": 8, "data": 2, "micro_batch": 4},
    {"tensor": 4, "pipeline": 2, "data": 2},
)


def test_doublings_count_shapes_and_not_settings() -> None:
    """Another micro-batch is no other shape; from tp1 pp8 to tp4 pp2 it is two doublings and two halvings."""
    assert doublings(SHAPES, 0).tolist() == [0.0, 0.0, 4.0]


def test_a_lead_says_the_less_the_more_configurations_differ() -> None:
    """Equal predictions leave it open; a lead of the half width is wrong once in ten; farther apart more often."""
    error = DifferenceError(settings=0.1, doubling=0.2, pairs=1, sweeps=1)
    assert error.chance_faster(0.0, 3.0) == 0.5
    assert error.chance_faster(0.1, 0.0) == pytest.approx(0.1)
    assert error.chance_faster(0.1, 4.0) > 0.3
    slower = error.slower_at(0.4, np.array([0.0, 4.0]))
    assert [error.chance_faster(each, apart) for each, apart in zip(slower, (0.0, 4.0), strict=True)] == (
        pytest.approx([0.4, 0.4])
    )


def test_drawn_errors_differ_as_measured_ones_do() -> None:
    """The standard deviation of each difference is that of the error of its distance."""
    drawn = drawn_errors(SHAPES, draws=40_000, seed=3)
    error = difference_error()
    for first, second, apart in ((0, 1, 0.0), (0, 2, 4.0)):
        spread = float((drawn[:, first] - drawn[:, second]).std())
        assert spread == pytest.approx(float(error.half_width(apart)) / HALF_WIDTH, rel=0.03)
    assert (drawn == drawn_errors(SHAPES, draws=40_000, seed=3)).all()


def test_the_error_of_differences_is_found_in_sweeps() -> None:
    """Sweeps made with a known error give it back; what is common to a sweep does not count, nor a lone run."""
    random = np.random.default_rng(5)
    runs, errors, sweeps = [], [], []
    for sweep in range(60):
        common = random.normal(0.0, 0.5)
        walk = np.cumsum(random.normal(0.0, 0.1 / HALF_WIDTH, 4))
        for (power, tensor), micro_batch in product(enumerate((1, 2, 4, 8)), (1, 2)):
            each = run(tensor=tensor, micro_batch=micro_batch)
            error = common + walk[power] + random.normal(0.0, 0.04 / HALF_WIDTH / np.sqrt(2))
            runs.append(replace(each, step_s=float(np.exp(-error))))  # all predicted to take a second
            errors.append(error)
            sweeps.append(f"sweep {sweep}")
    found = difference_error_of([*runs, run()], [*errors, 0.0], [*sweeps, ""])
    assert found is not None
    assert found.sweeps == 60
    assert found.settings == pytest.approx(0.04, rel=0.25)
    assert found.doubling == pytest.approx(0.1, rel=0.25)
    assert difference_error_of(runs[:2], errors[:2], sweeps[:2]) is None


def test_shapes_are_what_a_plan_calls_its_degrees() -> None:
    """The sizes counted are degrees of a plan and columns of a batch."""
    assert {"tensor", "pipeline", "context", "expert"} <= set(Degrees.__slots__) & set(CandidateBatch.__slots__)
