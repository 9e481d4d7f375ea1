"""Contradictions about what nodes hold for their GPUs, field by field before any search."""

from __future__ import annotations

from cluster_models.errors import InvalidWorkload
from cluster_models.training.offload import (
    disk_refusal,
    layers_refusal,
    may_use_disks,
    offload_percents,
    offload_refusal,
    offloaded_layers,
    offloads_with,
)
from cluster_models.training.workload import WHOLE_OFFLOAD, Offload, Sharding
from solver.problem import PlanningProblem


def check_offload(problem: PlanningProblem) -> None:
    """Where optimizer states must be offloaded, the framework has that, and a sharding under which it does.

    Where they may lie on disks, nodes state some.
    """
    workload, nodes = problem.workload, problem.snapshot.cluster.nodes
    if Offload.DISKS in workload.offload and not any(node.host and node.host.disk_bytes for node in nodes):
        remedy = "state host.disk_gib and its rates for nodes, or leave disks out"
        raise InvalidWorkload("workload.offload", str(Offload.DISKS), "no node states disks with room", remedy)
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
    on_disks = may_use_disks(workload, Sharding.PARAMETERS)
    if not offload_percents(workload) and not on_disks:
        if Offload.DISKS in workload.offload and (refusal := disk_refusal(workload)):
            raise InvalidWorkload(field, value, refusal, "docs/memory_options.md says who keeps states on disks")
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
