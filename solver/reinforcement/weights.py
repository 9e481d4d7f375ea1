"""Weights on their way from the trainer to the engine, and GPUs that both use in turns.

Letters: P bytes of the policy's weights in 16 bits, m nodes of the ranks that hold one copy of them, k GPUs of them
on a node, g GPUs of the trainer there.

Separate: one broadcast by NCCL from the trainer's first rank, whose pipeline passes each node once, one flow from
node to node: P at the slowest link of the chain (veRL's ``sync_rollout_weights``, its page ``one_step_off.md``).

Colocated: every GPU gathers all parameters from the ranks that hold one copy and keeps its part of the engine's
layout (HybridFlow, arXiv 2409.19256, section 5; veRL's ``per_tensor_generator``).  The g / k copies that gather on
a node bring P (1 - 1 / m) each over its network, g flows at once, then P (1 - 1 / k) to every GPU inside.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from cluster_models.links.model import effective_links
from cluster_models.reinforcement.plan import SharedMemory, WeightMove
from cluster_models.serving.engines import MemoryShare
from cluster_models.serving.plan import ServingPlan
from cluster_models.training.plan import Plan, RankPlace
from cluster_models.training.workload import Sharding
from solver.candidates import FloatArray
from solver.costs.host_offload import HOST_SHARE, LINK_SHARE
from solver.reinforcement.problem import ReinforcementProblem

ELEMENT_BYTES: Final = 2.0
TENSOR_S: Final = 0.2e-3
"""Time of one tensor: 45,395 of DeepSeek-V3, 69.95 GiB to each GPU of the engine, come in 10.9 s over links that
need 1.5 s, and in 15.5 s by NCCL (NeMo RL's guide to checkpoint-engine refit at 7ea279ab)."""
LAYER_TENSORS: Final = 9
"""Tensors of a layer in a checkpoint: four of attention, three of an MLP, two norms."""
FRACTION_STEPS: Final = 1000
"""An engine's share of memory is rounded down to one in so many."""


def weight_bytes(problem: ReinforcementProblem) -> float:
    """Bytes of the policy as they are sent."""
    return ELEMENT_BYTES * problem.architecture.parameters()


def tensors_s(problem: ReinforcementProblem) -> float:
    """Seconds of the tensors of a checkpoint beside their bytes; of experts each has its own."""
    model = problem.architecture
    count = LAYER_TENSORS * model.layers
    if model.experts is not None:
        count += model.sparse_layers * model.experts.count * (3 if model.gated_mlp else 2)
    return TENSOR_S * count


def least_broadcast_s(problem: ReinforcementProblem) -> float:
    """Seconds that no broadcast to other nodes beats: over the fastest link there is."""
    links = effective_links(problem.snapshot)
    rows = [links.nodes.index(node.name) for node in problem.nodes]
    seconds = links.transfer_s(weight_bytes(problem), 1)[np.ix_(rows, rows)]
    return float(seconds[~np.eye(len(rows), dtype=bool)].min()) + tensors_s(problem)


def broadcast(problem: ReinforcementProblem, training: Plan, serving: ServingPlan) -> WeightMove:
    """The weights on their way to an engine on other nodes."""
    whole = weight_bytes(problem)
    links = effective_links(problem.snapshot)
    targets = dict.fromkeys(place.node for replica in serving.replicas for place in replica.places)
    chain = [links.nodes.index(name) for name in (training.placement.hosts[0], *targets)]
    seconds = float(links.transfer_s(whole, 1)[chain[:-1], chain[1:]].max())
    return WeightMove(whole, whole, whole / seconds, 0.0, seconds + tensors_s(problem))


def resharding(problem: ReinforcementProblem, training: Plan) -> WeightMove:
    """The weights from the trainer's layout to the engine's on the same GPUs."""
    whole = weight_bytes(problem)
    links = effective_links(problem.snapshot)
    flows = training.placement.gpus_per_node
    slowest = WeightMove(whole, 0.0, 0.0, 0.0, 0.0)
    for ranks in _copies(training):
        held: dict[str, int] = {}
        for rank in ranks:
            held[rank.node] = held.get(rank.node, 0) + 1
        rows = [links.nodes.index(name) for name in held]
        least = min(held.values())
        crossing = flows / least * whole * (1.0 - 1.0 / len(held))
        inside = whole * (1.0 - 1.0 / least)
        network_s = 0.0
        if len(held) > 1:
            network_s = float(_far(links.transfer_s(crossing / flows, flows), rows).max())
        inside_s = float(np.diagonal(links.transfer_s(inside, 1))[rows].max()) if inside else 0.0
        if network_s + inside_s >= slowest.seconds:
            rate = crossing / network_s if network_s else 0.0
            slowest = WeightMove(whole, crossing, rate, inside, network_s + inside_s)
    return replace(slowest, seconds=slowest.seconds + tensors_s(problem))


def _far(seconds: FloatArray, rows: list[int]) -> FloatArray:
    """Pairs of different nodes among ``rows``."""
    return np.asarray(seconds[np.ix_(rows, rows)][~np.eye(len(rows), dtype=bool)])


def _copies(training: Plan) -> list[list[RankPlace]]:
    """Ranks that hold the whole model between them, by copy: those that share experts or shards belong together."""
    configuration = training.configuration
    degrees = configuration.degrees
    together = math.ceil(degrees.expert_block / (degrees.tensor * degrees.context))
    if configuration.sharding is Sharding.PARAMETERS:
        shards = configuration.sharding_ranks or degrees.data * degrees.context
        together = max(together, shards // degrees.context)
    found: list[list[RankPlace]] = [[] for _ in range(math.ceil(degrees.data / together))]
    for rank in training.placement.ranks:
        found[rank.data // together].append(rank)
    return found


def shared_memory(problem: ReinforcementProblem, training: Plan, *, offloads: bool) -> SharedMemory | None:
    """Memory of a GPU for each part while the other works; ``None`` where the engine or the nodes have no room."""
    rollout, engine = problem.workload.rollout, problem.workload.rollout.engine
    kinds = {node.gpu_kind for node in problem.nodes if node.name in training.placement.hosts}
    gpus = [problem.snapshot.cluster.gpu_kinds[kind] for kind in kinds]
    gpu_bytes = min(gpu.memory_bytes for gpu in gpus)
    runtime = max(stage.runtime_bytes + stage.communication_bytes for stage in training.memory)
    states = max(stage.weights_bytes + stage.optimizer_bytes for stage in training.memory)
    kept = max(stage.weights_bytes + stage.gradients_bytes + stage.optimizer_bytes for stage in training.memory)
    room = min(gpu.host_share.memory_bytes for gpu in gpus) * HOST_SHARE
    if offloads and states + max(stage.host_bytes for stage in training.memory) > room:
        return None
    resident = runtime if offloads else runtime + kept
    most = rollout.memory_fraction or engine.memory_fraction
    left = 1.0 - resident / gpu_bytes
    fraction = min(most, left) if engine.fraction_of is MemoryShare.TOTAL else most - (1.0 - left)
    fraction = math.floor(fraction * FRACTION_STEPS) / FRACTION_STEPS
    if fraction <= 0:
        return None
    return SharedMemory(gpu_bytes, resident, states if offloads else 0.0, engine.reserved_bytes, fraction)


def offload_s(problem: ReinforcementProblem, training: Plan, memory: SharedMemory) -> float:
    """Seconds of the trainer's states to the node's memory and back, over each GPU's own link."""
    kinds = {node.gpu_kind for node in problem.nodes if node.name in training.placement.hosts}
    link = min(problem.snapshot.cluster.gpu_kinds[kind].host_share.link_bytes_per_s for kind in kinds)
    return 2.0 * memory.offloaded_bytes / (LINK_SHARE * link)
