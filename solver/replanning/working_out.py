"""From a promise to the option that keeps it best."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from cluster_models.jobs.recovery import ConsideredAction, RecoveryAction
from cluster_models.training.plan import Configuration
from solver.placement.bounds import placement_bound_s
from solver.problem import SearchOptions
from solver.replanning import options as actions
from solver.replanning.columns import JobColumns
from solver.replanning.promises import Ask
from solver.replanning.shapes import ShapeBook, alike_inside, in_shape
from solver.replanning.shrinking import data_sizes, thin_hosts, thin_widths
from solver.replanning.site import JobSite, planning_problem, prepared


def further_nodes(columns: JobColumns, ask: Ask) -> int:
    """Nodes beyond the job's own that an option of ``ask`` needs."""
    return _further(columns.views[ask.view].site, ask.gpus)


def _further(site: JobSite, gpus: int, node_gpus: int = 1) -> int:
    """Nodes for ``gpus`` GPUs beyond those of the job's own that have ``node_gpus`` for it."""
    return max(0, -(-gpus // site.gpus) - _live_nodes(site, node_gpus))


def _live_nodes(site: JobSite, gpus: int = 1) -> int:
    """The job's own nodes that have ``gpus`` GPUs for it."""
    return sum(site.resources.offers(host, gpus) for host in dict.fromkeys(site.job.nodes))


def grown(
    columns: JobColumns, nodes: Sequence[str], options: Callable[[], SearchOptions]
) -> Iterator[actions.Answer]:
    """A job that lost replicas as it runs, with as many of them again as ``nodes`` leave room for; else nothing.

    It takes no search: an answer is at hand however little time there is.
    """
    job, view = columns.job, columns.views[0]
    configuration, gpus = job.plan.configuration, view.site.gpus
    replica = configuration.degrees.gpus // configuration.degrees.data
    most = min(job.wanted_gpus or 0, (_live_nodes(view.site, gpus) + len(nodes)) * gpus) // replica
    for data in range(most if job.recovery.may_reshape else 0, configuration.degrees.data, -1):
        larger = configuration.with_data(data)
        if (job.wanted_batch or view.site.asked.workload.global_batch) % (data * larger.micro_batch) == 0:
            yield in_shape(view, nodes[: _further(view.site, larger.degrees.gpus, gpus)], larger, options())
            return


def work_out(
    columns: JobColumns,
    ask: Ask,
    nodes: Sequence[str],
    book: ShapeBook | None,
    options: Callable[[], SearchOptions],
    *,
    prices: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[actions.Answer]:
    """The option that keeps the promise of ``ask`` best on the first of ``nodes``, as many as it needs.

    Options that make more of the same nodes come before it; none where ``ask`` was worked out before.  ``book``:
    the shapes of the job; ``options``: of a search for one that begins now; ``prices``: FLOPs that nodes must be
    worth, among which a swap chooses.
    """
    view = columns.views[ask.view]
    site, migrate = view.site, view.migrate
    if ask.action is RecoveryAction.SWAP:
        yield actions.swap(site, nodes, migrate=migrate, prices=prices)
        return
    gpus, shape = ask.gpus, None
    if ask.action is RecoveryAction.RESHAPE and book is not None:
        shape = book.search(ask.gpus, columns.job.recovery.least_gpus, options())
        gpus = ask.gpus if shape is None else shape.degrees.gpus
    taken = tuple(nodes[: further_nodes(columns, replace(ask, gpus=gpus))])
    if not columns.is_new(ask.action, ask.view, gpus, frozenset(taken)):
        return
    if ask.action is RecoveryAction.SHRINK_DATA_PARALLEL:
        degrees = site.job.plan.configuration.degrees
        replicas = gpus * degrees.data // degrees.gpus
        columns.proven.setdefault((ask.view, gpus), _best_rate(site, replicas))
        room = (_live_nodes(site) + len(taken)) * site.gpus
        if site.is_touched and room >= degrees.gpus:
            yield actions.swap(site, taken, migrate=migrate)
        elif room * degrees.data // degrees.gpus > replicas:
            yield actions.shrink(site, migrate=migrate, spares=taken)
        yield actions.shrink(site, migrate=migrate, replicas=replicas, spares=taken)
    elif shape is not None:
        yield from _in_shape(columns, ask.view, taken, nodes, shape, book, options)


def _in_shape(
    columns: JobColumns,
    number: int,
    taken: Sequence[str],
    nodes: Sequence[str],
    shape: Configuration,
    book: ShapeBook | None,
    options: Callable[[], SearchOptions],
) -> Iterator[actions.Answer]:
    """The job in ``shape`` on ``taken``, from its view of that number; then with more of ``nodes``.

    Nodes of its own that lost some of their GPUs, are slow or serve others too may be left for whole ones.
    """
    view = columns.views[number]
    site, migrate = view.site, view.migrate
    if _runs_as(site.job.plan.configuration, shape) and site.is_touched:
        yield actions.swap(site, taken, migrate=migrate)
    answer = in_shape(view, taken, shape, options())
    if isinstance(answer, ConsideredAction) and book is not None and not book.is_settled:
        left = options()
        answer = actions.reshape(site, taken, left.time_limit_s, migrate=migrate, seed=left.seed)
    yield answer
    for other in columns.views:
        more = nodes[: _further(other.site, shape.degrees.gpus, other.site.gpus)]
        if other is not view or len(more) > len(taken):
            yield in_shape(other, more, shape, options())


def _runs_as(running: Configuration, shape: Configuration) -> bool:
    """Whether they differ in nothing that moves state."""
    return replace(running, stage_layers=shape.stage_layers) == shape


def _best_rate(site: JobSite, replicas: int) -> float:
    """Tokens per second that ``replicas`` cannot beat on any units that serve, however the batch is cut.

    Infinite where it matters inside which units transfers are made.
    """
    if not alike_inside(site.candidate.fabric):
        return math.inf
    ways = [(site.gpus, [site.units.members[unit] for unit in np.flatnonzero(site.serves)])]
    ways += [(width, [(host,) for host in thin_hosts(site, width, site.others)]) for width in thin_widths(site)]
    rates = [0.0]
    for node_gpus, serving in ways:
        for size in data_sizes(site, replicas, node_gpus) if serving else ():
            if size.data < replicas:
                break
            asked = planning_problem(site.resources, size.configuration, global_batch=size.global_batch)
            candidate = prepared(site.resources, serving, asked, size.configuration, size.node_gpus)
            if candidate.placement.slots <= len(serving):
                rates.append(asked.workload.tokens_per_step / placement_bound_s(candidate.placement))
    return max(rates)
