"""Options of one job after a failure, a function for each action: an option, or why it cannot be.

Each is placed on the cluster as failures left it, priced with the planner's own cost model, and weighed by
``solver.replanning.values``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import numpy as np

from cluster_models.jobs.recovery import ConsideredAction, Migration, RecoveryAction
from cluster_models.remarks import Remark, remark
from cluster_models.training.plan import NoPlan, Plan
from solver.candidates import IntArray
from solver.problem import SearchOptions
from solver.replanning.migration import migration
from solver.replanning.outcome import Migrate, Placed, limit_of, limit_of_time, option_of, plan_of
from solver.replanning.problem import RecoveryOption
from solver.replanning.rerouting import (
    cannot_reroute,
    living_cells,
    living_ranks,
    plan_without,
    rerouted,
    whole_plan,
)
from solver.replanning.reshaping import as_its_owner_asks, on_familiar_hosts, plan_found, shapes_on, what_changes
from solver.replanning.shrinking import (
    best_size,
    data_sizes,
    most_replicas,
    no_size,
    thin_hosts,
    thin_widths,
    usable_units,
)
from solver.replanning.site import JobSite
from solver.replanning.spare_assignment import exchanged, fill_slots
from solver.replanning.units import Unit
from solver.replanning.values import WORTH_MOVING, least_gain_flop, option_value, work_flop
from solver.search import search_within

Answer = RecoveryOption | ConsideredAction
RESHAPE_GAP: Final = 0.01
"""Proven gap at which the search for other degrees ends: that of a whole decision."""


def keep(site: JobSite, *, migrate: Migrate = migration, restart: bool = False) -> Answer:
    """The job where it is: running on, or with ``restart`` started again from its checkpoint on the same GPUs."""
    action = RecoveryAction.RESTART_IN_PLACE if restart else RecoveryAction.NONE
    if site.is_rerouted and not restart:
        return _still_rerouted(site)
    gone = [site.job.nodes[slot * site.units.width] for slot in site.broken]
    if gone:
        return refused(action, remark("nodes_cannot_carry", nodes=tuple(gone)))
    everything = frozenset((place.node, place.gpu) for place in site.job.plan.placement.ranks)
    if not restart and everything & site.lost:
        return refused(action, remark("own_gpu_lost"))
    placed = Placed(site.asked, site.candidate, site.home)
    plan = plan_of(site.resources, placed, remark("job_stays"))
    moves = Migration()
    if restart:
        moves = migrate(site.job, plan, problem=site.problem, lost=everything, links=site.links)
    return option_of(
        site.resources,
        action,
        plan,
        moves,
        limited_by=limit_of(placed, plan),
        reason=remark("starts_again" if restart else "nothing_lost"),
        is_touched=True,
    )


def _still_rerouted(site: JobSite) -> Answer:
    """A job that runs around ranks lost before goes on doing so, as long as no more of it is lost."""
    plan = site.job.plan
    if len(living_ranks(site)) < len(plan.placement.ranks):
        return refused(RecoveryAction.NONE, remark("more_ranks_lost"))
    found = rerouted(site, living_cells(site))
    if found.step_s > plan.time.step_s:  # on slower nodes or links than it was re-routed on
        plan = plan_without(site, found)
    return option_of(
        site.resources,
        RecoveryAction.NONE,
        plan,
        Migration(),
        limited_by=remark("limit_ranks_lost"),
        reason=remark("nothing_lost"),
        is_touched=True,
    )


def swap(
    site: JobSite,
    spares: Sequence[str],
    *,
    migrate: Migrate = migration,
    prices: Mapping[str, float] = MappingProxyType({}),
    mend: bool = True,
) -> Answer:
    """The same shape with the lost slots on ``spares``, for the shortest step.

    All other ranks stay, but for exchanges between the lost slots and others that pay over the horizon.
    ``prices``: FLOPs that each node must be worth, as the master program asks.  With ``mend`` other GPUs of a node
    take over from those that it lost, where it has enough.
    """
    action, slots = RecoveryAction.SWAP, site.broken if mend else site.hit
    home, units = site.home, site.units
    usable = site.takes(spares)
    open_slots = [int(slot) for slot in slots if home[slot] == slot or not (mend and usable[home[slot]])]
    free = [int(unit) for unit in np.flatnonzero(usable) if unit >= units.slots and unit not in home]
    if not site.is_touched:
        return refused(action, remark("nothing_lost"))
    if len(free) < len(open_slots):
        lacking = remark("spares_short", lost=len(open_slots), unit_nodes=units.width, spares=len(free))
        return refused(action, lacking)
    price_s = _prices_in_steps(site, prices, free)
    allowed = site.rules_broken(home)
    filled = fill_slots(site.candidate.placement, home, open_slots, free, price_s=price_s, allowed=allowed)
    if filled is None:
        return refused(action, remark("no_spares_keep_rules"))
    orders = [filled.assignment]
    if filled.step_s > site.job.plan.time.step_s * (1 + WORTH_MOVING):
        further = exchanged(
            site.candidate.placement, filled.assignment, open_slots, least_gain=WORTH_MOVING, allowed=allowed
        )
        orders += [further] * (not np.array_equal(further, filled.assignment))
    return max((_swapped(site, order, migrate) for order in orders), key=lambda option: option.value_flop)


def _swapped(site: JobSite, assignment: IntArray, migrate: Migrate) -> RecoveryOption:
    """The option of the job's own configuration on ``assignment``."""
    placed = Placed(site.asked, site.candidate, assignment)
    plan = plan_of(site.resources, placed, remark("lost_part_placed"))
    moves = migrate(site.job, plan, problem=site.problem, lost=site.state_lost, links=site.links)
    taken = [host for host in plan.placement.hosts if host not in site.resources.held]
    lost = [host for slot in site.broken for host in site.units.members[slot] if not site.resources.carries(host)]
    if len(taken) == len(plan.placement.hosts):
        reason = remark("starts_on", nodes=tuple(taken))
    elif not taken:
        reason = remark("own_gpus_take_over")
    else:
        stay = np.array_equal(np.delete(assignment, site.broken), np.delete(site.home, site.broken))
        reason = remark("swapped", taken=tuple(taken), lost=tuple(lost), others_stay=stay)
    return option_of(
        site.resources,
        RecoveryAction.SWAP,
        plan,
        moves,
        limited_by=limit_of(placed, plan),
        reason=reason,
        is_touched=True,
    )


def shrink(
    site: JobSite, *, migrate: Migrate = migration, replicas: int | None = None, spares: Sequence[str] = ()
) -> Answer:
    """Fewer replicas on what is left of the job, with ``spares`` as well: as many as may be, or ``replicas``.

    Where the job lost nothing, it gives up the replicas that it needs least.  Nodes that lost GPUs are left, or as
    many fewer are used of every node, whichever is worth more.
    """
    whole = _shrunk(site, usable_units(site, spares), site.gpus, migrate=migrate, replicas=replicas)
    found = [whole]
    for width in thin_widths(site):
        hosts = [(host,) for host in thin_hosts(site, width, spares)]
        found.append(_shrunk(site, hosts, width, migrate=migrate, replicas=replicas))
    options = [answer for answer in found if isinstance(answer, RecoveryOption)]
    return max(options, key=lambda option: option.value_flop, default=whole)


def _shrunk(
    site: JobSite, usable: Sequence[Unit], node_gpus: int, *, migrate: Migrate, replicas: int | None
) -> Answer:
    """Fewer replicas on units of ``usable``, of whose nodes ``node_gpus`` GPUs are used."""
    action, data = RecoveryAction.SHRINK_DATA_PARALLEL, site.job.plan.configuration.degrees.data
    most = min(data - 1, most_replicas(site, len(usable), node_gpus))
    if most < 1:
        return refused(action, remark("one_replica" if data == 1 else "no_whole_replica"))
    sizes = [size for size in data_sizes(site, most, node_gpus) if replicas in {None, size.data}]
    if not sizes:
        return refused(action, no_size(site, replicas or most))
    placed = best_size(site, sizes, usable)
    if placed is None:
        return refused(action, remark("sizes_do_not_fit", replicas=sizes[0].data))
    plan = plan_of(site.resources, placed, remark("replicas_stay"))
    moves = migrate(site.job, plan, problem=site.problem, lost=site.state_lost, links=site.links)
    degrees, batch = plan.configuration.degrees, placed.asked.workload.global_batch
    changed = batch if batch != site.asked.workload.global_batch else None
    return option_of(
        site.resources,
        action,
        plan,
        moves,
        limited_by=limit_of(placed, plan),
        reason=remark("fewer_replicas", replicas=degrees.data, before=data, global_batch=changed),
        is_touched=site.is_touched,
    )


def reroute(site: JobSite, *, migrate: Migrate = migration) -> Answer:
    """Live data ranks of each stage take over the micro-batches of the lost ones; nothing moves."""
    action, job = RecoveryAction.REROUTE, site.job
    alive = living_cells(site)
    if alive.all():
        return refused(action, remark("every_replica_lives"))
    if reason := cannot_reroute(site, alive):
        return refused(action, reason)
    found = rerouted(site, alive)
    stage, living = found.tightest, int(alive[:, found.tightest].sum())
    plan = plan_without(site, found)
    # a framework that re-routes goes on in its processes; live ranks take over the shards of lost ones
    lives = replace(job, recovery=replace(job.recovery, hands_over_state=True))
    moves = migrate(lives, plan, problem=site.problem, lost=site.state_lost, links=site.links)
    return option_of(
        site.resources,
        action,
        plan,
        moves,
        limited_by=remark("limit_shared_stage", stage=stage, replicas=living, of=len(alive)),
        reason=remark("peers_take_over", parts=int((~alive).sum())),
        is_touched=True,
    )


def reshape(
    site: JobSite, nodes: Sequence[str], limit_s: float, *, migrate: Migrate = migration, seed: int = 0
) -> Answer:
    """Other degrees on what is left of the job and ``nodes``, as the planner finds them within ``limit_s``."""
    action, job = RecoveryAction.RESHAPE, site.job
    if not job.recovery.may_reshape:
        return refused(action, remark("may_not_reshape"))
    started = time.monotonic()
    shapes = shapes_on(site, nodes)
    if isinstance(shapes, Remark):
        return refused(action, shapes)
    options = SearchOptions(time_limit_s=limit_s, seed=seed, gap=RESHAPE_GAP, alternatives=0)
    found = search_within(shapes.asked, shapes.space, options, spent_s=time.monotonic() - started)
    if isinstance(found, NoPlan):
        return refused(action, *found.reasons)
    return reshaped(site, plan_found(site, shapes.asked, options, found), migrate)


def reshaped(site: JobSite, found: Plan, migrate: Migrate) -> RecoveryOption:
    """The option of running by ``found``, on hosts in an order that moves least.

    Where only places change it is called what it is: a swap, or a restart where not even those do.
    """
    job, plan = site.job, as_its_owner_asks(site, on_familiar_hosts(site, found))
    moves = migrate(job, plan, problem=site.problem, lost=site.state_lost, links=site.links)
    action, reason = RecoveryAction.RESHAPE, what_changes(job.plan, plan)
    if reason is None:
        stays = plan.placement == job.plan.placement
        action = RecoveryAction.RESTART_IN_PLACE if stays else RecoveryAction.SWAP
        reason = remark("starts_again") if stays else _moved(job.nodes, plan.placement.hosts)
    return option_of(
        site.resources,
        action,
        plan,
        moves,
        limited_by=limit_of_time(plan.time),
        reason=reason,
        is_touched=site.is_touched,
        in_new_shape=True,
    )


def _moved(old: Sequence[str], new: Sequence[str]) -> Remark:
    """Nodes that are taken and nodes that are left."""
    taken = tuple(host for host in new if host not in old)
    if not taken:
        return remark("ranks_change_places")
    return remark("moved", taken=taken, left=tuple(host for host in old if host not in new))


def wait(site: JobSite, *, migrate: Migrate = migration) -> Answer:
    """The job stands still on its GPUs until the lost ones serve again, and starts there as it was planned."""
    problem, job = site.problem, site.job
    moves = migrate(job, whole_plan(site), problem=problem, lost=site.state_lost, links=site.links)
    starts_s = problem.job_back_after_s(job)
    return RecoveryOption(
        job_id=job.id,
        action=RecoveryAction.WAIT,
        holds=frozenset((place.node, place.gpu) for place in job.plan.placement.ranks),
        value_flop=option_value(job, job.plan.tokens_per_s, moves, horizon_s=problem.horizon_s, starts_s=starts_s),
        tokens_per_s=0.0,
        limited_by=remark("limit_nodes_out"),
        migration=moves,
        plan=None,
        reason=remark("nodes_back", seconds=starts_s),
    )


def pause(site: JobSite, *, is_paused: bool = False) -> RecoveryOption:
    """The job ends at its last checkpoint and frees all it holds, or stays as it is where it ``is_paused``."""
    problem = site.problem
    least_gain = least_gain_flop(site.job, problem.horizon_s) if site.job.id in problem.whole else 0.0
    return RecoveryOption(
        job_id=site.job.id,
        action=RecoveryAction.PAUSE,
        holds=frozenset(),
        value_flop=0.0 - least_gain,  # never -0.0
        tokens_per_s=0.0,
        limited_by=remark("limit_gpus"),
        migration=Migration(),
        plan=None,
        reason=remark("stays_paused" if is_paused else "frees_gpus"),
        least_gain_flop=least_gain,
    )


def refused(action: RecoveryAction, *reasons: Remark) -> ConsideredAction:
    """An action that cannot be taken."""
    return ConsideredAction(action, None, reasons)


def _prices_in_steps(site: JobSite, prices: Mapping[str, float], units: Sequence[int]) -> dict[int, float]:
    """Price of each unit, in seconds of a step: the value of a second, at the step as it would be at best."""
    if not any(prices.values()):
        return {}
    step_s = site.step_of(site.home)
    tokens_per_s = site.asked.workload.tokens_per_step / step_s
    worth = work_flop(site.job, tokens_per_s, site.job.recovery.restart_high_s, site.problem.horizon_s)
    return {
        unit: sum(prices.get(host, 0.0) for host in site.units.members[unit]) * step_s / worth for unit in units
    }
