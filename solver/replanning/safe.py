"""The first answer: within a second, feasible, and taken from what was prepared where that fits.

Links are only worked out between the nodes that matter: those of touched jobs and a few spares near each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.switches import Switch
from cluster_models.cluster.topology import Node
from cluster_models.jobs.recovery import BatchDecision, ConsideredAction
from cluster_models.jobs.running import RunningJob
from cluster_models.training.plan import StopReason
from solver.replanning import options as actions
from solver.replanning.affected_jobs import columns_or_aside
from solver.replanning.batch_decision import conclude
from solver.replanning.columns import JobColumns, nearest_first
from solver.replanning.prepared import PreparedJob, fitting_options
from solver.replanning.problem import RecoveryOption, ReplanProblem
from solver.replanning.program import Gpu
from solver.replanning.touched import held_gpus, lost_gpus, spare_gpus, touched, worth_first

SPARES_A_LOSS: Final = 2
"""Spares beyond those that a job needs that it is given to choose among."""


def safe_answer(problem: ReplanProblem, prepared: Sequence[PreparedJob] = ()) -> BatchDecision:
    """For each job that lost GPUs: spares if enough are left, else fewer replicas, else a pause.

    Jobs of most worth come first; those that are only slower run on.  ``prepared`` saves the search for another
    shape where one node was lost and no spare is left.  The bound is that of the options looked at, job by job.
    """
    hit = sorted(touched(problem).hit, key=worth_first)
    near = _near(problem, hit)
    known = {made.job_id: made for made in prepared}
    free = {node for node, _ in spare_gpus(problem)}
    budget, taken = _Budget(problem), set[Gpu]()
    every: list[JobColumns] = []
    chosen: dict[str, RecoveryOption] = {}
    for job in hit:
        columns = columns_or_aside(near, job)
        spares = [name for name in columns.pool if name in free]
        for answer in _tries(near, columns, spares, known.get(job.id)):
            columns.add([answer])
            if isinstance(answer, ConsideredAction) or not taken.isdisjoint(answer.holds):
                continue
            if budget.allows(job, answer):
                chosen[job.id] = answer
                break
        budget.take(job, chosen[job.id])
        taken |= chosen[job.id].holds
        free -= {node for node, _ in chosen[job.id].holds}
        every.append(columns)
    bound = math.fsum(columns.best.value_flop for columns in every)
    return conclude(
        problem,
        every,
        chosen,
        bound=bound,
        stopped_by=StopReason.NO_SEARCH,
        solver="prepared options and spares nearby",
        fallback=True,
    )


def _tries(
    problem: ReplanProblem, columns: JobColumns, spares: Sequence[str], known: PreparedJob | None
) -> Iterator[actions.Answer]:
    """Options in the order in which it is tried; the last always goes."""
    if columns.is_aside:
        yield from columns.options
        return
    view = columns.views[0]
    if not view.site.is_touched:  # its processes ended, its GPUs live
        yield actions.keep(view.site, migrate=view.migrate, restart=True)
    yield actions.swap(view.site, spares, migrate=view.migrate)
    if known is not None:
        yield from fitting_options(problem, columns.job, known)
    yield actions.shrink(view.site, migrate=view.migrate)
    yield actions.pause(view.site)


class _Budget:
    """GPUs of all jobs together, as far as they are limited."""

    def __init__(self, problem: ReplanProblem) -> None:
        self._most = math.inf if problem.gpu_budget is None else problem.gpu_budget
        self._held = {job.id: len(held_gpus(job)) for job in problem.jobs}

    def allows(self, job: RunningJob, option: RecoveryOption) -> bool:
        """Whether the job may take the option while all others hold what they hold."""
        others = sum(self._held.values()) - self._held[job.id]
        return not option.holds or others + len(option.holds) <= self._most

    def take(self, job: RunningJob, option: RecoveryOption) -> None:
        """The job holds what the option holds from now on."""
        self._held[job.id] = len(option.holds)


def _near(problem: ReplanProblem, hit: Sequence[RunningJob]) -> ReplanProblem:
    """The nodes of the jobs ``hit`` with the nearest spares of each; GPUs of all other jobs count as in use."""
    free = {node for node, _ in spare_gpus(problem)}
    wanted: dict[str, None] = {}
    for job in hit:
        nodes = {node for node, _ in lost_gpus(problem, job)}
        left = [name for name in nearest_first(problem, job, free) if name not in wanted]
        wanted |= dict.fromkeys(job.nodes) | dict.fromkeys(left[: len(nodes) + SPARES_A_LOSS])
    if not wanted:
        return problem
    ids = {job.id for job in hit}
    busy: dict[str, set[int]] = {}
    for other in problem.jobs:
        if other.id not in ids:
            for node, gpu in held_gpus(other):
                busy.setdefault(node, set()).add(gpu)
    nodes_kept = tuple(
        replace(node, gpus_in_use=tuple(sorted({*node.gpus_in_use, *busy.get(node.name, ())})))
        for node in problem.snapshot.cluster.nodes
        if node.name in wanted
    )
    spares = tuple(name for name in problem.spares if name in wanted)
    return replace(problem, snapshot=_part(problem, nodes_kept), jobs=tuple(hit), spares=spares)


def _part(problem: ReplanProblem, nodes: tuple[Node, ...]) -> ClusterSnapshot:
    """The snapshot with these nodes alone; switches over them pass what they did."""
    whole = problem.snapshot
    names = {node.name for node in nodes}
    switches = tuple(
        Switch(label, place, uplink_bytes_per_s=uplink.bytes_per_s, figure=uplink.figure)
        for label, places in whole.cluster.uplinks().items()
        for place, uplink in places.items()
        if any(node.place(label) == place for node in nodes)
    )
    samples = tuple(each for each in whole.samples if each.source in names and each.destination in names)
    shares = tuple(each for each in whole.link_shares if each.node in names)
    cluster = replace(whole.cluster, nodes=nodes, switches=switches)
    return replace(whole, cluster=cluster, samples=samples, link_shares=shares)
