"""``plan_serving``: the replicas that serve one or more models best on a cluster, and where they go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version

import numpy as np

from cluster_models.cluster.power import capped
from cluster_models.errors import InvalidWorkload, SolverFailed
from cluster_models.serving.checks import check_serving
from cluster_models.serving.figures import Replay
from cluster_models.serving.goal import ServedModel, ServingMode, ServingObjective
from cluster_models.serving.hardware import check_gpu, runs_on
from cluster_models.serving.plan import (
    FrontPoint,
    ServingAlternative,
    ServingCertificate,
    ServingPlan,
    ServingWarning,
    ServingWarningKind,
)
from cluster_models.serving.refusal import NoServingPlan
from cluster_models.serving.workload import Pool, ServingConfiguration, Worker
from cluster_models.training.plan import Provenance, StopReason
from solver.ilp import solver_versions
from solver.problem import IsCancelled, OnProgress, SearchOptions
from solver.serving.cluster_links import usable_nodes
from solver.serving.planning.alternatives import alternatives_of
from solver.serving.planning.assembling import assembled, grouped
from solver.serving.planning.figures import case_of
from solver.serving.planning.found import Found
from solver.serving.planning.front import front_of
from solver.serving.planning.groups import single_groups
from solver.serving.planning.idle import idle_gpus
from solver.serving.planning.islands import Site, site_of
from solver.serving.planning.refusal import refusal_of, without_gpus
from solver.serving.planning.reports import ServingReports
from solver.serving.planning.search import search
from solver.serving.planning.settle import Settled
from solver.serving.planning.zones import zones_of
from solver.serving.problem import ServingProblem
from solver.serving.replay import replayed

SERVING_MODEL_VERSION = "5"
"""Changes whenever the same inputs may give other predicted latencies."""


OnServingDraft = Callable[[ServingPlan], None]


def plan_serving(
    problem: ServingProblem,
    options: SearchOptions,
    *,
    on_progress: OnProgress | None = None,
    is_cancelled: IsCancelled = lambda: False,
    on_draft: OnServingDraft | None = None,
) -> ServingPlan | NoServingPlan:
    """The plan of ``problem``, or what stands against one; a search that is called off answers with its best.

    Raises ``InvalidWorkload`` where models, engines and the goal do not go together, and ``SolverFailed`` where the
    search ends before any plan was seen.
    """
    check_problem(problem)
    provenance = provenance_of(problem, options)
    site = site_of(problem.snapshot, problem.goal)
    if not site.islands:
        return without_gpus(problem, provenance)

    def drafted(found: Found) -> None:
        if on_draft is not None:
            cut_short = replace(found, stopped_by=StopReason.TIME_LIMIT)
            draft = _placed_plan(problem, options, site, cut_short, provenance)
            on_draft(replace(draft, warnings=(ServingWarning(ServingWarningKind.DRAFT, ()), *draft.warnings)))

    reports = ServingReports(options, problem.goal.objective, on_progress, drafted, is_cancelled)
    found = search(problem, site, options, reports)
    if found.settled:
        return _plan(problem, options, site, found, provenance)
    if found.stopped_by is StopReason.CANCELLED:
        raise SolverFailed("the search was stopped before it had seen a serving plan; let it go on longer")
    if found.stopped_by is StopReason.TIME_LIMIT:
        raise SolverFailed(
            f"no serving plan was seen within the time limit; allow more than {options.time_limit_s:g} s"
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
    for served in problem.models:
        if not any(runs_on(served.workload, kind) for kind in kinds):
            check_gpu(served.workload, kinds[0])
    for name in {node.gpu_kind for node in usable_nodes(problem.snapshot) if node.name not in goal.avoid_nodes}:
        capped(problem.snapshot.cluster.gpu_kinds[name], goal.gpu_power_cap_watts)
    if goal.objective is ServingObjective.ENERGY and any(
        served.workload.concurrency is not None for served in problem.models
    ):
        raise InvalidWorkload(
            "workload.objective",
            goal.objective.value,
            "asks for requests_per_s: of plans that hold so many requests in flight the slowest draws least",
            "give requests_per_s, or take power",
        )
    if goal.objective is ServingObjective.COST and all(kind.price_usd_per_hour is None for kind in kinds):
        raise InvalidWorkload(
            "workload.objective",
            goal.objective.value,
            f"{', '.join(sorted({kind.name for kind in kinds}))} has no list price",
            "use gpus",
        )
    _check_pins(problem)


def _check_pins(problem: ServingProblem) -> None:
    """Raise ``InvalidWorkload`` where no worker on the free GPUs has the pinned degrees."""
    site = site_of(problem.snapshot, problem.goal)
    if not (problem.goal.pinned and site.islands):
        return
    zones = zones_of(site, optimistic=True)
    for model, served in enumerate(problem.models):
        if not any(single_groups(model, served, site, zones, problem.goal)):
            shown = ", ".join(f"{name} {value}" for name, value in problem.goal.pinned.items())
            gpus = sum(len(island.gpus) for island in site.islands)
            raise InvalidWorkload(
                "workload.pinned",
                shown,
                f"no worker of {served.architecture.name} on {served.workload.engine.name} has these degrees on "
                f"the {gpus} free GPUs",
                "pin fewer or smaller degrees",
            )


def _plan(
    problem: ServingProblem, options: SearchOptions, site: Site, found: Found, provenance: Provenance
) -> ServingPlan:
    plan = _placed_plan(problem, options, site, found, provenance)
    alternatives: list[ServingAlternative] = []
    front: list[FrontPoint] = []
    for model, prices in enumerate(found.prices):
        own = [group for group in plan.groups if group.model == model]
        alternatives += alternatives_of(model, prices, site, found.zones, problem.goal, own, options.alternatives)
        front += front_of(model, prices, found.zones, own)
    replays = (_replay(served, settled) for served, settled in zip(problem.models, found.settled, strict=True))
    return replace(
        plan,
        figures=tuple(replace(each, replay=replay) for each, replay in zip(plan.figures, replays, strict=True)),
        alternatives=tuple(alternatives),
        front=tuple(front),
    )


def _placed_plan(
    problem: ServingProblem, options: SearchOptions, site: Site, found: Found, provenance: Provenance
) -> ServingPlan:
    """The plan without what is beside it: simulation, alternatives and front."""
    groups, figures = grouped(problem.models, found.settled, site)
    placed = [each for settled in found.settled for each in settled.groups]
    plan = assembled(problem, site, groups, figures, _certificate(found, options), provenance)
    offered = [offer.group for offer in found.offers]
    return replace(plan, idle=idle_gpus(site, found.zones, offered, placed, problem.goal, plan.power_watts))


def _replay(served: ServedModel, settled: Settled) -> Replay | None:
    """The trace of a model at its own rate, or requests drawn from its classes at the plan's, on its groups."""
    workload = served.workload
    if workload.requests_per_s is None or not workload.is_mixed:
        return None
    rate = float(settled.at.requests_per_s.sum()) if workload.trace is None else workload.requests_per_s
    shares = (settled.at.requests_per_s / settled.at.requests_per_s.sum()).tolist()
    parts = zip(settled.groups, settled.zones, shares, strict=True)
    cases = [case_of(served, placed, zone, share * rate) for placed, zone, share in parts]
    return replayed(cases, shares)


def _certificate(found: Found, options: SearchOptions) -> ServingCertificate:
    return ServingCertificate(
        objective=found.objective,
        bound=found.bound,
        gap=found.gap,
        stopped_by=found.stopped_by,
        shapes=sum(each.shapes for each in found.prices),
        shapes_too_large=sum(each.too_large for each in found.prices),
        groups=sum(len(each.groups) for each in found.prices),
        groups_over_limits=sum(int(np.count_nonzero(each.top < 0)) for each in found.prices),
        operating_points=sum(len(each.points.group) for each in found.prices),
        solver=options.backend.value,
    )


def provenance_of(problem: ServingProblem, options: SearchOptions) -> Provenance:
    """Provenance of a plan of ``problem``."""
    return Provenance(
        product_version=version("meshwright"),
        cost_model_version=SERVING_MODEL_VERSION,
        cluster_name=problem.snapshot.cluster.name,
        snapshot_id=problem.snapshot.id,
        seed=options.seed,
        effort=options.effort,
        solver_versions=solver_versions(),
        calibration=problem.models[0].own.label if problem.models[0].own else "",
    )
