"""Options of a job: so many nodes of a pool, with a step that no plan there beats and what is known besides.

A plan on fewer nodes is a plan on more of them as well.  So an option is no slower than a smaller one, and no bound
of a smaller one is below that of a larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from cluster_models.fleet.jobs import FleetJob, Pool
from cluster_models.links.model import LinkModel, effective_links
from cluster_models.training.model_work import workload_flops_per_token
from cluster_models.training.plan import Plan
from cluster_models.training.workload import Choice, Objective
from cluster_models.units import HOUR
from solver.degrees.floors import floors_s, mixed_floor
from solver.degrees.priced import alike_prices, enumeration_of, mixed_prices, worlds_on
from solver.degrees.promising import IsTimeUp
from solver.placement.cluster_fabrics import fabrics, mixed_fabrics
from solver.problem import PlanningProblem

EVERY_COUNT: Final = 8
"""Numbers of nodes that are looked at one by one; beyond them steps of an eighth."""


@dataclass(slots=True)
class Option:
    """``nodes`` of a pool for a job; ``plan`` on them as if the job were alone, once one was made.

    ``step_s`` is the step of that plan, or of one on fewer nodes; infinite while none is known.
    """

    job: FleetJob
    pool: Pool
    nodes: int
    bound_step_s: float
    step_s: float = np.inf
    plan: Plan | None = None
    is_planned: bool = False

    @property
    def gpus(self) -> int:
        """GPUs of the nodes."""
        return self.nodes * self.pool.gpus_per_node

    @property
    def usd_per_hour(self) -> float:
        """Cost of the nodes."""
        return self.nodes * self.pool.usd_per_node_hour

    def work(self, step_s: float) -> float:
        """Weighted model FLOP a second at that step."""
        return self.job.weight * flops_per_step(self.job) / step_s

    def is_allowed(self, step_s: float) -> bool:
        """Whether deadline and budget of the job are kept at that step."""
        if not np.isfinite(step_s):
            return False
        if (lasts_s := duration_s(self.job, step_s)) is None:
            return True
        job, cost = self.job, lasts_s / HOUR * self.usd_per_hour
        return lasts_s <= (job.deadline_s or np.inf) and cost <= (job.budget_usd or np.inf)


def flops_per_step(job: FleetJob) -> float:
    """Model FLOP of one step of a job."""
    workload = job.workload
    return workload.tokens_per_step * workload_flops_per_token(job.architecture, workload)


def duration_s(job: FleetJob, step_s: float) -> float | None:
    """Seconds until all tokens of a job are trained on; ``None`` where it does not say how many."""
    return None if job.tokens is None else job.tokens / job.workload.tokens_per_step * step_s


def problem_on(job: FleetJob, pool: Pool, *, nodes: int, taken: Sequence[str] = ()) -> PlanningProblem:
    """The planning problem of a job on at most so many nodes of a pool, without those that are ``taken``."""
    own = set(pool.nodes) - set(taken)
    foreign = tuple(node.name for node in pool.snapshot.cluster.nodes if node.name not in own)
    limit = nodes * pool.gpus_per_node
    workload = replace(
        job.workload,
        objective=Objective.STEP_TIME,
        choice=Choice.FASTEST,
        max_gpus=min(limit, job.most_gpus or limit, job.workload.max_gpus or limit),
        avoid_nodes=tuple(dict.fromkeys((*job.workload.avoid_nodes, *foreign))),
    )
    return PlanningProblem(pool.snapshot, job.architecture, workload, fitted=job.fitted)


def options_of(
    job: FleetJob, pool: Pool, *, every: int = EVERY_COUNT, is_time_up: IsTimeUp = lambda: False
) -> list[Option]:
    """The options of a job on a pool, fewest nodes first; none where nothing fits its memory.

    Up to ``every`` numbers of nodes are looked at one by one.  Those that are not priced when ``is_time_up`` count
    with the arithmetic of their GPUs, whatever fits there.
    """
    size = pool.gpus_per_node
    most = min(len(pool.nodes), -(-(job.most_gpus or len(pool.nodes) * size) // size))
    if most * size < job.least_gpus:
        return []
    steps = _optimistic_steps(problem_on(job, pool, nodes=most), job.least_gpus, size, every, is_time_up)
    found, best = [], np.inf
    for nodes in sorted({-(-gpus // size) for gpus in steps}):
        best = min([best, *(step_s for gpus, step_s in steps.items() if -(-gpus // size) == nodes)])
        found.append(Option(job, pool, nodes, best))
    return found


def settle(options: Sequence[Option]) -> None:
    """Let the options of one job on one pool, fewest nodes first, know what follows from their plans."""
    for smaller, larger in pairwise(options):
        larger.step_s = min(larger.step_s, smaller.step_s)
    for option in options:  # a plan may use a number of nodes in between that was not looked at, and be faster
        option.bound_step_s = min(option.bound_step_s, option.step_s)
    for larger, smaller in pairwise(options[::-1]):
        smaller.bound_step_s = max(smaller.bound_step_s, larger.bound_step_s)


def _optimistic_steps(
    problem: PlanningProblem, least_gpus: int, gpus_per_node: int, every: int, is_time_up: IsTimeUp
) -> dict[int, float]:
    """Step, by number of GPUs that is looked at, that no placement of any candidate beats, where one fits."""
    links = effective_links(problem.snapshot, bandwidth=problem.workload.link_bandwidth)
    usable = fabrics(problem.snapshot, problem.workload, links, fitted=problem.fitted)
    worlds = [[world for world in worlds_on(problem, fabric) if world >= least_gpus] for fabric in usable]
    mixed = {
        world: step_s for world, step_s in _mixed_steps(problem, links, is_time_up).items() if world >= least_gpus
    }
    counts = _spaced(sorted({-(-world // gpus_per_node) for each in (*worlds, mixed) for world in each}), every)
    found = {world: step_s for world, step_s in mixed.items() if -(-world // gpus_per_node) in counts}
    for index, (fabric, own) in enumerate(zip(usable, worlds, strict=True)):
        listed = enumeration_of(problem, fabric)
        for world in own:
            if -(-world // gpus_per_node) not in counts:
                continue
            if is_time_up():
                floor = float(floors_s(problem, fabric.gpu, np.array([world]), fabric.gpus_per_node)[0])
                found[world] = min(floor, found.get(world, np.inf))
                continue
            for prices in alike_prices(problem, fabric, index, listed.over([world])):
                step_s = float(prices.bound_s.min(initial=np.inf))
                if step_s < found.get(world, np.inf):
                    found[world] = step_s
    return found


def _mixed_steps(problem: PlanningProblem, links: LinkModel, is_time_up: IsTimeUp) -> dict[int, float]:
    """The same by number of GPUs of several kinds together; a floor for all counts stands at the smallest."""
    found: dict[int, float] = {}
    for fabric in mixed_fabrics(problem.snapshot, problem.workload, links, fitted=problem.fitted):
        if is_time_up():
            least = len(fabric.kinds) * fabric.gpus_per_unit
            found[least] = min(mixed_floor(problem, fabric), found.get(least, np.inf))
            continue
        for prices in mixed_prices(problem, fabric, 0):
            batch = prices.batch
            gpus = batch.tensor * batch.context * batch.pipeline * batch.data
            for world in np.unique(gpus).tolist():
                step_s = float(prices.bound_s[gpus == world].min())
                found[world] = min(found.get(world, np.inf), step_s)
    return {world: step_s for world, step_s in found.items() if np.isfinite(step_s)}


def _spaced(counts: Sequence[int], every: int) -> set[int]:
    """Numbers of nodes to look at among all that plans may use, increasing; the largest is one."""
    found = list(counts[:every])
    for count in counts[every:]:
        if count * EVERY_COUNT >= found[-1] * (EVERY_COUNT + 1) or count == counts[-1]:
            found.append(count)
    return set(found)
