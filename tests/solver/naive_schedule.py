"""The schedule of one pipeline written down a second time: what each rank runs, in order, and when it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster_models.training.frameworks import Framework
from cluster_models.training.interleaving import Interleaving

Event = tuple[str, int, int]
"""("F" or "B", chunk, micro-batch)."""


def schedule_table(virtual: int, micro_batches: int, group: int) -> list[tuple[int, int]]:
    """(virtual stage, micro-batch) of every forward of a rank: group by group, each through all stages."""
    table: list[tuple[int, int]] = []
    left = list(range(micro_batches))
    while left:
        together, left = left[:group], left[group:]
        table += [(stage, micro_batch) for stage in range(virtual) for micro_batch in together]
    return table


def work_of_rank(
    pipeline: int,
    virtual: int,
    micro_batches: int,
    rank: int,
    group: int | None = None,
    *,
    all_forwards_first: bool = False,
) -> list[Event]:
    """Passes of one pipeline rank, in order, as Megatron-Core counts virtual micro-batch numbers.

    ``group``: micro-batches that pass a virtual stage together, as many as ranks unless said otherwise;
    ``all_forwards_first``: as in its releases before 0.10 where there are as many micro-batches as ranks.
    """
    total, group = micro_batches * virtual, group or pipeline
    table = schedule_table(virtual, micro_batches, group)

    def event(kind: str, number: int) -> Event:
        virtual_stage, micro_batch = table[number]
        if kind == "B":
            virtual_stage = virtual - 1 - virtual_stage
        return kind, virtual_stage * pipeline + rank, micro_batch

    if virtual == 1:
        warm_up = pipeline - rank - 1
    elif all_forwards_first and micro_batches == pipeline:
        warm_up = total
    else:
        warm_up = (pipeline - rank - 1) * 2 + (virtual - 1) * group
    warm_up = min(warm_up, total)
    order = [event("F", number) for number in range(warm_up)]
    for number in range(total - warm_up):
        order += [event("F", warm_up + number), event("B", number)]
    return order + [event("B", number) for number in range(total - warm_up, total)]


def event_ends(
    pipeline: int,
    virtual: int,
    micro_batches: int,
    duration: Callable[[str, int], float],
    delay: Callable[[str, int], float],
    *,
    group: int | None = None,
    blocking: bool = False,
    all_forwards_first: bool = False,
    loads: Sequence[float] | None = None,
) -> dict[Event, float]:
    """When every event ends; ``duration(kind, chunk)`` and ``delay(kind, sending rank)`` in seconds.

    ``loads``: how many times as long each micro-batch takes.  ``group`` and ``all_forwards_first`` as for
    ``work_of_rank``; ``blocking``: a rank goes on only when what it sent has arrived.
    """
    queues = [
        work_of_rank(pipeline, virtual, micro_batches, rank, group, all_forwards_first=all_forwards_first)
        for rank in range(pipeline)
    ]
    free_at = [0.0] * pipeline
    ends: dict[Event, float] = {}
    last_chunk = pipeline * virtual - 1
    while any(queues):
        before = len(ends)
        for rank, queue in enumerate(queues):
            while queue:
                kind, chunk, micro = queue[0]
                arrives = 0.0
                if kind == "F" and chunk > 0:
                    needed = ("F", chunk - 1, micro)
                elif kind == "B":
                    needed = ("F", chunk, micro) if chunk == last_chunk else ("B", chunk + 1, micro)
                else:
                    needed = None
                if needed is not None:
                    if needed not in ends:
                        break
                    sent = 0.0 if needed[1] == chunk or blocking else delay(kind, needed[1] % pipeline)
                    arrives = ends[needed] + sent
                takes = duration(kind, chunk) * (loads[micro] if loads else 1.0)
                free_at[rank] = max(free_at[rank], arrives) + takes
                if blocking and chunk != (last_chunk if kind == "F" else 0):
                    free_at[rank] += delay(kind, rank)
                ends[queue.pop(0)] = free_at[rank]
        assert len(ends) > before, "the schedule waits for itself"
    return ends


def legal_groups(framework: Framework, pipeline: int, micro_batches: int) -> list[int]:
    """Every number of micro-batches that the framework passes through a virtual stage together."""
    every = range(micro_batches)
    legal = [
        group
        for group in range(pipeline, micro_batches + 1)
        if all(len(every[first : first + group]) >= pipeline for first in every[::group])
    ]
    match framework.interleaving:
        case Interleaving.NONE:
            return []
        case Interleaving.PYTORCH:
            return [group for group in legal if micro_batches / group == micro_batches // pipeline]
        case Interleaving.MEGATRON:
            return legal if framework.megatron_core >= 10 or pipeline in legal else []
