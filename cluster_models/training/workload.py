"""The workload to train, and what the planner may do about it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cluster_models.cluster.gpus import Precision
from cluster_models.errors import InvalidWorkload
from cluster_models.training.adapters import Adapters, FrozenFormat
from cluster_models.training.framework_choices import ContextExchange, FreeSetting, Optimizer
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK, Framework
from cluster_models.training.methods import TrainingMethod
from cluster_models.training.mixed_lengths import MixedLengths
from cluster_models.training.optimizer_states import FULL_STATES, MasterFormat, OptimizerStates
from cluster_models.training.packing import packed_sequences
from cluster_models.training.placement_rules import NOTHING_ASKED, PlacementRules
from cluster_models.training.roles import NO_ROLES, Roles
from cluster_models.training.run_settings import has_instances
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload_checks import check_choices

MOST_SEQUENCES: Final = 131_072
"""Bound for one global batch: ten times the largest in print; schedules and their simulation grow with it."""
LONGEST_SEQUENCE: Final = 100_000_000


class Recompute(StrEnum):
    """Which activations are thrown away in forward and computed again in backward."""

    NONE = "none"
    SELECTIVE = "selective"
    """Parts of every layer: the framework's own choice, or the modules that are named."""
    FULL = "full"
    """Whole layers: all of them, or the first ones of each chunk."""


class RecomputeModule(StrEnum):
    """A module of a layer that keeps only what it needs to run again (Megatron-Core's names)."""

    CORE_ATTENTION = "core_attn"
    """Scores, softmax and their product with the values; Megatron's choice where no module is named."""
    LAYER_NORM = "layernorm"
    """Outputs of norms that are modules of their own: before latent attention and before experts."""
    MLA_UP_PROJECTION = "mla_up_proj"
    """Queries, keys and values that latent attention projects up."""
    MLP = "mlp"
    """The whole MLP of dense layers."""
    MOE_ACTIVATION = "moe_act"
    """The activation between the two products of routed experts."""
    MOE = "moe"
    """The whole sparse MLP, dispatch included."""
    SHARED_EXPERTS = "shared_experts"


class Sharding(StrEnum):
    """Training state that data parallel ranks share out instead of repeating (ZeRO, arXiv 1910.02054).

    ``OPTIMIZER`` is ZeRO-1 (Megatron's distributed optimizer), ``GRADIENTS`` ZeRO-2, which has it, ``PARAMETERS``
    ZeRO-3 (FSDP), which has both.
    """

    NONE = "none"
    OPTIMIZER = "optimizer"
    GRADIENTS = "gradients"
    PARAMETERS = "parameters"


class Offload(StrEnum):
    """Training state that lives in the memory of the node instead of the GPU's."""

    NONE = "none"
    OPTIMIZER = "optimizer"
    """Optimizer states and master weights, all or a share, updated by the node's processors; where the framework
    moves whole shards, parameters and gradients as well."""
    DISKS = "disks"
    """All optimizer states and master weights on the node's disks, from which its processors update them."""
    PARAMETERS = "parameters"
    """All optimizer states and sharded parameters, which travel to the GPU for each pass (ZeRO-Infinity)."""
    PARAMETERS_ON_DISKS = "parameters_on_disks"
    ACTIVATIONS = "activations"
    """Activations of some layers, which the backward pass fetches again, where nothing else fits."""


STAGE_THREE: Final = (Offload.DISKS, Offload.PARAMETERS, Offload.PARAMETERS_ON_DISKS)
"""Places of all states beside sharded parameters (DeepSpeed's stage 3)."""


class Objective(StrEnum):
    """Quantity that the plan makes as small as it can."""

    STEP_TIME = "step_time"
    GPU_TIME = "gpu_time"
    """Step time times GPUs used: the most throughput per GPU."""
    COST = "cost"
    """Step time times the hourly price of the GPUs used."""
    ENERGY = "energy"
    """Step time times the power of the GPUs used, by their data sheets or their cap."""


class LinkBandwidth(StrEnum):
    """Which of a link's bandwidths over time a plan is made on."""

    MEDIAN = "median"
    """Bandwidth that the link usually has."""
    PESSIMISTIC = "pessimistic"
    """The p10: what the link falls below in one measurement of ten."""


class Choice(StrEnum):
    """Which plan is taken among those that predictions cannot tell from the fastest (docs/choice.md)."""

    SIMPLEST = "simplest"
    FASTEST = "fastest"
    ROBUST = "robust"
    """The one that loses least to the best of them when predictions and links are off."""


DEGREE_NAMES: Final = (
    "tensor",
    "pipeline",
    "data",
    "context",
    "expert",
    "expert_tensor",
    "virtual_pipeline",
    "micro_batch",
)
"""The degrees a workload may pin or forbid; ``micro_batch`` counts sequences."""
OPTION_NAMES: Final = ("recompute_layers", "sharding_ranks", "optimizer_offload", "offloaded_layers", "head_ranks")
"""Options with a size that a workload may pin or forbid as well; 0 is a size."""
WHOLE_OFFLOAD: Final = 100
"""All optimizer states are offloaded: shares are counted in percent."""


@dataclass(frozen=True, slots=True)
class TrainingWorkload:
    """A training run.  Batches count sequences.

    ``lengths``: those of the documents that fill the sequences; without it a sequence is one document.
    ``roles``: models beside a policy, with which the step is the mean one over its batch.
    ``adapters``: those that are trained beside frozen weights; without it all weights are trained.
    ``pinned`` gives a degree or a memory option one value, ``forbidden`` takes values away (names from
    ``DEGREE_NAMES`` and ``OPTION_NAMES``).
    ``optimizer_states``: formats of what the optimizer keeps.  ``offload``: what of the training state may live in
    the nodes' memory; ``optimizer_offload`` among the memory options is the share of it in percent.
    ``context_exchange``: how context ranks may meet the keys and values of a whole sequence; ``head_ranks`` among
    the options are those that exchange heads in a hierarchical one.
    ``free_settings``: settings of the framework that the planner chooses; others stay as the framework has them.
    ``schedule`` are the pipeline schedules that the planner may choose from, of those that the framework has.
    Selective recomputation runs some of ``recompute_modules`` again where the framework takes names of modules, or
    exactly ``pinned_modules``; what a model or framework lacks is not offered.
    ``memory_headroom`` is the share of each GPU's memory that must stay free; the default covers what the memory
    model is off by on most published peaks (docs/cost_model.md).  ``link_bandwidth`` says how careful the plan
    is about links (docs/robustness.md).
    ``max_power_watts`` limits the power of the GPUs used: that of the data sheet, or ``gpu_power_cap_watts`` where
    boards have more; with ``choose_power_caps`` the search gives one to all of them, or none.
    ``choice``: which of the plans that predictions cannot tell apart is taken.
    ``survive``: by label, how many of its places may be lost together with every part of the training state still
    alive (docs/resilience.md).  ``memory_checkpoint``: the newest checkpoint of each node also lies in the memory
    of the next host, and counts as a copy there.
    """

    sequence_length: int
    global_batch: int
    lengths: MixedLengths | None = None
    method: TrainingMethod = TrainingMethod.LIKELIHOOD
    roles: Roles = NO_ROLES
    adapters: Adapters | None = None
    precision: Precision = Precision.BF16
    framework: Framework = DEFAULT_FRAMEWORK
    optimizer: Optimizer = Optimizer.ADAM
    optimizer_states: OptimizerStates = FULL_STATES
    recompute: tuple[Recompute, ...] = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
    recompute_modules: tuple[RecomputeModule, ...] = tuple(RecomputeModule)
    pinned_modules: tuple[RecomputeModule, ...] | None = None
    sharding: tuple[Sharding, ...] = (Sharding.NONE, Sharding.OPTIMIZER)
    offload: tuple[Offload, ...] = (Offload.NONE,)
    context_exchange: tuple[ContextExchange, ...] = (ContextExchange.RING,)
    free_settings: tuple[FreeSetting, ...] = ()
    schedule: tuple[PipelineSchedule, ...] = tuple(PipelineSchedule)
    memory_headroom: float = 0.1
    pinned: dict[str, int] = field(default_factory=dict, hash=False)
    forbidden: dict[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    max_gpus: int | None = None
    max_power_watts: float | None = None
    gpu_power_cap_watts: float | None = None
    choose_power_caps: bool = False
    avoid_nodes: tuple[str, ...] = ()
    objective: Objective = Objective.STEP_TIME
    link_bandwidth: LinkBandwidth = LinkBandwidth.MEDIAN
    choice: Choice = Choice.SIMPLEST
    placement: PlacementRules = NOTHING_ASKED
    survive: dict[str, int] = field(default_factory=dict, hash=False)
    memory_checkpoint: bool = False

    def __post_init__(self) -> None:
        for name, most in (("sequence_length", LONGEST_SEQUENCE), ("global_batch", MOST_SEQUENCES)):
            if not 1 <= getattr(self, name) <= most:
                raise InvalidWorkload(f"workload.{name}", getattr(self, name), f"must lie in 1..{most}")
        if not 0 <= self.memory_headroom < 1:
            given, remedy = self.memory_headroom, "0.1 keeps 10 % of each GPU free"
            raise InvalidWorkload("workload.memory_headroom", given, "must lie in [0, 1)", remedy)
        for name in ("recompute", "sharding", "offload", "context_exchange", "schedule"):
            if not getattr(self, name):
                raise InvalidWorkload(f"workload.{name}", [], "allows nothing", "list at least one choice")
        both = sorted(set(self.avoid_nodes) & set(self.placement.require_nodes))
        if both:
            raise InvalidWorkload("workload.placement.require_nodes", both, "must be hosts and are avoided at once")
        for label, count in self.survive.items():
            if count < 1:
                raise InvalidWorkload(
                    f"workload.survive.{label}", count, "must be at least 1", "leave out labels that may take state"
                )
        self._check_limits()
        self._check_degrees()
        check_choices(self)

    def _check_limits(self) -> None:
        if self.max_gpus is not None and self.max_gpus < 1:
            raise InvalidWorkload("workload.max_gpus", self.max_gpus, "must be at least 1")
        for name in ("max_power_watts", "gpu_power_cap_watts"):
            watts = getattr(self, name)
            if watts is not None and not 0 < watts < math.inf:
                raise InvalidWorkload(f"workload.{name}", watts, "must be above 0")

        if self.choose_power_caps and self.gpu_power_cap_watts is not None:
            cap, problem = self.gpu_power_cap_watts, "conflicts with choose_power_caps"
            raise InvalidWorkload("workload.gpu_power_cap_watts", cap, problem, "leave one of them out")

    def most_gpus(self, watts: float) -> float:
        """GPUs of ``watts`` each that may be used at most, to rounding of sums; infinity without a limit."""
        by_power = math.inf if self.max_power_watts is None else self.max_power_watts / watts * (1.0 + 1e-9) // 1
        return min(self.max_gpus or math.inf, by_power)

    def _check_degrees(self) -> None:
        for kind, degrees in (("pinned", self.pinned), ("forbidden", self.forbidden)):
            unknown = sorted(set(degrees) - {*DEGREE_NAMES, *OPTION_NAMES})
            if unknown:
                known = ", ".join((*DEGREE_NAMES, *OPTION_NAMES))
                raise InvalidWorkload(f"workload.{kind}", unknown, "unknown degree", f"use {known}")
        for name, value in self.pinned.items():
            least = int(name not in OPTION_NAMES)
            if value < least:
                raise InvalidWorkload(f"workload.pinned.{name}", value, f"must be at least {least}")
            if name == "optimizer_offload":
                self._check_offload(value)
            if value in self.forbidden.get(name, ()):
                raise InvalidWorkload(f"workload.pinned.{name}", value, "is pinned and forbidden at once")

    def _check_offload(self, percent: int) -> None:
        """The pinned share is one that ``offload`` allows."""
        field = "workload.pinned.optimizer_offload"
        if percent > WHOLE_OFFLOAD:
            raise InvalidWorkload(field, percent, f"is a share in percent, {WHOLE_OFFLOAD} at most")
        asked = Offload.OPTIMIZER if percent else Offload.NONE
        if not {asked, *STAGE_THREE * (percent == WHOLE_OFFLOAD)} & {*self.offload}:
            problem = f"is not what offload allows ({', '.join(self.offload)})"
            raise InvalidWorkload(field, percent, problem, f"add {asked} to offload")

    @property
    def frozen_weights(self) -> FrozenFormat | None:
        """Format of weights that no step changes, which are all but the adapters; ``None`` without adapters."""
        return None if self.adapters is None else self.adapters.frozen_weights

    @property
    def forward_passes(self) -> float:
        """Forward passes over each sequence of a step, those of frozen models and second ones of MeZO included."""
        return 1.0 + self.roles.passes(self.method) + (not self.optimizer.runs_backward)

    @property
    def one_a_micro_batch(self) -> bool:
        """Whether a micro-batch is one sequence: so Megatron-Core takes packed ones (its ``thd`` format)."""
        packed = self.lengths is not None and self.lengths.packing.joins
        return packed and self.framework.megatron_core > 0

    @property
    def shardings(self) -> tuple[Sharding, ...]:
        """The shardings allowed that the framework has, with the optimizer's states in their formats.

        Megatron-Core shares narrow states out (``--use-precision-aware-optimizer``).  Beside BF16 weights its
        distributed optimizer then has remainders instead of an FP32 copy; Megatron-FSDP has an FP32 copy always.
        Its Muon and Lion share whole matrices out (``LayerWiseDistributedOptimizer``).  StreamBP has no ZeRO-3.
        Without gradients and states there is nothing to share out but weights, which MeZO's trainer does not.
        """
        lacking = (Sharding.GRADIENTS,) * (not self.framework.gradient_sharding)
        lacking += (Sharding.PARAMETERS,) * (self.framework.stream_tokens > 0)
        offered = tuple(each for each in self.sharding if each not in lacking)
        if self.optimizer.takes_matrices:
            return tuple(each for each in offered if each is Sharding.OPTIMIZER)
        if not self.optimizer.runs_backward:
            return tuple(each for each in offered if each is Sharding.NONE)
        states = self.optimizer_states
        if not (states.is_narrow and self.framework.megatron_core):
            return offered
        full = states.master_weight is MasterFormat.FP32
        possible = {Sharding.PARAMETERS} if full else {Sharding.OPTIMIZER}
        if full and self.precision is not Precision.BF16:
            possible = {Sharding.OPTIMIZER, Sharding.PARAMETERS}
        return tuple(sharding for sharding in offered if sharding in possible)

    def takes_groups(self, sharding: Sharding) -> bool:
        """Whether groups of data ranks may share out what a ``sharding`` does: parameters (HSDP), or its states.

        These where that is left free or pinned, and not in whole matrices (``LayerWiseDistributedOptimizer``).
        """
        if sharding is Sharding.PARAMETERS:
            return self.framework.hybrid_sharding
        asked = FreeSetting.SHARDING_RANKS in self.free_settings or self.pinned.get("sharding_ranks", 0) > 0
        alone = sharding is Sharding.OPTIMIZER and not self.optimizer.takes_matrices
        return asked and alone and has_instances(self.framework)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one global batch, padding left out."""
        return round(self.tokens_per_sequence * self.global_batch)

    @property
    def tokens_per_sequence(self) -> float:
        """Mean tokens of a sequence, padding left out."""
        filled = 1.0 if self.lengths is None else packed_sequences(self.lengths, self.sequence_length).filled
        return filled * self.sequence_length
