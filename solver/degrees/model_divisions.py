"""Sizes of groups that can share out a model's heads, experts and sequence."""

from __future__ import annotations

from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import ATTENDING, Mixer
from cluster_models.training.workload import TrainingWorkload


def tensor_legal(architecture: Architecture, workload: TrainingWorkload, tensor: int) -> bool:
    """Heads split evenly, key/value heads split or repeat evenly, the sequence splits (sequence parallelism).

    Tensor ranks cut adapters along their rank (Megatron-Bridge's ``ParallelLinearAdapter``).
    """
    if workload.adapters is not None and workload.adapters.rank % tensor:
        return False
    even = all(_heads_split(architecture, mixer, tensor) for mixer in architecture.mixer_set)
    return even and architecture.hidden % tensor == 0 and workload.sequence_length % tensor == 0


def _heads_split(architecture: Architecture, mixer: Mixer, tensor: int) -> bool:
    """Whether tensor ranks share out the heads of a mixer evenly; of a state space its groups too."""
    linear, space, own = architecture.linear_attention, architecture.state_space, architecture.of_mixer(mixer)
    if mixer is Mixer.LINEAR and linear is not None:
        return linear.key_heads % tensor == 0
    if mixer in (Mixer.STATE_SPACE, Mixer.PARALLEL) and space is not None:
        groups = 0 if space.step_rank else space.groups
        if space.heads % tensor or groups % tensor:
            return False
    kv = own.kv_heads
    return mixer not in ATTENDING or (own.heads % tensor == 0 and (kv % tensor == 0 or tensor % kv == 0))


def context_legal(architecture: Architecture, workload: TrainingWorkload, tensor: int, context: int) -> bool:
    """Each context rank holds two equal pieces of the sequence, one from each end (balanced causal attention).

    Tensor ranks split what a context rank holds once more (sequence parallelism).  Context ranks share out the
    heads of linear attention and state spaces.
    """
    pieces = 1 if context == 1 else 2 * context
    linear, space = architecture.linear_attention, architecture.state_space
    shared = ([linear.key_heads] if linear else []) + ([space.heads] if space else [])
    if context > 1 and any(heads % (tensor * context) for heads in shared):
        return False
    return workload.sequence_length % pieces == 0 and workload.sequence_length % (tensor * context) == 0


def expert_tensor_legal(architecture: Architecture, workload: TrainingWorkload, expert_tensor: int) -> bool:
    """Experts are cut evenly, without biases, by a framework that gives them a tensor size of their own."""
    experts, framework = architecture.experts, workload.framework
    if expert_tensor == 1:
        return True
    if experts is None or experts.hidden % expert_tensor or architecture.mlp_bias:
        return False
    return framework.expert_tensor and framework.sequence_parallel
