"""Candidates with the activations of layers in the nodes' memory: of the numbers allowed the least that fits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cluster_models.training.offload import offloaded_layers
from solver.candidates import IntArray
from solver.degrees.memory_mixes import NOTHING
from solver.problem import PlanningProblem

if TYPE_CHECKING:
    from solver.degrees.mix_choice import MixedRows, Tried


def numbers_of_layers(problem: PlanningProblem) -> IntArray:
    """Numbers of layers, increasing, whose activations may wait; without 0."""
    every = offloaded_layers(problem.workload, problem.architecture.layers)
    return np.array([count for count in every if count], dtype=np.int64)


def waiting(tried: Tried) -> MixedRows:
    """All with the activations of the fewest layers offloaded with which they fit, or of the most."""
    numbers = numbers_of_layers(tried.problem)
    low, high = (np.full(len(tried.batch), place, dtype=np.int64) for place in (0, len(numbers) - 1))
    while (low < high).any():
        middle = (low + high) // 2
        fits = tried.offloading_layers(numbers[middle]).plain_excess_bytes() <= 0
        low, high = np.where(fits, low, np.minimum(middle + 1, high)), np.where(fits, middle, high)
    found = tried.offloading_layers(numbers[high])
    return found.rows_with(NOTHING, np.arange(len(high)), found.plain_excess_bytes())


def only_waiting(tried: Tried) -> MixedRows:
    """Rows that fit so, and not with none offloaded."""
    found = waiting(tried)
    own = (found.excess_bytes <= 0) & (tried.plain_excess_bytes() > 0)
    return replace(
        found, candidate=found.candidate[own], batch=found.batch.take(own), excess_bytes=found.excess_bytes[own]
    )
