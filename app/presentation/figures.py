"""Quantities as a reader wants them: a unit that fits the size, three or four digits that matter."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from cluster_models.training.plan import Confidence
from cluster_models.units import GBYTE, GIB, KIB, MIB, MICROSECOND, MILLISECOND, TFLOP

_BINARY: Final = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
NOT_KNOWN = "\N{EN DASH}"
"""Mark in place of a figure that is not known yet."""


def seconds(value: float | None) -> str:
    """A duration in the largest of s, ms and µs that keeps it at least 1."""
    if value is None or not math.isfinite(value):
        return NOT_KNOWN
    for size, unit in ((1.0, "s"), (MILLISECOND, "ms")):
        if abs(value) >= size:
            return f"{_digits(value / size)} {unit}"
    return "0 s" if value == 0 else f"{_digits(value / MICROSECOND)} µs"


def duration(value_s: float) -> str:
    """Seconds as people say them: "40 s", "2 min 30 s", "1 h 5 min", "3 days"."""
    whole = max(0, round(value_s))
    for size, unit, less, lesser in ((86_400, "day", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            most, rest = whole // size, whole % size // less
            named = f"{most} {unit}s" if unit == "day" and most != 1 else f"{most} {unit}"
            return f"{named} {rest} {lesser}" if rest and most < 10 else named
    return f"{whole} s"


def interval_name(confidence: Confidence) -> str:
    """Name of the range in which a step is expected: "80 % interval"."""
    return f"{percent(confidence.level, places=0)} interval"


def interval(confidence: Confidence) -> str:
    """The range in which a step is expected: "25.1 s to 29.8 s"."""
    return f"{seconds(confidence.step_low_s)} to {seconds(confidence.step_high_s)}"


def round_seconds(value: float) -> str:
    """A round duration for an axis: "2 s", "0.5 s", "250 ms"."""
    for size, unit in ((0.1, "s"), (1e-4, "ms")):
        if value >= size:
            return f"{value if unit == 's' else value / MILLISECOND:.6g} {unit}"
    return f"{value / MICROSECOND:.6g} µs" if value else "0 s"


def gib(value: float | None) -> str:
    """Bytes as binary gigabytes."""
    return NOT_KNOWN if value is None else f"{value / GIB:.2f} GiB"


def data_bytes(value: float) -> str:
    """The size of a message in the largest binary unit that keeps it at least 1: "256 MiB"."""
    size, unit = next(((size, unit) for size, unit in _BINARY if value >= size), (1, "bytes"))
    return f"{value / size:.3g} {unit}"


def gbytes_per_s(value: float | None) -> str:
    """A bandwidth in decimal gigabytes per second, the unit that measuring tools print."""
    return NOT_KNOWN if value is None else f"{_digits(value / GBYTE)} GB/s"


def tflops(value: float | None) -> str:
    """A rate of arithmetic in 10^12 FLOP per second."""
    return NOT_KNOWN if value is None else f"{_digits(value / TFLOP)} TFLOP/s"


def percent(share: float | None, *, places: int = 1) -> str:
    """A share of 1 as a percentage."""
    return NOT_KNOWN if share is None else f"{100 * share:,.{places}f} %"


def ratio(value: float | None) -> str:
    """A share of one with three places."""
    return NOT_KNOWN if value is None else f"{value:.3f}"


def capital(text: str) -> str:
    """The first letter large, the rest as it is: names of nodes stay."""
    return text[:1].upper() + text[1:]


def count(value: float | None) -> str:
    """A whole number with its thousands apart."""
    return NOT_KNOWN if value is None else f"{value:,.0f}"


def spans(numbers: Iterable[int], *, dash: str = "\N{EN DASH}") -> str:
    """Whole numbers with neighbours joined: 0, 1, 2, 5 becomes "0–2, 5"."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}{dash}{last}" for first, last in runs)


def plural(number: int, noun: str) -> str:
    """A count with its noun: "1 node", "3 nodes"."""
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def _digits(value: float) -> str:
    """Four significant digits at most, and no exponent for the sizes that occur."""
    magnitude = abs(value)
    places = 0 if magnitude >= 1000 else 1 if magnitude >= 100 else 2 if magnitude >= 10 else 3
    return f"{value:,.{places}f}"
