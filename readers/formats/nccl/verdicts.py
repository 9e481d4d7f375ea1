"""Verdict on a test of nccl-tests once all of its lines are read: operation, ranks, ending.

The bus bandwidth over the algorithm bandwidth is, for n ranks, 2(n-1)/n for all_reduce, (n-1)/n for all_gather,
reduce_scatter, alltoall, gather and scatter, and 1 for the others (PERFORMANCE.md of nccl-tests); the size column
is n times the count column, in bytes, for those with (n-1)/n, and the count itself for the others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Final

from readers.formats.nccl.rows import Row
from readers.frame.facts import Operation, RunEnd
from readers.frame.findings import Finding, doubt, reject

PROGRAMS: Final = {
    "all_reduce": Operation.ALL_REDUCE,
    "all_gather": Operation.ALL_GATHER,
    "reduce_scatter": Operation.REDUCE_SCATTER,
    "alltoall": Operation.ALL_TO_ALL,
    "sendrecv": Operation.SEND_RECV,
    "broadcast": Operation.BROADCAST,
    "reduce": Operation.REDUCE,
    "gather": Operation.GATHER,
    "scatter": Operation.SCATTER,
    "hypercube": Operation.HYPERCUBE,
}
"""Programs of nccl-tests without their ``_perf``."""
_WORDS: Final = (
    ("reducescatter", Operation.REDUCE_SCATTER),
    ("allreduce", Operation.ALL_REDUCE),
    ("allgather", Operation.ALL_GATHER),
    ("alltoall", Operation.ALL_TO_ALL),
    ("sendrecv", Operation.SEND_RECV),
    ("broadcast", Operation.BROADCAST),
    ("hypercube", Operation.HYPERCUBE),
)
_SPREAD: Final = frozenset(
    {Operation.ALL_GATHER, Operation.REDUCE_SCATTER, Operation.ALL_TO_ALL, Operation.GATHER, Operation.SCATTER}
)
"""Their size is the number of ranks times their count."""
_UNSTEADY: Final = 0.7
_STEADY_FROM_BYTES: Final = 1 << 20
_WARM_UP: Final = 3.0
_AVERAGE_ERROR: Final = 0.01


def named_operation(name: str) -> Operation | None:
    """The operation that a file's name tells; ``None`` where it tells none or several."""
    plain = re.sub(r"[^a-z]", "", name.lower())
    found = [operation for word, operation in _WORDS if word in plain]
    return found[0] if len(found) == 1 else None


def guessed_operation(rows: Sequence[Row], ranks: int | None) -> Operation | None:
    """The only operation whose columns look like these; ``None`` where two or more do."""
    largest = _largest(rows)
    if largest is None or not largest.algorithm:
        return None
    ratio = largest.bus / largest.algorithm
    if ratio > 1.05:
        return Operation.ALL_REDUCE
    if largest.reduction not in {"", "none"} and 2 * largest.count * largest.type_bytes <= largest.size_bytes:
        return Operation.REDUCE_SCATTER  # all else that reduces counts the elements of the whole message
    if ratio < 0.95 or ranks == 1:
        return None
    if largest.root is not None and largest.root >= 0:
        return Operation.BROADCAST if largest.reduction in {"", "none"} else Operation.REDUCE
    return None


def guessed_ranks(operation: Operation, rows: Sequence[Row]) -> int | None:
    """The ranks that the figures of the largest row tell; ``None`` where they do not tell one number."""
    largest = _largest(rows)
    if largest is None:
        return None
    if operation in _SPREAD:
        unit = largest.count * largest.type_bytes
        return largest.size_bytes // unit if unit and largest.size_bytes % unit == 0 else None
    if operation is not Operation.ALL_REDUCE or largest.algorithm <= 0:
        return None
    ratio = largest.bus / largest.algorithm
    if not 0.9 < ratio < 1.999:
        return None
    ranks = 2 / (2 - ratio)
    # both bandwidths are rounded to 0.005, which moves the ratio r by up to 0.005 (1 + r) over the bandwidth
    error = 0.005 * (1 + ratio) / largest.algorithm * 2 / (2 - ratio) ** 2
    return round(ranks) if abs(ranks - round(ranks)) <= error < 0.4 else None


def disagrees(operation: Operation, rows: Sequence[Row], ranks: int) -> bool:
    """Whether the figures are those of another number of ranks."""
    guess = guessed_ranks(operation, rows)
    return guess is not None and guess != ranks


def recomputed_average(rows: Sequence[Row]) -> float | None:
    """Mean bus bandwidth over all rows, out of and in place, in gigabytes per second, as the tool forms it."""
    figures = [figure for row in rows for figure in (row.bus, row.in_place) if figure is not None]
    return math.fsum(figures) / len(figures) if figures else None


def lacks_rows(rows: Sequence[Row], stated: float | None) -> bool:
    """Whether the average printed counts rows that are not there; figures have two digits after the point."""
    mean = recomputed_average(rows)
    return mean is not None and stated is not None and abs(mean - stated) > 0.006 + _AVERAGE_ERROR * stated


def ending(
    *, rows: int, failure: str, elided: bool, partial: bool, concluded: bool, largest: int, most: int | None
) -> tuple[RunEnd, str]:
    """Ending of the test, and its reason; ``most`` is the largest size asked for, where the file says."""
    if failure:
        return RunEnd.FAILED, failure
    if not rows:
        return RunEnd.FAILED, "the table was begun and has no row"
    if elided or partial:
        return RunEnd.EXCERPT, "rows were left out" if elided else "the average counts rows that are not there"
    if concluded or (most is not None and largest >= most):
        return RunEnd.COMPLETE, ""
    return RunEnd.CUT, "the end of the test is not in the file"


def has_warm_up(rows: Sequence[Row]) -> bool:
    """Whether the first row holds the set-up of connections: fewer bytes than the second, much more time."""
    return (
        len(rows) > 1 and rows[0].size_bytes < rows[1].size_bytes and rows[0].time_s > _WARM_UP * rows[1].time_s > 0
    )


def row_doubts(rows: Sequence[Row]) -> Iterable[Finding]:
    """Findings about the rows of one test."""
    wrong = next((row for row in rows if row.wrong > 0), None)
    if wrong is not None:
        yield reject(
            "wrong-values",
            wrong.line,
            f"{wrong.wrong} values came out wrong at {wrong.size_bytes} bytes: the data were damaged on their way",
            "check the cards, links and drivers of these nodes before they are used at all",
        )
    best = 0.0
    for row in rows:
        if row.size_bytes < _STEADY_FROM_BYTES:
            continue
        if row.bus < _UNSTEADY * best:
            yield doubt(
                "unstable",
                row.line,
                f"the bandwidth falls from {best:g} to {row.bus:g} GB/s although the messages grow",
                "measure again; something else may have used the links",
            )
            break
        best = max(best, row.bus)
    largest = _largest(rows)
    if largest is not None and largest.in_place is not None and largest.bus > 0.05:
        factor = max(largest.in_place, largest.bus) / max(min(largest.in_place, largest.bus), 1e-9)
        if factor > 2:
            yield doubt(
                "in-place-differs",
                largest.line,
                f"in place {largest.in_place:g} GB/s, out of place {largest.bus:g} GB/s: they should be close",
                "measure again with more iterations",
            )


def _largest(rows: Sequence[Row]) -> Row | None:
    return max(rows, key=lambda row: row.size_bytes, default=None)
