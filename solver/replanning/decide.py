"""The decision about a batch of failures: options of all touched jobs, chosen together, with a proof.

Column generation: every job starts with a few options; the relaxation of the master program (``program``) says what
GPUs are worth, and jobs work out further options at those prices until none would enter or the gap is closed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from cluster_models.jobs.recovery import BatchDecision, RecoveryAction
from cluster_models.training.plan import StopReason
from solver.problem import IsCancelled, SearchOptions
from solver.replanning.affected_jobs import asked_columns, standing_still
from solver.replanning.batch_decision import conclude
from solver.replanning.check import gap_of
from solver.replanning.columns import JobColumns, first_options, swaps
from solver.replanning.fewest_moves import with_fewest_moves
from solver.replanning.node_allocation import realise
from solver.replanning.optimistic import NO_SIZES
from solver.replanning.options import Answer
from solver.replanning.prepared import PreparedJob, fitting_options
from solver.replanning.problem import RecoveryOption, ReplanOptions, ReplanProblem
from solver.replanning.program import Gpu, Limits, Prices, Promise, Relaxed, choose, prices, relaxed
from solver.replanning.promises import POOL, Ask, asks_of, price_of, unpriced
from solver.replanning.safe import safe_answer
from solver.replanning.shapes import FINE, ShapeBook, books_of
from solver.replanning.touched import free_gpus, held_gpus, spare_gpus, touched
from solver.replanning.values import WORTH_MOVING
from solver.replanning.working_out import grown, work_out

__all__ = ["OnReplanProgress", "ReplanProgress", "decide", "safe_answer"]
ROUNDS: Final = 6
"""Rounds of pricing at effort 1."""
SHAPE_LIMIT_S: Final = 10.0
"""For one search of another shape."""
SAME: Final = 1e-5
"""Share of a decision's worth below which two are worth the same whatever the gap asked for."""
SIZES_A_ROUND: Final = 2
"""Numbers of GPUs for which one job works out an action in one round."""


@dataclass(frozen=True, slots=True)
class ReplanProgress:
    """One line of progress; ``objective``, ``bound`` and ``gap`` are ``None`` while nothing was chosen."""

    elapsed_s: float
    phase: str
    jobs: int
    options: int
    objective: float | None
    bound: float | None
    gap: float | None


OnReplanProgress = Callable[[ReplanProgress], None]


@dataclass(frozen=True, slots=True)
class Beside:
    """Options of jobs that do not train but share the spares; one at least for each id holds no spare.

    ``promises`` say what no others of them are worth more than.
    """

    options: tuple[RecoveryOption, ...] = ()
    promises: tuple[Promise, ...] = ()


@dataclass(frozen=True, slots=True)
class DecidedBeside:
    """Decision about training jobs, and the options ``chosen`` beside them, by id; ``bound`` is that of both."""

    batch: BatchDecision
    chosen: Mapping[str, RecoveryOption]
    bound: float


@dataclass(slots=True, eq=False)
class _Search:
    """State of the search; ``chosen`` is the best choice of one option a job, by job id."""

    problem: ReplanProblem
    options: ReplanOptions
    columns: list[JobColumns]
    limits: Limits
    started: float
    chosen: dict[str, RecoveryOption]
    beside: Beside = field(default_factory=Beside)
    books: dict[str, ShapeBook | None] = field(default_factory=dict)
    asks: dict[str, tuple[Ask, ...]] = field(default_factory=dict)
    bound: float = float("inf")

    @property
    def objective(self) -> float:
        return sum(option.value_flop for option in self.chosen.values())

    @property
    def remaining_s(self) -> float:
        return self.options.time_limit_s - (time.monotonic() - self.started)

    def is_time_up(self) -> bool:
        return self.remaining_s <= 0

    def shape_options(self) -> SearchOptions:
        """Options of a search for another shape that begins now."""
        options = self.options
        return SearchOptions(
            time_limit_s=min(SHAPE_LIMIT_S * options.effort, max(0.1, self.remaining_s)),
            effort=options.effort,
            seed=options.seed,
            gap=FINE * options.gap,
            backend=options.backend,
            alternatives=0,
        )

    @property
    def every_option(self) -> list[RecoveryOption]:
        return [*(option for columns in self.columns for option in columns.options), *self.beside.options]

    @property
    def promises(self) -> list[Promise]:
        return [*(ask.promise for asks in self.asks.values() for ask in asks), *self.beside.promises]

    @property
    def gap(self) -> float:
        return gap_of(self.objective, self.bound)


def decide(
    problem: ReplanProblem,
    options: ReplanOptions | None = None,
    *,
    prepared: Sequence[PreparedJob] = (),
    on_progress: OnReplanProgress | None = None,
    is_cancelled: IsCancelled | None = None,
) -> BatchDecision:
    """The best decision found within the budget, with its bound; what was ``prepared`` is among its options.

    Every job in question gets an option, at worst to pause.  The order of jobs and spares in ``problem`` does not
    matter.
    """
    found = decide_beside(
        problem, Beside(), options, prepared=prepared, on_progress=on_progress, is_cancelled=is_cancelled
    )
    return found.batch


def decide_beside(
    problem: ReplanProblem,
    beside: Beside,
    options: ReplanOptions | None = None,
    *,
    prepared: Sequence[PreparedJob] = (),
    on_progress: OnReplanProgress | None = None,
    is_cancelled: IsCancelled | None = None,
) -> DecidedBeside:
    """As ``decide``, together with what shares the spares."""
    options, started = options or ReplanOptions(), time.monotonic()
    asked = asked_columns(problem, touched(problem))
    ids = {column.job.id for column in asked}
    aside = standing_still(problem, asked, sum(len(held_gpus(job)) for job in problem.jobs if job.id not in ids))
    columns = [column for column in asked if not column.is_aside]
    for column in columns:
        for known in (known for known in prepared if known.job_id == column.job.id):
            column.add(fitting_options(problem, column.job, known))
    search = _Search(problem, options, columns, limits_of(problem, columns), started, {}, beside)

    def told(phase: str) -> None:
        if on_progress is not None:
            on_progress(_progress(search, phase))

    stopped_by = _run(search, told, is_cancelled)
    _settle(search)
    solver = f"{options.backend} behind a relaxation by highs"
    own = {column.job.id for column in columns}
    others = {job_id: option for job_id, option in search.chosen.items() if job_id not in own}
    chosen = {job_id: option for job_id, option in search.chosen.items() if job_id in own}
    bound = search.bound - sum(option.value_flop for option in others.values())
    batch = conclude(problem, asked, chosen | aside, bound=bound, stopped_by=stopped_by, solver=solver)
    return DecidedBeside(batch, others, search.bound)


def limits_of(problem: ReplanProblem, columns: Sequence[JobColumns]) -> Limits:
    """Limits of all jobs: GPUs that may be given out, and the budget beside frozen jobs."""
    asked = {column.job.id for column in columns}
    frozen = sum(len(held_gpus(job)) for job in problem.jobs if job.id not in asked)
    budget = None if problem.gpu_budget is None else max(0, problem.gpu_budget - frozen)
    return Limits(budget, {POOL: free_gpus(problem, [column.job for column in columns])})


def greedy(
    columns: Sequence[JobColumns], limits: Limits, fixed: dict[str, RecoveryOption] | None = None
) -> dict[str, RecoveryOption]:
    """For one job after the other the best of its options that the jobs before it leave possible.

    Jobs that are protected are left alone.
    """
    kept = {column.job.id: column.alone for column in columns if column.is_protected}
    chosen = {job_id: option for job_id, option in kept.items() if option is not None} | (fixed or {})
    taken: set[Gpu] = {gpu for option in chosen.values() for gpu in option.holds}
    for column in columns:
        if column.job.id in chosen:
            continue
        room = None if limits.gpu_budget is None else limits.gpu_budget - len(taken)
        possible = [
            option
            for option in column.options
            if taken.isdisjoint(option.holds) and (room is None or len(option.holds) <= room)
        ]
        best = max(possible, key=lambda option: (option.value_flop, -len(option.holds)))
        chosen[column.job.id] = best
        taken |= best.holds
    return chosen


def _run(search: _Search, told: Callable[[str], None], is_cancelled: IsCancelled | None) -> StopReason:
    """Work out options and choose among them until the gap is closed or something stops it."""
    if not search.columns and not search.beside.options:
        search.bound = 0.0
        return StopReason.PROVEN
    _first_round(search)
    told("first options")
    search.books = books_of(search.columns, is_time_up=search.is_time_up)
    _promise(search)
    told("bounds")
    for _ in range(ROUNDS * search.options.effort):
        best = _choose(search)
        told("pricing")
        if is_cancelled is not None and is_cancelled():
            return StopReason.CANCELLED
        if search.gap <= search.options.gap:
            return StopReason.PROVEN
        if search.is_time_up():
            return StopReason.TIME_LIMIT
        if not _next_round(search, best):
            break
    ending = StopReason.TIME_LIMIT if search.is_time_up() else StopReason.WORK_LIMIT
    _choose(search)
    told("choosing")
    return StopReason.PROVEN if search.gap <= search.options.gap else ending


def _first_round(search: _Search) -> None:
    """Options of every job with free spares, then swaps onto whatever others could give up as well.

    A job gets what the best options of those before it leave.  Once the time is up, jobs that are left get what
    needs no placement.
    """
    free = {node for node, _ in spare_gpus(search.problem)}
    taken: set[str] = set()
    for columns in search.columns:
        spares = [name for name in columns.pool if name in free and name not in taken]
        first_options(columns, spares, in_full=not search.is_time_up())
        if not search.is_time_up():
            columns.add(grown(columns, spares, search.shape_options))
        taken |= _taken(columns)
    taken.clear()
    for columns in search.columns:
        if not search.is_time_up() and not free.issuperset(columns.pool):
            columns.add(swaps(columns, [name for name in columns.pool if name not in taken]))
        taken |= _taken(columns)
    search.chosen = greedy(search.columns, search.limits)
    for option in sorted(search.beside.options, key=lambda option: -option.value_flop):
        taken_gpus = {gpu for each in search.chosen.values() for gpu in each.holds}
        if option.job_id not in search.chosen and taken_gpus.isdisjoint(option.holds):
            search.chosen[option.job_id] = option


def _taken(columns: JobColumns) -> set[str]:
    """The nodes that the job's best option takes from jobs after it."""
    best = columns.best
    return set() if best.action is RecoveryAction.WAIT else {node for node, _ in best.holds}


def _promise(search: _Search) -> None:
    """Bound the options that nobody has worked out, by peak rates once the time is up."""
    for columns in search.columns:
        if search.is_time_up():
            search.asks.setdefault(columns.job.id, (unpriced(columns),))
            continue
        book = search.books.get(columns.job.id)
        sizes = NO_SIZES if book is None else book.upper()
        search.asks[columns.job.id] = asks_of(columns, search.limits.pools[POOL], sizes)


def _next_round(search: _Search, best: Relaxed | None) -> bool:
    """Whether any job worked out more: what would be worth the bound, and what enters at the prices of GPUs."""
    found = False
    if best is not None:
        found = realise(
            search.problem,
            search.columns,
            best.picked,
            search.asks,
            search.books,
            search.shape_options,
            is_time_up=search.is_time_up,
        )
    priced = prices(search.every_option, (), search.limits)
    for columns in search.columns:
        known = len(columns.options) + len(columns.refused)
        for answer in _answers(search, columns, priced):
            columns.add([answer])
        found |= len(columns.options) + len(columns.refused) > known
    _promise(search)
    return found


def _answers(search: _Search, columns: JobColumns, priced: Prices) -> Iterator[Answer]:
    """Options that the job works out at these prices: asks whose promise beats them, by how much they do."""
    options, job_price = search.options, priced.jobs[columns.job.id]
    node_prices = _by_node(priced.gpus)
    nodes = sorted(columns.pool, key=lambda name: node_prices.get(name, 0.0))
    pool = sorted(priced.gpus.get(gpu, 0.0) for gpu in search.limits.pools[POOL])
    cheapest = list(accumulate(pool, initial=0.0))
    enough = options.gap / 2 * max(job_price, priced.bound / len(search.columns))
    gains = [
        (ask.promise.value_flop - price_of(ask, priced.gpus, cheapest, priced.budget) - job_price, ask)
        for ask in search.asks[columns.job.id]
    ]
    book, worked = search.books.get(columns.job.id), Counter[RecoveryAction]()
    for gain, ask in sorted(gains, key=lambda pair: -pair[0]):
        if gain <= enough or search.is_time_up():
            break
        if worked[ask.action] == SIZES_A_ROUND * options.effort:
            continue
        answers = list(work_out(columns, ask, nodes, book, search.shape_options, prices=node_prices))
        worked[ask.action] += bool(answers)
        yield from answers


def _by_node(gpus: Mapping[Gpu, float]) -> dict[str, float]:
    """Prices of GPUs added up over their nodes."""
    found: dict[str, float] = {}
    for (node, _), price in sorted(gpus.items()):
        found[node] = found.get(node, 0.0) + price
    return found


def _choose(search: _Search) -> Relaxed | None:
    """The best choice among the options known, and the lowest bound known of all of them and the others.

    Returns the relaxed choice that is worth the bound, where that leaves a gap.
    """
    options, every, promises = search.options, search.every_option, search.promises
    backend, effort, limit_s = options.backend, options.effort, max(1.0, search.remaining_s)
    choice = choose(every, search.limits, backend=backend, time_limit_s=limit_s, effort=effort)
    if choice is not None and choice.objective >= search.objective:
        search.chosen = dict(choice.chosen)
    search.bound = min(search.bound, prices(every, promises, search.limits).bound)
    if search.gap <= options.gap:
        return None
    best = relaxed(every, promises, search.limits, backend=backend, time_limit_s=limit_s, effort=effort)
    search.bound = min(search.bound, best.bound)
    return best if best.picked else None


def _settle(search: _Search) -> None:
    """Take the choice that moves fewest ranks among those that predictions cannot tell apart.

    Where the gap asked for is proven it stays so.
    """
    slack_flop = WORTH_MOVING * abs(search.objective)
    if search.gap <= search.options.gap:
        open_flop = search.objective - search.bound * (1 - search.options.gap)
        slack_flop = max(SAME * abs(search.objective), min(slack_flop, open_flop))
    search.chosen = dict(
        with_fewest_moves(
            search.every_option,
            search.limits,
            search.chosen,
            slack_flop=slack_flop,
            backend=search.options.backend,
            time_limit_s=max(1.0, search.remaining_s),
            effort=search.options.effort,
        )
    )


def _progress(search: _Search, phase: str) -> ReplanProgress:
    bound = search.bound if search.bound < float("inf") else None
    return ReplanProgress(
        elapsed_s=time.monotonic() - search.started,
        phase=phase,
        jobs=len(search.columns),
        options=len(search.every_option),
        objective=search.objective,
        bound=bound,
        gap=None if bound is None else search.gap,
    )
