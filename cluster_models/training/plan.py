"""Result of the planner: a configuration, where every rank sits, what it costs, and the proof."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from cluster_models.errors import InvalidConfiguration
from cluster_models.model.architecture import Architecture
from cluster_models.remarks import Remark
from cluster_models.training.configuration_checks import check_configuration
from cluster_models.training.expert_balance import ExpertBalance
from cluster_models.training.expert_slots import ExpertSlots
from cluster_models.training.failure_domains import FailureDomainLosses
from cluster_models.training.framework_choices import ContextExchange
from cluster_models.training.optimizer_states import optimizer_instances
from cluster_models.training.rank_costs import StageMemory, StageTime, TimeBreakdown
from cluster_models.training.recompute import recomputation_words
from cluster_models.training.robustness import Robustness
from cluster_models.training.run_settings import AS_FRAMEWORK, RunSettings
from cluster_models.training.schedules import PipelineSchedule, in_model_order
from cluster_models.training.selection import Selection
from cluster_models.training.workload import (
    WHOLE_OFFLOAD,
    LinkBandwidth,
    Recompute,
    RecomputeModule,
    Sharding,
    TrainingWorkload,
)


class RankOrder(StrEnum):
    """Megatron's two rank orders, fastest-varying degree first; expert ranks fold into context and data."""

    DATA_BEFORE_PIPELINE = "tp-cp-ep-dp-pp"
    PIPELINE_BEFORE_DATA = "tp-cp-ep-pp-dp"


@dataclass(frozen=True, slots=True)
class Degrees:
    """The sizes of the parallel groups.

    Experts have a grid of their own over the tensor, context and data ranks of a stage: ``expert_tensor`` ranks,
    the fastest, cut each expert, ``expert`` ranks share the experts out, the others hold copies
    (docs/experts_parallel.md).
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    expert: int = 1
    virtual_pipeline: int = 1
    expert_tensor: int = 1

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise InvalidConfiguration(f"degrees.{name}", getattr(self, name), "must be at least 1")

    @property
    def gpus(self) -> int:
        """GPUs that the degrees occupy."""
        return self.tensor * self.context * self.data * self.pipeline

    @property
    def expert_block(self) -> int:
        """Consecutive ranks of a stage that hold every expert once between them."""
        return self.expert * self.expert_tensor

    def __str__(self) -> str:
        parts = [f"tp{self.tensor}", f"pp{self.pipeline}", f"dp{self.data}"]
        parts += [f"cp{self.context}"] * (self.context > 1)
        parts += [f"ep{self.expert}"] * (self.expert > 1)
        parts += [f"etp{self.expert_tensor}"] * (self.expert_tensor > 1)
        parts += [f"vpp{self.virtual_pipeline}"] * (self.virtual_pipeline > 1)
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Configuration:
    """Settings of a framework, except which host plays which part.

    ``stage_layers[v][s]`` is the number of decoder layers of virtual stage ``v`` on pipeline rank ``s``; the model
    runs through ``v`` first, ``s`` fastest, every second ``v`` backwards under a V-shaped ``schedule``.
    ``micro_batch`` counts sequences.
    Selective recomputation runs ``recompute_modules`` again, without any the framework's own choice; full
    recomputation the first ``recompute_layers`` layers of each chunk, 0: all.
    Parameters, or optimizer states, are shared out in groups of ``sharding_ranks`` data ranks, context ranks among
    them, 0: all of them, or as many as the framework is told.
    ``optimizer_offload`` percent of the optimizer states live in the nodes' memory, or ``offload_to_disks``, with
    ``offload_parameters`` shards of weights as well; between the passes activations of ``offloaded_layers`` layers.
    ``head_ranks`` context ranks exchange heads in a hierarchical exchange, else 0.  ``settings``: those chosen.
    """

    degrees: Degrees
    micro_batch: int
    recompute: Recompute
    sharding: Sharding
    rank_order: RankOrder
    stage_layers: tuple[tuple[int, ...], ...]
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    recompute_modules: frozenset[RecomputeModule] = frozenset()
    recompute_layers: int = 0
    sharding_ranks: int = 0
    optimizer_offload: int = 0
    offloaded_layers: int = 0
    context_exchange: ContextExchange = ContextExchange.RING
    head_ranks: int = 0
    settings: RunSettings = AS_FRAMEWORK
    offload_to_disks: bool = False
    offload_parameters: bool = False

    def __post_init__(self) -> None:
        check_configuration(self)

    @property
    def offload_code(self) -> int:
        """Percent of the states in the nodes' memory, or the code of another place (``training.offload``)."""
        return self.optimizer_offload + WHOLE_OFFLOAD * (self.offload_to_disks + 2 * self.offload_parameters)

    def optimizer_copies(self, most: int) -> int:
        """Copies of optimizer states that ``most`` data ranks share out at most, 0: all of them."""
        ranks = self.degrees.data * self.degrees.context
        return ranks // self.sharding_ranks if self.sharding_ranks else optimizer_instances(ranks, most)

    @property
    def sharding_words(self) -> str:
        """Sharding, with the size of its groups where they are smaller than all ranks."""
        return f"{self.sharding} in groups of {self.sharding_ranks}" if self.sharding_ranks else str(self.sharding)

    @property
    def exchange_words(self) -> str:
        """Exchange of context ranks, with the ranks that exchange heads where it is hierarchical."""
        return f"{self.context_exchange}:{self.head_ranks}" if self.head_ranks else str(self.context_exchange)

    @property
    def recomputation(self) -> str:
        """Policy of recomputation with its modules or layers, as users write it."""
        return recomputation_words(self.recompute, self.recompute_modules, self.recompute_layers)

    @property
    def chunks(self) -> tuple[tuple[int, int], ...]:
        """Pipeline rank and decoder layers of every chunk, in the order in which the model runs through them."""
        return in_model_order(self.schedule, [tuple(enumerate(row)) for row in self.stage_layers])

    def with_data(self, data: int) -> Configuration:
        """The same with ``data`` replicas; groups that do not divide their ranks give way to all of them."""
        ranks, group = data * self.degrees.context, self.sharding_ranks
        kept = group if group and group < ranks and ranks % group == 0 else 0
        return replace(self, degrees=replace(self.degrees, data=data), sharding_ranks=kept)

    def micro_batches(self, global_batch: int) -> int:
        """Micro-batches that each pipeline runs per step."""
        return global_batch // (self.micro_batch * self.degrees.data)


@dataclass(frozen=True, slots=True)
class RankPlace:
    """The physical GPU of one rank, with the rank's coordinates."""

    rank: int
    node: str
    gpu: int
    tensor: int
    context: int
    data: int
    pipeline: int


@dataclass(frozen=True, slots=True)
class Placement:
    """The ordered host list and what follows from it: rank ``r`` sits on host ``r // gpus_per_node``.

    ``gpus_per_node`` counts the GPUs that the plan uses on each host, which may be fewer than it has.
    """

    hosts: tuple[str, ...]
    gpus_per_node: int
    ranks: tuple[RankPlace, ...]


class StopReason(StrEnum):
    """Why the search ended."""

    PROVEN = "proven"
    """No candidate that is left can be better than the plan by more than the gap asked for."""
    TIME_LIMIT = "time_limit"
    WORK_LIMIT = "work_limit"
    CANCELLED = "cancelled"
    NO_SEARCH = "no_search"
    """The configuration was given in full."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """How far from optimal the plan can be, in the objective's own unit.

    ``bound`` is a value no plan of the search space can beat, ``gap = (objective - bound) / objective``.
    The proof holds within the cost model: it says nothing about the model's own error.
    """

    objective: float
    bound: float
    gap: float
    stopped_by: StopReason
    candidates_total: int
    candidates_infeasible: int
    candidates_pruned: int
    candidates_placed: int
    solver: str
    limits: tuple[Remark, ...] = ()
    """Limits of the space that was searched; empty in plans of before they were kept."""
    unpriced: int = 0
    """Candidates that there was no time to price; only that none of them beats ``bound`` is known."""
    unlisted: int = 0
    """Numbers of GPUs whose candidates there was no time to list: the counts leave them out."""
    basis: Remark | None = None
    """Origin of the configuration where nothing was searched."""

    @classmethod
    def unsearched(cls, objective: float, bound: float, basis: Remark) -> Certificate:
        """The certificate of one configuration that was given: ``bound`` is over its placements, 0 if not known."""
        gap = (objective - bound) / objective
        return cls(objective, bound, gap, StopReason.NO_SEARCH, 1, 0, 0, 1, "none", basis=basis)


@dataclass(frozen=True, slots=True)
class BusiestStage:
    """The pipeline stage whose parts the step of an alternative is told by, in the replica that ends last.

    ``nodes``: where it lies; ``micro_batch_s``: seconds of one micro-batch there, ``median_s`` on the median stage.
    """

    stage: int
    nodes: tuple[str, ...]
    micro_batch_s: float
    median_s: float


@dataclass(frozen=True, slots=True)
class Alternative:
    """A configuration that lost, and why; ``time`` has its parts where it was placed, ``busiest`` their place."""

    configuration: Configuration
    step_s: float
    slower_by: float
    peak_memory_bytes: float
    reason: Remark
    time: TimeBreakdown | None = None
    busiest: BusiestStage | None = None


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One box of the predicted schedule.  ``track`` is the pipeline rank, ``replica`` the data rank."""

    name: str
    category: str
    replica: int
    track: int
    start_s: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class Provenance:
    """Inputs of the plan; the same values give the same plan.

    ``calibration`` names the user's own calibration and its content; empty where the shipped parameters served.
    ``link_bandwidth`` is what links were taken at.
    """

    product_version: str
    cost_model_version: str
    cluster_name: str
    snapshot_id: str
    seed: int
    effort: int
    solver_versions: dict[str, str] = field(hash=False)
    calibration: str = ""
    link_bandwidth: LinkBandwidth = LinkBandwidth.MEDIAN


@dataclass(frozen=True, slots=True)
class Confidence:
    """How sure the step time is: the measured one is expected between ``step_low_s`` and ``step_high_s``.

    With probability ``level``, from the errors of ``runs`` measured runs of ``family``, each as predicted without
    its like; runs of one source err together, so all are worth ``independent_runs``.  ``outside`` has each
    respect in which none of them was like this plan, by ``doublings_outside`` in all.
    """

    step_low_s: float
    step_high_s: float
    level: float
    family: str
    runs: int
    outside: tuple[Remark, ...]
    independent_runs: float = 0.0
    """0 in plans of before this was known."""
    doublings_outside: float = 0.0


@dataclass(frozen=True, slots=True)
class TradeOff:
    """A candidate that fits into memory, for a picture of time against memory.

    ``step_bound_s``: a step time that no placement of it beats.  ``spare_bytes``: what its fullest GPU has left
    below the limit.  ``on_frontier``: no other candidate is as fast and leaves more.
    """

    degrees: Degrees
    micro_batch: int
    step_bound_s: float
    spare_bytes: float
    on_frontier: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """A placed, priced and proven plan.

    ``mfu`` is what of the peak FLOP/s of all its GPUs together, each by its kind, the model's own FLOPs take.
    """

    model: str
    configuration: Configuration
    placement: Placement
    time: TimeBreakdown
    stages: tuple[StageTime, ...]
    memory: tuple[StageMemory, ...]
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    model_flops_per_s_per_gpu: float
    mfu: float
    certificate: Certificate
    warnings: tuple[Remark, ...]
    alternatives: tuple[Alternative, ...]
    timeline: tuple[TimelineEvent, ...]
    unused_nodes: tuple[str, ...]
    provenance: Provenance
    architecture: Architecture | None = None
    workload: TrainingWorkload | None = None
    """Workload planned for: with these two a plan can be exported.  ``None`` in plans made by hand, as the next."""
    confidence: Confidence | None = None
    robustness: Robustness | None = None

    @property
    def mixed_kinds(self) -> tuple[str, ...]:
        """The GPU kind of each pipeline rank where they differ; empty where they do not."""
        kinds = tuple(stage.gpu_kind for stage in self.stages)
        return kinds if len(set(kinds)) > 1 else ()

    spare_nodes: tuple[str, ...] = ()
    """Free nodes that the workload asked to keep as spares; ``unused_nodes`` are the others."""
    expert_slots: ExpertSlots | None = None
    """The experts of every expert rank, layer by layer; ``None`` for dense models."""
    expert_balance: ExpertBalance | None = None
    """How evenly they share out what was counted; ``None`` where nothing was, or one rank holds all."""
    selection: Selection | None = None
    """``None`` where nothing was searched."""
    trade_offs: tuple[TradeOff, ...] = ()
    """A sample of what was priced, the fastest first; empty where nothing was searched."""
    survives: tuple[FailureDomainLosses, ...] = ()
    """Losses that leave every part of the state alive (docs/resilience.md); empty in plans made by hand."""


@dataclass(frozen=True, slots=True)
class NoPlan:
    """Nothing in the search space fits.

    ``closest`` is the candidate that misses the memory limit by least (``None`` when the rules already leave
    no candidate), ``missing_bytes`` by how much per GPU, ``remedies`` what would make something fit.
    """

    reasons: tuple[Remark, ...]
    closest: Configuration | None
    missing_bytes: float | None
    remedies: tuple[Remark, ...]
    provenance: Provenance

    @property
    def is_proven(self) -> bool:
        """Whether no plan exists, and not only none was found."""
        return all(each.code not in ("rules_search_ended", "rules_not_found") for each in self.reasons)
