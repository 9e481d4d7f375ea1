"""Schedules other than 1F1B, run a second time: queues of tasks and a plain clock for each rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hypothesis import strategies as st

from cluster_models.training.schedules import PipelineSchedule
from solver.orders import BACKWARD, FORWARD, WEIGHT, rank_orders

Sizes = tuple[PipelineSchedule, int, int, int]
"""Schedule, pipeline ranks, virtual stages and micro-batches."""
Task = tuple[str, int, int]
""""F", "I" or "W", the stage and the micro-batch."""


@st.composite
def other_sizes(draw: st.DrawFn) -> Sizes:
    """Any schedule but 1F1B, with sizes that PyTorch takes, and ZB-H1 on single stages."""
    schedule = draw(
        st.sampled_from([each for each in PipelineSchedule if each is not PipelineSchedule.ONE_F_ONE_B])
    )
    pipeline = draw(st.integers(2, 5))
    if schedule is PipelineSchedule.DUALPIPE_V:
        return schedule, pipeline, 2, draw(st.integers(2 * pipeline, 14))
    if schedule is PipelineSchedule.ZB_V:
        return schedule, pipeline, 2, draw(st.integers(1, 12))
    virtual = draw(st.integers(1, 3))
    if schedule is PipelineSchedule.ZERO_BUBBLE and virtual > 1:
        return schedule, pipeline, virtual, pipeline * draw(st.integers(1, 3))
    return schedule, pipeline, virtual, draw(st.integers(1, 12))


def stages_of(sizes: Sizes, rank: int) -> list[int]:
    """The stages of a rank in the order of the model: round the ring, or there and back."""
    schedule, pipeline, virtual, _ = sizes
    if schedule in (PipelineSchedule.ZB_V, PipelineSchedule.DUALPIPE_V):
        return [rank, 2 * pipeline - 1 - rank]
    return [rank + turn * pipeline for turn in range(virtual)]


def actions(sizes: Sizes, rank: int, group: int | None = None) -> Iterator[list[Task]]:
    """Actions of a rank, in order; the results of an action leave together at its end.

    ``group``: micro-batches that pass a virtual stage together, as many as ranks unless said otherwise.
    """
    schedule, pipeline, virtual, micro_batches = sizes
    rows = rank_orders(schedule, pipeline, virtual, micro_batches, group=group or pipeline)[rank].tolist()
    kinds = {FORWARD: "F", BACKWARD: "I", WEIGHT: "W"}
    action: list[Task] = []
    for stage, micro_batch, kind, held in rows:
        action.append((kinds[kind], stage, micro_batch))
        if held == 0:
            yield action
            action = []


def printed(sizes: Sizes, rank: int) -> str:
    """The rank's order as ``torch.distributed.pipelining`` prints it: stage, kind, micro-batch."""
    words = []
    for action in actions(sizes, rank):
        tasks = [f"{stage}{kind}{micro}" for kind, stage, micro in action]
        whole = tasks[-2].replace("I", "B") if len(tasks) > 1 else tasks[0]
        words.append(f"({tasks[0]};{whole})" if len(tasks) == 3 else whole)
    return " ".join(words)


class Clocks:
    """Ends of tasks under ``seconds(kind, stage)`` and ``delay(way, rank)``: on to the next rank, or back."""

    def __init__(
        self,
        sizes: Sizes,
        seconds: Callable[[str, int], float],
        delay: Callable[[int, int], float],
        *,
        group: int | None = None,
    ) -> None:
        self.sizes, self.seconds, self.delay = sizes, seconds, delay
        self.home = {stage: rank for rank in range(sizes[1]) for stage in stages_of(sizes, rank)}
        self.queues = [list(actions(sizes, rank, group)) for rank in range(sizes[1])]
        self.now = [0.0] * sizes[1]
        self.ends: dict[Task, float] = {}
        self.left: dict[Task, float] = {}

    def run(self) -> dict[Task, float]:
        """Every task's end."""
        while any(self.queues):
            before = len(self.ends)
            for rank, queue in enumerate(self.queues):
                while queue and self._done(rank, queue[0]):
                    queue.pop(0)
            assert len(self.ends) > before, "the schedule waits for itself"
        return self.ends

    def _done(self, rank: int, action: list[Task]) -> bool:
        """Run an action if all that it needs is on its way."""
        at, ends = self.now[rank], {}
        for task in action:
            arrives = self._arrival(task)
            if arrives is None:
                return False
            at = ends[task] = max(at, arrives) + self.seconds(*task[:2])
        self.now[rank] = at
        self.ends |= ends
        self.left |= dict.fromkeys(action, at)
        return True

    def _arrival(self, task: Task) -> float | None:
        kind, stage, micro = task
        if kind == "W" or task[:2] == ("F", 0):
            return 0.0
        if kind == "I" and stage == len(self.home) - 1:
            return self.left.get(("F", stage, micro))
        source = stage - 1 if kind == "F" else stage + 1
        if (kind, source, micro) not in self.left:
            return None
        there = self.home[source]
        turned = self.sizes[0] in (PipelineSchedule.ZB_V, PipelineSchedule.DUALPIPE_V) and source >= self.sizes[1]
        sent = 0.0 if there == self.home[stage] else self.delay((kind == "I") ^ turned, there)
        return self.left[kind, source, micro] + sent
