"""Rates of an engine on a kind of GPU from own measured points."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cluster_models.serving.own_rates import FIGURES, FittedServing, OwnRates
from cluster_models.serving.workload import ServingWorkload, WeightFormat, Worker
from solver.fitting.report import Explanation
from solver.serving.cases import ServingCase, arrays_of
from solver.serving.fitting import predicted_figures
from solver.serving.loads import FloatArray
from solver.serving.own_points import fit_points
from solver.serving.predict import predict_serving
from solver.serving.rates import rates_of
from tests.solver.serving.cases import case


def _sweeps() -> tuple[list[ServingCase], list[str]]:
    """Four loads of each of six workers."""
    cases, names = [], []
    for tensor in (1, 2, 4):
        for tokens in (512, 4096):
            for concurrency in (1, 8, 32, 128):
                load = ServingWorkload(tokens, 512, concurrency=concurrency, weights=WeightFormat.FP8)
                cases.append(case("llama-3.1-8b", worker=Worker(tensor=tensor), workload=load))
                names.append(f"{tensor} {tokens}")
    return cases, names


def _measured(cases: list[ServingCase], shift: dict[str, float], noise: float = 0.02) -> FloatArray:
    """Figures of cases whose rates are shifted, with errors of ``noise``."""
    rates = rates_of([each.properties for each in cases], shifts=[shift] * len(cases))
    figures = predicted_figures(arrays_of(cases), rates)
    return np.asarray(figures * np.exp(noise * np.random.default_rng(1).standard_normal(figures.shape)))


def test_points_that_are_as_predicted_change_nothing() -> None:
    """The shipped rates stay, and the intervals become those of the points."""
    cases, names = _sweeps()
    (fit,) = fit_points(cases, _measured(cases, {}), names).values()
    assert fit.explanation is Explanation.NOTHING
    assert fit.fitted.factors == {}
    assert all(fit.fitted.spreads[name] < 0.08 for name in FIGURES)


def test_slower_steps_are_found_as_a_factor() -> None:
    """Decode steps that take 1.5 times as long, within the interval; what was not seen is met."""
    cases, names = _sweeps()
    (fit,) = fit_points(cases, _measured(cases, {"decode_factor": np.log(1.5)}), names).values()
    found = fit.factors["decode_factor"]
    assert found.low < 1.5 < found.high
    assert np.abs(fit.held_out["token"]).mean() < 0.05 < np.abs(fit.before["token"]).mean()


def test_one_mechanism_is_told_from_a_factor() -> None:
    """Host work for each sequence, twenty times as long, slows large batches."""
    cases, names = _sweeps()
    (fit,) = fit_points(cases, _measured(cases, {"sequence_s": np.log(20.0)}), names).values()
    assert fit.explanation is Explanation.PARAMETERS
    assert fit.factors["sequence_s"].value > 5.0
    assert np.abs(fit.held_out["token"]).mean() < 0.3 * np.abs(fit.before["token"]).mean()


def test_a_gain_in_one_figure_is_no_excuse_for_another() -> None:
    """Times per token that are slower and throughputs that are faster contradict each other: nothing is fitted."""
    cases, names = _sweeps()
    figures = _measured(cases, {}) * np.array([1.5, np.nan, 1.5])
    (fit,) = fit_points(cases, figures, names).values()
    for name in ("token", "throughput"):
        assert np.abs(np.expm1(fit.held_out[name])).mean() <= 1.1 * np.abs(np.expm1(fit.before[name])).mean()


def test_predictions_use_own_rates_of_their_engine_and_gpu() -> None:
    """Longer by the factor, with the interval of the points, and only on that kind."""
    one = case()
    own = OwnRates("ours 1", {one.gpu.name: FittedServing({"decode_factor": 2.0}, {"token": 0.1}, 12)})
    shipped, fitted = predict_serving(one), predict_serving(replace(one, own=own))
    assert fitted.token_s.value > 1.5 * shipped.token_s.value
    assert fitted.token_s.high == pytest.approx(fitted.token_s.value * np.exp(0.1))
    assert fitted.measured_engine
    other = case(gpu="H200")
    assert predict_serving(replace(other, own=own)) == predict_serving(other)
