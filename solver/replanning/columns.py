"""The options of one job worked out so far, and more of them at the prices that the master program asks for GPUs.

A job is looked at in one or more *views*: as failures left it, and for each of its slow nodes, and for all that it
shares with other jobs in question, as if these had to be left as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from cluster_models.jobs.recovery import ConsideredAction, Migration, RecoveryAction
from cluster_models.jobs.running import RunningJob
from cluster_models.links.model import LinkModel
from cluster_models.training.plan import Plan
from cluster_models.training.workload import Sharding
from solver.costs.training_state import bytes_per_parameter
from solver.replanning import options as actions
from solver.replanning.migration import migration
from solver.replanning.outcome import Migrate
from solver.replanning.problem import LEAVING, RecoveryOption, ReplanProblem
from solver.replanning.program import Gpu
from solver.replanning.resources import check_plan
from solver.replanning.site import JobSite, site_of
from solver.replanning.touched import Touched, held_gpus, live_gpus, lost_gpus, poor_nodes, spare_gpus

MOST_LEFT: Final = 3
"""Slow nodes of a job, and shared ones, that are also left one by one; more are only left together."""

MOST_POOL: Final = 128
"""Nodes that one job may take, the nearest: its links to all of them are kept."""


@dataclass(frozen=True, eq=False)
class View:
    """A job's site with the GPUs that it must leave, and what moving costs from there."""

    site: JobSite
    migrate: Migrate

    @property
    def steps_lost(self) -> float:
        """Steps since the checkpoint where state is gone that every plan needs, else 0."""
        return self._back.steps_lost

    @property
    def stored_bytes(self) -> float:
        """Bytes that every plan reads from storage at least: each part that lies nowhere else, once."""
        workload, own = self.site.asked.workload, self.site.job.plan.configuration.sharding
        width = {sharding: sum(bytes_per_parameter(workload, sharding)) for sharding in Sharding}
        return self._back.bytes.storage * min(width.values()) / width[own]

    @cached_property
    def near_gpus(self) -> int:
        """GPUs that state of the job reaches without a network card: those in NVLink domains where it was."""
        nodes = self.site.problem.nodes
        domains = {nodes[name].nvlink_domain for name in self.site.job.nodes}
        near = (node for node in nodes.values() if node.nvlink_domain in domains)
        return sum(node.gpu_count for node in near if node.state not in LEAVING)

    @cached_property
    def _back(self) -> Migration:
        """To the plan that the job ran by, on the same GPUs."""
        site = self.site
        return self.migrate(site.job, site.job.plan, problem=site.problem, lost=site.state_lost, links=site.links)


@dataclass(slots=True, eq=False)
class JobColumns:
    """Options worked out for one job.  ``pool``: nodes that it may take, the nearest first.

    ``options`` grow; ``refused`` has the newest reason for each action without an option.  ``proven``: by view and
    GPUs, throughput that no placement with so many replicas beats.  A job ``is_protected`` gives nothing up for
    others: options that are worth less to it than being left alone are ``declined``.
    """

    job: RunningJob
    views: tuple[View, ...]
    pool: tuple[str, ...]
    options: list[RecoveryOption] = field(default_factory=list)
    refused: dict[RecoveryAction, ConsideredAction] = field(default_factory=dict)
    proven: dict[tuple[int, int], float] = field(default_factory=dict)
    declined: list[RecoveryOption] = field(default_factory=list)
    is_protected: bool = False
    _seen: set[object] = field(default_factory=set)

    def add(self, answers: Iterable[actions.Answer]) -> list[RecoveryOption]:
        """Take ``answers`` in; those options that are new."""
        new = []
        for answer in answers:
            if isinstance(answer, ConsideredAction):
                self.refused[answer.action] = answer
                continue
            key = (answer.action, answer.holds, answer.value_flop)
            if key not in self._seen:
                self._seen.add(key)
                self.options.append(answer)
                new.append(answer)
        least_flop = self.least_flop
        self.declined += [option for option in self.options if option.value_flop < least_flop]
        self.options = [option for option in self.options if option.value_flop >= least_flop]
        return [option for option in new if option.value_flop >= least_flop]

    @property
    def least_flop(self) -> float:
        """Least value of an option: to a job that is protected as much as being left alone."""
        return self.alone.value_flop if self.is_protected and self.alone is not None else -math.inf

    @property
    def alone(self) -> RecoveryOption | None:
        """The option of leaving the job alone, once it is known."""
        return next((option for option in self.options if option.action is RecoveryAction.NONE), None)

    def is_new(self, *asked: object) -> bool:
        """Whether this was not asked before; it counts as asked from now on."""
        if asked in self._seen:
            return False
        self._seen.add(asked)
        return True

    @property
    def is_aside(self) -> bool:
        """Whether nothing can be worked out for the job (``affected_jobs.set_aside``)."""
        return not self.views

    @property
    def best(self) -> RecoveryOption:
        """The option worth most, of equal ones that with fewest GPUs."""
        return max(self.options, key=lambda option: (option.value_flop, -len(option.holds)))


def columns_of(problem: ReplanProblem, job: RunningJob, sorted_jobs: Touched) -> JobColumns:
    """The job with its views and its pool: the spares, then what other jobs in question could give up.

    Raises ``InvalidInput`` where the job's plan does not fit the cluster as it is.
    """
    check_plan(problem, job)
    others = [other for other in sorted_jobs.in_question if other.id != job.id]
    given_up = frozenset(gpu for other in others for gpu in live_gpus(problem, other))
    standing = replace(job, is_paused=False)
    own = set(standing.nodes)
    pool = nearest_first(problem, standing, {node for node, _ in spare_gpus(problem)} - own)
    pool += nearest_first(problem, standing, {node for node, _ in given_up} - set(pool) - own)
    pool = pool[:MOST_POOL]
    views = tuple(_views(problem, job, pool, given_up))
    return JobColumns(job, views, pool, is_protected=_is_protected(problem, job))


def _is_protected(problem: ReplanProblem, job: RunningJob) -> bool:
    """Whether nothing may be taken from the job: it runs whole, may not move, and the budget leaves all theirs."""
    if job.recovery.may_move or job.id not in problem.whole:
        return False
    held = sum(len(held_gpus(each)) for each in problem.jobs)
    return problem.gpu_budget is None or held <= problem.gpu_budget


def nearest_first(problem: ReplanProblem, job: RunningJob, nodes: Iterable[str]) -> tuple[str, ...]:
    """Usable nodes as they are tried: on a leaf that lost nodes, on another of the job's, well ones first.

    Nodes that the owner of the job avoids are left out.
    """
    assert job.plan.workload is not None
    known, avoided = problem.nodes, frozenset(job.plan.workload.avoid_nodes)
    lost = {known[node].place("leaf") for node, _ in lost_gpus(problem, job)} - {None}
    own = {known[node].place("leaf") for node in job.nodes} - {None}
    kinds = {known[node].gpu_kind for node in job.nodes}

    def key(name: str) -> tuple[bool, bool, float, int]:
        node = known[name]
        leaf = node.place("leaf")
        return leaf not in lost, leaf not in own, node.compute_slowdown, problem.position[name]

    serving = (name for name in nodes if name not in avoided and known[name].gpu_kind in kinds)
    return tuple(sorted((name for name in serving if known[name].usable), key=key))


def _views(
    problem: ReplanProblem, job: RunningJob, pool: Sequence[str], given_up: frozenset[Gpu]
) -> Iterator[View]:
    standing = replace(job, is_paused=False)
    held = held_gpus(standing)

    def view(leaving: frozenset[Gpu], migrate: Migrate) -> View:
        return View(site_of(problem, standing, pool, leaving, given_up=given_up), migrate)

    if job.is_paused:
        # where it ran before it has no claim to anything that is not a spare
        there = {(name, gpu) for name in set(standing.nodes) for gpu in range(problem.nodes[name].gpu_count)}
        gone = (held | there) - spare_gpus(problem)
        yield view(gone, _from(held, is_paused=True))
        if not held <= gone:  # others may make more of where it was
            yield view(held | there, _from(held, is_paused=True))
        return
    lost = lost_gpus(problem, job)
    # processes that ended left nothing on their GPUs
    gone = held if job.id in problem.cut_off else lost
    yield view(lost, _from(gone))
    slow = sorted((set(job.nodes) & poor_nodes(problem)) - {node for node, _ in lost})
    ends = sorted(_slow_ends(problem, job) - set(slow))
    ways = [slow] if slow else []
    ways += [[node] for node in (*slow, *ends) if len(slow) + len(ends) <= MOST_LEFT and [node] != slow]
    shared = sorted({node for node, _ in given_up} & set(job.nodes))
    alone = [[node] for node in shared if len(shared) <= MOST_LEFT]
    ways += [left for left in (shared, *alone) if left and left not in ways]  # others there may make more of them
    for left in ways:
        yield view(lost | {gpu for gpu in held if gpu[0] in left}, _from(gone))


def _slow_ends(problem: ReplanProblem, job: RunningJob) -> set[str]:
    """Ends of slow links between nodes of the job."""
    nodes = set(job.nodes)
    shares = [share for share in problem.snapshot.link_shares if share.node in nodes]
    return {
        end for share in shares for end in (share.node, share.other or share.node)
        if len(nodes) > 1 and end in nodes and (not share.other or share.other in nodes)
    }  # fmt: skip


def _from(gone: frozenset[Gpu], *, is_paused: bool = False) -> Migrate:
    """``migration`` with the state on ``gone`` lost, whatever GPUs the site must leave, or of a paused job."""

    def migrate(
        job: RunningJob,
        new: Plan,
        *,
        problem: ReplanProblem,
        lost: frozenset[Gpu],  # noqa: ARG001  # what must be left may still hold its state
        links: LinkModel | None = None,
    ) -> Migration:
        return migration(replace(job, is_paused=is_paused), new, problem=problem, lost=gone, links=links)

    return migrate


def first_options(columns: JobColumns, spares: Sequence[str], *, in_full: bool = True) -> list[RecoveryOption]:
    """Options with ``spares`` and the job's own GPUs, every kind of action that there is.

    Without ``in_full`` only what needs no placement: standing still, running on, or routing around the loss.
    """
    found = columns.add(_standing(columns))
    return found + columns.add(_first(columns, spares)) if in_full else found


def _standing(columns: JobColumns) -> Iterator[actions.Answer]:
    first = columns.views[0]
    yield actions.pause(first.site, is_paused=columns.job.is_paused)
    if columns.job.is_paused:
        yield actions.keep(first.site, migrate=first.migrate, restart=True)
    elif first.site.is_touched:
        yield actions.wait(first.site, migrate=first.migrate)
        yield actions.reroute(first.site, migrate=first.migrate)
        if first.site.is_rerouted:
            yield actions.keep(first.site, migrate=first.migrate)
    else:
        ended = columns.job.id in first.site.problem.cut_off
        yield actions.keep(first.site, migrate=first.migrate, restart=ended)


def _first(columns: JobColumns, spares: Sequence[str]) -> Iterator[actions.Answer]:
    yield from swaps(columns, spares)
    for view in columns.views:
        if view.site.is_touched:
            yield actions.shrink(view.site, migrate=view.migrate)


def swaps(columns: JobColumns, spares: Sequence[str]) -> Iterator[actions.Answer]:
    """Swaps of the lost slots onto the best of ``spares``, from each of its views.

    Where other GPUs of its own nodes could take over it also leaves those nodes: the GPUs may be those of a job
    that needs them itself.
    """
    for view in columns.views:
        if view.site.is_touched:
            yield actions.swap(view.site, spares, migrate=view.migrate)
            if len(view.site.hit) > len(view.site.broken):
                yield actions.swap(view.site, spares, migrate=view.migrate, mend=False)
