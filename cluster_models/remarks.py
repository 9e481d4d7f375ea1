"""Remarks about results: codes and figures that programs can filter; ``app.presentation.sentences`` words them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Figure = str | int | float | None | tuple[str, ...] | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing to know about a result.

    ``figures``: what its sentence says, in SI units, under the names that the sentence of ``code`` takes.
    """

    code: str
    figures: Mapping[str, Figure] = field(default_factory=dict, hash=False)


def remark(code: str, /, **figures: Figure) -> Remark:
    """The remark ``code``; ``tests/app/presentation/test_sentences.py`` compares ``figures`` with its sentence."""
    return Remark(code, figures)
