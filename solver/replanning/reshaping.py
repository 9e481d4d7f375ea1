"""Other degrees for a job after a failure: what the planner is asked, and all its candidates with their bounds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from cluster_models.errors import InvalidInput
from cluster_models.remarks import Remark, remark
from cluster_models.training.plan import Plan
from cluster_models.training.workload import Objective
from solver.answer.assemble import assemble_plan, place_ranks
from solver.answer.conclusion import certificate_of
from solver.candidates import BoolArray, IntArray
from solver.problem import PlanningProblem, SearchOptions
from solver.replanning.outcome import on_own_gpus
from solver.replanning.rank_matching import relabel
from solver.replanning.site import JobSite, without_replicas, workload_for
from solver.search import Searched, SearchSpace, search_space

_SETTINGS: Final = (
    "micro_batch",
    "recomputation",
    "sharding",
    "optimizer_offload",
    "offload_to_disks",
    "offload_parameters",
    "offloaded_layers",
    "exchange_words",
    "settings",
    "rank_order",
    "schedule",
)
"""Settings of a configuration beside degrees and layers."""


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """All shapes that a job may take on some nodes: the problem, its space, and (n,) GPUs of each candidate."""

    asked: PlanningProblem
    space: SearchSpace
    gpus: IntArray


def shapes_on(site: JobSite, nodes: Collection[str]) -> Shapes | Remark:
    """The shapes of the job on its live nodes and ``nodes``, or why there are none.

    Everything in the workload holds but a pinned number of replicas and the objective, which becomes the shortest
    step.
    """
    recovery, asked = site.job.recovery, at_most(asked_on(site, nodes), site.job.gpus_at_most)
    try:
        space = search_space(asked, site.links)
    except InvalidInput as contradiction:
        return remark("contradiction", problem=str(contradiction))
    batch = space.priced.batch
    gpus = batch.tensor * batch.context * batch.data * batch.pipeline
    wanted: BoolArray = gpus >= recovery.least_gpus
    fits = space.priced.excess_bytes <= 0
    if not (fits & wanted & space.kept.mask).any():
        least = recovery.least_gpus if (fits & space.kept.mask).any() else None
        return remark("no_shape", least_gpus=least, nodes=len(nodes))
    kept = replace(space.kept, mask=space.kept.mask & wanted)
    return Shapes(asked, replace(space, kept=kept), gpus)


def asked_on(site: JobSite, nodes: Collection[str]) -> PlanningProblem:
    """The planner's problem for the job on its live nodes and ``nodes``."""
    workload, cluster = without_replicas(site.asked.workload), site.asked.snapshot.cluster
    known = {*nodes, *(host for host in site.job.nodes if site.resources.offers(host, 1))}
    avoided = {node.name for node in cluster.nodes if node.name not in known}
    free = replace(
        workload,
        avoid_nodes=tuple(sorted({*avoided, *workload.avoid_nodes})),
        objective=Objective.STEP_TIME,
        global_batch=site.job.wanted_batch or workload.global_batch,
        max_gpus=site.job.recovery.most_gpus,
    )
    return replace(site.asked, workload=free)


def at_most(asked: PlanningProblem, gpus: int) -> PlanningProblem:
    """``asked`` with so many GPUs at most."""
    return replace(asked, workload=replace(asked.workload, max_gpus=gpus))


def plan_found(site: JobSite, asked: PlanningProblem, options: SearchOptions, found: Searched) -> Plan:
    """The plan that a search took for ``asked``, with its certificate but nothing about what else was found."""
    state, index = found.state, found.chosen.index
    assignment = state.known[index].assignment
    assert assignment is not None
    return assemble_plan(
        asked,
        options,
        state.prepared(asked, index),
        assignment,
        certificate=certificate_of(asked, options, state, found.stopped_by),
        doubts=site.problem.doubts(asked.workload.link_bandwidth),
        has_timeline=False,
    )


def as_its_owner_asks(site: JobSite, plan: Plan) -> Plan:
    """``plan`` with the workload of the job's owner instead of what the search for this one shape narrowed it to.

    Otherwise the next decision would look at these nodes and this recomputation alone, and the job never grow back.
    """
    assert plan.workload is not None
    assert site.job.plan.workload is not None
    known = {node.name for node in site.asked.snapshot.cluster.nodes}
    own = workload_for(site.job.plan.workload, plan.configuration, known)
    return replace(plan, workload=replace(own, global_batch=plan.workload.global_batch))


def on_familiar_hosts(site: JobSite, plan: Plan) -> Plan:
    """``plan`` with its hosts in an order that is as fast and moves least, on the job's own GPUs there."""
    hosts = relabel(
        site.job,
        plan.placement.hosts,
        plan.configuration,
        site.problem,
        lost=site.state_lost,
        links=site.links,
    )
    placement = place_ranks(plan.configuration, hosts, plan.placement.gpus_per_node)
    return replace(plan, placement=on_own_gpus(site.resources, placement))


def what_changes(old: Plan, new: Plan) -> Remark | None:
    """How ``new`` is run in another way than ``old``; ``None`` where only its places may differ."""
    before, after = old.configuration, new.configuration
    if after.degrees != before.degrees:
        return remark("other_degrees", degrees=str(after.degrees), before=str(before.degrees))
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in _SETTINGS]
    if old.workload is not None and new.workload is not None:
        pairs.append(("global_batch", old.workload.global_batch, new.workload.global_batch))
    changes = [(name, str(was), str(now)) for name, was, now in pairs if now != was]
    layers = after.stage_layers != before.stage_layers
    if not changes and not layers:
        return None
    names, was, now = zip(*changes, strict=True) if changes else ((), (), ())
    return remark("other_settings", settings=names, before=was, after=now, other_layers=layers)
