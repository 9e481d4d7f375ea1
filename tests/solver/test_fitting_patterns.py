"""Patterns of errors: a mechanism that is missing is found by the setting it goes with, and chance makes none."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from cluster_models.cluster.gpus import Precision
from solver.fitting.patterns import patterns_of
from tests.solver.test_fitting import run

RUNS = [
    replace(each, workload=replace(each.workload, precision=precision))
    for precision in (Precision.BF16, Precision.FP8)
    for each in (run(*shape) for shape in product((2048, 4096, 8192), (1, 2, 4, 8), (1, 2)))
]


def noise(seed: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Errors of 3 %."""
    return np.random.default_rng(seed).normal(0.0, 0.03, len(RUNS))


def test_an_overhead_of_tensor_ranks_is_named() -> None:
    """Steps with four tensor ranks or more take 1.4 times as long as predicted."""
    late = np.array([each.configuration.degrees.tensor >= 4 for each in RUNS])
    first, *others = patterns_of(RUNS, noise(0) - late * np.log(1.4))
    assert (first.setting, first.threshold, first.runs) == ("tensor ranks", 4.0, late.sum())
    assert first.ratio / first.other_ratio == pytest.approx(1.4, rel=0.05)
    assert "tensor parallel collectives" in first.mechanism
    assert "data ranks" in first.alike
    assert not others


def test_two_mechanisms_are_told_apart() -> None:
    """A slow format and slow large models: one pattern each, the stronger first."""
    fp8 = np.array([each.workload.precision is Precision.FP8 for each in RUNS])
    large = np.array([each.architecture.hidden >= 8192 for each in RUNS])
    first, second = patterns_of(RUNS, noise(1) - fp8 * np.log(1.6) - large * np.log(1.25))
    assert first.setting in {"precision fp8", "precision bf16"}
    assert first.choice
    assert second.setting == "elements of the hidden state"


@pytest.mark.parametrize("seed", range(5))
def test_noise_has_no_pattern(seed: int) -> None:
    """Errors that go with no setting are none, large ones as little as small ones."""
    assert patterns_of(RUNS, noise(seed)) == ()
    assert patterns_of(RUNS, 8.0 * noise(seed)) == ()


def test_few_runs_have_none() -> None:
    """Five runs are too few to be cut in two."""
    assert patterns_of(RUNS[:5], np.array([0.0, 0.0, -0.5, -0.5, -0.5])) == ()
