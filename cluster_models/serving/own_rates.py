"""Rates of serving engines as own measured points tell them, beside the shipped ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

FIGURES: Final = ("token", "first_token", "throughput")
"""Figures of a measured point: seconds per output token and to the first, requests a second of the deployment."""


@dataclass(frozen=True, slots=True)
class FittedServing:
    """Rates of one engine generation on one kind of GPU, as ``points`` measured ones tell.

    ``factors`` are what quantities of ``solver.serving.rates`` are multiplied by; of a share s, s / (1 - s) is.
    ``spreads`` by figure: |log(measured / predicted)| within which four unseen points in five lay.
    """

    factors: Mapping[str, float] = field(hash=False)
    spreads: Mapping[str, float] = field(hash=False)
    points: int


@dataclass(frozen=True, slots=True)
class OwnRates:
    """Rates of one engine by GPU kind, of the calibration ``label`` (name and content hash)."""

    label: str
    by_gpu: Mapping[str, FittedServing] = field(hash=False)
