"""Large neighbourhood search on large grids: a slow node is relocated together with nodes near it.

Slow nodes go to good places only where room is made for them, which takes more moves at once than an annealing on
the exact step finds.  So a grid is judged by how far it exceeds the limits of a trial step, and only results by the
exact step (docs/placement.md, "Large grids").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from solver.candidates import BoolArray, IntArray
from solver.compiled_chains import nearest_nodes
from solver.compiled_excess import GridLimits, cool, excesses
from solver.placement.branch_and_price import tail_bound_s
from solver.placement.chains import chains_of
from solver.placement.least_inputs import between_slots
from solver.placement.local_search import Found, anneal_near
from solver.placement.period_limits import period_limits
from solver.placement.problem import PlacementProblem
from solver.placement.search_tables import NEAR, both_ways_s

MOST_RANKS: Final = 64
MOST_NODES: Final = 512
"""Beyond, the limits take too long: they need what a ring link costs for each rank and pair of nodes."""
TRIAL: Final = 0.98
"""The first trial step, as a share of the best step known."""
LOWER: Final = 0.995
"""The next trial step, as a share of the last, once a grid keeps all limits."""
FIRST_REDUCTION: Final = 0.25
"""Share of all ring links that are at most as slow as the first rank's ring is assumed to be."""
CURVE: Final = 12.0
"""Cost of an excess of a whole step beyond its own: few large excesses are worse than many small ones."""
SLOW_ONE_IN: Final = 8
"""One node in so many, those with the slowest transfers, is relocated."""
LATE: Final = 0.2
"""Mean distance of its new rank from the last one, as a share of all ranks: late ones have time to spare."""
MOVES_PER_KICK_AND_SLOT: Final = 240
EXACT_MOVES: Final = 10
"""Moves that take as long as one that is judged by the exact step."""
KICK_HEAT: Final = (1e-3, 1e-4)
"""Temperatures after a relocation, as shares of the trial step."""
TOGETHER: Final = 0.05
"""Weight of transfers beside the excesses, so that replicas stay inside leaves where nothing is exceeded."""
FINAL_MOVES_PER_SLOT: Final = 400
FINAL_HEAT: Final = 0.01
"""Annealing on the exact step, cool enough to leave replicas inside leaves."""
FEWEST_KICKS: Final = 10
"""Fewer find too little to be worth the limits."""


def relocates(problem: PlacementProblem, moves: int) -> bool:
    """Whether slow nodes can be relocated: rings of one kind and order, no shared switches, enough work."""
    small = problem.nodes <= MOST_NODES and problem.schedule.pipeline <= MOST_RANKS
    shared, enough = len(problem.arrays.uplinks.bytes_per_s) > 0, _kicks(problem, moves) >= FEWEST_KICKS
    return small and enough and not shared and grid_slots(problem) is not None


def _kicks(problem: PlacementProblem, moves: int) -> int:
    """Relocations in the work of so many exact ``moves``, the last annealing left out."""
    return (moves - FINAL_MOVES_PER_SLOT * problem.slots) * EXACT_MOVES // (MOVES_PER_KICK_AND_SLOT * problem.slots)


def relocate_slow_nodes(
    problem: PlacementProblem, start: Found, *, moves: int, seed: int, stopped: Callable[[], bool] = lambda: False
) -> Found:
    """The best met by relocations from ``start``, which it is never worse than, in work of so many exact ``moves``.

    ``start`` itself where ``relocates`` says no, or the slots are not one chain for each replica.  Deterministic as
    ``search_placement`` is.
    """
    slots, trial_s = grid_slots(problem), start.step_s * TRIAL
    limits_at = grid_limits(problem, trial_s, stopped) if relocates(problem, moves) else None
    if slots is None or limits_at is None:
        return start
    random, limits, grid = np.random.default_rng(seed), limits_at(trial_s), start.assignment[slots]
    slow, near = _slow_nodes(problem), nearest_nodes(limits.both_s, min(NEAR, problem.nodes - 1))
    cost, kick_moves = excess_s(grid, limits), MOVES_PER_KICK_AND_SLOT * problem.slots
    heat_s = KICK_HEAT[0] * trial_s, KICK_HEAT[1] * trial_s
    for _ in range(_kicks(problem, moves)):
        while cost <= 0 and not stopped():
            trial_s *= LOWER
            limits = limits_at(trial_s)
            cost = excess_s(grid, limits)
        if stopped():
            break
        kicked = relocated(grid, limits, slow, random)
        cool(kicked, limits, near, TOGETHER, kick_moves, heat_s, int(random.integers(2**32)))
        met = excess_s(kicked, limits)
        if met < cost:
            grid, cost = kicked, met
    assignment, final = np.empty_like(start.assignment), FINAL_MOVES_PER_SLOT * problem.slots
    assignment[slots] = grid
    found = anneal_near(problem, assignment, moves=final, heat=FINAL_HEAT, seed=seed, stopped=stopped)
    return min(start, found, key=lambda each: (each.violations, each.step_s))


def grid_slots(problem: PlacementProblem) -> IntArray | None:
    """(R, P) the slot of each replica and rank, replicas as rings go; ``None`` unless all go the same way."""
    arrays = problem.arrays
    cells, used = arrays.cell_slots[..., 0], between_slots(arrays.ring_pairs).any(axis=(1, 2))
    if arrays.cell_slots.shape[2] > 1 or len(np.unique(cells)) < cells.size or used.sum() != 1 or len(cells) < 2:
        return None
    pairs = arrays.ring_pairs[used.argmax()]
    following = dict(pairs[0][between_slots(pairs[0])].tolist())
    replicas, order = {slot: r for r, slot in enumerate(cells[:, 0].tolist())}, [0]
    while len(order) < len(cells) and (after := following.get(int(cells[order[-1], 0]))) in replicas:
        order.append(replicas[after])
    ordered = cells[order]
    rings = np.stack([ordered, np.roll(ordered, -1, axis=0)], axis=-1).swapaxes(0, 1)
    same = all(
        set(map(tuple, ring.tolist())) == set(map(tuple, each[between_slots(each)].tolist()))
        for ring, each in zip(rings, pairs, strict=True)
    )
    return np.ascontiguousarray(ordered) if same and len(np.unique(order)) == len(cells) else None


def grid_limits(
    problem: PlacementProblem, step_s: float, stopped: Callable[[], bool] = lambda: False
) -> Callable[[float], GridLimits] | None:
    """Limits by trial step, best for steps of about ``step_s``; ``None`` without chains or when time is over.

    They suppose how long the first rank's ring takes, so that not every grid that reaches a step keeps them.
    """
    arrays, chains = problem.arrays, chains_of(problem)
    if chains is None:
        return None
    kind = int(between_slots(arrays.ring_pairs).any(axis=(1, 2)).argmax())
    matrix, hidden_s = arrays.ring_times[kind], arrays.reduce_hidden_s
    off = ~np.eye(problem.nodes, dtype=bool)
    first_s = float(np.quantile(arrays.reduce_s[matrix[0]][off], FIRST_REDUCTION))
    after_s = np.full(len(matrix), -step_s)
    after_s[0] = max(0.0, first_s - hidden_s[0]) + tail_bound_s(problem)
    found = period_limits(problem, chains, after_s, step_s, stopped)
    if found is None:
        return None
    both_s = both_ways_s(problem)
    least_s = (both_s + np.diag(np.full(problem.nodes, np.inf))).min(axis=1)
    slower = least_s / np.median(least_s)
    work_s = found.unit_s[:, None] * np.maximum(arrays.slowdown, 1.0)

    def at(trial_s: float) -> GridLimits:
        most_s, rounds = np.full((len(matrix), len(matrix)), np.inf), np.ones((len(matrix), len(matrix)))
        row_s = (trial_s - found.rest_s) / found.rounds
        for row in np.argsort(-row_s, kind="stable"):
            ends = found.first[row], found.last[row]
            most_s[ends], rounds[ends] = row_s[row], found.rounds[row]
        return GridLimits(
            both_s=both_s,
            apart_s=both_s / slower[:, None] / slower,
            work_s=work_s,
            most_s=most_s,
            rounds=rounds,
            link_s=arrays.reduce_s,
            matrix=matrix,
            ring_s=first_s - hidden_s[0] + hidden_s + found.end_s[0] - found.end_s,
            curve=CURVE / trial_s,
        )

    return at


def excess_s(grid: IntArray, limits: GridLimits) -> float:
    """Cost of all excesses of a grid (R, P) together, in seconds: 0 where it keeps all limits."""
    routes, rings = excesses(grid, limits, 0.0)
    return float(routes.sum() + rings.sum())


def _slow_nodes(problem: PlacementProblem) -> BoolArray:
    """(N,) the nodes that are relocated: those with the slowest transfers, in the median."""
    typical_s = np.median(both_ways_s(problem), axis=1)
    slow = np.zeros(problem.nodes, dtype=bool)
    slow[np.argsort(-typical_s, kind="stable")[: problem.nodes // SLOW_ONE_IN]] = True
    return slow


def relocated(grid: IntArray, limits: GridLimits, slow: BoolArray, random: np.random.Generator) -> IntArray:
    """``grid`` (R, P) after one node of what exceeds its limits has changed places, with the nodes nearest to it.

    These, none of them ``slow`` (N,), come before, behind and beside it on the ring.  The node is drawn by the
    excess that it is part of, a slow one if there is any; who gives way goes to where the other came from.
    """
    replicas, ranks = grid.shape
    result, routes = grid.copy(), excesses(grid, limits, 0.0)[0]
    links = limits.link_s[limits.matrix, grid, np.roll(grid, -1, axis=0)] - limits.ring_s
    over = np.maximum(0.0, links)
    weight = routes[:, None] + over + np.roll(over, 1, axis=0)
    weight = weight * slow[grid] if (weight * slow[grid]).any() else weight
    node = int(random.choice(grid.ravel(), p=weight.ravel() / weight.sum()))
    r = int(random.integers(replicas))
    s = ranks - 1 - min(ranks - 1, int(random.exponential(LATE * ranks)))
    beside = [(r, t) for t in (s - 1, s + 1) if 0 <= t < ranks] + [((r + 1) % replicas, s), ((r - 1) % replicas, s)]
    nearest = np.argsort(limits.both_s[node], kind="stable")
    nearest = nearest[(nearest != node) & ~slow[nearest] & np.isin(nearest, grid)][: len(beside)]
    for other, cell in zip([node, *random.permutation(nearest).tolist()], [(r, s), *beside], strict=False):
        if cell == (r, s) or result[cell] != node:
            result[result == other] = result[cell]
            result[cell] = other
    return result
