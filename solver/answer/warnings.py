"""Warnings to a reader before believing the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.measurements import Collective
from cluster_models.links.collective_curves import domain_is_estimated
from cluster_models.links.suspicions import suspicions
from cluster_models.links.tables import LinkTables
from cluster_models.model.layer_kinds import Mixer, ModelPart
from cluster_models.remarks import Remark, remark
from cluster_models.training.frameworks import ABOUT, Framework, facts
from cluster_models.training.plan import Confidence
from cluster_models.training.workload import LinkBandwidth
from solver.answer.site_warnings import site_warnings
from solver.candidates import IntArray
from solver.costs.attended import imbalance_of_pairs, least_step_tokens
from solver.costs.calibration import calibration_of, has_framework, has_kind
from solver.costs.compute import processor, score_passes_s
from solver.costs.confidence import OWN_RUNS, Novelty
from solver.costs.host_offload import HOST_SHARE
from solver.costs.layer_costs import attention_shape
from solver.costs.local_sizes import local_sizes
from solver.placement.problem import PlacementProblem
from solver.problem import PlanningProblem
from solver.refine import Candidate

MOST_EXAMPLES: Final = 4
"""Estimated links that a warning names."""


def plan_warnings(
    problem: PlanningProblem,
    candidate: Candidate,
    assignment: IntArray,
    confidence: Confidence,
    *,
    doubts: Sequence[Remark] | None = None,
) -> tuple[Remark, ...]:
    """Estimates, doubts and shortages behind the plan of ``candidate``.

    ``doubts``: the suspicions about the snapshot, where they are known already.
    """
    if doubts is None:
        doubts = suspicions(problem.snapshot, _medians(problem, candidate))
    return (
        *confidence.outside,
        _uncertainty(confidence),
        *_estimated_links(problem, candidate, assignment),
        *_calibration(problem, candidate),
        *_model_parts(problem),
        *_experts(problem),
        *_scores(problem, candidate),
        *_documents(problem, candidate),
        *_adapters(problem),
        *[remark("unmeasured_zeroth_order")] * (not problem.workload.optimizer.runs_backward),
        *_offload(candidate),
        *_gpu_kind(candidate),
        *_inside_nodes(candidate),
        *_other_kinds(problem, candidate),
        *_memory(candidate),
        *site_warnings(problem, candidate, assignment),
        *doubts,
    )


def _medians(problem: PlanningProblem, candidate: Candidate) -> LinkTables | None:
    """Medians measured on the links, where the plan is made on them."""
    usual = problem.workload.link_bandwidth is LinkBandwidth.MEDIAN
    return candidate.fabric.links.tables if usual else None


def used_links(placement: PlacementProblem, assignment: IntArray) -> IntArray:
    """(u, 2) distinct ordered pairs of nodes between which the plan sends."""
    arrays = placement.arrays
    crossing_kinds = arrays.cross_pairs[arrays.cross_count.any(axis=(1, 2))]
    kinds = (arrays.hop_pairs, arrays.ring_pairs, crossing_kinds)
    pairs = np.concatenate([pairs.reshape(-1, 2) for pairs in kinds])
    crossing = pairs[(pairs[:, 0] >= 0) & (pairs[:, 0] != pairs[:, 1])]
    return np.unique(assignment[crossing], axis=0)


def _estimated_links(problem: PlanningProblem, candidate: Candidate, assignment: IntArray) -> list[Remark]:
    fabric = candidate.fabric
    used = used_links(candidate.placement, assignment)
    if len(used) == 0 or not problem.snapshot.samples:  # that nothing was measured is a suspicion
        return []
    first, second = (fabric.members[used[:, end]] for end in (0, 1))
    links = fabric.links.estimated(fabric.gpus_per_node)
    estimated = links[first[:, :, None], second[:, None, :]].any(axis=(1, 2))
    if not estimated.any():
        return []
    pairs = used[estimated]
    examples = tuple(f"{fabric.names[a]} to {fabric.names[b]}" for a, b in pairs[:MOST_EXAMPLES])
    flows = fabric.gpus_per_node
    return [remark("estimated_links", links=len(pairs), of=len(used), flows=flows, pairs=examples)]


def _uncertainty(confidence: Confidence) -> Remark:
    family = confidence.family
    new = any(family.startswith(each) for each in Novelty)
    outside = {each.code for each in confidence.outside}
    return remark(
        "step_interval",
        level=confidence.level,
        step_low_s=confidence.step_low_s,
        step_high_s=confidence.step_high_s,
        runs=confidence.runs,
        independent_runs=confidence.independent_runs,
        family=family,
        basis="own_runs" if family.startswith(OWN_RUNS) else "new" if new else "alike",
        is_widened=confidence.doublings_outside > 0.0 or "unmeasured_overheads" in outside,
    )


def _calibration(problem: PlanningProblem, candidate: Candidate) -> list[Remark]:
    """Gaps of an own calibration in the GPU kinds and the framework that the plan uses."""
    own, framework = problem.fitted, problem.workload.framework
    if own is None:
        return []
    others = _other_facts(own, framework)
    kinds = tuple(gpu.name for gpu in candidate.gpu_kinds if not has_kind(own, gpu))
    lacks_framework = not has_framework(own, framework)
    if not kinds and not lacks_framework:
        return others
    lacking = remark(
        "calibration_lacks",
        calibration=own.source,
        gpu_kinds=kinds,
        framework=framework.name if lacks_framework else "",
        like=framework.like if lacks_framework else "",
    )
    return [lacking, *others]


_BY_TIMINGS: Final = frozenset(ModelPart) - {
    ModelPart.ATTENTION_GATE,
    ModelPart.HEAD_GATE,
    ModelPart.WINDOW_HEADS,
    ModelPart.LATENT_EXPERTS,
}
"""Parts of models whose kernels no measured training run has."""


def _model_parts(problem: PlanningProblem) -> list[Remark]:
    """Parts of the model whose time no training run has shown."""
    parts = sorted(problem.architecture.parts & _BY_TIMINGS)
    return [remark("untrained_parts", parts=tuple(parts))] if parts else []


def _experts(problem: PlanningProblem) -> list[Remark]:
    """Warning that experts are priced together, which the framework runs otherwise."""
    framework = problem.workload.framework
    if problem.architecture.experts is None or framework.grouped_experts:
        return []
    return [remark("experts_not_grouped", framework=framework.name)]


def _scores(problem: PlanningProblem, candidate: Candidate) -> Iterator[Remark]:
    """Time that scores take through memory, of the attention that is not fused on a GPU kind of the plan."""
    architecture, workload, batch = problem.architecture, problem.workload, candidate.batch
    if not any(kind.mixer is Mixer.FULL for kind in architecture.layer_kinds):
        return
    for gpu in candidate.gpu_kinds:
        calibration = calibration_of(gpu, workload.framework, problem.fitted)
        if calibration.framework.fused_attention:
            continue
        chip, sizes = processor(gpu, workload.precision, calibration), local_sizes(batch, workload, calibration)
        shape = attention_shape(chip, architecture, sizes)
        passes = score_passes_s(chip, shape)
        yield remark(
            "scores_in_memory",
            framework=workload.framework.name,
            gpu_kind=gpu.name,
            forward_s=float(passes.forward[0]),
            backward_s=float(passes.backward[0]),
            unfused_matrices=float(shape.heads[0] * sizes.micro_batch[0]) if np.any(shape.casts_scores) else 0.0,
        )


def _documents(problem: PlanningProblem, candidate: Candidate) -> list[Remark]:
    """Cost of documents of mixed lengths: padding, and waits of ranks and pipeline stages for longer ones."""
    workload = problem.workload
    if workload.lengths is None:
        return []
    imbalance = float(imbalance_of_pairs(candidate.batch, workload)[0])
    padding = 1.0 - workload.tokens_per_step / least_step_tokens(workload)
    return [remark("mixed_documents", imbalance=imbalance, padding=padding)]


def _adapters(problem: PlanningProblem) -> list[Remark]:
    """Warning that no training run with adapters was fitted."""
    adapters = problem.workload.adapters
    return [] if adapters is None else [remark("unmeasured_adapters", adapters=adapters.words)]


def _offload(candidate: Candidate) -> Iterator[Remark]:
    """Warnings about figures that what is offloaded rests on, and about nodes with too little of it."""
    if not candidate.batch.optimizer_offload[0] and not candidate.batch.offloaded_layers[0]:
        return
    for gpu in candidate.gpu_kinds:
        host = gpu.host_share
        if host.is_estimated:
            yield remark(
                "estimated_host",
                gpu_kind=gpu.name,
                memory_bytes=host.memory_bytes,
                memory_bytes_per_s=host.memory_bytes_per_s,
                link_bytes_per_s=host.link_bytes_per_s,
                source=host.source,
            )
    held = candidate.memory.host_bytes[0]
    for stage, gpu in enumerate(candidate.stage_gpus):
        room = HOST_SHARE * gpu.host_share.memory_bytes
        if held[stage] > room:
            yield remark("host_too_small", stage=stage, needs_bytes=float(held[stage]), limit_bytes=room)
        disk_bytes, room = float(candidate.memory.disk_bytes[0, stage]), gpu.host_share.disk_bytes
        if disk_bytes > room:
            yield remark("disks_too_small", stage=stage, needs_bytes=disk_bytes, limit_bytes=room)


def _other_facts(own: FittedParameters, framework: Framework) -> list[Remark]:
    """Facts of a described framework that differ between the runs of a calibration and the plan."""
    fitted = own.described.get(framework.name)
    if fitted is None:
        return []
    changed = tuple(
        name for name in facts() if name not in ABOUT and getattr(fitted, name) != getattr(framework, name)
    )
    if not changed:
        return []
    return [
        remark(
            "calibrated_otherwise",
            calibration=own.source,
            framework=framework.name,
            settings=changed,
            calibrated=tuple(str(getattr(fitted, name)) for name in changed),
            here=tuple(str(getattr(framework, name)) for name in changed),
        )
    ]


def _gpu_kind(candidate: Candidate) -> Iterator[Remark]:
    for gpu in candidate.gpu_kinds:
        if not gpu.verified:
            yield remark("unverified_data_sheet", gpu_kind=gpu.name, source=gpu.source)
        if "estimated" in gpu.achievable_source:
            yield remark("estimated_rate", gpu_kind=gpu.name, source=gpu.achievable_source)


def _inside_nodes(candidate: Candidate) -> list[Remark]:
    """Tensor parallel groups whose all-gather and reduce-scatter nobody has published for this kind of GPU."""
    ranks = int(candidate.batch.tensor[0])
    collectives = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
    return [
        remark("estimated_collectives", ranks=ranks, gpu_kind=gpu.name)
        for gpu in candidate.gpu_kinds
        if ranks > 1 and any(domain_is_estimated(gpu, collective, ranks) for collective in collectives)
    ]


def _other_kinds(problem: PlanningProblem, candidate: Candidate) -> list[Remark]:
    used = tuple(gpu.name for gpu in candidate.gpu_kinds)
    kinds = sorted({node.gpu_kind for node in problem.snapshot.cluster.nodes if node.usable} - set(used))
    return [remark("kinds_left_out", left_out=tuple(kinds), used=used)] if kinds else []


def _memory(candidate: Candidate) -> list[Remark]:
    total, limit = candidate.memory.total_bytes[0], candidate.memory.limit_bytes[0]
    stage = int((total - limit).argmax())
    if total[stage] <= limit[stage]:
        return []
    needs, most = float(total[stage]), float(limit[stage])
    return [remark("too_large", stage=stage, needs_bytes=needs, limit_bytes=most)]
