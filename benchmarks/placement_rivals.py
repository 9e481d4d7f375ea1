"""Placements by others, each with its course over time: rank order, restarted descents, and Pipette's annealer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.compiled_annealer import (
    FIRST_TEMPERATURE,
    Step,
    anneal_slice,
    descend_slice,
    seeded_order,
    step_time,
)
from benchmarks.placement_grid import Training, grid_problem, rank_orders
from solver.candidates import FloatArray, IntArray
from solver.placement.solve import PlacementOutcome, SolveOptions, solve_placement

SLICE_S: Final = 0.05
"""About how long a rival runs between two looks at the clock."""
PATIENCE: Final = 4
"""A descent is given up after this many idle moves for each pair of nodes."""
ROUNDS: Final = 60


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """The result of one method: ``points`` are (seconds since its start, step time) at each improvement.

    ``bound_s`` is 0 where the method proves nothing.  ``cpu_s`` is the time of processors that it got.
    """

    assignment: IntArray
    step_s: float
    bound_s: float
    seconds: float
    points: tuple[tuple[float, float], ...]
    cpu_s: float = 0.0

    @property
    def found_s(self) -> float:
        """Seconds after which nothing better was found."""
        return self.points[-1][0] if self.points else 0.0

    def at(self, seconds: float) -> float:
        """The best step time known after so many seconds."""
        return min((step for when, step in self.points if when <= seconds), default=np.inf)


def step_of(links: FloatArray, training: Training) -> Step:
    """The step of ``training`` on links (N, N) for the rivals."""
    seconds_per_byte = 1.0 / links
    np.fill_diagonal(seconds_per_byte, 0.0)
    return Step(
        training.dp,
        training.pp,
        training.forward_s,
        training.backward_s,
        training.activation_bytes,
        training.gradient_bytes,
        training.micro_batches,
        seconds_per_byte,
    )


def rank_order(links: FloatArray, training: Training) -> Course:
    """The better of the two orders in which a launcher takes the nodes as they come."""
    step = step_of(links, training)
    order = min(rank_orders(training), key=lambda each: step_time(each, step))
    step_s = step_time(order, step)
    return Course(order, step_s, 0.0, 0.0, ((0.0, step_s),))


def planned(
    links: FloatArray,
    training: Training,
    *,
    seconds: float,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> Course:
    """The solver of this repository; ``clock`` says what seconds count, those of processors or all."""
    started, cpu_started = clock(), time.process_time()
    points: list[tuple[float, float]] = []

    def note(outcome: PlacementOutcome) -> None:
        if not points or outcome.step_s < points[-1][1]:
            points.append((clock() - started, outcome.step_s))

    outcome = solve_placement(
        grid_problem(links, training),
        remaining_s=lambda: seconds - (clock() - started),
        options=SolveOptions(seed=seed, rounds=ROUNDS),
        starts=rank_orders(training),
        on_outcome=note,
    )
    note(outcome)
    spent = clock() - started
    cpu_s = time.process_time() - cpu_started
    return Course(outcome.assignment, outcome.step_s, outcome.bound_s, spent, tuple(points), cpu_s)


def annealed(links: FloatArray, training: Training, *, seconds: float, seed: int = 0) -> Course:
    """Pipette's annealer for the whole time."""
    step, nodes = step_of(links, training), len(links)
    order = seeded_order(nodes, seed)
    best = order.copy()
    temperature = FIRST_TEMPERATURE

    def go_on(moves: int) -> None:
        nonlocal temperature
        temperature = anneal_slice(order, best, temperature, step, moves)

    return _course(go_on, best, step, seconds)


def restarted(links: FloatArray, training: Training, *, seconds: float, seed: int = 0) -> Course:
    """Descents from random orders, one after the other, for the whole time."""
    step, nodes = step_of(links, training), len(links)
    order = seeded_order(nodes, seed)
    best = order.copy()
    since, patience = 0, PATIENCE * nodes * (nodes - 1) // 2

    def go_on(moves: int) -> None:
        nonlocal since
        since = descend_slice(order, best, since, patience, step, moves)

    return _course(go_on, best, step, seconds)


def _course(go_on: Callable[[int], None], best: IntArray, step: Step, seconds: float) -> Course:
    """Run a rival in slices until its processor time is over; ``best`` is written by ``go_on``."""
    started = time.process_time()
    points = [(0.0, step_time(best, step))]
    moves = 1
    while (spent := time.process_time() - started) < seconds:
        go_on(moves)
        now = time.process_time() - started
        moves = max(1, int(moves * min(2.0, SLICE_S / max(1e-9, now - spent))))
        step_s = step_time(best, step)
        if step_s < points[-1][1]:
            points.append((now, step_s))
    return Course(best, points[-1][1], 0.0, time.process_time() - started, tuple(points))
