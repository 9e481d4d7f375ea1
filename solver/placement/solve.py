"""One placement problem from a first guess to a proof: an anytime search with a bound.

Rounds of twice the work each: local searches look for something better while another thread looks for a proof that
there is nothing.  Few slots are enumerated instead.  The result depends on the problem,
the seed and the work; time and cancelling only cut the rounds short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import TYPE_CHECKING, Final

import numpy as np

from solver.candidates import IntArray
from solver.compiled import step_seconds, violations
from solver.placement.exhaustive import Enumeration
from solver.placement.local_search import Found
from solver.placement.problem import PlacementProblem
from solver.placement.search_rounds import SEEDS_PER_ROUND, moves_of_round, search_round

if TYPE_CHECKING:
    from solver.placement.branch_and_price import BranchAndPrice

IDLE_ROUNDS: Final = 2
"""Rounds of proof in a row that raise nothing, each with twice the work, before other things are tried."""
FIRST_BOUND_WORK: Final = 2e8
"""Least work on the first bound in the packing's unit, about a nanosecond; each round doubles it."""
NS_PER_MOVE: Final = 3e3
NS_PER_EVENT: Final = 3.5
"""A move of a search takes so long, and so much longer for each forward and backward of a replica."""
PERIOD_WORK: Final = 2e10
"""Most work on the bound by periods, in the same unit."""
PERIOD_ROUNDS: Final = 3
"""The bound by periods is tried again every so many rounds, since the best step has changed."""
ROUNDS: Final = 14
"""Rounds of one unit of effort."""
ENUMERATED_SLOTS: Final = 9
"""Problems with at most this many slots are enumerated before anything else is tried to bound them."""
MOST_ENUMERATED_SLOTS: Final = 12
"""Most slots for enumeration beside other bounds: some take seconds, some hours."""
ENUMERATED_NODES: Final = 64
ENUMERATED_ORDERS: Final = 10**8
"""However many the nodes, where these are all the ways to choose them."""
FIRST_SLICES: Final = 12
"""Slices of an enumeration that knows only the starts: often it ends here, and nothing else need be loaded."""
ENUMERATION_SLICES: Final = 40
"""Slices of about 30 ms of the first part of an enumeration; each round of proof does twice as many."""


@dataclass(frozen=True, slots=True, eq=False)
class PlacementOutcome:
    """The best assignment (K,) found, its step time, and a step time that no assignment beats, in seconds.

    ``violations`` counts slots that break a rule: where it is not 0, no assignment that keeps them all was found,
    and ``bound_s`` says nothing about this one.
    """

    assignment: IntArray
    step_s: float
    bound_s: float
    violations: int = 0

    @property
    def gap(self) -> float:
        """The share of the step that a better assignment could save at most."""
        return (self.step_s - self.bound_s) / self.step_s if self.step_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """``rounds`` is the work and decides the answer.

    It ends early once the gap is at most ``gap``, or nothing can be faster than ``target_s``, or no time remains.
    """

    gap: float = 0.0
    seed: int = 0
    rounds: int = ROUNDS
    target_s: float = np.inf


WAIT_S: Final = 0.05
OnOutcome = Callable[[PlacementOutcome], None]


@dataclass(slots=True, eq=False)
class _Solving:
    """A problem with the best that is known of it so far; ``searched`` by the rounds of search."""

    problem: PlacementProblem
    options: SolveOptions
    remaining_s: Callable[[], float]
    on_outcome: OnOutcome
    best: PlacementOutcome
    stopped: bool = False
    searched: Found | None = None
    search: BranchAndPrice | None = None
    searches: list[Future[IntArray]] = field(default_factory=list)
    told: int = 0
    heard: tuple[float, float] = (np.inf, np.inf)

    def finished(self) -> bool:
        """Whether the proof is good enough, or no time remains."""
        proved = self.best.violations == 0 and self.best.gap <= self.options.gap
        return proved or self.best.bound_s >= self.options.target_s or self.is_over()

    def is_over(self) -> bool:
        """Whether no time remains, or nothing is wanted any more."""
        return self.stopped or self.remaining_s() <= 0

    def take(self, assignment: IntArray) -> None:
        """Keep ``assignment`` where it is better than the best."""
        found = _outcome(self.problem, assignment, self.best.bound_s)
        if _order(found) < _order(self.best):
            self.best = found
            self.on_outcome(found)

    def tell(self) -> None:
        """Let what finished searches found be heard of, though the proof that is going on does not use it."""
        ended = [search for search in self.searches if search.done() and not search.cancelled()]
        while len(ended) > self.told:
            found = _outcome(self.problem, ended[self.told].result(), self.best.bound_s)
            self.told += 1
            if _order(found) < min(_order(self.best), self.heard):
                self.heard = _order(found)
                self.on_outcome(found)

    def raise_bound(self, bound_s: float) -> None:
        """Keep ``bound_s`` where it says more than the bound known."""
        if bound_s > self.best.bound_s:
            self.best = replace(self.best, bound_s=_below(bound_s, self.best))
            self.on_outcome(self.best)


def solve_placement(
    problem: PlacementProblem,
    *,
    remaining_s: Callable[[], float],
    options: SolveOptions | None = None,
    known: PlacementOutcome | None = None,
    starts: Sequence[IntArray] = (),
    on_outcome: OnOutcome = lambda _: None,
) -> PlacementOutcome:
    """The best assignment found until the gap is small enough, the work is done or no time remains.

    It is never slower than what is ``known``, than any of ``starts`` (K,), nor than the nodes in the order given.
    ``remaining_s`` may say 0 to cancel; ``on_outcome`` hears of every improvement.
    """
    first = _outcome(problem, np.arange(problem.slots), 0.0) if known is None else known
    solving = _Solving(problem, options or SolveOptions(), remaining_s, on_outcome, first)
    for start in starts:
        solving.take(start)
    enumeration = _enumeration(problem, solving.best)
    if enumeration is not None and problem.slots <= ENUMERATED_SLOTS:
        _enumerate(solving, enumeration, FIRST_SLICES)
    if enumeration is None or not enumeration.complete:
        solving.take(_searched(solving, 0))
        solving.raise_bound(_cheap_bound_s(problem))
        if enumeration is not None and problem.slots <= ENUMERATED_SLOTS:
            _enumerate(solving, enumeration, ENUMERATION_SLICES)
    if not solving.finished():
        _go_on(solving, enumeration)
    return solving.best


def _go_on(solving: _Solving, enumeration: Enumeration | None) -> None:
    """Rounds of proof, and two rounds of search for each in another thread.

    A round of proof uses what the searches up to its own have found and nothing later, though they run ahead: so
    the answer does not depend on which thread is faster.
    """
    pool = ThreadPoolExecutor(1)
    try:
        searches = [pool.submit(_searched, solving, round_) for round_ in range(1, solving.options.rounds)]
        solving.searches = searches
        idle = 0
        for round_ in range(1, len(searches) // 2 + 1):
            for search in searches[2 * round_ - 2 : 2 * round_]:
                solving.take(search.result())
            if solving.finished():
                break
            if idle < IDLE_ROUNDS and not solving.best.violations:
                idle = 0 if _bound(solving, round_) else idle + 1
            elif enumeration is not None:
                _enumerate(solving, enumeration, ENUMERATION_SLICES << round_)
            else:
                solving.take(_searched(solving, 2 * round_, again=True))
        if solving.is_over():
            pool.shutdown(cancel_futures=True)
            for search in searches:
                if not search.cancelled():
                    solving.take(search.result())
    finally:
        solving.stopped = True
        pool.shutdown(cancel_futures=True)


def _outcome(problem: PlacementProblem, assignment: IntArray, bound_s: float) -> PlacementOutcome:
    step_s = float(step_seconds(assignment, problem.arrays)[0])
    broken = int(violations(assignment, problem.arrays.rules))
    return PlacementOutcome(assignment, step_s, bound_s if broken else min(bound_s, step_s), broken)


def _order(outcome: PlacementOutcome | Found) -> tuple[float, float]:
    return outcome.violations, outcome.step_s


def _below(bound_s: float, best: PlacementOutcome) -> float:
    """No bound lies above a step that keeps all rules."""
    return bound_s if best.violations else min(bound_s, best.step_s)


def _searched(solving: _Solving, round_: int, *, again: bool = False) -> IntArray:
    """The best after one round of local searches.

    ``again``: a round beside those of the other thread, whose results it must not wait for.
    """
    best = solving.best
    known = [Found(best.assignment, best.step_s, best.violations)] if again or not round_ else []
    known += [solving.searched] if solving.searched and not again else []
    found = search_round(
        solving.problem,
        round_,
        seed=solving.options.seed + (2 * round_ + again) * SEEDS_PER_ROUND,
        known=known,
        stopped=solving.is_over,
    )
    if not again:
        solving.searched = found
    return found.assignment


def _bound_work(problem: PlacementProblem, round_: int) -> float:
    """Work on the bound in one round of proof: what the searches of the next round take, so that neither waits."""
    moves = sum(moves_of_round(problem, 2 * round_ + 1 + k) for k in range(2))
    return max(FIRST_BOUND_WORK * 2.0**round_, moves * (NS_PER_MOVE + NS_PER_EVENT * len(problem.schedule.rank)))


def _cheap_bound_s(problem: PlacementProblem) -> float:
    from solver.placement.bounds import placement_bound_s  # noqa: PLC0415 - slow to import, and often not needed

    return placement_bound_s(problem)


def _bound(solving: _Solving, round_: int) -> bool:
    """One round's work on the bound, from the best known; whether it rose or is about to."""
    from solver.placement.branch_and_price import branch_and_price_of, priced_bound_s  # noqa: PLC0415 - slow, and often not needed

    before_s = solving.best.bound_s
    if round_ % PERIOD_ROUNDS == 1 and solving.problem.slots > MOST_ENUMERATED_SLOTS:
        _bound_by_periods(solving)
        if solving.finished():
            return True
    best, options = solving.best, solving.options
    solving.search = search = solving.search or branch_and_price_of(solving.problem)
    bound_s = _unless_over(
        solving,
        lambda: priced_bound_s(
            solving.problem,
            upper_s=best.step_s,
            target_s=min(options.target_s, best.step_s * (1 - options.gap)),
            work=_bound_work(solving.problem, round_),
            out_of_time=solving.is_over,
            assignment=best.assignment,
            known_s=best.bound_s,
            search=search,
        ),
    )
    # where time ended in the middle of the work, what it proved by then holds all the same
    solving.raise_bound(max(bound_s, search.bound_s if search else 0.0))
    asking = search is not None and not search.exhausted and solving.problem.slots > MOST_ENUMERATED_SLOTS
    return asking or bound_s > before_s * (1 + 1e-9)


def _bound_by_periods(solving: _Solving) -> None:
    """The fast bound for many nodes, between the bound known and the best."""
    from solver.placement.period_bound import period_bound_s  # noqa: PLC0415 - slow, and often not needed

    best, options = solving.best, solving.options
    bound_s = _unless_over(
        solving,
        lambda: period_bound_s(
            solving.problem,
            upper_s=best.step_s,
            target_s=min(options.target_s, best.step_s * (1 - options.gap)),
            work=PERIOD_WORK,
            out_of_time=solving.is_over,
            known_s=best.bound_s,
        ),
    )
    solving.raise_bound(bound_s)


def _unless_over(solving: _Solving, work: Callable[[], float]) -> float:
    """Result of ``work``, or 0 once the time is over: on hundreds of nodes it looks at the clock too seldom.

    The rest of it goes on in its thread up to its next look; the process ends after it, for a library that is
    cut off in the middle of a program ends the process with an error.
    """
    future: Future[float] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            future.set_exception(error)

    Thread(target=run).start()
    while not solving.is_over():
        wait([future], timeout=WAIT_S)
        solving.tell()
        if future.done():
            break
    return future.result() if future.done() else 0.0


def _enumeration(problem: PlacementProblem, best: PlacementOutcome) -> Enumeration | None:
    """The enumeration of a small problem, from the best that is known of it."""
    small = problem.slots <= MOST_ENUMERATED_SLOTS and problem.nodes <= ENUMERATED_NODES
    few = problem.nodes**problem.slots <= ENUMERATED_ORDERS
    if not (small or few):
        return None
    return Enumeration(problem, best.assignment, np.inf if best.violations else best.step_s)


def _enumerate(solving: _Solving, enumeration: Enumeration, slices: int) -> None:
    """Go on with the enumeration, from what the search has found since; complete, it is a proof."""
    if not solving.best.violations:
        enumeration.know(solving.best.assignment, solving.best.step_s)
    for _ in range(slices):
        enumeration.advance()
        if enumeration.complete or solving.is_over():
            break
    solving.take(enumeration.assignment)
    if enumeration.complete:
        solving.raise_bound(enumeration.step_s)
