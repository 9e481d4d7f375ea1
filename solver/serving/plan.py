"""``plan_serving``: the replicas that serve one or more models best on a cluster, and where they go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version

import numpy as np

from cluster_models.cluster.topology import NodeState
from cluster_models.errors import InvalidWorkload, SolverFailed
from cluster_models.serving.goal import ServingMode, ServingObjective
from cluster_models.serving.plan import (
    FrontPoint,
    ModelFigures,
    ServingAlternative,
    ServingCertificate,
    ServingPlan,
    ServingWarning,
    ServingWarningKind,
)
from cluster_models.serving.refusal import NoServingPlan
from cluster_models.serving.replicas import ReplicaGroup
from cluster_models.serving.workload import Pool, ServingConfiguration, Worker, check_serving
from cluster_models.training.plan import Provenance, StopReason
from solver.ilp import solver_versions
from solver.problem import IsCancelled, SearchOptions
from solver.serving.planning.alternatives import alternatives_of
from solver.serving.planning.figures import model_figures, replica_groups
from solver.serving.planning.front import front_of
from solver.serving.planning.idle import idle_gpus
from solver.serving.planning.islands import Site, site_of
from solver.serving.planning.refusal import refusal_of, without_gpus
from solver.serving.planning.search import Found, gap_of, search
from solver.serving.problem import ServingProblem

SERVING_MODEL_VERSION = "1"
"""Changes whenever the same inputs may give other predicted latencies."""


def plan_serving(
    problem: ServingProblem, options: SearchOptions, *, is_cancelled: IsCancelled | None = None
) -> ServingPlan | NoServingPlan:
    """The plan of ``problem``, or what stands against one.

    Raises ``InvalidWorkload`` where models, engines and the goal do not go together, and ``SolverFailed`` where the
    time limit ends before any plan was seen.
    """
    check_problem(problem)
    provenance = _provenance(problem, options)
    site = site_of(problem.snapshot, problem.goal)
    if not site.islands:
        return without_gpus(problem, provenance)
    found = search(problem, site, options, is_cancelled or (lambda: False))
    if found.settled:
        return _plan(problem, options, site, found, provenance)
    if found.stopped_by in (StopReason.TIME_LIMIT, StopReason.CANCELLED):
        raise SolverFailed(
            f"no serving plan was seen before the search was stopped; allow more than {options.time_limit_s:g} s"
        )
    return refusal_of(problem, site, found, provenance)


def check_problem(problem: ServingProblem) -> None:
    """Raise ``InvalidInput`` where no search is needed to see that the problem contradicts itself."""
    goal = problem.goal
    names = {node.name for node in problem.snapshot.cluster.nodes}
    for name in goal.avoid_nodes:
        if name not in names:
            raise InvalidWorkload("workload.avoid_nodes", name, "is not a node of the cluster")
    for served in problem.models:
        check_serving(served.architecture, served.workload, ServingConfiguration(Pool(Worker())))
        if goal.modes == (ServingMode.SPLIT,) and not served.workload.engine.splits:
            raise InvalidWorkload(
                "workload.modes",
                [ServingMode.SPLIT.value],
                f"{served.workload.engine.name} cannot split prefill from decode",
                "allow aggregated",
            )
    kinds = [problem.snapshot.cluster.gpu_kinds[node.gpu_kind] for node in problem.snapshot.cluster.nodes]
    if goal.objective is ServingObjective.COST and all(kind.price_usd_per_hour is None for kind in kinds):
        raise InvalidWorkload(
            "workload.objective",
            goal.objective.value,
            f"{', '.join(sorted({kind.name for kind in kinds}))} has no list price",
            "use gpus",
        )


def _plan(
    problem: ServingProblem, options: SearchOptions, site: Site, found: Found, provenance: Provenance
) -> ServingPlan:
    groups: list[ReplicaGroup] = []
    figures: list[ModelFigures] = []
    alternatives: list[ServingAlternative] = []
    front: list[FrontPoint] = []
    for model, (served, settled) in enumerate(zip(problem.models, found.settled, strict=True)):
        own, is_measured = replica_groups(model, served, settled, site)
        figures.append(model_figures(model, own, is_measured=is_measured))
        alternatives += alternatives_of(
            model, found.prices[model], site, found.zones, problem.goal, own, options.alternatives
        )
        front += front_of(model, found.prices[model], found.zones, own)
        groups += own
    placed = [each for settled in found.settled for each in settled.groups]
    gpus = sum(each.gpus for each in groups)
    tokens_per_s = sum(each.output_tokens_per_s.value for each in figures)
    return ServingPlan(
        goal=problem.goal,
        models=problem.models,
        groups=tuple(_numbered(groups)),
        figures=tuple(figures),
        gpus=gpus,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_gpu=tokens_per_s / gpus,
        price_usd_per_hour=_price(site, groups),
        power_watts=sum(
            site.snapshot.cluster.gpu_kinds[each.replicas[0].gpu_kind].power_watts * each.gpus for each in groups
        ),
        idle=idle_gpus(site, found.zones, [offer.group for offer in found.offers], placed, problem.goal),
        certificate=_certificate(found, options),
        alternatives=tuple(alternatives),
        front=tuple(front),
        warnings=tuple(_warnings(problem, site, groups, [each.measured_engine for each in figures])),
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


def _certificate(found: Found, options: SearchOptions) -> ServingCertificate:
    return ServingCertificate(
        objective=found.objective,
        bound=found.bound,
        gap=gap_of(found.objective, found.bound),
        stopped_by=found.stopped_by,
        shapes=sum(each.shapes for each in found.prices),
        shapes_too_large=sum(each.too_large for each in found.prices),
        groups=sum(len(each.groups) for each in found.prices),
        groups_over_limits=sum(int(np.count_nonzero(each.top < 0)) for each in found.prices),
        operating_points=sum(len(each.points.group) for each in found.prices),
        solver=options.backend.value,
    )


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


def _provenance(problem: ServingProblem, options: SearchOptions) -> Provenance:
    return Provenance(
        product_version=version("meshwright"),
        cost_model_version=SERVING_MODEL_VERSION,
        cluster_name=problem.snapshot.cluster.name,
        snapshot_id=problem.snapshot.id,
        seed=options.seed,
        effort=options.effort,
        solver_versions=solver_versions(),
    )
