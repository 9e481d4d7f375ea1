"""Coverage of a certificate, and every limit of the space that was searched, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cluster_models.training.frameworks import Framework
from cluster_models.training.interleaving import Interleaving, takes_group_sizes
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import Sharding, TrainingWorkload
from solver.degrees.enumeration import expert_tensor_legal
from solver.pipeline.schedule import MOST_EVENTS, events_of_chunk
from solver.placement.cluster_fabrics import MOST_KINDS, MOST_WIDTHS
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem


def coverage(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> str:
    """Sentences on the plans that a certificate for ``problem`` speaks of, and on those that it does not."""
    kept = " that keep the rules of workload.placement" if problem.workload.placement else ""
    return (
        "The proof covers all legal combinations of degrees, micro-batches, virtual stages, "
        f"{_schedules(problem.workload)}recomputation, sharding and rank order, and all orders of hosts{kept}, "
        "under the cost model. "
        f"Its limits: {'; '.join(_limits(problem, fabrics))}. "
        "It says nothing about the error of the cost model itself."
    )


def _limits(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> Iterator[str]:
    """One clause for each limit that this problem meets."""
    architecture, workload = problem.architecture, problem.workload
    if workload.framework.fills_stages:
        yield f"layers are spread over stages as {workload.framework.name} fills them"
    else:
        yield "layers are spread over stages by rule, at least one to each"
    yield "all layers have one policy of recomputation"
    yield "plans take as many GPUs of each host, or a part of a single one that divides it"
    yield "tensor groups lie inside a node or NVLink domain"
    if Sharding.PARAMETERS in workload.sharding:
        yield "sharded parameters come without a pipeline"
    if architecture.layers > 1 and workload.pinned.get("virtual_pipeline") != 1:
        yield _groups(workload.framework)
    events = max(map(events_of_chunk, _offered(workload)), default=2)
    if events * workload.global_batch * architecture.layers > MOST_EVENTS:
        yield f"a replica runs at most {MOST_EVENTS:,} forwards and backwards a step"
    if _leaves_cuts_out(problem, workload):
        yield "experts are cut no further than the ranks they lie on ask for"
    if any(fabric.wider for fabric in fabrics):
        yield "each candidate lies in the widest units of an NVLink domain that it fills, joined by health"
    if max((fabric.nodes_per_unit for fabric in fabrics), default=1) > MOST_WIDTHS:
        yield f"units in a domain of more than {MOST_WIDTHS} nodes have a divisor or a power of two of nodes"
    if any(fabric.is_mixed for fabric in fabrics):
        yield f"mixes of GPU kinds have at most {MOST_KINDS}, whose faster GPUs take as many stages as they can"
        if any(schedule.is_v_shaped for schedule in _offered(workload)):
            yield "mixes of GPU kinds run no V-shaped schedule"


def _offered(workload: TrainingWorkload) -> tuple[PipelineSchedule, ...]:
    """The schedules that the workload allows and its framework has."""
    return tuple(schedule for schedule in workload.schedule if schedule in workload.framework.schedules)


def _schedules(workload: TrainingWorkload) -> str:
    """The schedules, unless 1F1B alone is known."""
    several = len(workload.framework.schedules) > 1
    return f"schedules ({', '.join(_offered(workload))}), " if several else ""


def _groups(framework: Framework) -> str:
    """The numbers of micro-batches that come with virtual stages."""
    if framework.interleaving is Interleaving.NONE:
        return f"{framework.name} has no virtual stages"
    if takes_group_sizes(framework):
        return (
            "virtual stages come with at least as many micro-batches as pipeline ranks, in groups of as many, or "
            "of the fewest that the framework takes where ranks do not divide them"
        )
    if framework.interleaving is Interleaving.PYTORCH:
        return "virtual stages come with equal groups of at least as many micro-batches as pipeline ranks"
    return "virtual stages come with whole groups of as many micro-batches as pipeline ranks"


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
