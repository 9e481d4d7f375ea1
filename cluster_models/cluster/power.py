"""Rates of a GPU under a power cap, and the power that it draws at work.

A cap lowers the clock until the board draws no more.  How much slower work gets is measured
(``data/power_curves.toml``): about the same share of the rate at the same share of the board's power on every GPU
that was measured, more for work that matrix products fill than for work that memory does.  Kinds that nobody
measured take the mean of the measured ones for the first, and for the second the losses of the RTX 3090 times
``MEMORY_LOSS``, which meets the one point there is of a data centre GPU.
"""

from __future__ import annotations

import tomllib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from typing import Final

from cluster_models.cluster.gpus import GpuKind, Precision
from cluster_models.errors import InvalidWorkload

CAP_SHARES: Final = (0.85, 0.7, 0.6)
"""Caps that planners choose from, as shares of the board's power; below them rates fall faster than power."""
LEAST_SHARE: Final = 0.5
"""The lowest cap priced, as a share of the board's power: below it measured GPUs differ by more than half."""
MEMORY_LOSS: Final = 2.2
"""Loss of memory-bound work on an A100 at 0.7 of its power, 6.3 %, over that of the RTX 3090 there, 2.9 %."""
GRID: Final = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SHAPE: Final = "RTX 3090"


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """Shares of the rate without a cap (compute, memory) at rising ``caps``, shares of the board's power."""

    caps: tuple[float, ...]
    compute: tuple[float, ...]
    memory: tuple[float, ...]
    source: str

    def compute_share(self, cap: float) -> float:
        """Share of its rate that work filled by matrix products keeps."""
        return interpolated(cap, self.caps, self.compute)

    def memory_share(self, cap: float) -> float:
        """Share of its rate that reading from memory keeps."""
        return interpolated(cap, self.caps, self.memory)


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """One table of ``data/power_curves.toml``; ``compute`` or ``memory`` empty where it was not measured."""

    kind: str
    caps: tuple[float, ...]
    compute: tuple[float, ...]
    memory: tuple[float, ...]
    source: str


@cache
def measured_curves() -> dict[str, MeasuredCurve]:
    """All published curves by the name of their GPU."""
    text = resources.files("cluster_models").joinpath("data", "power_curves.toml").read_text("utf-8")
    return {
        name: MeasuredCurve(
            kind=entry.get("kind", ""),
            caps=tuple(entry["cap"]),
            compute=tuple(entry.get("compute", ())),
            memory=tuple(entry.get("memory", ())),
            source=entry["source"],
        )
        for name, entry in tomllib.loads(text).items()
    }


@cache
def power_curve(kind: str) -> PowerCurve:
    """The curve of a GPU kind: its own where it was measured, else that of the measured ones."""
    curves = measured_curves().values()
    own = [each for each in curves if each.kind == kind]
    compute = [each for each in own if each.compute] or [each for each in curves if each.compute]
    memory = [each for each in own if each.memory and each.caps[0] <= LEAST_SHARE]
    shape, loss = (memory[0], 1.0) if memory else (measured_curves()[SHAPE], MEMORY_LOSS)
    whole = own and own[0] in compute and own[0] in memory
    rates = [sum(interpolated(cap, each.caps, each.compute) for each in compute) / len(compute) for cap in GRID]
    losses = [loss * (1.0 - interpolated(cap, shape.caps, shape.memory)) for cap in GRID]
    return PowerCurve(
        caps=GRID,
        compute=tuple(rates),
        memory=tuple(max(rate, 1.0 - lost) for rate, lost in zip(rates, losses, strict=True)),
        source=f"measured: {own[0].source}" if whole else "estimated: from the GPUs that were measured",
    )


@dataclass(frozen=True, slots=True)
class CappedKind(GpuKind):
    """A kind under a power cap: ``peak_flops`` are lowered as much as what it sustains, ``rated_flops`` are not."""

    rated_flops: dict[Precision, float] = field(default_factory=dict, hash=False)

    def clock_flops(self, precision: Precision) -> float:
        """Peak without the cap: work that draws little power keeps its clock."""
        return self.rated_flops[precision]


def cap_share(gpu: GpuKind, cap_watts: float | None) -> float:
    """Share of the board's power that a cap leaves, 1 without one that may bind.

    Raises ``InvalidWorkload`` for a cap that is lower than can be priced.
    """
    if cap_watts is None or cap_watts >= gpu.power_watts:
        return 1.0
    if cap_watts < (least := LEAST_SHARE * gpu.power_watts):
        raise InvalidWorkload(
            "workload.gpu_power_cap_watts",
            cap_watts,
            f"is below {LEAST_SHARE:.0%} of the {gpu.power_watts:g} W of {gpu.name}, the least priced",
            f"give at least {least:g}",
        )
    return cap_watts / gpu.power_watts


def capped(gpu: GpuKind, cap_watts: float | None) -> GpuKind:
    """The kind as fast at full power as under a power cap, which is then its power.

    Raises as ``cap_share`` does.
    """
    cap = cap_share(gpu, cap_watts)
    if cap_watts is None or cap == 1.0:
        return gpu
    curve = power_curve(gpu.name)
    compute = curve.compute_share(cap)
    own = {each.name: getattr(gpu, each.name) for each in fields(GpuKind)}
    lowered = {
        "power_watts": cap_watts,
        "peak_flops": {precision: compute * flops for precision, flops in gpu.peak_flops.items()},
        "memory_bytes_per_s": curve.memory_share(cap) * gpu.memory_bytes_per_s,
    }
    return CappedKind(**own | lowered, rated_flops=gpu.peak_flops)


def interpolated(at: float, xs: Sequence[float], ys: Sequence[float]) -> float:
    """Straight lines between points of rising ``xs``, flat beyond the ends."""
    right = bisect_left(xs, at)
    if right == 0:
        return ys[0]
    if right == len(xs):
        return ys[-1]
    share = (at - xs[right - 1]) / (xs[right] - xs[right - 1])
    return ys[right - 1] + share * (ys[right] - ys[right - 1])
