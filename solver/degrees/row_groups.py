"""Rows that are priced at once: those that share what the event graph and the framework's settings depend on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from cluster_models.training.schedules import PipelineSchedule
from solver.candidates import SCHEDULE_CODES, CandidateBatch, IntArray

MOST_TOGETHER: Final = 2**16
"""Rows whose layers are worked out at once: some tens of megabytes, and few calls for each."""
MOST_CELLS: Final = 2**19
"""Rows times chunks that are priced at once: a few hundred megabytes while they are."""

MOST_JOINED_CELLS: Final = 2**20
"""The same of groups that are joined, though some rows have fewer chunks: small ones cost as many calls."""


def count_of(candidates: IntArray) -> int:
    """How many different ones there are among the ``candidates`` of rows."""
    return len(np.unique(candidates))


def bundles(every: CandidateBatch) -> Iterator[list[IntArray]]:
    """Groups of one schedule and settings, as many together as their layers are worked out for at once.

    Under 1F1B those of one pipeline size are a single one, with columns for the chunks of the largest virtual size.
    """
    found: dict[tuple[int, int], list[IntArray]] = {}
    for rows in groups(every):
        shared = int(every.schedule[rows[0]]), int(every.settings[rows[0]])
        bundle = found.setdefault(shared, [])
        if bundle and _may_join(every, bundle[-1], rows):
            bundle[-1] = np.concatenate([bundle[-1], rows])
        else:
            bundle.append(rows)
        if sum(map(len, bundle)) >= MOST_TOGETHER:
            yield found.pop(shared)
    yield from found.values()


def _may_join(every: CandidateBatch, first: IntArray, second: IntArray) -> bool:
    pipeline, virtual = int(every.pipeline[second[0]]), int(every.virtual_pipeline[second[0]])
    alike = SCHEDULE_CODES[every.schedule[second[0]]] is PipelineSchedule.ONE_F_ONE_B
    return (
        alike
        and every.pipeline[first[0]] == pipeline
        and (len(first) + len(second)) * pipeline * virtual <= MOST_JOINED_CELLS
    )


def groups(batch: CandidateBatch) -> Iterator[IntArray]:
    """Rows of equal pipeline and virtual size, schedule and settings, no more at once than memory holds."""
    key = batch.pipeline * (batch.virtual_pipeline.max(initial=0) + 1) + batch.virtual_pipeline
    key = key * len(SCHEDULE_CODES) + batch.schedule
    key = key * (batch.settings.max(initial=0) + 1) + batch.settings
    order = np.argsort(key, kind="stable")
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    for rows in np.split(order, cuts):
        if len(rows):
            chunks = int(batch.pipeline[rows[0]] * batch.virtual_pipeline[rows[0]])
            most = max(1, MOST_CELLS // chunks)
            yield from (rows[first : first + most] for first in range(0, len(rows), most))
