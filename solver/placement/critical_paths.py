"""Critical paths of the event graph: the resources that a route of the placement bound consumes.

Each path ends with the last backward of a rank.  Its length is the chunks on it, at the slowdown of their nodes,
and its transfers; with the reduction of that rank and the tail it must end within the step.  Letters: K paths, P
ranks, N nodes, C chunks.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.candidates import BoolArray, FloatArray, IntArray
from solver.compiled_labels import Resources, least_rest
from solver.pipeline.simulation import critical_path, simulate
from solver.placement.chains import TOLERANCE, Chains
from solver.placement.least_inputs import least_inputs
from solver.placement.problem import PlacementProblem

MOST_PATHS: Final = 96


class CriticalPaths:
    """The paths known of one problem; they hold for every assignment, so more are added as routes show them."""

    def __init__(self, problem: PlacementProblem, chains: Chains, tail_s: float) -> None:
        """``tail_s``: least optimizer step and parameter gather."""
        self._problem, self._chains, self._tail_s = problem, chains, tail_s
        self._slowdown = np.maximum(problem.arrays.slowdown, 1.0)
        self._ranks = np.arange(problem.schedule.pipeline)
        self._rank: list[int] = []
        self._work: list[IntArray] = []
        self._hops: list[IntArray] = []
        self._seen: set[tuple[int, bytes, bytes]] = set()
        duration_s, delay_s = least_inputs(problem)
        self._add(duration_s[0], delay_s[0], self._ranks)

    def _add(self, duration_s: FloatArray, delay_s: FloatArray, ranks: IntArray) -> bool:
        """Add the paths critical at these inputs to the ends of ``ranks``; whether any is new."""
        schedule = self._problem.schedule
        ends = simulate(schedule, duration_s, delay_s)
        before = len(self._rank)
        for s in ranks.tolist():
            work, hops = critical_path(schedule, ends, delay_s, int(schedule.last[s]))
            key = (s, work.tobytes(), hops.tobytes())
            if key not in self._seen and len(self._rank) < MOST_PATHS:
                self._seen.add(key)
                self._rank.append(s)
                self._work.append(work)
                self._hops.append(hops)
        return len(self._rank) > before

    def add_of_assignment(self, assignment: IntArray) -> None:
        """Add the paths that are critical under an assignment (K,)."""
        slots = self._problem.arrays.cell_slots
        routes = assignment[slots.swapaxes(1, 2).reshape(-1, slots.shape[1])]
        self.add_violated(routes, 0.0, self._chains.ring_s)

    def add_violated(self, routes: IntArray, step_s: float, floor_s: FloatArray) -> bool:
        """Add the worst path of each route that ends after ``step_s``; whether any is new.

        ``floor_s`` (P, N): least reduction of a rank with a node.
        """
        new = False
        for route in routes:
            ends = self._end_s(route) + floor_s[self._ranks, route]
            worst = int(ends.argmax())
            if ends[worst] + self._tail_s > step_s * (1.0 + TOLERANCE):
                new |= self._add(*self._inputs(route), np.array([worst]))
        return new

    def resources(self, step_s: float, floor_s: FloatArray) -> Resources:
        """Resources that routes consume of each path, and how much of them a step of ``step_s`` allows.

        ``floor_s`` (P, N): least reduction of a rank with a node, infinite where the rank may not have it.
        """
        arrays, ranks = self._problem.arrays, len(self._ranks)
        work, hops, rank = np.array(self._work), np.array(self._hops), np.array(self._rank)
        chunks = (work * arrays.duration_s).sum(axis=1).reshape(len(rank), -1, ranks).sum(axis=1)
        node_s = chunks[:, :, None] * self._slowdown
        node_s += np.where(np.isfinite(floor_s), 0.0, np.inf)[None]
        node_s[np.arange(len(rank)), rank] += floor_s[rank]
        there, back = np.zeros_like(hops[:, 0]), np.zeros_like(hops[:, 0])
        there[:, 1:], back[:, 1:] = hops[:, 0, :-1], hops[:, 1, 1:]
        round_hops = hops[:, 0, -1] + hops[:, 1, 0]
        fixed = (work * self._chains.extra_s).sum(axis=(1, 2)) + round_hops * self._chains.least_hop_s
        limit_s = step_s * (1.0 + TOLERANCE) - self._tail_s - fixed
        rest_s = least_rest(arrays.hop_s, node_s, there, back)
        return Resources(arrays.hop_s, node_s, there, back, rest_s, limit_s)

    def latest_s(self, step_s: float, may: BoolArray) -> FloatArray:
        """(P, N, P) the most that the reduction of each rank may take in ``step_s`` when a node serves a rank.

        ``may`` (P, N): nodes that a rank may have; another one leaves no time at all.
        """
        used = self.resources(step_s, np.where(may, 0.0, np.inf))
        there, back = np.zeros_like(used.there), np.zeros_like(used.back)
        there[:, 1:], back[:, 1:] = used.back[:, :0:-1], used.there[:, :0:-1]
        before_s = least_rest(used.hop_s, np.ascontiguousarray(used.node_s[:, ::-1]), there, back)[:, ::-1]
        left_s = used.limit_s[:, None, None] - (before_s + used.node_s + used.rest_s)
        result = np.full((*may.shape, len(self._ranks)), np.inf)
        for s, left in zip(self._rank, left_s, strict=True):
            np.minimum(result[:, :, s], left, out=result[:, :, s])
        return result

    def ends_s(self, routes: IntArray) -> FloatArray:
        """(n, P) last backward of each rank on routes (n, P), and the tail."""
        return np.array([self._end_s(route) for route in routes]).reshape(-1, len(self._ranks)) + self._tail_s

    def _inputs(self, route: IntArray) -> tuple[FloatArray, FloatArray]:
        """Durations (E, C) and delays (2, P) of a route (P,)."""
        arrays, chains = self._problem.arrays, self._chains
        slow = np.tile(self._slowdown[route], self._problem.schedule.virtual)
        delay_s = np.zeros((2, len(route)))
        delay_s[0, :-1] = arrays.hop_s[route[:-1], route[1:]]
        delay_s[1, 1:] = arrays.hop_s[route[1:], route[:-1]]
        if self._problem.schedule.is_closed:
            delay_s[0, -1] = delay_s[1, 0] = chains.least_hop_s
        return arrays.duration_s * slow + chains.extra_s, delay_s

    def _end_s(self, route: IntArray) -> FloatArray:
        """(P,) last backwards of a route (P,)."""
        schedule = self._problem.schedule
        return np.asarray(simulate(schedule, *self._inputs(route))[schedule.last])
