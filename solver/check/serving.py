"""A second opinion on a serving plan, derived again from the problem alone.

Nothing here imports the planner or the performance model; see ``solver.check``.  Predicted times are not derived
again, but no figure may contradict another, and none may beat a data sheet.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import cycle
from typing import Final

from cluster_models.cluster.draw import draw_law
from cluster_models.cluster.power import LEAST_SHARE
from cluster_models.cluster.topology import Node
from cluster_models.serving.checks import check_serving
from cluster_models.serving.goal import ServedModel, ServingObjective
from cluster_models.serving.plan import ModelFigures, ServingPlan
from cluster_models.serving.replicas import GpuPlace, Phase, Replica, ReplicaGroup
from cluster_models.serving.requests import LATENCIES
from cluster_models.serving.workload import ServingWorkload
from cluster_models.training.plan import StopReason
from solver.check.serving_memory import memory_violations
from solver.serving.problem import ServingProblem

TOLERANCE: Final = 1e-4
LITTLE_TOLERANCE: Final = 0.05
"""The closed form of the steady state settles requests in flight = rate x stay to within this."""


def check_serving_plan(plan: ServingPlan, problem: ServingProblem) -> tuple[str, ...]:
    """Every rule that ``plan`` breaks as an answer to ``problem``, one sentence each; empty when sound."""
    return (
        *_placement_rules(plan, problem),
        *_idle_rules(plan, problem),
        *_budget_rules(plan, problem),
        *_shape_rules(plan, problem),
        *(broken for replica in plan.replicas for broken in memory_violations(replica, _served(plan, replica))),
        *(broken for group in plan.groups for broken in _group_rules(group, problem)),
        *_load_rules(plan, problem),
        *_certificate_rules(plan, problem),
    )


def _served(plan: ServingPlan, replica: Replica) -> ServedModel:
    return next(plan.models[group.model] for group in plan.groups if replica in group.replicas)


def _placement_rules(plan: ServingPlan, problem: ServingProblem) -> Iterator[str]:
    """Every GPU exists, is free, of the kind stated, on a node that may be used, and has one replica."""
    nodes = {node.name: node for node in problem.snapshot.cluster.nodes}
    if [replica.number for replica in plan.replicas] != list(range(len(plan.replicas))):
        yield "Replicas are not numbered from 0 in order."
    for replica in plan.replicas:
        placed = sum(len(place.gpus) for place in replica.places)
        if placed != replica.worker.gpus:
            yield f"Replica {replica.number} has {placed} GPUs, its degrees need {replica.worker.gpus}."
        for place in replica.places:
            yield from _place_rules(replica, place, nodes.get(place.node), problem)
    taken = Counter(
        (place.node, gpu) for replica in plan.replicas for place in replica.places for gpu in place.gpus
    )
    for (node_name, gpu), times in taken.items():
        if times > 1:
            yield f"GPU {gpu} of {node_name} is in {times} replicas."


def _place_rules(replica: Replica, place: GpuPlace, node: Node | None, problem: ServingProblem) -> Iterator[str]:
    """Violations on the GPUs of one node."""
    name = f"Replica {replica.number}"
    if node is None or not node.usable:
        yield f"{name} uses {place.node}, which is not a usable node."
        return
    if place.node in problem.goal.avoid_nodes:
        yield f"{name} uses {place.node}, which is to be avoided."
    if node.gpu_kind != replica.gpu_kind:
        yield f"{name} states {replica.gpu_kind}, {place.node} has {node.gpu_kind}."
    if busy := set(place.gpus) - set(node.free_gpus):
        yield f"{name} uses GPUs {sorted(busy)} of {place.node}, which are not free."


def _idle_rules(plan: ServingPlan, problem: ServingProblem) -> Iterator[str]:
    """Every free GPU is either used or listed as idle."""
    used = {(place.node, gpu) for replica in plan.replicas for place in replica.places for gpu in place.gpus}
    idle = [(each.node, gpu) for each in plan.idle for gpu in each.gpus]
    free = {(node.name, gpu) for node in problem.snapshot.cluster.nodes for gpu in node.free_gpus}
    if len(idle) != len(set(idle)) or used & set(idle) or used | set(idle) != free:
        yield "Used and idle GPUs together are not the free GPUs of the cluster, each once."


def _budget_rules(plan: ServingPlan, problem: ServingProblem) -> Iterator[str]:
    """Limits on GPUs and power hold, and the totals are sums over replicas."""
    kinds = problem.snapshot.cluster.gpu_kinds
    gpus = sum(replica.worker.gpus for replica in plan.replicas)
    watts = sum(replica.watts(kinds) for replica in plan.replicas)
    if plan.gpus != gpus or not math.isclose(plan.power_watts, watts, rel_tol=TOLERANCE):
        yield f"The plan states {plan.gpus} GPUs, {plan.power_watts:g} W; its replicas have {gpus}, {watts:g} W."
    for group in plan.groups:
        yield from _draw_rules(group, problem)
    goal = problem.goal
    for replica in plan.replicas:
        cap, rated = replica.power_cap_watts, kinds[replica.gpu_kind].power_watts
        wanted = goal.gpu_power_cap_watts
        fixed = None if wanted is None or wanted >= rated else wanted
        if (
            cap != fixed
            if not goal.choose_power_caps
            else cap is not None and not LEAST_SHARE * rated <= cap < rated
        ):
            yield f"Replica {replica.number} has the power cap {cap}, which the goal does not allow."
    if goal.max_gpus is not None and gpus > goal.max_gpus:
        yield f"The plan uses {gpus} GPUs, more than {goal.max_gpus}."
    if goal.max_power_watts is not None and watts > goal.max_power_watts * (1 + TOLERANCE):
        yield f"The plan uses {watts:g} W, more than {goal.max_power_watts:g} W."


def _draw_rules(group: ReplicaGroup, problem: ServingProblem) -> Iterator[str]:
    """GPUs draw no less than idle ones and no more than boards or caps, which replicas of one phase share."""
    first, kinds = f"The group of replica {group.replicas[0].number}", problem.snapshot.cluster.gpu_kinds
    if len({(each.phase, each.power_cap_watts) for each in group.replicas}) > len(
        {e.phase for e in group.replicas}
    ):
        yield f"{first} has several power caps in one phase."
    if (drawn := group.drawn_watts) is None:
        return
    most = sum(each.watts(kinds) for each in group.replicas) * (1 + TOLERANCE)
    least = draw_law().floor * sum(kinds[each.gpu_kind].power_watts * each.worker.gpus for each in group.replicas)
    if not (0 < drawn.low <= drawn.value <= drawn.high <= most and drawn.value >= least * (1 - TOLERANCE)):
        yield (
            f"{first} draws {drawn.value:g} W ({drawn.low:g} to {drawn.high:g}), "
            f"idle GPUs draw {least:g} W, boards and caps allow {most:g} W."
        )


def _shape_rules(plan: ServingPlan, problem: ServingProblem) -> Iterator[str]:
    """Degrees go with model and engine, pinned ones hold, and a group is one replica or both phases."""
    if plan.models != problem.models or plan.goal != problem.goal:
        yield "The plan answers another problem."
        return
    for group in plan.groups:
        served = problem.models[group.model]
        phases = {replica.phase for replica in group.replicas}
        if phases not in ({Phase.BOTH}, {Phase.PREFILL, Phase.DECODE}):
            yield f"A group has the phases {sorted(phases)}, which do not answer requests by themselves."
            continue
        check_serving(served.architecture, served.workload, group.configuration)
        for replica in group.replicas:
            for name, value in problem.goal.pinned.items():
                if getattr(replica.worker, name) != value:
                    yield f"Replica {replica.number} has {name} {getattr(replica.worker, name)}, pinned is {value}."
            if len({each.worker for each in group.replicas if each.phase is replica.phase}) > 1:
                yield f"Replicas of one phase beside replica {replica.number} differ in shape."
        if (group.transfer is None) != (phases == {Phase.BOTH}):
            yield "A group passes caches where it has one phase, or does not where it has two."


def _group_rules(group: ReplicaGroup, problem: ServingProblem) -> Iterator[str]:
    """Shares and rates agree, and no decode step reads memory faster than it is."""
    workload = problem.models[group.model].workload
    first = f"The group of replica {group.replicas[0].number}"
    stay = group.first_token_s.value + (workload.output_tokens - 1) * group.token_s.value
    yield from _latency_rules(group, workload, stay)
    output = group.requests_per_s * workload.output_tokens
    if not math.isclose(output, group.output_tokens_per_s.value, rel_tol=TOLERANCE):
        yield f"{first} answers {output:g} tokens/s and states {group.output_tokens_per_s.value:g}."
    if not math.isclose(group.requests_per_s * stay, group.concurrency, rel_tol=LITTLE_TOLERANCE):
        yield f"{first} has {group.concurrency:g} in flight, rate times stay is {group.requests_per_s * stay:g}."
    if group.most_requests_per_s < group.requests_per_s * (1 - TOLERANCE):
        yield f"{first} is given more than the most it answers."
    kinds = problem.snapshot.cluster.gpu_kinds
    for replica in group.replicas:
        cache = replica.memory.sequence_bytes / kinds[replica.gpu_kind].memory_bytes_per_s
        read = cache * replica.sequences * replica.worker.pipeline / replica.worker.attention_data
        steps = 1.0 if workload.speculation is None else 1.0 + workload.speculation.accepted_tokens
        alone = read * group.token_s.value / max(stay, 1e-12) * (workload.output_tokens - 1)
        if replica.phase is not Phase.PREFILL and alone > group.token_s.value * steps * (1 + LITTLE_TOLERANCE):
            yield f"Replica {replica.number} reads its caches faster than the memory of {replica.gpu_kind} does."


def _latency_rules(group: ReplicaGroup, workload: ServingWorkload, stay: float) -> Iterator[str]:
    """Limits hold for the latencies that they are about, which are the means where no percentile is asked."""
    first = f"The group of replica {group.replicas[0].number}"
    means = (group.first_token_s.value, group.token_s.value, stay)
    values = group.limited_s.values_s
    if len(values) != len(workload.limits_s):
        yield f"{first} does not state the latencies of every class."
    for name, limit, value in zip(cycle(LATENCIES), workload.limits_s, values, strict=False):
        if value > limit * (1 + TOLERANCE):
            yield f"{first} has a {name} of {value:g}, the limit is {limit:g}."
    for name, value, mean in zip(LATENCIES, values, means, strict=False):
        if workload.is_mixed and name == LATENCIES[1]:
            continue  # a mean over requests is not that over tokens
        if workload.limit_percentile is None and not math.isclose(value, mean, rel_tol=LITTLE_TOLERANCE):
            yield f"{first} states {value:g} as its mean {name}, which is {mean:g}."
    for name, interval in (("first token", group.first_token_s), ("output token", group.token_s)):
        if not 0 <= interval.low <= interval.value <= interval.high:
            yield f"{first} has an interval of the {name} that its value is not in."


def _load_rules(plan: ServingPlan, problem: ServingProblem) -> Iterator[str]:
    """Shares add up, the load is carried, and the figures of each model are sums over its groups."""
    if [each.model for each in plan.figures] != list(range(len(problem.models))):
        yield "The plan does not state figures for each model."
        return
    for model, (served, stated) in enumerate(zip(problem.models, plan.figures, strict=True)):
        groups = [group for group in plan.groups if group.model == model]
        yield from _share_rules(model, groups)
        yield from _sum_rules(stated, groups)
        workload = served.workload
        if problem.goal.objective is ServingObjective.GOODPUT:
            continue
        rate, load = workload.requests_per_s, workload.concurrency
        if rate is not None and stated.requests_per_s < rate * (1 - TOLERANCE):
            yield f"Model {model} is asked {rate:g} requests/s, {stated.requests_per_s:g} are answered."
        if load is not None and not math.isclose(stated.concurrency, load, rel_tol=TOLERANCE):
            yield f"Model {model} has {load:g} requests in flight, its groups have {stated.concurrency:g}."


def _share_rules(model: int, groups: list[ReplicaGroup]) -> Iterator[str]:
    """Shares of groups add up to 1, those of replicas of a phase to the share of their group."""
    if not math.isclose(sum(group.share for group in groups), 1.0, rel_tol=TOLERANCE):
        yield f"The shares of the groups of model {model} do not add up to 1."
    total = sum(group.requests_per_s for group in groups)
    for group in groups:
        if not math.isclose(group.share * total, group.requests_per_s, rel_tol=TOLERANCE):
            yield f"A group of model {model} is not asked in proportion to what it answers."
        for phase in {replica.phase for replica in group.replicas}:
            share = sum(replica.share for replica in group.replicas if replica.phase is phase)
            if not math.isclose(share, group.share, rel_tol=TOLERANCE):
                yield f"Shares of the {phase} replicas of a group of model {model} are not the group's."


def _sum_rules(stated: ModelFigures, groups: list[ReplicaGroup]) -> Iterator[str]:
    for name in ("gpus", "concurrency", "requests_per_s", "most_requests_per_s"):
        total = sum(getattr(group, name) for group in groups)
        if not math.isclose(getattr(stated, name), total, rel_tol=TOLERANCE):
            yield f"Model {stated.model} states {name} {getattr(stated, name):g}, its groups have {total:g}."
    for name in ("first_token_s", "token_s"):
        mean = sum(group.share * getattr(group, name).value for group in groups)
        if not math.isclose(getattr(stated, name).value, mean, rel_tol=TOLERANCE):
            yield f"Model {stated.model} states {name} {getattr(stated, name).value:g}, the mean is {mean:g}."


def _certificate_rules(plan: ServingPlan, problem: ServingProblem) -> Iterator[str]:
    """The objective is that of the plan's own figures, and bound and gap lie on its right side."""
    stated, goal = plan.certificate, problem.goal
    expected = _objective(plan, problem)
    if expected is None:
        yield "The plan does not state its objective: a price of every GPU, or the power drawn."
    elif not math.isclose(stated.objective, expected, rel_tol=TOLERANCE):
        yield f"The certificate states {stated.objective:.9g}, the plan reaches {expected:.9g}."
    if stated.stopped_by is StopReason.NO_SEARCH:
        return  # it claims no bound
    ahead = stated.bound - stated.objective
    if (ahead if goal.objective.is_maximum else -ahead) < -TOLERANCE * stated.objective:
        yield f"The plan reaches {stated.objective:g}, beyond its bound {stated.bound:g}."
    if not math.isclose(stated.gap, abs(ahead) / stated.objective, rel_tol=1e-3, abs_tol=TOLERANCE):
        yield f"The certificate states the gap {stated.gap:g}, its figures say {abs(ahead) / stated.objective:g}."


def _objective(plan: ServingPlan, problem: ServingProblem) -> float | None:
    goal = problem.goal
    if goal.objective.is_maximum:
        return sum(
            served.weight
            * served.workload.output_tokens
            * (
                stated.requests_per_s
                if goal.objective is ServingObjective.THROUGHPUT and served.workload.concurrency is not None
                else stated.most_requests_per_s
            )
            for served, stated in zip(problem.models, plan.figures, strict=True)
        )
    return {
        ServingObjective.GPUS: float(plan.gpus),
        ServingObjective.COST: plan.price_usd_per_hour,
        ServingObjective.POWER: plan.power_watts,
        ServingObjective.ENERGY: None if plan.drawn_watts is None else plan.drawn_watts.value,
    }[goal.objective]
