"""A training run and what the planner may do about it, as its owner writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, model_validator

from app.documents.adapters import AdaptersDocument
from app.documents.framework import (
    FrameworkReference,
    FrameworkSettings,
    reference_of,
    settings_of,
    to_framework,
)
from app.documents.mixed_lengths import MixedLengthsDocument
from app.documents.optimizer_states import OptimizerStatesDocument
from app.documents.placement_rules import PlacementRulesDocument
from app.documents.reading import (
    Count,
    FieldProblem,
    Flag,
    InvalidDocument,
    Number,
    Positive,
    Text,
    Whole,
    WholeNumber,
    close_name,
)
from app.documents.roles import RolesDocument
from app.documents.serving_words import refuse_serving
from app.documents.values import Computed, Holds, ValueDocument
from cluster_models.cluster.gpus import Precision
from cluster_models.cluster.topology import MOST_NODES
from cluster_models.training.framework_choices import ContextExchange, FreeSetting, Optimizer
from cluster_models.training.frameworks import Framework
from cluster_models.training.methods import TrainingMethod
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import (
    DEGREE_NAMES,
    LONGEST_SEQUENCE,
    MOST_SEQUENCES,
    OPTION_NAMES,
    Choice,
    LinkBandwidth,
    Objective,
    Offload,
    Recompute,
    RecomputeModule,
    Sharding,
    TrainingWorkload,
)

_MOST_VALUES: Final = 1000
_RULED: Final = (*DEGREE_NAMES, *OPTION_NAMES)
_DEFAULT = TrainingWorkload(sequence_length=1, global_batch=1)


_Sizes = TypeVar("_Sizes", int, list[int])


def _by_name(degree: Any, option: Any) -> AfterValidator:
    """Types of values under the name of a degree, and under that of a memory option, which may be 0."""
    adapters = (TypeAdapter(dict[str, degree]), TypeAdapter(dict[str, option]))

    def checked(rules: dict[str, _Sizes]) -> dict[str, _Sizes]:
        for is_option, adapter in enumerate(adapters):
            adapter.validate_python(
                {name: each for name, each in rules.items() if (name in OPTION_NAMES) == is_option}
            )
        return rules

    return AfterValidator(checked)


class WorkloadDocument(ValueDocument[TrainingWorkload]):
    """One training workload.

    Degrees are called tensor, pipeline, data, context, expert, expert_tensor, virtual_pipeline and micro_batch
    (sequences).  ``recompute_layers``, ``sharding_ranks``, ``optimizer_offload`` (percent), ``offloaded_layers``
    and ``head_ranks`` are pinned and forbidden like a degree, and may be 0.
    """

    sequence_length: Annotated[Count, Field(le=LONGEST_SEQUENCE)] = Field(
        description="Tokens of one sequence.", examples=[8192]
    )
    global_batch_sequences: Annotated[Count, Field(le=MOST_SEQUENCES), Holds("global_batch")] = Field(
        description="Sequences of one optimizer step, all ranks together.",
        examples=[1024],
    )
    lengths: MixedLengthsDocument | None = Field(
        None,
        description="Lengths of the documents that fill the sequences; absent: every sequence is one document.",
        examples=[{"log_normal": {"median_tokens": 700, "sigma": 1.1}, "packing": "padded"}],
    )
    method: TrainingMethod = Field(
        _DEFAULT.method,
        description="How sequences become a loss: next_token (pre-training, fine-tuning of all weights), dpo "
        "(pairs of a chosen and a rejected sequence, with a frozen reference model beside the trained one), "
        "dpo_stored (its log-probabilities are stored, or the loss asks for none), policy (an update of PPO or "
        "GRPO on generated responses, with a forward pass for their log-probabilities) or policy_reference "
        "(with a frozen reference model besides).",
        examples=["next_token"],
    )
    roles: RolesDocument = Field(
        default_factory=RolesDocument,
        description="Models beside a policy (method policy or policy_reference); the step is then the mean one of "
        "all on its batch. Joint plans of trainer and engine are a workload of reinforcement learning.",
        examples=[{}],
    )
    adapters: AdaptersDocument | None = Field(
        None,
        description="Low-rank adapters that are trained while all other weights are frozen (LoRA, QLoRA); absent: "
        "all weights are trained.",
        examples=[{"rank": 16, "frozen_weights": "nf4"}],
    )
    precision: Precision = Field(
        _DEFAULT.precision, description="Number format of the matrix products.", examples=["bf16"]
    )
    framework: Annotated[FrameworkReference, Computed(lambda workload: reference_of(workload.framework))] = Field(
        _DEFAULT.framework.name,
        description="Generation of the training framework, which GET /api/v1/frameworks lists, or one that the "
        "calibration describes, by its name; any other one as a description.",
        examples=["megatron-core-0.12"],
    )
    framework_settings: Annotated[FrameworkSettings, Computed(lambda workload: settings_of(workload.framework))] = (
        Field(
            default_factory=FrameworkSettings,
            description="Where the run departs from the framework's defaults.",
            examples=[{"cuda_graphs": "partial"}],
        )
    )
    optimizer: Optimizer = Field(
        _DEFAULT.optimizer,
        description="Optimizer: adam, sgd (with momentum), or for matrices of layers, beside adam for all else, "
        "muon, adaptive_muon or lion; zeroth_order has two forward passes and no gradients (MeZO).",
        examples=["adam"],
    )
    optimizer_states: OptimizerStatesDocument = Field(
        default_factory=OptimizerStatesDocument,
        description="Number formats of what the optimizer keeps.",
        examples=[{"first_moment": "bf16", "second_moment": "bf16", "master_weight": "remainder"}],
    )
    recompute: list[Recompute] = Field(
        list(_DEFAULT.recompute),
        min_length=1,
        max_length=_MOST_VALUES,
        description="Recomputation policies the planner may choose from.",
        examples=[["none", "selective", "full"]],
    )
    recompute_modules: list[RecomputeModule] = Field(
        list(_DEFAULT.recompute_modules),
        max_length=_MOST_VALUES,
        description="Modules of a layer that selective recomputation may run again, any mix of them, where the "
        "framework takes names of modules and the model has them.",
        examples=[["layernorm", "moe_act"]],
    )
    pinned_modules: Annotated[list[RecomputeModule] | None, Field(max_length=_MOST_VALUES)] = Field(
        None,
        description="Modules that selective recomputation runs again, exactly these; absent = any mix of those "
        "allowed.",
        examples=[["core_attn"]],
    )
    sharding: list[Sharding] = Field(
        list(_DEFAULT.sharding),
        min_length=1,
        max_length=_MOST_VALUES,
        description="Shardings of the training state the planner may choose from: none, optimizer (ZeRO-1, "
        "Megatron's distributed optimizer), gradients (ZeRO-2, where the framework has it), parameters (ZeRO-3, "
        "FSDP).",
        examples=[["none", "optimizer"]],
    )
    offload: list[Offload] = Field(
        list(_DEFAULT.offload),
        min_length=1,
        max_length=_MOST_VALUES,
        description="Training state that the planner may keep in the nodes' memory: none, optimizer (states and "
        "master weights, all or a share; FSDP's shards with them), disks (all states on the nodes' disks, beside "
        "sharded parameters), activations (of some layers of plans without a "
        "pipeline that fit in no other way), where the framework does so.",
        examples=[["none", "optimizer"]],
    )
    context_exchange: list[ContextExchange] = Field(
        list(_DEFAULT.context_exchange),
        min_length=1,
        max_length=_MOST_VALUES,
        description="How context ranks may meet the keys and values of a whole sequence, where framework and model "
        "allow it: ring, gather, all_to_all (Ulysses), hierarchical (all_to_all in a node, a ring over nodes).",
        examples=[["ring", "all_to_all"]],
    )
    free_settings: list[FreeSetting] = Field(
        list(_DEFAULT.free_settings),
        max_length=_MOST_VALUES,
        description="Settings of the framework that the planner chooses, where it has them as a switch: "
        "overlap_tensor, expert_overlap, cuda_graphs, expert_dispatch; others stay as framework and "
        "framework_settings have them.",
        examples=[["overlap_tensor"]],
    )
    schedule: list[PipelineSchedule] = Field(
        list(_DEFAULT.schedule),
        min_length=1,
        max_length=_MOST_VALUES,
        description="Pipeline schedules the planner may choose from, of those that the framework has: 1f1b "
        "(interleaved with virtual stages), gpipe (breadth-first with virtual stages), zero_bubble, zb_v, "
        "dualpipe_v.",
        examples=[["1f1b"]],
    )
    memory_headroom_fraction: Annotated[Number, Holds("memory_headroom")] = Field(
        _DEFAULT.memory_headroom,
        ge=0,
        lt=1,
        description="Share of each GPU's memory that must stay free.",
        examples=[0.1],
    )
    pinned: Annotated[dict[str, Whole], _by_name(Count, WholeNumber)] = Field(
        default_factory=dict,
        max_length=_MOST_VALUES,
        description="Degrees, recompute_layers, sharding_ranks, optimizer_offload, offloaded_layers or head_ranks "
        "with one value.",
        examples=[{"tensor": 8}],
    )
    forbidden: Annotated[
        dict[str, Annotated[list[Whole], Field(min_length=1, max_length=_MOST_VALUES)]],
        _by_name(list[Count], list[WholeNumber]),
    ] = Field(
        default_factory=dict,
        max_length=_MOST_VALUES,
        description="Values that a degree, recompute_layers, sharding_ranks, optimizer_offload, offloaded_layers "
        "or head_ranks must not take.",
        examples=[{"context": [2, 4]}],
    )
    max_gpus: Count | None = Field(None, description="GPUs to use at most; absent = all.", examples=[128])
    max_power_watts: Positive | None = Field(
        None, description="Power of the GPUs used at most, by their data sheets or the cap.", examples=[None]
    )
    gpu_power_cap_watts: Positive | None = Field(
        None,
        description="Power cap of GPUs whose board has more (nvidia-smi -pl); absent: none.",
        examples=[None],
    )
    choose_power_caps: Flag = Field(
        _DEFAULT.choose_power_caps,
        description="In plans: whether the search may cap all GPUs, at 85, 70 or 60 % of their board's power.",
        examples=[False],
    )
    avoid_nodes: list[Text] = Field(
        default_factory=list,
        max_length=MOST_NODES,
        description="Nodes that must stay free.",
        examples=[["cnode2-016"]],
    )
    objective: Objective = Field(
        _DEFAULT.objective,
        description="What to make small: step_time, gpu_time (step time x GPUs), cost (their price) or "
        "energy (their power).",
        examples=["step_time"],
    )
    link_bandwidth: LinkBandwidth = Field(
        _DEFAULT.link_bandwidth,
        description="What links count as having: their median, or (pessimistic) the p10 of their measurements.",
        examples=["median"],
    )

    choice: Choice = Field(
        _DEFAULT.choice,
        description="Which plan to take among those that predictions cannot tell from the fastest: simplest, "
        "fastest, or robust (loses least to the best of them when predictions and links are off).",
        examples=["simplest"],
    )
    placement: PlacementRulesDocument = Field(
        default_factory=PlacementRulesDocument,
        description="What is asked of the nodes: who sits apart or together, which stay free, which are hosts.",
        examples=[{"spread": [{"group": "data", "over": "leaf", "at_least": 2}], "spares": [{"count": 1}]}],
    )
    survive: dict[Text, Count] = Field(
        default_factory=dict,
        max_length=_MOST_VALUES,
        description="By label (node, leaf, rack, ...): how many of its places may be lost together with every part "
        "of the training state still alive.",
        examples=[{"node": 1}],
    )
    memory_checkpoint: Flag = Field(
        _DEFAULT.memory_checkpoint,
        description="The newest checkpoint of each node also lies in the memory of the plan's next host, which "
        "counts as a copy.",
        examples=[False],
    )

    @model_validator(mode="before")
    @classmethod
    def _is_training(cls, data: object) -> object:
        if isinstance(data, Mapping) and data.get("kind") == "reinforcement":
            raise ValueError("describes reinforcement learning, of which plans are made and nothing else")
        refuse_serving(data, cls.model_fields)
        return data

    def to_value(self, described: Mapping[str, Framework] | None = None) -> TrainingWorkload:
        """The domain value; raises ``InvalidDocument`` or ``InvalidWorkload``.

        ``described`` are frameworks that may be named besides the shipped ones.
        """
        problems = [
            FieldProblem(f"{field}.{name}", name, "unknown degree", close_name(name, _RULED))
            for field, degrees in (("pinned", self.pinned), ("forbidden", self.forbidden))
            for name in degrees
            if name not in _RULED
        ]
        if problems:
            raise InvalidDocument(problems)
        return TrainingWorkload(
            **self.attributes()
            | {
                "framework": to_framework(self.framework, self.framework_settings, described),
                "recompute": tuple(dict.fromkeys(self.recompute)),
                "recompute_modules": tuple(dict.fromkeys(self.recompute_modules)),
                "sharding": tuple(dict.fromkeys(self.sharding)),
                "offload": tuple(dict.fromkeys(self.offload)),
                "context_exchange": tuple(dict.fromkeys(self.context_exchange)),
                "free_settings": tuple(dict.fromkeys(self.free_settings)),
                "schedule": tuple(dict.fromkeys(self.schedule)),
            }
        )
