"""From a placed candidate to a plan that says everything about itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from importlib.metadata import version
from types import MappingProxyType
from typing import Final

from cluster_models.remarks import Remark
from cluster_models.training.context_exchange import exchange_of
from cluster_models.training.free_settings import that_matter
from cluster_models.training.model_work import workload_flops_per_token
from cluster_models.training.plan import Certificate, Configuration, Placement, Plan, Provenance, RankPlace
from cluster_models.training.rank_costs import StageMemory, StageTime
from cluster_models.training.workload import WHOLE_OFFLOAD
from solver.answer.expert_answer import expert_balance, expert_slots, expert_warnings
from solver.answer.spares import spare_nodes
from solver.answer.time_account import rank_breakdowns, time_breakdown, timeline
from solver.answer.warnings import plan_warnings
from solver.candidates import ORDER_CODES, SHARDING_CODES, IntArray, recomputation_of
from solver.costs.confidence import Subject, confidence_of_mix
from solver.costs.host_offload import on_disks, parameters_leave
from solver.costs.memory import StageMemoryParts
from solver.ilp import solver_versions
from solver.placement.build import degrees_of
from solver.placement.geometry import coordinates
from solver.placement.problem import PlacedTimes, placed_times
from solver.problem import PlanningProblem, SearchOptions
from solver.refine import Candidate

COST_MODEL_VERSION: Final = "1"
"""Changes whenever the same inputs may give another predicted time or memory."""
_version = cache(version)


def configuration_of(candidate: Candidate) -> Configuration:
    """Configuration for the framework."""
    batch = candidate.batch
    policy, modules, limit = recomputation_of(batch)
    exchange, head_ranks = exchange_of(int(batch.exchange[0]), int(batch.context[0]))
    found = Configuration(
        degrees=degrees_of(batch),
        micro_batch=int(batch.micro_batch[0]),
        recompute=policy,
        sharding=SHARDING_CODES[int(batch.sharding[0])],
        rank_order=ORDER_CODES[int(batch.rank_order[0])],
        stage_layers=candidate.layout,
        schedule=batch.runs,
        recompute_modules=modules,
        recompute_layers=limit,
        sharding_ranks=int(batch.sharding_ranks[0]),
        optimizer_offload=min(int(batch.optimizer_offload[0]), WHOLE_OFFLOAD),
        offload_to_disks=bool(on_disks(batch)[0, 0]),
        offload_parameters=bool(parameters_leave(batch)[0, 0]),
        offloaded_layers=int(batch.offloaded_layers[0]),
        context_exchange=exchange,
        head_ranks=head_ranks,
        settings=batch.chosen,
    )
    return replace(found, settings=that_matter(found))


def assemble_plan(
    problem: PlanningProblem,
    options: SearchOptions,
    candidate: Candidate,
    assignment: IntArray,
    *,
    certificate: Certificate,
    doubts: Sequence[Remark] | None = None,
    has_timeline: bool = True,
) -> Plan:
    """The plan of ``candidate`` with slot ``k`` on node ``assignment[k]`` of its fabric, without alternatives.

    ``doubts``: the suspicions about the snapshot, where they are known already.  The timeline takes most of the
    time and most of a plan's bytes: without ``has_timeline`` it is left out.
    """
    configuration = configuration_of(candidate)
    fabric, architecture, workload = candidate.fabric, problem.architecture, problem.workload
    times = placed_times(candidate.placement, assignment)
    gpus = configuration.degrees.gpus
    tokens_per_s = workload.tokens_per_step / times.step_s
    flops = workload_flops_per_token(architecture, workload)
    hosts = fabric.hosts(assignment)
    free_gpus = {node.name: node.free_gpus for node in problem.snapshot.cluster.nodes}
    spares = spare_nodes(problem, candidate, hosts)
    used = {*hosts, *spares, *workload.avoid_nodes}
    subjects = [Subject(gpu, architecture, workload, configuration) for gpu in candidate.gpu_kinds]
    confidence = confidence_of_mix(subjects, times.step_s, problem.fitted)
    slots = expert_slots(problem, candidate)
    balance = expert_balance(problem, candidate, assignment)
    rated = {kind.name: kind for kind in problem.snapshot.cluster.gpu_kinds.values()}
    peaks = [rated[gpu.name].peak_flops[workload.precision] for gpu in candidate.stage_gpus]
    return Plan(
        model=architecture.name,
        configuration=configuration,
        placement=place_ranks(configuration, hosts, min(fabric.gpus_per_node, gpus), free_gpus),
        time=time_breakdown(candidate, times),
        stages=_stage_times(candidate, times),
        memory=stage_memories(candidate.memory),
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_gpu=tokens_per_s / gpus,
        model_flops_per_s_per_gpu=tokens_per_s / gpus * flops,
        mfu=tokens_per_s / gpus * flops / (sum(peaks) / len(peaks)),
        certificate=certificate,
        warnings=(
            *plan_warnings(problem, candidate, assignment, confidence, doubts=doubts),
            *expert_warnings(slots, balance, times.step_s),
        ),
        alternatives=(),
        timeline=timeline(candidate, times) if has_timeline else (),
        unused_nodes=tuple(
            node.name for node in problem.snapshot.cluster.nodes if node.usable and node.name not in used
        ),
        provenance=provenance(problem, options),
        architecture=architecture,
        workload=workload,
        confidence=confidence,
        spare_nodes=spares,
        expert_slots=slots,
        expert_balance=balance,
    )


def provenance(problem: PlanningProblem, options: SearchOptions) -> Provenance:
    """Origin of a plan (or of the lack of one)."""
    return Provenance(
        product_version=_version("meshwright"),
        cost_model_version=COST_MODEL_VERSION,
        cluster_name=problem.snapshot.cluster.name,
        snapshot_id=problem.snapshot.id,
        seed=options.seed,
        effort=options.effort,
        solver_versions=solver_versions(),
        calibration="" if problem.fitted is None else problem.fitted.source,
        link_bandwidth=problem.workload.link_bandwidth,
    )


def place_ranks(
    configuration: Configuration,
    hosts: tuple[str, ...],
    gpus_per_node: int,
    free_gpus: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> Placement:
    """Every rank on its host and GPU: rank ``r`` sits on host ``r // gpus_per_node``.

    Ranks take the first of a host's ``free_gpus``, of all its GPUs where it is not named there.
    """
    degrees = configuration.degrees
    standing = (each.tolist() for each in coordinates(degrees, configuration.rank_order))
    ranks = []
    for rank, (tensor, context, data, pipeline) in enumerate(zip(*standing, strict=True)):
        host, local = hosts[rank // gpus_per_node], rank % gpus_per_node
        gpu = free_gpus[host][local] if host in free_gpus else local
        ranks.append(RankPlace(rank, host, gpu, tensor, context, data, pipeline))
    return Placement(hosts, gpus_per_node, tuple(ranks))


def stage_memories(memory: StageMemoryParts) -> tuple[StageMemory, ...]:
    """The memory account of a batch with one row, by stage."""
    parts = {part.name: getattr(memory, part.name)[0] for part in fields(memory)}
    return tuple(
        StageMemory(stage=stage, **{name: float(values[stage]) for name, values in parts.items()})
        for stage in range(memory.limit_bytes.shape[1])
    )


def _stage_times(candidate: Candidate, times: PlacedTimes) -> tuple[StageTime, ...]:
    """Times of the slowest replica on each pipeline rank."""
    rings_s = times.reduce_s + times.gather_s
    per_rank = times.duration_s.reshape(*times.duration_s.shape[:2], -1, len(rings_s)).sum(axis=2).max(axis=0)
    parts = rank_breakdowns(candidate, times)
    return tuple(
        StageTime(
            stage,
            float(per_rank[0, stage]),
            float(per_rank[1:, stage].sum()),
            float(rings_s[stage]),
            gpu.name,
            parts[stage],
        )
        for stage, gpu in enumerate(candidate.stage_gpus)
    )
