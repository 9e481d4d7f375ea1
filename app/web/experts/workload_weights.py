"""Workloads of routing statistics and what each weighs, as lines of a box: ``decode = 2``, or a name alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.web.forms import number
from cluster_models.errors import InvalidInput


def weights_of(text: str, *, field: str) -> dict[str, Any]:
    """Weights by name, 1 where a line gives none; what does not read as a number is left for the documents.

    Raises ``InvalidInput`` on ``field`` for a name in two lines.
    """
    found: dict[str, Any] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        left, sign, right = (part.strip() for part in line.rpartition("="))
        name, weight = (left, number(right)) if sign else (line, 1)
        if name in found:
            raise InvalidInput(field, name, f"{name!r} stands in two lines", "leave one of them out")
        found[name] = weight
    return found


def weight_lines(weights: Mapping[str, float] | Iterable[str]) -> str:
    """The lines of the box for these weights, all alike where there are only names."""
    pairs = weights.items() if isinstance(weights, Mapping) else ((name, 1) for name in weights)
    return "\n".join(f"{name} = {weight:g}" for name, weight in pairs)
