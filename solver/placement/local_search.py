"""Local search for assignments: annealing, again and again from the best found, exact at every move."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import cycle
from typing import Final, NamedTuple

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.compiled import step_seconds, violations
from solver.compiled_chains import chain_orders
from solver.compiled_search import anneal_round
from solver.placement.bad_nodes import MOST_BAD_RANKS, worst_first
from solver.placement.problem import NO_SLOT, PlacementProblem
from solver.placement.search_tables import both_ways_s, search_state, search_tables
from solver.search_types import State, Tables

CHAINS: Final = 8
"""Chains along fast links that are tried as starts."""
PROBES: Final = 64
"""Random moves that set the first temperature: what they change on average."""
LEAST_SHARE: Final = 1e-6
"""Share of the step that the first temperature is where they change nothing."""
COLD: Final = 1e-3
"""The last temperature, as a share of the first of its annealing."""
HEATS: Final = (1.0, 0.3, 0.3, 3.0, 0.3)
"""First temperatures of the annealings, in turn, as shares of the very first: most stay near the best found."""
FIRST_MOVES_PER_SLOT: Final = 100
"""Moves of the first annealing; each one after it is longer by ``LONGER``."""
LONGER: Final = 1.5
DESCENT_PER_SLOT: Final = 10
"""Moves of the descent before the first annealing: from a start that is good already it finds most of all."""
DESCENT_HEAT: Final = 1e-5
MEAN_WEIGHT: Final = 0.03
"""Weight of the means over replicas and rings beside the slowest at the start of an annealing.

The slowest alone says nothing of what a move does to all others, and slow nodes go to good places only together. By
the end it falls to what leads over plateaus.
"""
GATHERED_MOVES_PER_SLOT: Final = 800
"""Moves of an annealing after nodes near one another were gathered."""
GATHERED_HEAT: Final = 0.1
"""Its first temperature: cool enough to keep what was gathered where that pays."""
LEAST_ROUNDS: Final = 4
"""Rounds of an annealing, at each of which it falls."""
ROUND_EVENTS: Final = 4e7
"""Events that a round of moves simulates at most, were every move to change two replicas: 0.1 s or so."""


class Found(NamedTuple):
    """The best assignment (K,) found, its step time in seconds, and how often it breaks the rules."""

    assignment: IntArray
    step_s: float
    violations: int


class _Known(NamedTuple):
    """Inputs of every search of a problem: tables, the best chain, and the better of it and the order as given."""

    tables: Tables
    order: IntArray
    chain: IntArray


def pairs_per_move(problem: PlacementProblem) -> int:
    """Pairs of nodes that a move looks up on average: of terms of two slots, of all where switches are shared."""
    tables = _known(problem).tables
    pairs = np.diff(tables.terms.first)
    if len(tables.sharing.bytes_per_s):
        return 2 * int(pairs.sum())
    return 2 * int(pairs[tables.terms.slot_terms].sum()) // problem.slots


def search_placement(
    problem: PlacementProblem,
    *,
    moves: int,
    seed: int,
    start: IntArray | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Found:
    """The best assignment found: fewest violations of the problem's rules first, then the shortest step.

    Tries the order as given and chains along fast links, then anneals from the best of them for ``moves`` moves.
    The same problem, seed and moves give the same answer, unless ``stopped``, asked every 0.1 s or so, says yes.
    """
    known = _known(problem)
    order = known.order
    if start is not None:
        order = min((_complete(start, problem.nodes), known.chain), key=lambda entry: _judged(problem, entry))
    if problem.nodes > 1:
        order = _annealed(problem, known.tables, order, moves, seed, stopped)
    assignment = order[: problem.slots].copy()
    broken, step_s = _judged(problem, assignment)
    return Found(assignment, step_s, broken)


def bad_nodes_together(problem: PlacementProblem) -> IntArray:
    """An assignment (K,): the worst nodes on the ranks that lose least by them, all others along the best chain.

    Which ranks these are is told by filling each in turn; as many are filled as the step is shortest with.
    """
    chain, worst = _known(problem).order, worst_first(problem)[0]
    cells, spare = problem.arrays.cell_slots.swapaxes(0, 1), problem.nodes - problem.slots

    def filled(ranks: Sequence[int]) -> IntArray:
        slots = np.setdiff1d(cells[ranks], NO_SLOT)
        bad = worst[: spare + len(slots)]
        others = chain[~np.isin(chain, bad)]
        result = np.empty(problem.slots, dtype=np.int64)
        result[slots] = bad[spare:]
        result[np.setdiff1d(np.arange(problem.slots), slots)] = others
        return result

    ranks = sorted(range(len(cells)), key=lambda rank: _judged(problem, filled([rank])))
    tried = [chain[: problem.slots], *(filled(ranks[:count]) for count in range(1, MOST_BAD_RANKS + 1))]
    return min(tried, key=lambda assignment: _judged(problem, assignment))


def _judged(problem: PlacementProblem, order: IntArray) -> tuple[int, float]:
    """How often an order breaks the rules, and its step time."""
    assignment = order[: problem.slots]
    return int(violations(assignment, problem.arrays.rules)), float(step_seconds(assignment, problem.arrays)[0])


@lru_cache(maxsize=1)
def _known(problem: PlacementProblem) -> _Known:
    """The last problem's is kept, for one problem is searched several times."""
    both_s = both_ways_s(problem)
    chains = chain_orders(both_s, np.arange(0, problem.nodes, 4)[:CHAINS])
    chain = min(chains, key=lambda entry: _judged(problem, entry))
    order = min((np.arange(problem.nodes), chain), key=lambda entry: _judged(problem, entry))
    return _Known(search_tables(problem, both_s), order, chain)


def _annealed(
    problem: PlacementProblem, tables: Tables, order: IntArray, moves: int, seed: int, stopped: Callable[[], bool]
) -> IntArray:
    """The best order met, by a descent and annealings, most of them from the best of those before."""
    seeds = _numbers(seed)
    first_s = _first_temperature_s(tables, order, next(seeds))
    best: IntArray = order
    best_scores: tuple[float, ...] = (np.inf, np.inf, np.inf)
    for number, (length, heat) in enumerate(_annealings(problem.slots, moves)):
        # what the descent found may lie in a deep valley, and the annealing after it should look for another
        anew = number == 1 and heat == HEATS[0]
        state = search_state(tables, order if anew else best)
        scores = _anneal(problem, tables, state, length, (first_s, heat), seeds, stopped)
        if scores < best_scores:
            best, best_scores = state.best, scores
        if stopped():
            break
    return best


def _first_temperature_s(tables: Tables, order: IntArray, seed: int) -> float:
    """Mean change of the step, in seconds, by random moves from ``order``."""
    state = search_state(tables, order)
    anneal_round(tables, state, PROBES, seed, 0.0, 0.0)
    return max(float(state.scores[2]), LEAST_SHARE * float(state.scores[4]))


def _anneal(
    problem: PlacementProblem,
    tables: Tables,
    state: State,
    length: int,
    temperature: tuple[float, float],
    seeds: Iterator[int],
    stopped: Callable[[], bool],
) -> tuple[float, ...]:
    """Scores of the best met in one annealing of ``length`` moves from a ``state``, lowest first.

    ``temperature``: seconds that a random move changes, and the share of them to begin with.
    """
    state.scores[2] = temperature[0]
    hot = temperature[0] * temperature[1]
    move_events = 2 * len(problem.schedule.rank) + max(1000, pairs_per_move(problem))
    rounds = max(LEAST_ROUNDS, -(-length // max(1, int(ROUND_EVENTS / move_events))))
    falls = COLD ** (1 / rounds)
    fades = (tables.mean_weight / MEAN_WEIGHT) ** (1 / (rounds - 1))
    for index in range(rounds):
        if stopped():
            break
        share = length * (index + 1) // rounds - length * index // rounds
        weighed = tables._replace(mean_weight=MEAN_WEIGHT * fades**index)
        anneal_round(weighed, state, share, next(seeds), hot * falls**index, hot * falls ** (index + 1))
    return tuple(state.scores[3:])


def improve_placement(
    problem: PlacementProblem,
    start: IntArray,
    *,
    moves: int,
    seed: int,
    stopped: Callable[[], bool] = lambda: False,
) -> Found:
    """The best met near ``start`` (K,), which it is never worse than, in about so many ``moves``.

    Again and again nodes near one another are gathered on a rank or in a replica of the best known, which no single
    move does, and what this breaks is annealed coolly.  Deterministic as ``search_placement`` is.
    """
    known, seeds, random = _known(problem), _numbers(seed), np.random.default_rng(seed)
    cells, both_s = problem.arrays.cell_slots, both_ways_s(problem)
    order = best = _complete(start, problem.nodes)
    judged = _judged(problem, best)
    length = max(1, min(moves, GATHERED_MOVES_PER_SLOT * problem.slots))
    if problem.nodes == 1:  # a move needs two
        return Found(best[: problem.slots].copy(), judged[1], judged[0])
    first_s = _first_temperature_s(known.tables, order, next(seeds))
    for _ in range(moves // length):
        line = int(random.integers(sum(cells.shape[:2])))
        slots = cells[:, line - len(cells)] if line >= len(cells) else cells[line]
        order = _gathered(best, np.unique(slots[slots >= 0]), both_s[int(random.integers(problem.nodes))])
        state = search_state(known.tables, order)
        _anneal(problem, known.tables, state, length, (first_s, GATHERED_HEAT), seeds, stopped)
        met = _judged(problem, state.best)
        if met < judged:
            best, judged = state.best, met
        if stopped():
            break
    return Found(best[: problem.slots].copy(), judged[1], judged[0])


def anneal_near(
    problem: PlacementProblem,
    start: IntArray,
    *,
    moves: int,
    heat: float,
    seed: int,
    stopped: Callable[[], bool] = lambda: False,
) -> Found:
    """The best met in one annealing from ``start`` (K,), ``heat`` being its first temperature as in ``HEATS``."""
    known, seeds = _known(problem), _numbers(seed)
    state = search_state(known.tables, _complete(start, problem.nodes))
    first_s = _first_temperature_s(known.tables, known.order, next(seeds))
    _anneal(problem, known.tables, state, moves, (first_s, heat), seeds, stopped)
    assignment = state.best[: problem.slots].copy()
    broken, step_s = _judged(problem, assignment)
    return Found(assignment, step_s, broken)


def _gathered(order: IntArray, slots: IntArray, away_s: FloatArray) -> IntArray:
    """``order`` with the nodes of the least ``away_s`` (N,) on ``slots``; others give way to where these were."""
    near = np.argsort(away_s, kind="stable")[: len(slots)]
    result = order.copy()
    free = slots[~np.isin(order[slots], near)]
    for slot, node in zip(free.tolist(), near[~np.isin(near, order[slots])].tolist(), strict=True):
        result[np.flatnonzero(result == node)[0]] = result[slot]
        result[slot] = node
    return result


def _annealings(slots: int, moves: int) -> Iterator[tuple[int, float]]:
    """Moves of each annealing, and its first temperature as a share of the very first.

    Annealings too short for what they heat up would only lose what the descent has found, so they are cooler.
    """
    descent = min(moves, DESCENT_PER_SLOT * slots)
    yield descent, DESCENT_HEAT
    moves -= descent
    length = float(FIRST_MOVES_PER_SLOT * slots)
    for heat in cycle(HEATS):
        if moves <= 0:
            return
        # what is left after the next one would be too short to find anything
        now = moves if moves < 2 * length else int(length)
        yield now, max(DESCENT_HEAT, heat * min(1.0, (now / length) ** 2))
        moves -= now
        length *= LONGER


def _numbers(seed: int) -> Iterator[int]:
    """Seeds of rounds."""
    random = np.random.default_rng(seed)
    while True:
        yield int(random.integers(2**32))


def _complete(assignment: IntArray, nodes: int) -> IntArray:
    """``assignment`` followed by the nodes it leaves out."""
    rest = np.setdiff1d(np.arange(nodes), assignment)
    return np.concatenate([assignment, rest])
