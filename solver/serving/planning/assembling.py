"""A serving plan from placed groups under their loads: numbers, totals, warnings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from cluster_models.cluster.topology import NodeState
from cluster_models.serving.goal import ServedModel
from cluster_models.serving.hardware import widens_on
from cluster_models.serving.plan import (
    ModelFigures,
    ServingCertificate,
    ServingPlan,
    ServingWarning,
    ServingWarningKind,
)
from cluster_models.serving.replicas import ReplicaGroup
from cluster_models.training.plan import Provenance
from solver.serving.planning.figures import model_figures, replica_groups
from solver.serving.planning.islands import Site
from solver.serving.planning.settle import Settled
from solver.serving.problem import ServingProblem


def grouped(
    models: Sequence[ServedModel], settled: Sequence[Settled], site: Site
) -> tuple[list[list[ReplicaGroup]], list[ModelFigures]]:
    """Groups of each model, their replicas not numbered yet, and its figures."""
    groups, figures = [], []
    for model, (served, own) in enumerate(zip(models, settled, strict=True)):
        found, is_measured = replica_groups(model, served, own, site)
        groups.append(found)
        figures.append(model_figures(model, found, is_measured=is_measured))
    return groups, figures


def assembled(
    problem: ServingProblem,
    site: Site,
    groups: Sequence[Sequence[ReplicaGroup]],
    figures: Sequence[ModelFigures],
    certificate: ServingCertificate,
    provenance: Provenance,
) -> ServingPlan:
    """The plan of ``groups`` by model, without idle GPUs, alternatives and front."""
    flat = [each for own in groups for each in own]
    gpus = sum(each.gpus for each in flat)
    tokens_per_s = sum(each.output_tokens_per_s.value for each in figures)
    kinds = site.snapshot.cluster.gpu_kinds
    return ServingPlan(
        goal=problem.goal,
        models=problem.models,
        groups=tuple(_numbered(flat)),
        figures=tuple(figures),
        gpus=gpus,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_gpu=tokens_per_s / gpus,
        price_usd_per_hour=_price(site, flat),
        power_watts=sum(replica.watts(kinds) for each in flat for replica in each.replicas),
        idle=(),
        certificate=certificate,
        alternatives=(),
        front=(),
        warnings=tuple(_warnings(problem, site, flat, [each.measured_engine for each in figures])),
        provenance=provenance,
    )


def _numbered(groups: Sequence[ReplicaGroup]) -> Iterator[ReplicaGroup]:
    """The groups with their replicas numbered from 0."""
    first = 0
    for group in groups:
        yield replace(
            group,
            replicas=tuple(replace(each, number=first + index) for index, each in enumerate(group.replicas)),
        )
        first += len(group.replicas)


def _price(site: Site, groups: Sequence[ReplicaGroup]) -> float | None:
    kinds = site.snapshot.cluster.gpu_kinds
    prices = [(kinds[each.replicas[0].gpu_kind].price_usd_per_hour, each.gpus) for each in groups]
    if any(price is None for price, _ in prices):
        return None
    return sum(price * gpus for price, gpus in prices if price is not None)


def _warnings(
    problem: ServingProblem, site: Site, groups: Sequence[ReplicaGroup], measured: Sequence[bool]
) -> Iterator[ServingWarning]:
    used = {place.node for group in groups for replica in group.replicas for place in replica.places}
    guessed = _estimated(site, groups)
    if guessed:
        yield ServingWarning(ServingWarningKind.ESTIMATED_LINKS, guessed)
    for served, known in zip(problem.models, measured, strict=True):
        if not known:
            kinds = sorted({group.replicas[0].gpu_kind for group in groups})
            yield ServingWarning(ServingWarningKind.UNMEASURED_ENGINE, (served.workload.engine.name, *kinds))
    for model, served in enumerate(problem.models):
        own = sorted({group.replicas[0].gpu_kind for group in groups if group.model == model})
        wide = [name for name in own if widens_on(served.workload, site.snapshot.cluster.gpu_kinds[name])]
        if wide:
            yield ServingWarning(ServingWarningKind.WIDENED_WEIGHTS, (served.workload.weights.value, *wide))
    slow = tuple(
        node.name
        for node in site.snapshot.cluster.nodes
        if node.name in used and (node.state is NodeState.DEGRADED or node.compute_slowdown > 1)
    )
    if slow:
        yield ServingWarning(ServingWarningKind.DEGRADED_NODES, slow)


def _estimated(site: Site, groups: Sequence[ReplicaGroup]) -> tuple[str, ...]:
    """Nodes of groups that span islands whose links were not measured."""
    place = {node: index for index, island in enumerate(site.islands) for node in island.nodes}
    found: dict[str, None] = {}
    for group in groups:
        nodes = list(dict.fromkeys(each.node for replica in group.replicas for each in replica.places))
        rows = np.array([place[node] for node in nodes])
        if (site.estimated[np.ix_(rows, rows)] & ~np.equal.outer(rows, rows)).any():
            found |= dict.fromkeys(nodes)
    return tuple(found)
