"""Which map each layer takes where the choice of copies or the speed of links is not known."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.candidates import FloatArray
from solver.experts.regret import least_regret, lost, regrets


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=20)
def test_no_map_by_itself_does_better(seed: int, terms: int, layers: int) -> None:
    """The mixture of maps loses no more than each of them in all layers."""
    seconds = np.random.default_rng(seed).lognormal(0.0, 0.2, (4, terms, layers))
    chosen = least_regret(seconds, 2)
    reference = seconds[:2].sum(axis=2).min(axis=0)
    ours = lost(seconds[chosen, :, np.arange(layers)].sum(axis=0) / reference)
    assert ours <= lost(seconds.sum(axis=2) / reference).min() * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_the_mixture_is_near_the_best_of_all(seed: int) -> None:
    """Over all ways to mix three maps in six layers, none loses less by more than 2 %."""
    seconds = np.random.default_rng(seed).lognormal(0.0, 0.1, (3, 4, 6))
    reference = seconds[:2].sum(axis=2).min(axis=0)
    layers = np.arange(6)

    def beside(chosen: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> FloatArray:
        return np.asarray(seconds[chosen, :, layers].sum(axis=0) / reference)

    best = min(float(lost(beside(np.array(each)))) for each in product(range(3), repeat=6))
    assert lost(beside(least_regret(seconds, 2))) <= 1.02 * best


def test_terms_that_contradict_each_other_are_behind_in_few() -> None:
    """One map is ahead under four of five terms and behind under one, the other the reverse: the four count."""
    ahead, behind = np.full((1, 4, 3), 0.9), np.full((1, 1, 3), 1.1)
    maps = [np.concatenate([ahead, behind], axis=1), np.concatenate([ahead + 0.2, behind - 0.2], axis=1)]
    chosen = least_regret(np.concatenate([np.ones((1, 5, 3)), *maps]), 1)
    assert (chosen != 2).all()


def test_one_term_gives_each_layer_its_fastest_map() -> None:
    """With a known choice and speed nothing is traded between layers."""
    seconds = np.random.default_rng(1).random((3, 1, 20)) + 1.0
    assert (least_regret(seconds, 2) == seconds[:, 0].argmin(axis=0)).all()
    assert regrets(seconds)[least_regret(seconds, 2), np.arange(20)] == pytest.approx(np.ones(20))
