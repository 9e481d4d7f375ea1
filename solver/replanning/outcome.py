"""From a placed candidate to an option: the plan with every GPU by name, what limits it, and what it is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from cluster_models.jobs.recovery import Migration, RecoveryAction
from cluster_models.jobs.running import RunningJob
from cluster_models.links.model import LinkModel
from cluster_models.remarks import Remark, remark
from cluster_models.training.plan import Certificate, Placement, Plan
from cluster_models.training.rank_costs import TIME_PARTS, TimeBreakdown
from solver.answer.assemble import assemble_plan
from solver.answer.warnings import used_links
from solver.candidates import IntArray
from solver.compiled import step_seconds
from solver.placement.fabric import HEALTH_BYTES
from solver.problem import PlanningProblem, SearchOptions
from solver.refine import Candidate
from solver.replanning.problem import RecoveryOption, ReplanProblem
from solver.replanning.resources import JobResources
from solver.replanning.values import least_gain_flop, new_shape_flop, option_value, spares_flop

SLOW_SHARE: Final = 0.01
"""Share of the step that slow compute must cost to be named as the limit."""

COMPUTE: Final = "compute_s"
_BETWEEN_NODES: Final = frozenset({"context_s", "expert_s", "pipeline_transfer_s", "data_exposed_s"})
"""Parts of a step that links between nodes take."""


class Migrate(Protocol):
    """The signature of ``solver.replanning.migration.migration``."""

    def __call__(
        self,
        job: RunningJob,
        new: Plan,
        *,
        problem: ReplanProblem,
        lost: frozenset[tuple[str, int]],
        links: LinkModel | None = None,
    ) -> Migration:
        """Migration from the plan of ``job`` to ``new`` when the state on ``lost`` is gone."""


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A candidate on units of its fabric, slot ``k`` on ``assignment[k]``, for the problem ``asked``."""

    asked: PlanningProblem
    candidate: Candidate
    assignment: IntArray

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return float(step_seconds(self.assignment, self.candidate.placement.arrays)[0])

    @property
    def tokens_per_s(self) -> float:
        """Throughput."""
        return self.asked.workload.tokens_per_step / self.step_s

    @property
    def misfit_bytes(self) -> float:
        """Bytes that the fullest GPU needs beyond its limit; negative where it fits."""
        memory = self.candidate.memory
        return float((memory.total_bytes - memory.limit_bytes).max())


def plan_of(resources: JobResources, placed: Placed, basis: Remark) -> Plan:
    """The plan of ``placed``, without a timeline; ranks that stay on a node keep their GPUs."""
    plan = assemble_plan(
        placed.asked,
        SearchOptions(),
        placed.candidate,
        placed.assignment,
        certificate=Certificate.unsearched(placed.step_s, 0.0, basis),
        doubts=resources.problem.doubts(placed.asked.workload.link_bandwidth),
        has_timeline=False,
    )
    return replace(plan, placement=on_own_gpus(resources, plan.placement))


def on_own_gpus(resources: JobResources, placement: Placement) -> Placement:
    """``placement`` with the ranks of each node on the GPUs that the job holds there, as far as they live."""
    per_node = placement.gpus_per_node
    counts = np.bincount([place.rank // per_node for place in placement.ranks], minlength=len(placement.hosts))
    gpus = {host: resources.gpus_for(host, int(count)) for host, count in zip(placement.hosts, counts, strict=True)}
    ranks = tuple(replace(place, gpu=gpus[place.node][place.rank % per_node]) for place in placement.ranks)
    return replace(placement, ranks=ranks)


def option_of(
    resources: JobResources,
    action: RecoveryAction,
    plan: Plan,
    migration: Migration,
    *,
    limited_by: Remark,
    reason: Remark,
    is_touched: bool,
    in_new_shape: bool = False,
) -> RecoveryOption:
    """The option of running by ``plan`` after ``migration``.

    Where the job runs on whole hardware now, doing anything but leaving it alone pays its least gain, else what a
    search for another shape made does; spares that it takes are paid for in any case.
    It carries no timeline, most of a plan's bytes: decisions are about hundreds of jobs, each with many options.
    """
    job, problem = resources.job, resources.problem
    value = option_value(job, plan.tokens_per_s, migration, horizon_s=problem.horizon_s, for_others=not is_touched)
    stops = action is not RecoveryAction.NONE and job.id in problem.whole
    least_gain = least_gain_flop(job, problem.horizon_s) if stops else 0.0
    if in_new_shape and not stops:
        least_gain = new_shape_flop(job, plan.tokens_per_s, migration, problem.horizon_s)
    holds = frozenset((place.node, place.gpu) for place in plan.placement.ranks)
    taken = spares_flop(job, len(holds & problem.free_spares), problem.spare_worth_share, problem.horizon_s)
    return RecoveryOption(
        job_id=job.id,
        action=action,
        holds=holds,
        value_flop=value - least_gain - taken,
        tokens_per_s=plan.tokens_per_s,
        limited_by=limited_by,
        migration=migration,
        plan=replace(plan, timeline=()),
        reason=reason,
        least_gain_flop=least_gain,
        spares_flop=taken,
    )


def limit_of(placed: Placed, plan: Plan) -> Remark:
    """The largest cost beside the compute of healthy GPUs: a slow node, or a part of the step and its slow link."""
    candidate, arrays = placed.candidate, placed.candidate.placement.arrays
    fabric, used = candidate.fabric, np.unique(placed.assignment)
    step_s = plan.time.step_s
    well = arrays._replace(slowdown=np.ones_like(arrays.slowdown))
    slow_s = step_s - float(step_seconds(placed.assignment, well)[0])
    part, part_s = _largest_part(plan.time)
    if slow_s > max(SLOW_SHARE * step_s, part_s):
        slowest = int(used[fabric.slowdown[used].argmax()])
        return remark("limit_slow_node", node=fabric.names[slowest], slowdown=float(fabric.slowdown[slowest]))
    pairs = used_links(candidate.placement, placed.assignment)
    if part not in _BETWEEN_NODES or not len(pairs):
        return remark("limit_part", part=part)
    seconds = fabric.hop_s(HEALTH_BYTES)[pairs[:, 0], pairs[:, 1]]
    a, b = pairs[int(seconds.argmax())]
    return remark("limit_slow_link", part=part, source=fabric.names[a], destination=fabric.names[b])


def limit_of_time(time: TimeBreakdown) -> Remark:
    """The largest cost beside compute, from the parts of the step alone."""
    return remark("limit_part", part=_largest_part(time)[0])


def _largest_part(time: TimeBreakdown) -> tuple[str, float]:
    """The largest part of a step beside compute, or compute where none is noticeable, and its seconds."""
    parts = {part: getattr(time, part) for part in TIME_PARTS if part != COMPUTE}
    worst = max(parts, key=lambda part: parts[part])
    return (worst, parts[worst]) if parts[worst] > SLOW_SHARE * time.step_s else (COMPUTE, 0.0)
