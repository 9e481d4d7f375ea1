"""How far ahead a decision is worth weighing: until the next failures make another one."""

from __future__ import annotations

from collections.abc import Sequence


def expected_quiet_s(failures_s: Sequence[float], *, now_s: float, since_s: float) -> float:
    """Expected seconds until the next batch of failures, from those seen between ``since_s`` and ``now_s``.

    ``failures_s``: when each batch was; alike moments count once.  The time looked at over the batches seen (the
    likeliest mean gap where batches come at random at one rate, docs/replanning.md); infinite where none was.
    """
    seen = {moment for moment in failures_s if since_s <= moment <= now_s}
    return (now_s - since_s) / len(seen) if seen else float("inf")
