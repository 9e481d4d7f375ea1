"""Warnings to a reader before believing the plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.measurements import Collective
from cluster_models.links.collective_curves import domain_is_estimated
from cluster_models.links.suspicions import suspicions
from cluster_models.links.tables import LinkTables
from cluster_models.model.layer_kinds import ModelPart
from cluster_models.training.frameworks import ABOUT, Framework, facts
from cluster_models.training.plan import Confidence
from cluster_models.training.workload import LinkBandwidth
from cluster_models.wording import named
from solver.answer.site_warnings import site_warnings
from solver.candidates import IntArray
from solver.costs.calibration import has_framework, has_kind
from solver.costs.confidence import OWN_RUNS, Novelty
from solver.placement.problem import PlacementProblem
from solver.problem import PlanningProblem
from solver.refine import Candidate


def plan_warnings(
    problem: PlanningProblem,
    candidate: Candidate,
    assignment: IntArray,
    confidence: Confidence,
    *,
    doubts: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """One sentence for each estimate, doubt or shortage behind the plan of ``candidate``.

    ``doubts``: the suspicions about the snapshot, where they are known already.
    """
    if doubts is None:
        doubts = suspicions(problem.snapshot, _medians(problem, candidate))
    return (
        *_outside(confidence),
        _uncertainty(confidence),
        *_estimated_links(problem, candidate, assignment),
        *_calibration(problem, candidate),
        *_model_parts(problem),
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


def _estimated_links(problem: PlanningProblem, candidate: Candidate, assignment: IntArray) -> list[str]:
    fabric = candidate.fabric
    used = used_links(candidate.placement, assignment)
    if len(used) == 0 or not problem.snapshot.samples:  # that nothing was measured is told as a suspicion
        return []
    first, second = (fabric.members[used[:, end]] for end in (0, 1))
    links = fabric.links.estimated(fabric.gpus_per_node)
    estimated = links[first[:, :, None], second[:, None, :]].any(axis=(1, 2))
    if not estimated.any():
        return []
    names = [f"{fabric.names[a]} to {fabric.names[b]}" for a, b in used[estimated]]
    sentence = (
        f"{len(names)} of the {len(used)} directed links that the plan uses were not measured with "
        f"{fabric.gpus_per_node} flows at once and are estimated: {named(names)}."
    )
    return [sentence]


def _uncertainty(confidence: Confidence) -> str:
    runs, family = f"{confidence.runs} measured runs", confidence.family
    if family.startswith(OWN_RUNS):
        errors = f"{confidence.runs} {family}"
    else:
        worth = f", worth {confidence.independent_runs:.0f} independent ones" * (confidence.independent_runs > 0)
        new = any(family.startswith(each) for each in Novelty)
        errors = f"{runs}{worth}, " + (
            f"each predicted as if of {family}" if new else f"of {family}, each predicted without its like"
        )
    return (
        f"Times are predicted, not measured: {100 * confidence.level:.0f} % of measured steps are expected between "
        f"{confidence.step_low_s:#.3g} and {confidence.step_high_s:#.3g} s, from the errors on {errors}."
    )


def _outside(confidence: Confidence) -> list[str]:
    """In what the plan is unlike what was measured: the first thing to know of it."""
    if not confidence.outside:
        return []
    return [f"{' '.join(confidence.outside)} The interval is wider for it."]


def _calibration(problem: PlanningProblem, candidate: Candidate) -> list[str]:
    """Gaps of an own calibration in the GPU kinds and the framework that the plan uses."""
    own, framework = problem.fitted, problem.workload.framework
    if own is None:
        return []
    missing = [gpu.name for gpu in candidate.gpu_kinds if not has_kind(own, gpu)]
    shipped = "those are as shipped"
    if not has_framework(own, framework):
        missing.append(framework.name)
        shipped += f", of {framework.name} those of {framework.like}" if framework.like else ""
    others = _other_facts(own, framework)
    if not missing:
        return others
    return [f"The calibration {own.source} has no parameter of {' or '.join(missing)}: {shipped}.", *others]


_BY_TIMINGS: Final = frozenset(ModelPart) - {
    ModelPart.ATTENTION_GATE,
    ModelPart.HEAD_GATE,
    ModelPart.WINDOW_HEADS,
    ModelPart.LATENT_EXPERTS,
}
"""Parts of models whose kernels no measured training run has."""


def _model_parts(problem: PlanningProblem) -> list[str]:
    """Parts of the model whose time no training run has shown."""
    parts = sorted(problem.architecture.parts & _BY_TIMINGS)
    if not parts:
        return []
    names = " and ".join(parts).replace("_", " ")
    return [
        f"Times of {names} come from published timings of kernels, or are estimated: no training run was fitted."
    ]


def _other_facts(own: FittedParameters, framework: Framework) -> list[str]:
    """Facts of a described framework that differ between the runs of a calibration and the plan."""
    fitted = own.described.get(framework.name)
    if fitted is None:
        return []
    changed = [
        f"{name} {getattr(fitted, name)}, here {getattr(framework, name)}"
        for name in facts()
        if name not in ABOUT and getattr(fitted, name) != getattr(framework, name)
    ]
    if not changed:
        return []
    return [f"The calibration {own.source} was fitted to runs of {framework.name} with {'; '.join(changed)}."]


def _gpu_kind(candidate: Candidate) -> list[str]:
    sentences = []
    for gpu in candidate.gpu_kinds:
        if not gpu.verified:
            sentences.append(f"The data sheet figures of {gpu.name} are not verified ({gpu.source}).")
        if "estimated" in gpu.achievable_source:
            sentences.append(f"What {gpu.name} reaches of its peak is estimated ({gpu.achievable_source}).")
    return sentences


def _inside_nodes(candidate: Candidate) -> list[str]:
    """Tensor parallel groups whose all-gather and reduce-scatter nobody has published for this kind of GPU."""
    ranks = int(candidate.batch.tensor[0])
    collectives = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
    return [
        f"Tensor parallel communication of {ranks} {gpu.name} is estimated from measurements of other group sizes, "
        "collectives or GPU kinds."
        for gpu in candidate.gpu_kinds
        if ranks > 1 and any(domain_is_estimated(gpu, collective, ranks) for collective in collectives)
    ]


def _other_kinds(problem: PlanningProblem, candidate: Candidate) -> list[str]:
    used = [gpu.name for gpu in candidate.gpu_kinds]
    kinds = sorted({node.gpu_kind for node in problem.snapshot.cluster.nodes if node.usable} - set(used))
    if not kinds:
        return []
    return [f"Nodes with {', '.join(kinds)} are left out: the plan uses {' and '.join(used)}."]


def _memory(candidate: Candidate) -> list[str]:
    total, limit = candidate.memory.total_bytes[0], candidate.memory.limit_bytes[0]
    stage = int((total - limit).argmax())
    if total[stage] <= limit[stage]:
        return []
    sentence = (
        f"It does not fit: stage {stage} needs {total[stage] / 2**30:.1f} GiB per GPU and its limit is "
        f"{limit[stage] / 2**30:.1f} GiB."
    )
    return [sentence]
