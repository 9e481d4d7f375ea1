"""Every map of a few experts, tried one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.balance import slowest_load
from solver.experts.layout import ExpertLayout


def every_map(experts: int, layout: ExpertLayout) -> Iterator[IntArray]:
    """(G, s) each map without two copies of an expert on a rank, of equal ranks one order only."""
    contents = list(itertools.combinations(range(experts), layout.slots_per_rank))
    if len(set(layout.speeds)) <= 1:
        choices: Iterator[tuple[tuple[int, ...], ...]] = itertools.combinations_with_replacement(
            contents, layout.ranks
        )
    else:
        choices = itertools.product(contents, repeat=layout.ranks)
    for held in choices:
        if len(set(itertools.chain.from_iterable(held))) == experts:
            yield np.array(held)


def least_slowest(shares: FloatArray, layout: ExpertLayout) -> float:
    """The load of the slowest rank under the best map of one layer."""
    return min(float(slowest_load(shares[None, :], held, layout)[0]) for held in every_map(len(shares), layout))
