"""Contradictions about what nodes hold for their GPUs, field by field before any search."""

from __future__ import annotations

from cluster_models.errors import InvalidWorkload
from cluster_models.training.offload import (
    layers_refusal,
    offload_percents,
    offload_refusal,
    offloaded_layers,
    offloads_with,
    stage_three_codes,
    stage_three_refusal,
)
from cluster_models.training.workload import STAGE_THREE, WHOLE_OFFLOAD, Offload, Sharding
from solver.problem import PlanningProblem


def check_offload(problem: PlanningProblem) -> None:
    """Where optimizer states must be offloaded, the framework has that, and a sharding under which it does.

    Where they may lie on disks, nodes state some.
    """
    workload = problem.workload
    _check_disks(problem)
    pinned, framework = workload.pinned.get("optimizer_offload"), workload.framework
    if pinned == 0 or (pinned is None and Offload.NONE in workload.offload):
        return
    field, value = "workload.offload", ", ".join(workload.offload)
    if set(workload.offload) == {Offload.ACTIVATIONS}:
        raise InvalidWorkload(field, value, "are offloaded where nothing else fits, beside other plans", "add none")
    if pinned is not None:
        field, value = "workload.pinned.optimizer_offload", str(pinned)
    if refusal := offload_refusal(workload):
        raise InvalidWorkload(field, value, refusal, "allow offload none; docs/memory_options.md says who offloads")
    if not offload_percents(workload) and not stage_three_codes(workload, Sharding.PARAMETERS):
        for place in STAGE_THREE:
            if place in workload.offload and (refusal := stage_three_refusal(workload, place)):
                remedy = "change that, or add none; docs/memory_options.md says who offloads what"
                raise InvalidWorkload(field, value, refusal, remedy)
        reason = f"{framework.name} offloads all optimizer states or none, of those not forbidden"
        raise InvalidWorkload(field, value, reason, f"use {WHOLE_OFFLOAD}")
    usable = [sharding for sharding in Sharding if offloads_with(framework.optimizer_offload, sharding)]
    if not set(usable) & set(workload.shardings):
        names = " or ".join(usable)
        raise InvalidWorkload(
            "workload.sharding",
            list(map(str, workload.sharding)),
            f"{framework.name} offloads states with sharding {names}",
            f"allow {names}",
        )


def _check_disks(problem: PlanningProblem) -> None:
    """Where states may lie on disks, some node states any."""
    nodes = problem.snapshot.cluster.nodes
    for place in (Offload.DISKS, Offload.PARAMETERS_ON_DISKS):
        if place in problem.workload.offload and not any(node.host and node.host.disk_bytes for node in nodes):
            remedy = "state host.disk_gib and its rates for nodes, or leave disks out"
            raise InvalidWorkload("workload.offload", str(place), "no node states disks with room", remedy)


def check_offloaded_layers(problem: PlanningProblem) -> None:
    """Where the activations of layers must be offloaded, they can be, of as many."""
    workload, layers = problem.workload, problem.architecture.layers
    if offloaded_layers(workload, layers):
        return
    pinned, name = workload.pinned.get("offloaded_layers"), "offloaded_layers"
    field = f"workload.{'forbidden' if pinned is None else 'pinned'}.{name}"
    value = workload.forbidden[name] if pinned is None else pinned
    problem_found = layers_refusal(workload) or f"leaves no number below the {layers} layers of the model"
    raise InvalidWorkload(field, value, problem_found, "allow 0; docs/memory_options.md says what else it takes")
