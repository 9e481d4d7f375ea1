"""A configuration given in full, for a prediction without a search."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field

from app.documents.nodes import MOST_GPUS
from app.documents.reading import Count, FieldProblem, Flag, InvalidDocument, Text, WholeNumber
from app.documents.values import Given, Holds, ValueDocument
from cluster_models.cluster.topology import MOST_NODES
from cluster_models.errors import InvalidConfiguration
from cluster_models.model.architecture import Architecture
from cluster_models.model.experts import MOST_LAYERS
from cluster_models.training.framework_choices import ContextExchange, CudaGraphs, ExpertDispatch
from cluster_models.training.plan import Configuration, Degrees, Plan, RankOrder
from cluster_models.training.run_settings import RunSettings
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import WHOLE_OFFLOAD, Recompute, RecomputeModule, Sharding

_StageLayers = Annotated[
    list[Annotated[list[WholeNumber], Field(max_length=MOST_LAYERS)]], Field(max_length=MOST_LAYERS)
]


class DegreesDocument(ValueDocument[Degrees]):
    """Sizes of the parallel groups; a degree that is absent is 1."""

    tensor: Count = Field(1, description="Tensor parallel size.", examples=[8])
    pipeline: Count = Field(1, description="Pipeline stages.", examples=[4])
    data: Count = Field(1, description="Data parallel size.", examples=[4])
    context: Count = Field(1, description="Context parallel size.", examples=[1])
    expert: Count = Field(
        1,
        description="Expert parallel size; folds over tensor, context and data ranks of a stage.",
        examples=[1],
    )
    expert_tensor: Count = Field(
        1, description="Expert tensor parallel size: consecutive ranks that cut each expert.", examples=[1]
    )
    virtual_pipeline: Count = Field(
        1, description="Model chunks on each pipeline rank (interleaving).", examples=[1]
    )


class RunSettingsDocument(ValueDocument[RunSettings]):
    """Settings that the planner chose for a run; absent: as the framework has it."""

    overlap_tensor: Flag | None = Field(
        None, description="Tensor parallel collectives run in chunks beside matrix products.", examples=[True]
    )
    expert_overlap: Flag | None = Field(
        None, description="Dispatch and combine run beside the compute of another micro-batch.", examples=[True]
    )
    cuda_graphs: CudaGraphs | None = Field(None, description="What CUDA graphs capture.", examples=["partial"])
    expert_dispatch: ExpertDispatch | None = Field(
        None, description="How tokens travel to their experts and back.", examples=["deepep"]
    )


class ConfigurationDocument(ValueDocument[Configuration]):
    """All options of a framework's launcher, and optionally the hosts in rank order."""

    degrees: DegreesDocument = Field(description="Sizes of the parallel groups.")
    micro_batch_sequences: Annotated[Count, Holds("micro_batch")] = Field(
        1, description="Sequences of one micro-batch.", examples=[1]
    )
    recompute: Recompute = Field(Recompute.NONE, description="What is computed again.", examples=["none"])
    recompute_modules: Annotated[list[RecomputeModule], Field(max_length=len(RecomputeModule))] = Field(
        default_factory=list,
        description="Modules of every layer that selective recomputation runs again, by Megatron-Core's names; "
        "none = the framework's own choice.",
        examples=[["moe_act"]],
    )
    recompute_layers: WholeNumber = Field(
        0,
        description="Layers of each chunk, its first ones, that full recomputation runs again; 0 = all.",
        examples=[0],
    )
    sharding: Sharding = Field(
        Sharding.NONE, description="What data parallel ranks share out.", examples=["optimizer"]
    )
    sharding_ranks: WholeNumber = Field(
        0,
        description="Data ranks, context ranks included, of a group inside which parameters (HSDP) or optimizer "
        "states are sharded; 0 = all of them, or of states as many as the framework is told.",
        examples=[0],
    )
    optimizer_offload_percent: Annotated[WholeNumber, Field(le=WHOLE_OFFLOAD), Holds("optimizer_offload")] = Field(
        0, description="Share of the optimizer states in the nodes' memory.", examples=[0]
    )
    offload_to_disks: Flag = Field(
        False, description="All optimizer states live on the nodes' disks instead.", examples=[False]
    )
    offload_parameters: Flag = Field(
        False, description="Shards of parameters live where their optimizer states do.", examples=[False]
    )
    offloaded_layers: WholeNumber = Field(
        0,
        description="Layers whose activations wait in the nodes' memory from the forward to the backward pass.",
        examples=[0],
    )
    context_exchange: ContextExchange = Field(
        ContextExchange.RING,
        description="How context ranks meet the keys and values of a whole sequence: ring, gather, all_to_all "
        "(Ulysses) or hierarchical (all_to_all among head_ranks, a ring over their groups).",
        examples=["ring"],
    )
    head_ranks: WholeNumber = Field(
        0, description="Context ranks that exchange heads in a hierarchical exchange; else 0.", examples=[0]
    )
    settings: RunSettingsDocument = Field(
        default_factory=RunSettingsDocument,
        description="Settings of the framework that were chosen for the run.",
        examples=[{"overlap_tensor": True}],
    )
    rank_order: RankOrder = Field(
        RankOrder.DATA_BEFORE_PIPELINE,
        description="Megatron's rank order, fastest first.",
        examples=["tp-cp-ep-dp-pp"],
    )
    stage_layers: _StageLayers | None = Field(
        None,
        description="Decoder layers: a list for each virtual stage with a number for each pipeline rank; V-shaped "
        "schedules run through every second list from the last rank to the first.  "
        "Absent = as even as possible, the middle stages taking what is left.",
        examples=[[[19, 21, 21, 19]]],
    )
    schedule: PipelineSchedule = Field(
        PipelineSchedule.ONE_F_ONE_B,
        description="Order in which pipeline ranks run forwards and backwards.",
        examples=["1f1b"],
    )
    hosts: Annotated[Annotated[list[Text], Field(min_length=1, max_length=MOST_NODES)] | None, Given()] = Field(
        None,
        description="Nodes in rank order; absent = the planner places the ranks.",
        examples=[["cnode2-001", "cnode2-002"]],
    )
    gpus_per_node: Annotated[Annotated[Count, Field(le=MOST_GPUS)] | None, Given()] = Field(
        None, description="GPUs used on each host; absent = all GPUs of a node.", examples=[8]
    )

    def to_configuration(self, architecture: Architecture) -> Configuration:
        """The domain value for a model; raises ``InvalidConfiguration`` where the layers do not add up."""
        degrees = self.degrees.to_value()
        layers = self.stage_layers
        if layers is None:
            layers = even_stage_layers(architecture.layers, degrees)
        total = sum(map(sum, layers))
        if total != architecture.layers:
            raise InvalidConfiguration(
                "stage_layers", layers, f"adds up to {total} layers; the model has {architecture.layers}"
            )
        return self._with_layers(layers)

    def to_value(self) -> Configuration:
        """The domain value, checked against no model; raises ``InvalidConfiguration`` without layers of stages."""
        if self.stage_layers is None:
            raise InvalidConfiguration("stage_layers", None, "is missing", "give the layers of every stage")
        return self._with_layers(self.stage_layers)

    def _with_layers(self, layers: list[list[int]]) -> Configuration:
        degrees = self.degrees.to_value()
        if len(layers) != degrees.virtual_pipeline or any(len(row) != degrees.pipeline for row in layers):
            raise InvalidConfiguration(
                "stage_layers",
                layers,
                f"needs {degrees.virtual_pipeline} list(s) of {degrees.pipeline} numbers",
                "one list for each virtual stage, one number for each pipeline rank",
            )
        return Configuration(
            degrees=degrees,
            micro_batch=self.micro_batch_sequences,
            recompute=self.recompute,
            recompute_modules=frozenset(self.recompute_modules),
            recompute_layers=self.recompute_layers,
            sharding=self.sharding,
            sharding_ranks=self.sharding_ranks,
            optimizer_offload=self.optimizer_offload_percent,
            offload_to_disks=self.offload_to_disks,
            offload_parameters=self.offload_parameters,
            offloaded_layers=self.offloaded_layers,
            context_exchange=self.context_exchange,
            head_ranks=self.head_ranks,
            settings=self.settings.to_value(),
            rank_order=self.rank_order,
            stage_layers=tuple(tuple(row) for row in layers),
            schedule=self.schedule,
        )

    @classmethod
    def from_plan(cls, plan: Plan) -> Self:
        """The configuration of a plan with its hosts."""
        placement = plan.placement
        return cls.from_value(
            plan.configuration, hosts=list(placement.hosts), gpus_per_node=placement.gpus_per_node
        )

    def host_order(self) -> tuple[str, ...] | None:
        """The hosts in rank order; raises ``InvalidDocument`` when one is listed twice."""
        if self.hosts is None:
            return None
        first: dict[str, int] = {}
        problems = [
            FieldProblem(f"hosts[{index}]", host, "the host is listed twice", "give each host once")
            for index, host in enumerate(self.hosts)
            if first.setdefault(host, index) != index
        ]
        if problems:
            raise InvalidDocument(problems)
        return tuple(self.hosts)


def even_stage_layers(layers: int, degrees: Degrees) -> list[list[int]]:
    """``layers`` over all chunks, as even as possible.

    The remainder goes to the chunks in the middle: the first holds the embedding, the last the head.
    """
    chunks = degrees.pipeline * degrees.virtual_pipeline
    if chunks > layers:
        raise InvalidConfiguration(
            "degrees",
            str(degrees),
            f"makes {chunks} pipeline chunks of {layers} layers",
            "lower pipeline or virtual_pipeline",
        )
    each, left = divmod(layers, chunks)
    first = (chunks - left) // 2
    counts = [each + (first <= chunk < first + left) for chunk in range(chunks)]
    return [
        counts[row * degrees.pipeline : (row + 1) * degrees.pipeline] for row in range(degrees.virtual_pipeline)
    ]
