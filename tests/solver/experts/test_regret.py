"""Which map each layer takes where the choice of copies or the speed of links is not known."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.experts.regret import least_regret, regrets


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_no_map_by_itself_does_better(seed: int, terms: int, layers: int) -> None:
    """Under its worst term, the mixture of maps is at least as good as each of them in all layers."""
    seconds = np.random.default_rng(seed).lognormal(0.0, 0.2, (4, terms, layers))
    chosen = least_regret(seconds, 2)
    reference = seconds[:2].sum(axis=2).min(axis=0)
    ours = (seconds[chosen, :, np.arange(layers)].sum(axis=0) / reference).max()
    assert ours <= max((seconds.sum(axis=2) / reference).max(axis=1).min(), 0.998) + 1e-12


@pytest.mark.parametrize("seed", range(10))
def test_the_mixture_is_near_the_best_of_all(seed: int) -> None:
    """Over all ways to mix three maps in six layers, none keeps its worst term lower by more than 1 %."""
    seconds = np.random.default_rng(seed).lognormal(0.0, 0.1, (3, 4, 6))
    reference = seconds[:2].sum(axis=2).min(axis=0)
    layers = np.arange(6)

    def worst(chosen: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> float:
        return float((seconds[chosen, :, layers].sum(axis=0) / reference).max())

    best = min(worst(np.array(each)) for each in product(range(3), repeat=6))
    assert worst(least_regret(seconds, 2)) <= max(1.01 * best, 0.998)


def test_one_term_gives_each_layer_its_fastest_map() -> None:
    """With a known choice and speed nothing is traded between layers."""
    seconds = np.random.default_rng(1).random((3, 1, 20)) + 1.0
    assert (least_regret(seconds, 2) == seconds[:, 0].argmin(axis=0)).all()
    assert regrets(seconds)[least_regret(seconds, 2), np.arange(20)] == pytest.approx(np.ones(20))
