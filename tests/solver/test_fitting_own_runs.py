"""Own runs of frameworks that nobody measured: what is found in them, and what keeps a fit from doing harm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from cluster_models.calibration.fitted import FittedParameters, FittedValue
from cluster_models.calibration.training_run import TrainingRun
from cluster_models.training.frameworks import framework
from solver.candidates import FloatArray
from solver.costs.calibration import PARAMETERS, Owner, calibration_of, shipped_parameters
from solver.fitting.beliefs import SITES, beliefs_of
from solver.fitting.explanations import Trial, chosen, credibility, is_better
from solver.fitting.own_runs import fit_own_steps
from solver.fitting.posterior import Posterior, Prior, Rows, most_probable
from solver.fitting.report import Explanation, FitReport
from solver.fitting.unknowns import COMMON_FACTOR, Unknown, kind_itself
from solver.runs import predict_runs
from tests.solver.test_fitting import KIND, measured, run

STRANGE = replace(framework("nemo-25.02"), name="ours", measured_as="")


def strange(each: TrainingRun) -> TrainingRun:
    """The run under a framework of which nothing was measured."""
    return replace(each, workload=replace(each.workload, framework=STRANGE))


RUNS = [strange(run(*shape)) for shape in product((1024, 2048, 4096, 8192), (1, 2, 8), (1, 4))]


def made_with(**values: float) -> FittedParameters:
    """Parameters of the GPU kind and of the framework that nobody measured."""
    tables: dict[Owner, dict[str, FittedValue]] = {Owner.GPU: {}, Owner.FRAMEWORK: {}}
    for name, value in values.items():
        tables[PARAMETERS[name].owner][name] = FittedValue(value, value, value, 0)
    return FittedParameters({KIND: tables[Owner.GPU]}, {STRANGE.name: tables[Owner.FRAMEWORK]}, "truth")


def error_on(runs: Sequence[TrainingRun], parameters: FittedParameters | None) -> float:
    """Mean absolute relative error of the runs' steps."""
    predictions = predict_runs(runs, parameters)
    return float(
        np.mean([abs(p.step_s / (each.step_s or 1.0) - 1) for each, p in zip(runs, predictions, strict=True)])
    )


def told(report: FitReport) -> set[str]:
    """The parameters that the runs tell."""
    return {each.unknown.parameter for each in report.unknowns if each.told}


def test_overheads_that_are_usually_zero_are_found() -> None:
    """A framework whose host is late in tensor collectives and once a step: unseen runs are met from twelve."""
    made = measured(RUNS, made_with(tensor_host_s=2e-3, step_overhead_s=0.2), noise=0.02)
    learnt, unseen = made[::2], made[1::2]
    report = fit_own_steps(learnt)
    assert report.explanation is Explanation.PARAMETERS
    assert "tensor_host_s" in told(report)
    assert error_on(unseen, report.parameters) < min(0.06, 0.3 * error_on(unseen, None))


def test_one_factor_is_enough_where_all_is_slower_alike() -> None:
    """Steps 1.4 times as long need one parameter, whose interval holds the truth."""
    made = measured(RUNS, made_with(slowdown=1.4), noise=0.03)
    report = fit_own_steps(made[::3])
    assert report.explanation is Explanation.FACTOR
    (value,) = report.parameters.frameworks[STRANGE.name].values()
    assert value.low < 1.4 < value.high
    assert error_on(made[1::3], report.parameters) < 0.05


def test_runs_as_predicted_change_nothing() -> None:
    """Noise alone leaves the values as they were, and says how well they are known."""
    made = measured(RUNS, made_with(), noise=0.05)
    report = fit_own_steps(made[::2])
    assert report.explanation is Explanation.NOTHING
    assert told(report) == {COMMON_FACTOR}
    value = report.parameters.frameworks[STRANGE.name][COMMON_FACTOR]
    assert value.low < 1.0
    assert value.value == 1.0
    assert error_on(made[1::2], report.parameters) == pytest.approx(error_on(made[1::2], None), rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_few_runs_never_make_it_worse(seed: int) -> None:
    """Five noisy runs of a framework like others, two of them stalled: unseen runs are met no worse than before."""
    made = measured(RUNS, made_with(), noise=0.1, seed=seed)
    order = np.random.default_rng(seed).permutation(len(made))
    learnt = [made[i] for i in order[:5]]
    learnt[:2] = [replace(each, step_s=4.0 * (each.step_s or 1.0)) for each in learnt[:2]]
    unseen = [made[i] for i in order[5:]]
    assert error_on(unseen, fit_own_steps(learnt).parameters) < error_on(unseen, None) + 0.005


def test_outliers_are_named_and_take_credit_alone() -> None:
    """Three of twelve runs stalled: they are the outliers and pull nothing, but runs so scattered count less."""
    made = measured(RUNS, made_with(slowdown=1.4), noise=0.02)
    learnt = made[::2]
    for i in (1, 4, 9):
        learnt[i] = replace(learnt[i], step_s=5.0 * (learnt[i].step_s or 1.0))
    report = fit_own_steps(learnt)
    assert report.outliers == (1, 4, 9)
    found = report.parameters.frameworks[STRANGE.name][COMMON_FACTOR].value
    assert 1.2 < found < 1.4
    assert error_on(made[1::2], report.parameters) < 0.12 < error_on(made[1::2], None)


def test_runs_are_believed_as_far_as_they_agree() -> None:
    """Predictions stray by 10 % of themselves: one run that strays as much counts for half of what was known."""
    agreeing, scattered = np.full(5, 0.01), np.array([-0.29, -0.22, -0.25, -0.01, 0.02])
    assert credibility(agreeing, 5) > 0.9
    assert credibility(scattered, 5) < 0.5 < credibility(np.tile(scattered, 12), 60) < 0.95
    assert credibility(np.array([0.06, -0.06, 0.055]), 1) == pytest.approx(0.5, abs=0.05)


def test_a_single_run_sets_the_factor_alone() -> None:
    """One configuration tells how fast all is, and no mechanism."""
    made = measured(RUNS[:1], made_with(slowdown=1.5))
    report = fit_own_steps([*made, *made])
    assert told(report) == {COMMON_FACTOR}
    assert error_on(made, report.parameters) < 0.15


def test_a_repeated_run_is_no_unseen_one() -> None:
    """Every configuration run twice: neither predicts the other, and both count as little more than one."""
    made = measured(RUNS[:5], made_with(slowdown=1.4), noise=0.1)
    once = fit_own_steps(made, [COMMON_FACTOR])
    twice = fit_own_steps([*made, *made], [COMMON_FACTOR], groups=[f"r{i}" for i in range(2 * len(made))])
    assert np.abs(twice.errors_held_out).mean() > 0.98 * np.abs(once.errors_held_out).mean()
    assert once.parameters.errors is not None
    assert twice.parameters.errors is not None
    assert twice.parameters.errors.runs == once.parameters.errors.runs == len(made)


def test_repetitions_of_one_run_tell_nothing_of_unseen_ones() -> None:
    """Ten of them are met by the factor, yet make no interval: none was predicted without the others."""
    made = measured(RUNS[:1], made_with(slowdown=1.5))
    report = fit_own_steps(10 * made, groups=[f"r{i}" for i in range(10)])
    assert report.parameters.errors is None
    assert np.isnan(report.errors_held_out).all()


def test_what_others_measured_is_known_better_than_what_nobody_did() -> None:
    """A fitted share strays by its interval and between sites; that of a strange framework as frameworks do."""
    runs = [run(), RUNS[0]]
    unknowns = [Unknown(Owner.FRAMEWORK, name, "kernel_share") for name in ("nemo-25.02", STRANGE.name)]
    overhead = Unknown(Owner.FRAMEWORK, STRANGE.name, "tensor_host_s")
    known, new, switched = beliefs_of(
        [*unknowns, overhead],
        runs,
        shipped_parameters(),
        prior_of=lambda each: calibration_of(each.gpu, each.workload.framework),
        kind_name=kind_itself,
    ).values()
    assert SITES < known.spread < new.spread
    assert switched.switched
    assert switched.to_value(switched.middle) == 0.0
    assert switched.to_value(-1.0) == 0.0 < switched.to_value(1.0)


@dataclass(frozen=True)
class Hidden:
    """Steps of 1 s of which an overhead is hidden until it takes longer: measured 3 s, at 2 s for each unit."""

    def residuals(self, free: FloatArray, rows: Rows | None = None) -> FloatArray:
        """log(max(1, 2 u) / 3) of six like runs."""
        return np.full(6 if rows is None else len(rows), np.log(max(1.0, 2.0 * float(free[0])) / 3.0))

    def linearised(self, free: FloatArray) -> tuple[FloatArray, FloatArray]:
        """With the derivative to the right."""
        here = self.residuals(free)
        return here, ((self.residuals(free + 0.01) - here) / 0.01)[:, None]


def test_a_second_start_finds_what_has_no_derivative_at_zero() -> None:
    """From zero nothing can be seen; from where the overhead shows the truth is found."""
    prior = Prior(np.zeros(1), np.full(1, 2.5), np.zeros(1))
    stuck = most_probable(Hidden(), prior, [np.zeros(1)])
    found = most_probable(Hidden(), prior, [np.zeros(1), np.full(1, 3.0)])
    assert stuck.free[0] == 0.0
    assert found.free[0] == pytest.approx(1.5, rel=0.02)


def test_without_a_run_the_point_is_that_of_the_others() -> None:
    """The linear form without a stray run gives what solving without it gives."""

    @dataclass(frozen=True)
    class Line:
        aims: FloatArray

        def residuals(self, free: FloatArray, rows: Rows | None = None) -> FloatArray:
            found = float(free[0]) - self.aims
            return found if rows is None else found[rows]

        def linearised(self, free: FloatArray) -> tuple[FloatArray, FloatArray]:
            return self.residuals(free), np.ones((len(self.aims), 1))

    aims = np.array([0.1, 0.12, 0.11, 0.5])
    prior = Prior(np.zeros(1), np.ones(1), np.full(1, -np.inf))
    every = most_probable(Line(aims), prior, [np.zeros(1)])
    others = most_probable(Line(aims[:3]), prior, [np.zeros(1)])
    assert every.without(np.array([3]), prior) == pytest.approx(others.free, abs=1e-3)


def trial(explanation: Explanation, errors: FloatArray) -> Trial[Any]:
    """An explanation by the errors of runs that it did not see."""
    fitted = Posterior(np.zeros(0), np.zeros(0), 0.15, errors, np.zeros((len(errors), 0)))
    return Trial(explanation, (), fitted, errors)


def test_a_framework_far_off_everywhere_is_brought_nearer() -> None:
    """Errors fall from 70 to 40 % and more, two of ten runs stall tenfold: it is taken all the same."""
    stalled = np.array([2.3, 2.4])
    off = np.append(np.log(1.0 - np.linspace(0.66, 0.74, 8)), -stalled)
    nearer = np.append(np.log(1.0 - np.linspace(0.44, 0.36, 8)), -1.05 * stalled)
    trials = [trial(Explanation.NOTHING, off), trial(Explanation.FACTOR, nearer)]
    assert chosen(trials).explanation is Explanation.FACTOR
    assert chosen(trials[::-1]).explanation is Explanation.FACTOR


def test_a_few_runs_of_another_mechanism_explain_nothing() -> None:
    """Four of ten runs are brought from 55 to 10 %, and the six that were met lose: taken of forty runs alone."""
    well = np.array([0.02, -0.01, 0.03, 0.05, -0.04, 0.01])
    off = np.append(well, np.log([0.4, 0.45, 0.5, 0.55]))
    nearer = np.append(well + np.sign(well) * 0.05, np.log([0.85, 0.9, 0.95, 1.05]))
    for times, taken in ((1, Explanation.NOTHING), (4, Explanation.PARAMETERS)):
        before = trial(Explanation.NOTHING, np.tile(off, times))
        after = trial(Explanation.PARAMETERS, np.tile(nearer, times))
        assert is_better(after, before)
        assert chosen([before, after]).explanation is taken
