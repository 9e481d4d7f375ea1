"""Costs of failures to a plan over time, and the price of surviving one more of them (docs/resilience.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from cluster_models.errors import InvalidInput
from cluster_models.links.model import effective_links
from cluster_models.remarks import Remark, remark
from cluster_models.training.plan import NoPlan, Plan
from cluster_models.training.workload import Sharding
from solver.answer.survival import losses_by
from solver.costs.training_state import homes_of, instances_of, states_of, trained_units
from solver.replanning.migration import WARM_UP_STEPS
from solver.replanning.sources import distances_between

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster_models.cluster.snapshot import ClusterSnapshot
    from cluster_models.cluster.topology import Cluster
    from cluster_models.jobs.running import RecoveryPolicy
    from cluster_models.links.model import LinkModel
    from cluster_models.training.workload import TrainingWorkload

DAY_S: Final = 86_400.0
FAILURES_PER_NODE_DAY: Final = 6.5e-3
"""Rate of nodes of eight GPUs: Meta's RSC-1 (arXiv 2410.21680); RSC-2 had 2.3e-3, Llama 3's run 3.8e-3."""


@dataclass(frozen=True, slots=True)
class EffectiveTraining:
    """The share of time in which a job makes progress that lasts: ``ratio`` now, ``best_ratio`` at best.

    ``failures_per_day`` of the whole job; each costs ``restart_s`` and, where it takes state, half an interval.
    ``interval_s`` is the time between checkpoints, ``write_s`` what writing one holds up the job, and
    ``best_interval_s`` the interval with the best ratio: ``None`` where a failure of one node takes no state, so
    that rarer is better.
    """

    ratio: float
    best_ratio: float
    interval_s: float
    best_interval_s: float | None
    failures_per_day: float
    restart_s: float
    write_s: float


def effective_training(
    plan: Plan,
    recovery: RecoveryPolicy,
    cluster: Cluster,
    *,
    failures_per_node_day: float = FAILURES_PER_NODE_DAY,
    write_s: float | None = None,
) -> EffectiveTraining:
    """Expected effective training time ratio of ``plan`` (Kokolis et al., arXiv 2410.21680, section 3.3).

    (1 - N r (u + t / 2)) / (1 + w / t) with N nodes, r failures of a node per second, u from failure to first step,
    t between checkpoints and w to write one; without t / 2 where live copies survive the loss of any node
    and the framework hands them over.
    ``write_s`` is by default what storage takes for the whole state; 0 where checkpoints are written beside the
    step.
    """
    (state,) = states_of((plan,), recovery)
    storage_s = state.model_bytes / recovery.storage_bytes_per_s
    write_s = storage_s if write_s is None else write_s
    interval_s = recovery.checkpoint_interval_steps * plan.time.step_s
    live = losses_by(plan, replace(recovery, memory_checkpoint=False), cluster, "node")
    takes_state = not recovery.hands_over_state or live is None or not live.count
    warm_up_s = sum(WARM_UP_STEPS) / 2 * plan.time.step_s
    restart_s = (recovery.restart_low_s + recovery.restart_high_s) / 2 + warm_up_s + storage_s * takes_state
    rate = len(state.hosts) * failures_per_node_day / DAY_S
    lost = 0.5 if takes_state else 0.0
    best_s = best_interval_s(rate, restart_s, write_s) if takes_state else None
    ratio = _ratio(rate, restart_s, write_s, interval_s, lost)
    best = max(0.0, 1 - rate * restart_s) if best_s is None else _ratio(rate, restart_s, write_s, best_s, lost)
    return EffectiveTraining(
        ratio=ratio,
        best_ratio=max(ratio, best),
        interval_s=interval_s,
        best_interval_s=best_s,
        failures_per_day=rate * DAY_S,
        restart_s=restart_s,
        write_s=write_s,
    )


def _ratio(rate: float, restart_s: float, write_s: float, interval_s: float, lost: float) -> float:
    """The formula; 0 where failures come faster than the job recovers."""
    return max(0.0, 1 - rate * (restart_s + lost * interval_s)) / (1 + write_s / interval_s)


def best_interval_s(rate: float, restart_s: float, write_s: float) -> float | None:
    """The interval between checkpoints with the best ratio; ``None`` where none makes progress or all are free.

    Where the derivative of the formula is nil: t^2 + 2 w t = 2 w (1 - r u) / r (our derivation); for small w and r
    it is Young's sqrt(2 w / r) (Communications of the ACM 17(9), 1974).
    """
    progress = 1 - rate * restart_s
    if rate <= 0 or write_s <= 0 or progress <= 0:
        return None
    return -write_s + sqrt(write_s**2 + 2 * write_s * progress / rate)


class HardeningKind(StrEnum):
    """Ways to survive more."""

    MEMORY_CHECKPOINT = "memory_checkpoint"
    """Each node's newest checkpoint also in the next host's memory; steps since it are lost all the same."""
    OPTIMIZER_INSTANCES = "optimizer_instances"
    """Twice as many copies of every optimizer shard."""
    UNSHARDED = "unsharded"
    """No sharding: every replica has everything."""
    SPREAD = "spread"
    """Another placement (or other degrees) that ``workload.survive`` asks for."""


@dataclass(frozen=True, slots=True)
class Hardening:
    """One way to survive ``count`` of a label, and its price.

    ``gpu_bytes``: more memory of the fullest GPU; ``host_bytes``: of each node's own memory.  ``step_s``: how much
    longer a step takes (estimated; from a plan of its own for ``SPREAD``).  ``is_possible`` is false where it does
    not fit into the GPUs' memory.
    """

    kind: HardeningKind
    label: str
    count: int
    gpu_bytes: float
    host_bytes: float
    step_s: float
    is_possible: bool
    means: Remark


def hardenings(
    plan: Plan,
    recovery: RecoveryPolicy,
    snapshot: ClusterSnapshot,
    label: str = "node",
    *,
    links: LinkModel | None = None,
    replan: Callable[[TrainingWorkload], Plan | NoPlan] | None = None,
) -> tuple[Hardening, ...]:
    """The ways to survive more of ``label`` than the plan does, the cheapest first: possible ones by step time.

    At equal step times the one with less memory goes first.  ``replan`` is the planner, asked for a plan that
    survives one more; without it that way is left out.
    """
    links = effective_links(snapshot) if links is None else links
    now = _count(plan, recovery, snapshot.cluster, label)
    found = list(_kept_copies(plan, recovery, snapshot.cluster, links, label))
    if replan is not None and (spread := _spread(plan, label, now, replan)) is not None:
        found.append(spread)
    better = [each for each in found if each.count > now]
    return tuple(
        sorted(better, key=lambda each: (not each.is_possible, each.step_s, each.gpu_bytes, each.host_bytes))
    )


def _count(plan: Plan, recovery: RecoveryPolicy, cluster: Cluster, label: str) -> int:
    found = losses_by(plan, recovery, cluster, label)
    return 0 if found is None else found.count


def _kept_copies(
    plan: Plan, recovery: RecoveryPolicy, cluster: Cluster, links: LinkModel, label: str
) -> Iterator[Hardening]:
    """Ways that leave degrees and placement as they are."""
    configuration = plan.configuration
    distances = distances_between(plan.placement.hosts, links, plan.placement.gpus_per_node)
    slowest = float(distances.seconds.max())
    if not recovery.memory_checkpoint:
        yield _in_memory(plan, recovery, cluster, label, slowest)
    if configuration.optimizer_offload or configuration.offloaded_layers:
        return  # copies of states would fill nodes' memory, which is not weighed here
    sharing = configuration.degrees.context * configuration.degrees.data
    instances = instances_of(recovery, sharing)
    twice = replace(recovery, optimizer_instances=2 * instances)
    if configuration.sharding is Sharding.OPTIMIZER and instances_of(twice, sharing) > instances:
        extra, fits = _extra_bytes(plan, recovery, plan, twice)
        yield Hardening(
            HardeningKind.OPTIMIZER_INSTANCES,
            label,
            _count(plan, twice, cluster, label),
            extra,
            0.0,
            _between_instances_s(plan, 2 * instances, slowest),
            fits,
            remark("more_instances", instances=2 * instances, before=instances, gpu_bytes=extra),
        )
    if configuration.sharding is not Sharding.NONE:
        unsharded = replace(plan, configuration=replace(configuration, sharding=Sharding.NONE, sharding_ranks=0))
        extra, fits = _extra_bytes(plan, recovery, unsharded, recovery)
        yield Hardening(
            HardeningKind.UNSHARDED,
            label,
            _count(unsharded, recovery, cluster, label),
            extra,
            0.0,
            0.0,
            fits,
            remark("no_sharding", gpu_bytes=extra),
        )


def _in_memory(plan: Plan, recovery: RecoveryPolicy, cluster: Cluster, label: str, slowest: float) -> Hardening:
    """Every GPU sends its part of a checkpoint once an interval, over the slowest of the links at worst."""
    (state,) = states_of((plan,), recovery)
    node_bytes = float(np.bincount(state.host, weights=state.rank_bytes).max())
    sending_s = float(state.rank_bytes.max()) * slowest / recovery.checkpoint_interval_steps
    count = _count(plan, replace(recovery, memory_checkpoint=True), cluster, label)
    return Hardening(
        HardeningKind.MEMORY_CHECKPOINT,
        label,
        count,
        0.0,
        2 * node_bytes,
        sending_s,
        True,
        remark("checkpoint_in_memory", node_bytes=2 * node_bytes),
    )


def _between_instances_s(plan: Plan, instances: int, slowest: float) -> float:
    """Seconds of the all-reduce of gradient shards between instances: 2 (k - 1) / k of a shard, a ring, exposed."""
    assert plan.architecture is not None
    assert plan.workload is not None
    units, degrees = trained_units(plan.architecture, plan.workload), plan.configuration.degrees
    homes = homes_of(plan.architecture, plan.configuration)
    largest = float(((units.cut / degrees.tensor + units.repeated) @ homes).max())
    shard = plan.workload.framework.gradient_bytes * largest * instances / (degrees.context * degrees.data)
    return 2 * (instances - 1) / instances * shard * slowest


def _extra_bytes(old: Plan, before: RecoveryPolicy, new: Plan, after: RecoveryPolicy) -> tuple[float, bool]:
    """Memory that the fullest GPU takes more, and whether every stage still fits."""
    (had,), (has,) = states_of((old,), before), states_of((new,), after)
    extra = has.rank_bytes - had.rank_bytes
    room = np.array([memory.limit_bytes - memory.total_bytes for memory in old.memory])
    return float(extra.max()), bool((extra <= room[had.stage]).all())


def _spread(
    plan: Plan, label: str, now: int, replan: Callable[[TrainingWorkload], Plan | NoPlan]
) -> Hardening | None:
    """The plan that is asked to survive one more; ``None`` where there is none."""
    assert plan.workload is not None
    workload = replace(plan.workload, survive={**plan.workload.survive, label: now + 1})
    try:
        found = replan(workload)
    except InvalidInput:
        return None
    if isinstance(found, NoPlan):
        return None
    slower_s = found.time.step_s - plan.time.step_s
    had, has = (max(memory.total_bytes for memory in each.memory) for each in (plan, found))
    return Hardening(
        HardeningKind.SPREAD,
        label,
        now + 1,
        has - had,
        0.0,
        slower_s,
        True,
        remark(
            "plan_that_survives",
            label=label,
            losses=now + 1,
            degrees=str(found.configuration.degrees),
            sharding=found.configuration.sharding,
            slower_s=slower_s,
        ),
    )
