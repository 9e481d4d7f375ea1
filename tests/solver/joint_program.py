"""Degrees and placement as a single integer program: the choice of a candidate, of its hosts, and every event.

Only what messages and chunks cost is the planner's.  Groups of ranks are those of ``tests.solver.naive``; an
event ends no sooner than what it waits for, so that no path has to be listed.  A candidate that is not chosen has
no hosts, and everything of it takes no time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import pulp

from solver.candidates import FloatArray
from solver.refine import Candidate
from tests.solver.naive import NaiveStep, _hosts, _ring
from tests.solver.naive_schedule import work_of_rank

Expression: TypeAlias = Any
"""A linear expression of PuLP's: a column, a sum or a number."""
SCALE = 100.0
"""The objective's size, so that CBC's tolerances are shares of a step."""


@dataclass(frozen=True, slots=True, eq=False)
class JointOptimum:
    """The chosen candidate, its hosts in order, and the program's objective."""

    chosen: int
    assignment: tuple[int, ...]
    objective: float


class _Part:
    """The columns and rows of one candidate; its step, which is 0 where it is not chosen, is ``step``."""

    def __init__(self, program: pulp.LpProblem, name: str, candidate: Candidate) -> None:
        self.program, self.name, self.count = program, name, 0
        self.naive, self.costs = NaiveStep(candidate), candidate.costs
        self.fabric, self.slots = candidate.fabric, candidate.placement.slots
        self.micro_batches = candidate.placement.schedule.micro_batches
        self.chosen = pulp.LpVariable(f"{name}_chosen", cat=pulp.LpBinary)
        nodes = range(self.fabric.nodes)
        self.on = [
            [pulp.LpVariable(f"{name}_slot{k}_node{n}", cat=pulp.LpBinary) for n in nodes]
            for k in range(self.slots)
        ]
        for slot in self.on:
            program += pulp.lpSum(slot) == self.chosen
        for n in nodes:
            program += pulp.lpSum(slot[n] for slot in self.on) <= self.chosen
        for s, stage in enumerate(self.naive.stages):
            for k, n in product(_hosts(stage, self.naive.gpus), nodes):
                if self.fabric.kind[n] != self.naive.kinds[s]:
                    program += self.on[k][n] == 0
        self.step = self._step()

    def _new(self) -> Expression:
        self.count += 1
        return pulp.LpVariable(f"{self.name}_{self.count}", lowBound=0)

    def _at_least(self, lower: Iterable[Expression]) -> Expression:
        """Seconds that exceed all of ``lower`` and 0."""
        column = self._new()
        for expression in lower:
            self.program += column >= expression
        return column

    def _slowest(self, pairs: Iterable[tuple[int, int]], times: FloatArray, inside_s: float = 0.0) -> Expression:
        """The slowest of some slot pairs; a pair of one slot with itself takes ``inside_s``."""
        lower: list[Expression] = []
        for a, b in dict.fromkeys(pairs):
            if a == b:
                lower.append(inside_s * self.chosen)
                continue
            for n, row in enumerate(times):
                others = [m for m in range(len(row)) if m != n]
                most = max((float(row[m]) for m in others), default=0.0)
                received = pulp.lpSum(float(row[m]) * self.on[b][m] for m in others)
                lower.append(received - most * (self.chosen - self.on[a][n]))
        return self._at_least(lower)

    def _step(self) -> Expression:
        ranks, naive = range(self.naive.pipeline), self.naive
        ends = [self._last_ends(d) for d in range(naive.data)]
        finished, updated = [], []
        for p in ranks:
            c = self.costs
            reduced = self._exposed(p, (c.reduce_bytes, c.expert_reduce_bytes), c.reduce_hidden_s, naive.passes[0])
            gathered = self._exposed(p, (c.gather_bytes, c.expert_gather_bytes), c.gather_hidden_s, naive.passes[1])
            finished += [replica[p] + reduced for replica in ends]
            updated.append((float(c.optimizer_s[0, p]) + naive.tail_s) * self.chosen + gathered)
        return self._at_least(finished) + self._at_least(updated)

    def _last_ends(self, d: int) -> list[Expression]:
        """The end of the last event of every rank of a replica."""
        naive, ranks = self.naive, range(self.naive.pipeline)
        last = naive.pipeline * naive.virtual - 1
        delay = {(kind, p): self._delay(d, kind, p) for kind in "FB" for p in ranks}
        work = {(kind, c): self._work(d, kind, c) for kind in "FB" for c in range(last + 1)}
        sizes = naive.pipeline, naive.virtual, self.micro_batches
        orders = [work_of_rank(*sizes, rank, naive.group) for rank in ranks]
        end = {event: self._new() for order in orders for event in order}
        for rank, order in enumerate(orders):
            before: Expression = 0.0
            for event in order:
                kind, chunk, micro = event
                taken = work[kind, chunk]
                if naive.blocking and chunk != (last if kind == "F" else 0):
                    taken = taken + delay[kind, rank]
                self.program += end[event] >= before + taken
                before = end[event]
                fed_by = ("F", chunk - 1, micro) if kind == "F" else ("B", chunk + 1, micro)
                if kind == "B" and chunk == last:
                    fed_by = ("F", chunk, micro)
                if fed_by in end:
                    sent = fed_by[1] != chunk and not naive.blocking
                    hop = delay[fed_by[0], fed_by[1] % naive.pipeline] if sent else 0.0
                    self.program += end[event] >= end[fed_by] + hop + taken
        return [end[order[-1]] for order in orders]

    def _delay(self, d: int, kind: str, p: int) -> Expression:
        naive, nbytes = self.naive, float(self.costs.transfer_bytes[0])
        other = p + (1 if kind == "F" else -1)
        if naive.pipeline == 1 or (naive.virtual == 1 and not 0 <= other < naive.pipeline):
            return 0.0
        ranks = zip(naive.cells[d, p], naive.cells[d, other % naive.pipeline], strict=True)
        pairs = [(a // naive.gpus, b // naive.gpus) for a, b in ranks]
        return self._slowest(pairs, self.fabric.hop_s(nbytes), self.fabric.local_hop_s(nbytes))

    def _work(self, d: int, kind: str, chunk: int) -> Expression:
        naive, p, way = self.naive, chunk % self.naive.pipeline, "FB".index(kind)
        slots = _hosts(naive.cells[d, p], naive.gpus)
        slow = self._at_least(
            pulp.lpSum(float(s) * column for s, column in zip(self.fabric.slowdown, self.on[k], strict=True))
            for k in slots
        )
        seconds = float((self.costs.forward_s, self.costs.backward_s)[way][0, chunk]) * slow
        for traffic, pairs in naive._crossing(d, p):
            count = float((traffic.forward_count, traffic.backward_count)[way][0, chunk])
            if pairs and count:
                hidden = float((traffic.forward_hidden_s, traffic.backward_hidden_s)[way][0])
                slowest = self._slowest(pairs, self.fabric.hop_s(float(traffic.message_bytes[0])))
                seconds = seconds + count * self._at_least([slowest - hidden * self.chosen])
        return seconds

    def _exposed(self, p: int, payloads: Sequence[FloatArray], hidden_s: FloatArray, rounds: float) -> Expression:
        """Seconds of both kinds of data parallel rings of a stage that are not hidden."""
        naive, fabric, total = self.naive, self.fabric, []
        for stride, payload in zip(naive.strides, payloads, strict=True):
            groups = [naive.stages[p][offset::stride] for offset in range(stride)]
            size, nbytes = len(groups[0]), float(payload[0, p])
            if size == 1 or nbytes == 0:
                continue
            slots = [[rank // naive.gpus for rank in group] for group in groups]
            members = min(each.count(k) for each in slots for k in each)
            spread = max(len(set(each)) for each in slots)
            ring = self._at_least([fabric.local_ring_s(nbytes, members, naive.kinds[p]) * self.chosen])
            if spread > 1:
                times = fabric.ring_s(nbytes, ranks=size, members=members, ring_nodes=spread, kind=naive.kinds[p])
                hops = [hop for group in groups for hop in _ring(_hosts(group, naive.gpus))]
                self.program += ring >= self._slowest(hops, times)
            total.append(rounds * ring)
        return self._at_least([pulp.lpSum(total) - float(hidden_s[0, p]) * self.chosen])


def joint_optimum(candidates: Sequence[Candidate], weights: Sequence[float], time_limit_s: float) -> JointOptimum:
    """The best candidate on its best hosts by ``weights`` times the step, solved by CBC to the end."""
    program = pulp.LpProblem("joint", pulp.LpMinimize)
    parts = [_Part(program, f"c{index}", candidate) for index, candidate in enumerate(candidates)]
    first = NaiveStep(candidates[0])(range(candidates[0].placement.slots)) * weights[0]
    objective = pulp.lpSum(weight * part.step for weight, part in zip(weights, parts, strict=True))
    program.setObjective(objective * (SCALE / first))
    program += pulp.lpSum(part.chosen for part in parts) == 1
    solver = pulp.PULP_CBC_CMD(msg=False, gapRel=0.0, timeLimit=time_limit_s, threads=1)
    program.solve(solver)
    assert program.sol_status == pulp.LpSolutionOptimal
    chosen = int(np.argmax([part.chosen.value() for part in parts]))
    assignment = [int(np.argmax([column.value() for column in slot])) for slot in parts[chosen].on]
    return JointOptimum(chosen, tuple(assignment), float(pulp.value(program.objective)) * first / SCALE)
