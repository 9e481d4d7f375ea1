"""From a choice among promises to options on nodes that no two jobs share.

Jobs that get by with fewer GPUs than they have come first: what they leave serves those that need more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from cluster_models.jobs.recovery import ConsideredAction
from solver.problem import SearchOptions
from solver.replanning.columns import JobColumns
from solver.replanning.problem import RecoveryOption, ReplanProblem
from solver.replanning.program import Gpu, Promise
from solver.replanning.promises import Ask
from solver.replanning.shapes import ShapeBook
from solver.replanning.touched import live_gpus, spare_gpus
from solver.replanning.working_out import further_nodes, work_out


def realise(
    problem: ReplanProblem,
    columns: Sequence[JobColumns],
    picked: Mapping[str, RecoveryOption | Promise],
    asks: Mapping[str, Sequence[Ask]],
    books: Mapping[str, ShapeBook | None],
    options: Callable[[], SearchOptions],
    *,
    is_time_up: Callable[[], bool],
) -> bool:
    """Work out the promises among ``picked`` one after the other until the time is up; whether that gave options.

    ``options``: of a search that begins now.
    """
    free = set(spare_gpus(problem))
    found = 0
    for column in sorted(columns, key=lambda column: _further(problem, column, picked)):
        pick = picked[column.job.id]
        option: RecoveryOption | None = None
        if isinstance(pick, RecoveryOption):
            option = pick
        elif not is_time_up():
            ask = next(ask for ask in asks[column.job.id] if ask.promise is pick)
            nodes = list(_open_nodes(problem, column, free))
            option, new = keep_promise(column, ask, nodes, books.get(column.job.id), options)
            found += new
        if option is not None:
            free |= live_gpus(problem, column.job)
            free -= option.holds
    return found > 0


def _further(
    problem: ReplanProblem, column: JobColumns, picked: Mapping[str, RecoveryOption | Promise]
) -> tuple[bool, float, str]:
    """Sorts jobs: those that need no GPUs beyond their own first, then those of most worth."""
    job, pick = column.job, picked[column.job.id]
    gpus = pick.gpus if isinstance(pick, Promise) else len(pick.holds)
    return gpus > len(live_gpus(problem, job)), -job.weight * job.flops_per_s, job.id


def _open_nodes(problem: ReplanProblem, column: JobColumns, free: set[Gpu]) -> Iterator[str]:
    """Nodes of the job's pool of which it can have all GPUs that are not held elsewhere."""
    gpus = column.job.plan.placement.gpus_per_node
    for name in column.pool:
        if sum((name, gpu) in free for gpu in problem.nodes[name].free_gpus) >= gpus:
            yield name


def keep_promise(
    column: JobColumns, ask: Ask, nodes: Sequence[str], book: ShapeBook | None, options: Callable[[], SearchOptions]
) -> tuple[RecoveryOption | None, int]:
    """The best option of ``ask`` on ``nodes`` that takes no more than was promised, and how many are new.

    Else the best known one; where none takes so little the best of ``ask`` all the same.
    """
    answers = list(work_out(column, ask, nodes, book, options))
    new = len(column.add(answers))
    found = [answer for answer in answers if not isinstance(answer, ConsideredAction)]
    own, usable = set(column.job.nodes), {*nodes, *column.job.nodes}
    known = [
        option
        for option in column.options
        if (held := {node for node, _ in option.holds}) <= usable and len(held - own) <= further_nodes(column, ask)
    ]
    for every in (found, known):
        if kept := [option for option in every if len(option.holds) <= ask.gpus]:
            return max(kept, key=lambda option: option.value_flop), new
    return max(found, key=lambda option: option.value_flop, default=None), new
