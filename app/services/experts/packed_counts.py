"""Counts of workloads as bytes, and back: a compressed NumPy archive without pickles (docs/decisions/0012)."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cluster_models.routing.counts import Counts, RoutedWorkload

_HEADER: Final = "header"
_TABLES: Final = ("transitions", "coactivation")
_WIDTHS: Final = (np.uint8, np.uint16, np.uint32, np.uint64)
_EXACT: Final = 2.0**53
"""Whole numbers beyond are not told apart by the counts themselves."""


def packed(workloads: Sequence[RoutedWorkload]) -> bytes:
    """All counts of ``workloads``, in their order."""
    members: dict[str, NDArray[Any]] = {}
    header = []
    for position, workload in enumerate(workloads):
        members[f"{position}.loads"] = _narrow(workload.loads)
        entry: dict[str, Any] = {"name": workload.name, "layers": workload.layers, "tokens": workload.tokens}
        for table in _TABLES:
            counts: Mapping[int, Counts] = getattr(workload, table)
            entry[table] = sorted(counts)
            for index in entry[table]:
                members[f"{position}.{table}.{index}"] = _narrow(counts[index])
        header.append(entry)
    members[_HEADER] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    stream = io.BytesIO()
    np.savez_compressed(stream, **members)  # type: ignore[arg-type]  # the stubs take a name for its option
    return stream.getvalue()


def unpacked(data: bytes, *, pairs: bool = False) -> tuple[RoutedWorkload, ...]:
    """The workloads that ``packed`` made ``data`` of; without ``pairs`` their tables of pairs are left out."""
    with np.load(io.BytesIO(data), allow_pickle=False) as members:
        header = json.loads(members[_HEADER].tobytes())
        return tuple(
            RoutedWorkload(
                name=entry["name"],
                layers=tuple(entry["layers"]),
                loads=members[f"{position}.loads"].astype(np.float64),
                tokens=entry["tokens"],
                **{
                    table: {
                        index: members[f"{position}.{table}.{index}"].astype(np.float64) for index in entry[table]
                    }
                    for table in (_TABLES if pairs else ())
                },
            )
            for position, entry in enumerate(header)
        )


def _narrow(counts: Counts) -> NDArray[Any]:
    """The same numbers in the narrowest type: shares stay as they are."""
    largest = float(counts.max(initial=0.0))
    if largest >= _EXACT or (counts != np.floor(counts)).any():
        return counts
    return counts.astype(next(width for width in _WIDTHS if largest <= np.iinfo(width).max))
