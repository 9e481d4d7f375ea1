"""Power that a step draws, and how a cap slows the steps that would draw more.

A step's work at the rates of data sheets, m seconds of reads and f of products, over its own seconds are the shares
that the law of ``cluster_models.cluster.draw`` takes.  A cap lowers the clock only where the step draws more: then
its products and reads keep the rates that were measured at cap / draw (``cluster_models.cluster.power``), products
for f / (m + f) of its work.  Launches and links keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from cluster_models.cluster.draw import DrawLaw, draw_law
from cluster_models.cluster.power import GRID
from solver.serving.loads import FloatArray, Loads
from solver.serving.rates import QUANTITIES, Rates

if TYPE_CHECKING:
    from solver.serving.steps import StepTime

NOTHING_S: Final = 1e-30
FACTORS: Final = ("decode_factor", "prefill_factor")
Step = Callable[[Loads, Rates], "StepTime"]


def drawn_share(loads: Loads, memory: FloatArray, compute: FloatArray, law: DrawLaw | None = None) -> FloatArray:
    """Shares (n,) of the board's power that GPUs without a cap draw at shares of memory bandwidth and peak."""
    return (law or draw_law()).share(memory, compute, loads.sparse_layers > 0)


def work_s(step: Step, loads: Loads) -> tuple[FloatArray, FloatArray]:
    """Seconds (n,) of a step's reads alone and its products alone, at data sheet rates and with even experts."""
    endless, one = np.full_like(loads.dense_peak, np.inf), np.ones_like(loads.dense_peak)
    even = replace(loads, imbalance=np.zeros_like(one), power_cap=one)
    peaks = dict.fromkeys(("dense_peak", "expert_peak", "attention_peak"), endless)
    nothing = {name: NOTHING_S * one for name, each in QUANTITIES.items() if not each.is_share}
    ideal = Rates(**dict.fromkeys(QUANTITIES, one) | nothing | dict.fromkeys(FACTORS, one))
    reads, products = (
        step(own, ideal) for own in (replace(even, **peaks), replace(even, memory_bytes_per_s=endless))
    )
    return _roofline_s(reads), _roofline_s(products)


def under_cap(step: StepTime, loads: Loads, again: Step) -> StepTime:
    """``step`` as long as the power caps of its GPUs make it; ``again`` prices it with other loads and rates."""
    if (loads.power_cap >= 1.0).all():
        return step
    reads_s, products_s = work_s(again, loads)
    drawn = drawn_share(loads, reads_s / step.total_s, products_s / step.total_s)
    kept = np.minimum(loads.power_cap / drawn, 1.0)
    compute, memory = (_at(kept, rates) for rates in (loads.capped_compute, loads.capped_memory))
    products = products_s / np.maximum(reads_s + products_s, NOTHING_S)
    longer = products / compute + (1.0 - products) / memory
    return replace(step, **{name: getattr(step, name) * longer for name in ("dense_s", "expert_s", "attention_s")})


def _roofline_s(step: StepTime) -> FloatArray:
    return np.asarray(step.dense_s + step.expert_s + step.attention_s)


def _at(shares: FloatArray, rates: FloatArray) -> FloatArray:
    """Rates (n, ``GRID``) at ``shares`` (n,), straight lines between points of equal distance, flat below them."""
    place = np.clip((shares - GRID[0]) / (GRID[1] - GRID[0]), 0.0, len(GRID) - 1.0)
    left = np.minimum(place.astype(np.int64), len(GRID) - 2)
    rows = np.arange(len(shares))
    return np.asarray(rates[rows, left] + (place - left) * (rates[rows, left + 1] - rates[rows, left]))
