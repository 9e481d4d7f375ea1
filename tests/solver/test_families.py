"""Families of errors: runs of one unit count as few, and intervals hold for units never seen."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.coverage import (
    Coverage,
    coverage_text,
    found_coverage,
    held_out_coverage,
    sampling_errors,
    write_coverage,
)
from cluster_models.training.frameworks import framework
from solver.costs.confidence import LEVEL, Novelty
from solver.fitting.families import (
    error_spread,
    families_of,
    independence,
    intraclass_correlation,
    judged,
    per_doubling,
)
from solver.fitting.unseen import HeldOut, unit_of
from tests.solver.test_fitting import run


def held(units: int, each: int, *, between: float, within: float, seed: int = 0) -> list[HeldOut]:
    """``each`` runs of every framework, whose errors share an offset."""
    random = np.random.default_rng(seed)
    offsets = random.normal(0.0, between, units)
    return [
        HeldOut(run(), Novelty.FRAMEWORK, f"framework {unit}", "source", float(offset + random.normal(0.0, within)))
        for unit, offset in enumerate(offsets)
        for _ in range(each)
    ]


def test_units_weigh_the_same_and_are_worth_more_errors_the_less_theirs_correlate() -> None:
    """Equal errors in a unit: a correlation of 1 and one independent run each; none: about as many as there are."""
    units = [str(i) for i in range(40) for _ in range(5)]
    random = np.random.default_rng(0)
    together, apart = np.repeat(random.normal(size=40), 5), random.normal(size=200)
    assert intraclass_correlation(together, units) == pytest.approx(1.0)
    assert intraclass_correlation(apart, units) < 0.1
    assert independence(together, units).sum() == pytest.approx(40.0)
    assert independence(apart, units).sum() > 140
    uneven = independence(np.zeros(101), ["large"] * 100 + ["small"], correlation=0.1)
    assert uneven[:100].sum() == pytest.approx(uneven[100])


def test_generations_of_a_framework_err_together() -> None:
    """A family that is new, alone or on a GPU kind; a model and a kind are units of their own."""
    older, newer = (
        replace(run(), workload=replace(run().workload, framework=framework(name)))
        for name in ("nemo-24.07", "nemo-25.04")
    )
    for novelty in Novelty:
        assert unit_of(older, novelty) == unit_of(newer, novelty)
    assert unit_of(newer, Novelty.FRAMEWORK) == "nemo"
    assert unit_of(newer, Novelty.PAIR) == unit_of(newer, Novelty.BOTH) == "nemo on H100"


def test_a_large_unit_does_not_drown_the_others() -> None:
    """A hundred runs of one offset beside nine of others: the quantiles are those of ten units."""
    errors = np.concatenate([np.full(100, 0.5), np.linspace(-0.4, 0.4, 9)])
    units = ["large"] * 100 + [str(i) for i in range(9)]
    spread = error_spread(errors, independence(errors, units, correlation=0.0))
    assert spread.p50 == pytest.approx(0.05, abs=0.06)
    assert spread.p10 < -0.35


@pytest.mark.parametrize("between", [0.0, 0.2])
def test_intervals_hold_what_they_say_for_units_never_seen(between: float) -> None:
    """Whether frameworks differ or not, four of five runs of one left out lie inside what the others give."""
    inside = [
        each.is_inside(0.0)
        for seed in range(8)
        for each in judged(held(25, 8, between=between, within=0.05, seed=seed), Novelty.FRAMEWORK)
    ]
    assert np.mean(inside) == pytest.approx(LEVEL, abs=0.04)


def test_widening_holds_outside_of_the_ranges_too() -> None:
    """Errors that wander with hidden size: without widening too few large models are inside, with it enough."""
    random = np.random.default_rng(1)
    tests = [
        HeldOut(
            replace(run(), architecture=replace(run().architecture, hidden=int(hidden))),
            Novelty.MODEL,
            f"{hidden}",
            "source",
            float(random.normal(0.0, 0.05 * 4 ** np.log2(hidden / 2048))),
        )
        for hidden in np.repeat(2 ** np.arange(11, 17), 40)
    ]
    found = [each for each in judged(tests, Novelty.MODEL) if each.doublings > 0]
    widening = per_doubling(found)
    bare, wide = (np.mean([each.is_inside(step) for each in found]) for step in (0.0, widening))
    assert widening > 0
    assert bare < LEVEL <= wide + 0.05


def test_intervals_hold_for_configurations_full_of_guessed_overheads() -> None:
    """Steps that are the longer the more they hold beside products: four of five are below the upper end."""
    random = np.random.default_rng(2)
    tests = []
    for unit in range(12):
        for slower in 2.0 ** np.repeat(np.arange(5), 4):
            error = abs(float(random.normal(0.0, 0.05 + 0.2 * np.log2(slower))))
            made = replace(run(), step_s=float(slower * np.exp(error)))
            tests.append(HeldOut(made, Novelty.FRAMEWORK, f"framework {unit}", "source", error))
    known = families_of([], tests)
    full = [each for each in judged(tests, Novelty.FRAMEWORK) if each.overhead > 0]
    assert len(full) < len(tests)
    bare, wide = (np.mean([each.is_inside(0.0, step) for each in full]) for step in (0.0, known.per_overhead))
    assert bare < wide == pytest.approx(LEVEL, abs=0.02)


def test_coverage_is_told_by_what_was_held_out(tmp_path: Path) -> None:
    """A line for all and one for each framework; the file has them all."""
    tests = held(10, 4, between=0.1, within=0.05)
    found = held_out_coverage(tests, families_of([], tests))
    every = found[0]
    assert (every.held_out, every.name, every.runs) == ("framework", "all", 40)
    assert every.by_name == pytest.approx(np.mean([line.inside for line in found[1:]]))
    assert "framework 3" in coverage_text(found)
    write_coverage(found, tmp_path / "coverage.csv")
    assert len((tmp_path / "coverage.csv").read_text("utf-8").splitlines()) == 1 + len(found)


def test_the_shipped_intervals_hold_for_what_was_held_out() -> None:
    """From 75 to 90 % of runs of frameworks, GPU kinds, models and sources left out, within a standard error.

    A share of 13 kinds is known to 2 and 8 points: no nearer can the aim be met or missed.
    """
    found = found_coverage()
    every = {line.held_out: line for line in found if line.name == "all"}
    assert set(every) >= {"framework", "GPU kind", "model", "source"}
    for line in every.values():
        for share, error in zip((line.inside, line.by_name), sampling_errors(found, line.held_out), strict=True):
            assert 0.75 - error <= share <= 0.90 + error, line
            assert error < 0.08, line


def test_runs_of_one_name_are_no_independent_tests_of_intervals() -> None:
    """Two names of 100 runs, one inside and one outside, tell a share of half to no better than half."""
    lines = [Coverage("framework", name, 100, inside, inside, 2.0) for name, inside in (("a", 1.0), ("b", 0.0))]
    assert sampling_errors(lines, "framework") == pytest.approx((0.5, 0.5))
    assert all(map(math.isnan, sampling_errors(lines[:1], "framework")))
