"""The files that ``benchmarks.fit`` writes: equal fits give equal text."""

from __future__ import annotations

from typing import Final

from cluster_models.calibration.fitted import FittedParameters, FittedValue
from solver.costs.calibration import Owner
from solver.costs.differences import DifferenceError
from solver.fitting.families import Families

DIGITS: Final = 3
"""Significant digits of what is written."""


def fitted_text(parameters: FittedParameters) -> str:
    """The text of fitted.toml: sorted, rounded to three significant digits."""
    lines = [
        "# Parameters fitted on published measurements, written by `python -m benchmarks.fit`; do not edit.",
        "# value, 90 % interval, and the number of rows that tell it.",
        f'source = "{parameters.source}"',
    ]
    for owner, tables in ((Owner.GPU, parameters.gpus), (Owner.FRAMEWORK, parameters.frameworks)):
        for name, values in sorted(tables.items()):
            lines += ["", f'[{owner}."{name}"]']
            lines += [f"{parameter} = {_inline(value)}" for parameter, value in sorted(values.items())]
    return "\n".join(lines) + "\n"


def _inline(value: FittedValue) -> str:
    figures = (float(f"{each:.{DIGITS}g}") for each in (value.value, value.low, value.high))
    body = ", ".join(f"{name} = {figure!r}" for name, figure in zip(("value", "low", "high"), figures, strict=True))
    return f"{{ {body}, steps = {value.steps} }}"


def confidence_text(known: Families, differences: DifferenceError) -> str:
    """The text of confidence.toml.

    Errors and ranges by family, what differences of configurations are known to, and the runs of each GPU kind and
    framework.
    """
    lines = [
        "# How far predictions were off on published training steps that were not fitted, and what these cover;",
        "# written by `python -m benchmarks.fit`; do not edit.  Errors are log(measured / predicted).",
    ]
    for title, counts in (("kinds", known.kinds), ("frameworks", known.frameworks)):
        lines += ["", f"[{title}]"]
        lines += [f'"{name}" = {count}' for name, count in counts.items()]
    lines += ["", "[kinds_of]", *(f'"{name}" = {list(kinds)!r}' for name, kinds in known.kinds_of.items())]
    lines += ["", "[widening]", f"per_doubling = {known.per_doubling:.3f}"]
    lines += [f"per_overhead = {known.per_overhead:.3f}"]
    lines += [
        "",
        "[differences]",
        f"settings = {differences.settings:.3f}",
        f"doubling = {differences.doubling:.3f}",
    ]
    lines += [f"pairs = {differences.pairs}", f"sweeps = {differences.sweeps}"]
    for name, family in known.families.items():
        spread = family.spread
        quantiles = ", ".join(f"{each} = {getattr(spread, each):.3f}" for each in ("p10", "p50", "p90"))
        extents = ", ".join(f"{each} = [{low}, {high}]" for each, (low, high) in family.extents.items())
        choices = ", ".join(
            f"{each} = [{', '.join(f'{value!r}' for value in values)}]" for each, values in family.choices.items()
        )
        lines += [
            "",
            f'[families."{name}"]',
            f"errors = {{ {quantiles}, runs = {spread.runs} }}",
            f"independent = {family.independent:.1f}",
            f"overhead = {family.overhead:.2f}",
            f"extents = {{ {extents} }}",
            f"choices = {{ {choices} }}",
        ]
    return "\n".join(lines) + "\n"
