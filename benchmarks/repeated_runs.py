"""Outputs of several runs of one benchmark as one: the median of each figure, and how far it ranged."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

NUMBER: Final = re.compile(r"(?<![\w.,])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")
"""A figure that stands alone: digits inside words (tp4, n01) are names."""


def merged(runs: Sequence[Sequence[str]]) -> tuple[list[str], list[str]]:
    """Lines with the median of each figure, and those with ``lowest..highest`` where runs differ.

    The number of runs is odd, so that every median was printed by one of them.  Lines in which more than figures
    differs stand in the second list as each run printed them; where runs have other numbers of lines, all do.
    """
    first = runs[0]
    if any(len(lines) != len(first) for lines in runs):
        return list(first), [f"run {number}: {line}" for number, run in enumerate(runs, 1) for line in run]
    medians, ranges = [], []
    for same in zip(*runs, strict=True):
        if len({_words(line) for line in same}) > 1:
            medians.append(same[0])
            ranges += [f"run {number}: {' '.join(line.split())}" for number, line in enumerate(same, 1)]
            continue
        columns = list(zip(*(NUMBER.findall(line) for line in same), strict=True))
        ordered = [sorted(figures, key=_value) for figures in columns]
        medians.append(_with(same[0], [figures[len(figures) // 2] for figures in ordered]))
        if any(_value(figures[0]) != _value(figures[-1]) for figures in ordered):
            spans = [low if low == high else f"{low}..{high}" for low, *_, high in ordered]
            ranges.append(_with(re.sub(r" {2,}", "  ", same[0].strip()), spans))
    return medians, ranges


def _words(line: str) -> str:
    """The line without its figures, however wide they are."""
    return " ".join(NUMBER.sub("#", line).split())


def _value(figure: str) -> float:
    return float(figure.replace(",", ""))


def _with(line: str, figures: Sequence[str]) -> str:
    """``line`` with other figures, each ending where the old one did as far as there are blanks before it."""
    made, end = "", 0
    for old, new in zip(NUMBER.finditer(line), figures, strict=True):
        between, wider = line[end : old.start()], len(new) - len(old.group())
        if wider > 0 and between.endswith(" " * (wider + 1)):
            between = between[:-wider]
        made, end = made + between + new.rjust(len(old.group())), old.end()
    return made + line[end:]
