"""Fits of serving rates against runs made with known ones."""

from __future__ import annotations

import numpy as np

from cluster_models.serving.engines import serving_engine
from cluster_models.serving.workload import ServingWorkload, WeightFormat, Worker
from solver.serving.cases import arrays_of
from solver.serving.fitting import Measured, fit_rates, predicted_figures
from solver.serving.rates import QUANTITIES, Fitted, level_names, rates_of
from tests.solver.serving.cases import case

TRUE = {
    "memory_share": {"all": -0.3, "gpu:H100-SXM5-80GB": 0.4},
    "layer_s": {"all": 0.5, "engine:vllm-0.16": -0.3},
    "compute_share": {"all": -0.4},
    "interference": {"all": 0.1},
}


def test_a_fit_finds_what_the_runs_were_made_with() -> None:
    """Predictions of the fitted rates are within a percent in the median, and off by many before."""
    cases = [
        case(
            "llama-3.1-70b",
            gpu=gpu,
            worker=Worker(tensor=tensor),
            workload=ServingWorkload(
                inputs, 512, concurrency, weights=WeightFormat.FP8, engine=serving_engine(engine)
            ),
        )
        for gpu in ("H100", "H200")
        for engine in ("vllm-0.16", "trtllm-1.2")
        for tensor in (2, 4, 8)
        for inputs in (512, 4096)
        for concurrency in (1, 8, 32)
    ]
    arrays, properties = arrays_of(cases), [each.properties for each in cases]
    figures = predicted_figures(arrays, rates_of(properties, TRUE))
    measured = Measured(arrays, properties, figures, np.ones(len(cases)))
    before = np.abs(predicted_figures(arrays, rates_of(properties, {})) / figures - 1.0)
    after = np.abs(predicted_figures(arrays, rates_of(properties, fit_rates(measured))) / figures - 1.0)
    assert np.median(before[:, 0]) > 0.05
    assert np.median(after[:, 0]) < 0.01
    assert np.quantile(after, 0.9) < 0.05


def test_an_unseen_gpu_has_what_is_common() -> None:
    """Levels without an effect count nothing, so only the common one and those of the engine are left."""
    known = {"gpu": "H200-SXM-141GB", "engine": "vllm-0.16"}
    unseen = {"gpu": "none", "engine": "vllm-0.16"}
    effects = {"layer_s": {"all": 0.2, "gpu:H200-SXM-141GB": 1.0, "engine:vllm-0.16": 0.1}}
    both = rates_of([known, unseen], effects).layer_s
    np.testing.assert_allclose(both, QUANTITIES["layer_s"].prior * np.exp([1.3, 0.3]))


def test_unmeasured_models_and_pairs_have_effects_of_their_own() -> None:
    """A case is near where its model and its engine on its GPU were measured, and far where either was not."""
    near, far = {"step_s": {"all": 0.5}}, {"step_s": {"all": -0.5}}
    fitted = Fitted(near, far, frozenset({"model:m", "engine@gpu:e@g"}))
    cases = [{"model": model, "engine": "e", "gpu": gpu} for model, gpu in (("m", "g"), ("n", "g"), ("m", "h"))]
    prior = QUANTITIES["step_s"].prior
    np.testing.assert_allclose(rates_of(cases, fitted).step_s, prior * np.exp([0.5, -0.5, -0.5]))


def test_crossed_levels_need_all_their_properties() -> None:
    """engine@gpu exists where both are known; empty properties give no level."""
    names = level_names(QUANTITIES["memory_share"], {"gpu": "A", "engine": "e", "format": ""})
    assert names == ("all", "gpu:A", "engine:e", "engine@gpu:e@A")


def test_shares_stay_shares() -> None:
    """However far effects push them."""
    rates = rates_of([{}, {}], {"memory_share": {"all": 50.0}})
    assert (rates.memory_share <= 1.0).all()
    assert (rates_of([{}], {"memory_share": {"all": -50.0}}).memory_share >= 0.0).all()
