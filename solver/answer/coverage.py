"""Limits of the space that a certificate covers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cluster_models.model.architecture import Architecture
from cluster_models.remarks import Remark, remark
from cluster_models.training.context_exchange import exchange_refusal, usable_exchanges
from cluster_models.training.framework_choices import ContextExchange
from cluster_models.training.frameworks import Framework
from cluster_models.training.free_settings import leanest_settings, offered
from cluster_models.training.interleaving import Interleaving, takes_group_sizes
from cluster_models.training.offload import offload_percents, offloaded_layers
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import Sharding, TrainingWorkload
from solver.degrees.memory_mixes import NOTHING, limits_of, mixes_of
from solver.degrees.model_divisions import expert_tensor_legal
from solver.pipeline.schedule import MOST_EVENTS, events_of_chunk
from solver.placement.cluster_fabrics import MOST_KINDS, MOST_WIDTHS
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem


def limits(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> Iterator[Remark]:
    """Every limit of the space of ``problem``: plans beyond it are not covered by its certificate."""
    architecture, workload = problem.architecture, problem.workload
    if workload.placement:
        yield remark("limit_rules_kept")
    if workload.framework.fills_stages:
        yield remark("limit_layers_filled", framework=workload.framework.name)
    else:
        yield remark("limit_layers_by_rule")
    yield _memory_options(problem)
    yield remark("limit_equal_hosts")
    yield remark("limit_tensor_inside")
    yield from _limits_of_sharding(workload)
    if max(offload_percents(workload), default=0):
        yield remark("limit_offload")
    if len(offloaded_layers(workload, architecture.layers)) > 1:
        yield remark("limit_offloaded_layers")
    yield from _limits_of_exchange(architecture, workload)
    if free := offered(architecture, workload):
        yield remark("limit_settings", framework=workload.framework.name, free=tuple(map(str, free)))
    if architecture.layers > 1 and workload.pinned.get("virtual_pipeline") != 1:
        yield _groups(workload.framework)
    if len(workload.framework.schedules) > 1:
        yield remark("limit_schedules", schedules=tuple(map(str, _offered(workload))))
    events = max(map(events_of_chunk, _offered(workload)), default=2)
    if events * workload.global_batch * architecture.layers > MOST_EVENTS:
        yield remark("limit_schedule_length", events=MOST_EVENTS)
    if _leaves_cuts_out(problem, workload):
        yield remark("limit_expert_cuts")
    yield from _limits_of_hosts(workload, fabrics)


def _limits_of_sharding(workload: TrainingWorkload) -> Iterator[Remark]:
    if {Sharding.GRADIENTS, Sharding.PARAMETERS} & set(workload.shardings):
        yield remark("limit_sharded_without_pipeline")
    grouped = Sharding.PARAMETERS in workload.shardings and workload.framework.hybrid_sharding
    if grouped and "sharding_ranks" not in workload.pinned:
        yield remark("limit_sharding_groups")
    if Sharding.OPTIMIZER in workload.shardings and workload.takes_groups(Sharding.OPTIMIZER):
        yield remark("limit_optimizer_groups")


def _limits_of_exchange(architecture: Architecture, workload: TrainingWorkload) -> Iterator[Remark]:
    """Limits of context ranks: none without an exchange that the model takes, hierarchical ones of one size."""
    usable = usable_exchanges(architecture, workload)
    if not usable and workload.pinned.get("context") != 1:
        able = (each for each in ContextExchange if not exchange_refusal(architecture, workload, each))
        yield remark("limit_no_context", exchanges=tuple(map(str, able)))
    if ContextExchange.HIERARCHICAL in usable and "head_ranks" not in workload.pinned:
        yield remark("limit_head_ranks")


def _limits_of_hosts(workload: TrainingWorkload, fabrics: Sequence[Fabric]) -> Iterator[Remark]:
    """Limits of the units and mixes of hosts that candidates lie on."""
    if any(fabric.wider for fabric in fabrics):
        yield remark("limit_widest_units")
    if max((fabric.nodes_per_unit for fabric in fabrics), default=1) > MOST_WIDTHS:
        yield remark("limit_unit_widths", nodes=MOST_WIDTHS)
    if any(fabric.is_mixed for fabric in fabrics):
        yield remark("limit_mixes", kinds=MOST_KINDS)
        if any(schedule.is_v_shaped for schedule in _offered(workload)):
            yield remark("limit_mixes_not_v_shaped")


def _offered(workload: TrainingWorkload) -> tuple[PipelineSchedule, ...]:
    """The schedules that the workload allows and its framework has."""
    return tuple(schedule for schedule in workload.schedule if schedule in workload.framework.schedules)


def _memory_options(problem: PlanningProblem) -> Remark:
    """The memory options of a candidate: the quickest that fits, of so many mixes."""
    problem = problem.under(leanest_settings(problem.architecture, problem.workload))
    mixes = mixes_of(problem)
    return remark(
        "limit_memory_options",
        mixes=sum(mix != NOTHING for mix in mixes),
        some_layers=bool(limits_of(problem, problem.architecture.layers)),
        only_where_needed=NOTHING in mixes,
    )


def _groups(framework: Framework) -> Remark:
    """The numbers of micro-batches that come with virtual stages."""
    if framework.interleaving is Interleaving.NONE:
        return remark("limit_no_virtual_stages", framework=framework.name)
    if takes_group_sizes(framework):
        return remark("limit_groups_sized")
    if framework.interleaving is Interleaving.PYTORCH:
        return remark("limit_groups_equal")
    return remark("limit_groups_whole")


def _leaves_cuts_out(problem: PlanningProblem, workload: TrainingWorkload) -> bool:
    """Whether pairs of expert and expert tensor size are left out (``enumeration``)."""
    experts = problem.architecture.experts
    if experts is None or "expert_tensor" in workload.pinned:
        return False
    return any(
        expert_tensor_legal(problem.architecture, workload, cut)
        for cut in range(2, experts.hidden + 1)
        if experts.hidden % cut == 0
    )
