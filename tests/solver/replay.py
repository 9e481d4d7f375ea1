"""A step run event by event against a clock: ranks work, messages travel, stages reduce, all of them update.

Times of work and messages come from ``tests.solver.naive``; when anything starts follows from the clock alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from tests.solver.naive import NaiveStep
from tests.solver.naive_schedule import Event, work_of_rank

Rank = tuple[int, int]
"""(replica, pipeline rank)."""


@dataclass
class Replay:
    """A replayed step: when each event started, how long it ran, and when each stage reduced its gradients."""

    step: NaiveStep
    assignment: Sequence[int]
    runs: dict[tuple[int, Event], tuple[float, float]] = field(default_factory=dict)
    reduced: list[tuple[float, float]] = field(default_factory=list)
    """(start, seconds) of each stage's exposed reduction."""
    step_s: float = 0.0

    def __post_init__(self) -> None:
        step = self.step
        ranks = [(d, p) for d in range(step.data) for p in range(step.pipeline)]
        self._queues = {
            (d, p): work_of_rank(step.pipeline, step.virtual, step.micro_batches, p, step.group)[::-1]
            for d, p in ranks
        }
        self._busy, self._arrived = dict.fromkeys(ranks, False), {rank: set[Event]() for rank in ranks}
        self._agenda: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = count()
        self._finished: dict[Rank, float] = {}
        for rank in ranks:
            self._go_on(rank, 0.0)
        while self._agenda:
            now, _, happens = heappop(self._agenda)
            happens(now)
        assert len(self._finished) == len(ranks), "the schedule waits for itself"
        self._close()

    def _at(self, when: float, happens: Callable[[float], None]) -> None:
        heappush(self._agenda, (when, next(self._number), happens))

    def _go_on(self, rank: Rank, now: float) -> None:
        """Start the rank's next work where it is idle and what the work needs has arrived."""
        queue = self._queues[rank]
        if self._busy[rank]:
            return
        if not queue:
            self._finished.setdefault(rank, now)
            return
        event = queue[-1]
        if event[:2] != ("F", 0) and event not in self._arrived[rank]:
            return
        queue.pop()
        self._busy[rank] = True
        seconds = self.step._duration(rank[0], event[0], event[1], self.assignment)
        self.runs[rank[0], event] = (now, seconds)
        self._at(now + seconds, lambda then: self._done(rank, event, then))

    def _done(self, rank: Rank, event: Event, now: float) -> None:
        """Hand the result on; a rank that waits for its sends goes on when this one has arrived."""
        (replica, stage), (kind, chunk, micro) = rank, event
        last = self.step.pipeline * self.step.virtual - 1
        free = now
        if kind == "F" and chunk == last:
            self._arrived[rank].add(("B", chunk, micro))
        elif kind == "F" or chunk > 0:
            after = chunk + (1 if kind == "F" else -1)
            target = replica, after % self.step.pipeline
            arrival = now + self.step._delay(replica, kind, stage, self.assignment)
            self._at(arrival, lambda then: self._arrive(target, (kind, after, micro), then))
            free = arrival if self.step.blocking else now
        self._at(free, lambda then: self._free(rank, then))

    def _arrive(self, rank: Rank, event: Event, now: float) -> None:
        self._arrived[rank].add(event)
        self._go_on(rank, now)

    def _free(self, rank: Rank, now: float) -> None:
        self._busy[rank] = False
        self._go_on(rank, now)

    def _close(self) -> None:
        """Stages reduce when all their replicas are done; all update when the last has reduced."""
        step, costs = self.step, self.step.costs
        for p in range(step.pipeline):
            payloads = costs.reduce_bytes, costs.expert_reduce_bytes
            seconds = step._exposed(p, self.assignment, payloads, costs.reduce_hidden_s, passes=step.passes[0])
            self.reduced.append((max(self._finished[d, p] for d in range(step.data)), seconds))
        now = max(start + seconds for start, seconds in self.reduced)
        for p in range(step.pipeline):
            payloads = costs.gather_bytes, costs.expert_gather_bytes
            seconds = step._exposed(p, self.assignment, payloads, costs.gather_hidden_s, passes=step.passes[1])
            self.step_s = max(self.step_s, now + step.tail_s + float(costs.optimizer_s[0, p]) + seconds)
