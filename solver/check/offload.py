"""Whether what a plan offloads is what its framework can, and has room and time in the nodes' memory."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from cluster_models.cluster.gpus import Precision
from cluster_models.cluster.hosts import HostMemory
from cluster_models.training.plan import Configuration, Plan
from cluster_models.training.workload import TrainingWorkload
from solver.check.memory import LIMIT_TOLERANCE, WEIGHT_TOLERANCE, owned_parameters
from solver.problem import PlanningProblem

_HOST_SHARE: Final = 0.8
"""Share of a node's memory that states may fill."""
_STATE_BYTES: Final = 16.0
"""Weight, gradient and two moments in FP32."""
_BUFFERS: Final = 4 * 4 * 1e9
"""Four buffers of a billion FP32 numbers, beside states on disks."""
_WEIGHT_BUFFERS: Final = 2 * (5 * 1e8 + 1e9)
"""Five buffers of a tenth of that for 16-bit weights beside those on disks, and a billion that stay."""
_UPDATE_BYTES: Final = 28.0
"""All four read, all but the gradient written."""
_SHARDINGS: Final = {
    "share": ("optimizer",),
    "states": ("optimizer", "gradients", "parameters"),
    "shards": ("parameters",),
}


def offload_rules(configuration: Configuration, workload: TrainingWorkload) -> Iterator[str]:
    """Rules of frameworks and of the workload that an offloaded share breaks."""
    percent, framework = configuration.optimizer_offload, workload.framework
    allowed = tuple(map(str, workload.offload))
    on_disks, parameters = configuration.offload_to_disks, configuration.offload_parameters
    kept = "disks" if on_disks else "optimizer" if percent else "none"
    if on_disks and not (framework.disk_offload and str(configuration.sharding) == "parameters"):
        yield f"{framework.name} keeps no states on disks with sharding {configuration.sharding}."
    if parameters:
        kept = "parameters_on_disks" if on_disks else "parameters"
        if str(framework.optimizer_offload) != "states":
            yield f"{framework.name} has no choice to offload parameters."
    if kept not in allowed:
        yield f"Of the optimizer states {percent} % are offloaded, but the workload allows {', '.join(allowed)}."
    if configuration.offloaded_layers:
        if "activations" not in allowed or not framework.activation_offload:
            yield f"Activations are offloaded, which the workload or {framework.name} does not allow."
        if str(framework.cuda_graphs) != "none":
            yield "Activations are offloaded beside CUDA graphs."
    if percent:
        yield from _state_rules(percent, configuration, workload)


def _state_rules(percent: int, configuration: Configuration, workload: TrainingWorkload) -> Iterator[str]:
    """The same of ``percent`` of the optimizer states."""
    framework = workload.framework
    style = str(framework.optimizer_offload)
    if style not in _SHARDINGS:
        yield f"{framework.name} does not offload optimizer states."
        return
    if str(configuration.sharding) not in _SHARDINGS[style]:
        yield f"{framework.name} does not offload optimizer states with sharding {configuration.sharding}."
    if style != "share" and percent < 100:
        yield f"{framework.name} offloads all optimizer states or none, not {percent} %."
    states = workload.optimizer_states
    formats = {str(states.first_moment), str(states.second_moment), str(states.master_weight)}
    if formats != {"fp32"} or framework.sixteen_bit_states:
        yield "Offloaded optimizer states have FP32."
    if str(workload.optimizer) != "adam" or workload.precision not in (Precision.BF16, Precision.FP16):
        yield f"Training in {workload.precision} with {workload.optimizer} is not offloaded."
    if workload.adapters is not None:
        yield "States of adapters are not offloaded."


def offload_violations(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    """Bytes and seconds in the nodes' memory that contradict the share offloaded."""
    share, layers = plan.configuration.optimizer_offload / 100, plan.configuration.offloaded_layers
    if not share and not layers:
        if plan.time.offload_s or any(memory.host_bytes or memory.disk_bytes for memory in plan.memory):
            yield "Nothing is offloaded, but the plan states bytes or seconds in the nodes' memory."
        return
    yield from room_violations(plan, problem)
    for memory in plan.memory:
        low, high = owned_parameters(memory.stage, plan.configuration, problem)
        least, most = (share * _STATE_BYTES * owned for owned in (low, high))
        on_disks, parameters = plan.configuration.offload_to_disks, plan.configuration.offload_parameters
        weights = [2.0 * parameters * owned for owned in (low, high)]
        low, high = (on_disks * (least + weights[0]), on_disks * (most + weights[1]))
        if not low * (1 - WEIGHT_TOLERANCE) <= memory.disk_bytes <= high * (1 + WEIGHT_TOLERANCE):
            yield f"Stage {memory.stage} has {memory.disk_bytes:.0f} bytes on disks, not {low:.0f} to {high:.0f}."
        if on_disks:  # buffers of one group of parameters
            least, most = (min(each, _BUFFERS) for each in (least, most))
            weights = [min(each, _WEIGHT_BUFFERS) for each in weights]
        least, most = least + weights[0], most + weights[1]
        if layers:  # a layer keeps its input at least
            least, most = least + layers * _input_bytes(plan.configuration, problem), math.inf
        if not least * (1 - WEIGHT_TOLERANCE) <= memory.host_bytes <= most * (1 + WEIGHT_TOLERANCE):
            stated = f"Stage {memory.stage} states {memory.host_bytes:.0f} bytes"
            yield f"{stated} in the node's memory, not {least:.0f} to {most:.0f}."
    if share:
        yield from _time_rules(plan, problem, share)


def _input_bytes(configuration: Configuration, problem: PlanningProblem) -> float:
    """Bytes of one layer's input on a GPU, in 8 bits at least."""
    degrees, workload = configuration.degrees, problem.workload
    tokens = configuration.micro_batch * workload.sequence_length / degrees.context
    return tokens * problem.architecture.hidden / degrees.tensor


def room_violations(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    """Nodes whose memory has no room for what their GPUs offload."""
    held: dict[str, float] = defaultdict(float)
    written: dict[str, float] = defaultdict(float)
    on_stage = {memory.stage: (memory.host_bytes, memory.disk_bytes) for memory in plan.memory}
    for place in plan.placement.ranks:
        in_memory, on_disks = on_stage.get(place.pipeline, (0.0, 0.0))
        held[place.node] += in_memory
        written[place.node] += on_disks
    nodes = {node.name: node for node in problem.snapshot.cluster.nodes}
    for name, nbytes in held.items():
        if (node := nodes.get(name)) is None:
            continue
        kind = problem.snapshot.cluster.gpu_kinds[node.gpu_kind]
        own = (node.host or HostMemory()).memory_bytes
        room = _HOST_SHARE * (own or kind.host_share.memory_bytes * node.gpu_count)
        if nbytes > room * (1 + LIMIT_TOLERANCE):
            yield f"Node {name} would hold {nbytes:.0f} bytes that are offloaded, and has room for {room:.0f}."
        disk = (node.host or HostMemory()).disk_bytes or 0.0
        if written[name] > disk * (1 + LIMIT_TOLERANCE):
            yield f"Node {name} would write {written[name]:.0f} bytes to its disks, which have room for {disk:.0f}."


def _time_rules(plan: Plan, problem: PlanningProblem, share: float) -> Iterator[str]:
    """The update takes at least as long as its bytes through memory of its nominal bandwidth."""
    kinds = problem.snapshot.cluster.gpu_kinds
    rates = [
        kinds[stage.gpu_kind].host_share.memory_bytes_per_s for stage in plan.stages if stage.gpu_kind in kinds
    ]
    owned = [owned_parameters(memory.stage, plan.configuration, problem)[0] for memory in plan.memory]
    if rates and owned:
        least = share * _UPDATE_BYTES * min(owned) / max(rates)
        if plan.configuration.offload_to_disks:  # each state is read and written
            hosts = [kinds[stage.gpu_kind].host_share for stage in plan.stages if stage.gpu_kind in kinds]
            pace = min(1 / host.disk_read_bytes_per_s + 1 / host.disk_write_bytes_per_s for host in hosts)
            least += _STATE_BYTES * min(owned) * pace
        if plan.time.offload_s < least * (1 - WEIGHT_TOLERANCE):
            yield f"The update in the nodes' memory takes {plan.time.offload_s:.3g} s, not {least:.3g} s or more."
