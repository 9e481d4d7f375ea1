"""The order in which a pipeline rank runs each kind of work, derived by counting what comes before what.

1F1B takes turns by micro-batch; interleaved, groups of micro-batches pass chunk after chunk (arXiv 2104.04473,
section 2.2).  On a V the order follows from how many tasks of one virtual stage come before each of the other.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster_models.training.interleaving import micro_batch_group
from cluster_models.training.plan import Configuration
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import TrainingWorkload

Tasks = list[tuple[int, int]]
"""Stage, in the order of the model, and micro-batch."""


def turns_of(configuration: Configuration, workload: TrainingWorkload, rank: int) -> dict[str, Tasks]:
    """Tasks of ``rank`` in their order, by category of the timeline."""
    schedule, degrees = configuration.schedule, configuration.degrees
    micro_batches = configuration.micro_batches(workload.global_batch)
    if schedule in (PipelineSchedule.ZB_V, PipelineSchedule.DUALPIPE_V):
        turns = _on_a_v(schedule, degrees.pipeline, rank, micro_batches)
    else:
        group = micro_batch_group(workload.framework, degrees.pipeline, micro_batches) or degrees.pipeline
        if schedule is PipelineSchedule.GPIPE:
            group = micro_batches
        turns = _in_groups(degrees.pipeline, degrees.virtual_pipeline, rank, micro_batches, max(group, 1))
    if schedule is PipelineSchedule.GPIPE and degrees.virtual_pipeline > 1:
        turns["backward"] = [(stage, micro_batches - 1 - number) for stage, number in turns["backward"]]
    if schedule is PipelineSchedule.ZERO_BUBBLE:
        turns["weights"] = turns["backward"]
    return turns


def _in_groups(pipeline: int, virtual: int, rank: int, micro_batches: int, group: int) -> dict[str, Tasks]:
    """Micro-batches in groups, each through all virtual stages, which backwards count down."""
    order = [
        (chunk, micro_batch)
        for first in range(0, micro_batches, group)
        for chunk in range(virtual)
        for micro_batch in range(first, min(first + group, micro_batches))
    ]
    return {
        "forward": [(chunk * pipeline + rank, micro_batch) for chunk, micro_batch in order],
        "backward": [((virtual - 1 - chunk) * pipeline + rank, micro_batch) for chunk, micro_batch in order],
    }


def _on_a_v(schedule: PipelineSchedule, pipeline: int, rank: int, micro_batches: int) -> dict[str, Tasks]:
    """Micro-batches in their order on both virtual stages of a rank, of which the second is on its way back."""
    there, back, behind = rank, 2 * pipeline - 1 - rank, pipeline - 1 - rank

    def merged(stage: int, other: int, before: Callable[[int], int], count: int) -> Tasks:
        """Tasks of both stages, ``before(i)`` of ``stage`` ahead of the i-th of ``other``."""
        keys = [((i, 1), (stage, i)) for i in range(count)] + [((before(i), 0), (other, i)) for i in range(count)]
        return [task for _, task in sorted(keys) if task[1] < micro_batches]

    if schedule is PipelineSchedule.DUALPIPE_V:

        def ahead(i: int) -> int:
            """A forward less before those that begin in pairs; later ones wait for a pair of the other stage."""
            return 2 * behind + min(i, rank) + 1 + max(0, i - pipeline + 1)

        forwards = merged(there, back, ahead, micro_batches)
        backwards = merged(back, there, lambda i: behind + 1 + i, micro_batches)
        return {"forward": forwards, "backward": backwards, "weights": backwards}
    count = max(micro_batches, 2 * pipeline - 1)
    forwards = merged(there, back, lambda i: 2 * behind + 1 + min(i, rank) + max(0, i - pipeline + 1), count)
    backwards = merged(back, there, lambda i: behind + 1 + i, count)
    weights = merged(back, there, lambda i: min(behind + 1 + i, count - rank) if i < count - rank else count, count)
    return {"forward": forwards, "backward": backwards, "weights": weights}
