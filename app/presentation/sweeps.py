"""A sweep of supposed failures in words and figures, the same on the terminal and in a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.presentation.figures import count, plural
from app.services.decisions.sweeps import SweepRecord
from cluster_models.wording import joined

IMPACT_COLUMNS: Final = (
    "fails",
    "tokens/s lost",
    "requests/s lost",
    "GPU-hours at most",
    "must move",
    "not covered",
    "spares taken",
)


def impact_cells(
    name: str, losses: Sequence[float], names: Sequence[Sequence[str]], error: str | None
) -> tuple[str, ...]:
    """The cost of one failure as a line of a table with ``IMPACT_COLUMNS``."""
    if error is not None:
        return name, "", "", "", "", error, ""
    tokens, requests, gpu_hours = losses
    return name, count(tokens), count(requests), f"{gpu_hours:,.1f}", *map(joined, names)


def sweep_words(sweep: SweepRecord) -> str:
    """How far a sweep is, and what to beware of."""
    told = [f"{sweep.answered} of {plural(sweep.failures, 'failure')} answered, {sweep.status}."]
    if sweep.refused:
        told.append(f"{plural(sweep.refused, 'failure')} could not be answered.")
    if sweep.changed:
        told.append(
            "Cluster, jobs, spares, settings or reports changed meanwhile: ask again for answers from one state."
        )
    return " ".join(told)
