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
from cluster_models.training.plan import NoPlan, Plan
from cluster_models.wording import named
from solver.candidates import IntArray
from solver.problem import SearchOptions
from solver.replanning.filling import exchanged, fill_slots
from solver.replanning.migration import migration
from solver.replanning.outcome import Migrate, Placed, limit_of, limit_of_time, option_of, plan_of
from solver.replanning.problem import RecoveryOption
from solver.replanning.regrouping import WORTH_MOVING
from solver.replanning.rerouting import (
    cannot_reroute,
    living_cells,
    living_ranks,
    plan_without,
    rerouted,
    whole_plan,
)
from solver.replanning.reshaping import as_its_owner_asks, on_familiar_hosts, shapes_on, what_changes
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
from solver.replanning.units import Unit
from solver.replanning.values import least_gain_flop, option_value, work_flop
from solver.search import plan_within

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
        return refused(action, f"{named(gone)} cannot carry its ranks any more")
    everything = frozenset((place.node, place.gpu) for place in site.job.plan.placement.ranks)
    if not restart and everything & site.lost:
        return refused(action, "a GPU that it runs on is lost")
    placed = Placed(site.asked, site.candidate, site.home)
    plan = plan_of(site.resources, placed, "The job stays as it was planned.")
    moves = Migration()
    if restart:
        moves = migrate(site.job, plan, problem=site.problem, lost=everything, links=site.links)
    return option_of(
        site.resources,
        action,
        plan,
        moves,
        limited_by=limit_of(placed, plan),
        reason="it starts again where it was" if restart else "nothing that it uses is lost",
        is_touched=True,
    )


def _still_rerouted(site: JobSite) -> Answer:
    """A job that runs around ranks lost before goes on doing so, as long as no more of it is lost."""
    plan = site.job.plan
    if len(living_ranks(site)) < len(plan.placement.ranks):
        return refused(RecoveryAction.NONE, "more of the ranks that it runs on are lost")
    found = rerouted(site, living_cells(site))
    if found.step_s > plan.time.step_s:  # on slower nodes or links than it was re-routed on
        plan = plan_without(site, found)
    return option_of(
        site.resources,
        RecoveryAction.NONE,
        plan,
        Migration(),
        limited_by="ranks lost before, whose work others share",
        reason="nothing that it uses is lost",
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
        return refused(action, "nothing that it uses is lost")
    if len(free) < len(open_slots):
        what = "nodes" if units.width == 1 else f"units of {units.width} nodes in one NVLink domain"
        lacking = f"{len(open_slots)} of its {what} cannot carry its ranks"
        return refused(action, f"{lacking}, and {len(free)} spare ones can")
    price_s = _prices_in_steps(site, prices, free)
    allowed = site.rules_broken(home)
    filled = fill_slots(site.candidate.placement, home, open_slots, free, price_s=price_s, allowed=allowed)
    if filled is None:
        return refused(action, "no choice of spares keeps the GPU kind of each stage and the placement rules")
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
    plan = plan_of(site.resources, placed, "The lost part was placed; other ranks moved only where that pays.")
    moves = migrate(site.job, plan, problem=site.problem, lost=site.state_lost, links=site.links)
    taken = [host for host in plan.placement.hosts if host not in site.resources.held]
    lost = [host for slot in site.broken for host in site.units.members[slot] if not site.resources.carries(host)]
    reason = f"{named(taken)} for {named(lost)}, all other ranks stay"
    if len(taken) == len(plan.placement.hosts):
        reason = f"it starts on {named(taken)}"
    elif not taken:
        reason = "free GPUs of its own nodes take over"
    elif not np.array_equal(np.delete(assignment, site.broken), np.delete(site.home, site.broken)):
        reason = f"{named(taken)} for {named(lost)}, and live ranks change places, which the faster step pays"
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
        return refused(action, "it has one replica" if data == 1 else "what is left of it holds no whole replica")
    sizes = [size for size in data_sizes(site, most, node_gpus) if replicas in {None, size.data}]
    if not sizes:
        return refused(action, no_size(site, replicas or most))
    placed = best_size(site, sizes, usable)
    if placed is None:
        return refused(
            action, f"{sizes[0].data} replicas or fewer do not fit into memory or break a placement rule"
        )
    plan = plan_of(site.resources, placed, "The replicas that are left stay where they are as far as they can.")
    moves = migrate(site.job, plan, problem=site.problem, lost=site.state_lost, links=site.links)
    degrees, batch = plan.configuration.degrees, placed.asked.workload.global_batch
    changed = f" and a global batch of {batch}" if batch != site.asked.workload.global_batch else ""
    return option_of(
        site.resources,
        action,
        plan,
        moves,
        limited_by=limit_of(placed, plan),
        reason=f"it goes on with {degrees.data} of {data} replicas{changed}",
        is_touched=site.is_touched,
    )


def reroute(site: JobSite, *, migrate: Migrate = migration) -> Answer:
    """Live data ranks of each stage take over the micro-batches of the lost ones; nothing moves."""
    action, job = RecoveryAction.REROUTE, site.job
    alive = living_cells(site)
    if alive.all():
        return refused(action, "every replica of every stage lives")
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
        limited_by=f"stage {stage}, whose work {living} of {len(alive)} replicas share",
        reason=f"its peers run the micro-batches of {int((~alive).sum())} lost parts, and nothing moves",
        is_touched=True,
    )


def reshape(
    site: JobSite, nodes: Sequence[str], limit_s: float, *, migrate: Migrate = migration, seed: int = 0
) -> Answer:
    """Other degrees on what is left of the job and ``nodes``, as the planner finds them within ``limit_s``."""
    action, job = RecoveryAction.RESHAPE, site.job
    if not job.recovery.may_reshape:
        return refused(action, "its degrees may not change (recovery.may_reshape)")
    started = time.monotonic()
    shapes = shapes_on(site, nodes)
    if isinstance(shapes, str):
        return refused(action, shapes)
    options = SearchOptions(time_limit_s=limit_s, seed=seed, gap=RESHAPE_GAP, alternatives=0)
    spent_s, choice = time.monotonic() - started, shapes.asked.workload.choice
    found = plan_within(shapes.asked, shapes.space, options, spent_s=spent_s, choice=choice)
    if isinstance(found, NoPlan):
        return refused(action, found.reason)
    return reshaped(site, found, migrate)


def reshaped(site: JobSite, found: Plan, migrate: Migrate) -> RecoveryOption:
    """The option of running by ``found``, on hosts in an order that moves least.

    Where only places change it is called what it is: a swap, or a restart where not even those do.
    """
    job, plan = site.job, as_its_owner_asks(site, on_familiar_hosts(site, found))
    moves = migrate(job, plan, problem=site.problem, lost=site.state_lost, links=site.links)
    action, reason = RecoveryAction.RESHAPE, what_changes(job.plan, plan)
    if not reason:
        stays = plan.placement == job.plan.placement
        action = RecoveryAction.RESTART_IN_PLACE if stays else RecoveryAction.SWAP
        reason = "it starts again where it was" if stays else _moved(job.nodes, plan.placement.hosts)
    return option_of(
        site.resources,
        action,
        plan,
        moves,
        limited_by=limit_of_time(plan.time),
        reason=reason,
        is_touched=site.is_touched,
    )


def _moved(old: Sequence[str], new: Sequence[str]) -> str:
    """Nodes that are taken and nodes that are left, in words."""
    taken, left = ([host for host in ours if host not in theirs] for ours, theirs in ((new, old), (old, new)))
    if not taken:
        return "its ranks change places on its own nodes"
    return f"{named(taken)} for {named(left)}" if left else f"it takes {named(taken)}, too"


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
        limited_by="the nodes that are out",
        migration=moves,
        plan=None,
        reason=f"its nodes are expected back in {_duration(starts_s)}",
    )


def pause(site: JobSite, *, is_paused: bool = False) -> RecoveryOption:
    """The job ends at its last checkpoint and frees all it holds, or stays as it is where it ``is_paused``."""
    problem = site.problem
    least_gain = least_gain_flop(site.job, problem.horizon_s) if site.job.id in problem.whole else 0.0
    return RecoveryOption(
        job_id=site.job.id,
        action=RecoveryAction.PAUSE,
        holds=frozenset(),
        value_flop=-least_gain,
        tokens_per_s=0.0,
        limited_by="GPUs",
        migration=Migration(),
        plan=None,
        reason="it stays paused" if is_paused else "it frees its GPUs for others",
        least_gain_flop=least_gain,
    )


def refused(action: RecoveryAction, reason: str) -> ConsideredAction:
    """An action that cannot be taken."""
    return ConsideredAction(action, None, reason)


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.3g} h" if seconds >= 3600 else f"{seconds / 60:.3g} min"


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
