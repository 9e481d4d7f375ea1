"""Power that a GPU draws as it serves, a share of its board's; estimated for all but two kinds.

    P / board = min(1, floor + experts + memory U + compute V^exponent)

U is the share of its memory bandwidth that it uses on average, V the share of its dense peak; ``experts`` counts
where the model has some.  Constants and what they miss on runs held out: ``data/power_draw.toml``; the law is
applied in ``solver.serving.power``.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class DrawLaw:
    """Constants of the law; the spreads hold four runs in five, of measured ``kinds`` and of others."""

    floor: float
    experts: float
    memory: float
    compute: float
    exponent: float
    model_spread: float
    kind_spread: float
    kinds: tuple[str, ...]
    source: str

    def share(self, memory: FloatArray, compute: FloatArray, has_experts: BoolArray | bool) -> FloatArray:
        """Shares of the board's power at shares of memory bandwidth and peak."""
        drawn = self.floor + self.experts * np.asarray(has_experts) + self.memory * memory
        return np.asarray(np.minimum(drawn + self.compute * compute**self.exponent, 1.0))

    def spread(self, kind: str) -> float:
        """Logarithm of the factor that four runs in five on ``kind`` lie within."""
        return self.model_spread if kind in self.kinds else self.kind_spread


@cache
def draw_law() -> DrawLaw:
    """The law as measured."""
    text = resources.files("cluster_models").joinpath("data", "power_draw.toml").read_text("utf-8")
    entries = tomllib.loads(text)
    return DrawLaw(**{**entries, "kinds": tuple(entries["kinds"])})
