"""Serving plans: which workers on which GPUs answer the requests of one or more models, and the proof."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Final

from cluster_models.serving.figures import Interval, LimitedLatencies, Replay
from cluster_models.serving.goal import ServedModel, ServingGoal
from cluster_models.serving.replicas import Phase, Replica, ReplicaGroup
from cluster_models.serving.workload import Pool, ServingConfiguration
from cluster_models.training.plan import Provenance, StopReason


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """Prediction for all requests to one model; latencies are means over its groups by their shares.

    ``limited_s`` are the latencies that limits hold for, of the group where each is longest; ``replay`` is that of
    the workload's trace or classes.

    ``measured_engine``: runs of this engine on this kind of GPU are among those that the rates were fitted to.
    """

    model: int
    gpus: int
    concurrency: float
    requests_per_s: float
    most_requests_per_s: float
    first_token_s: Interval
    token_s: Interval
    output_tokens_per_s: Interval
    limited_s: LimitedLatencies
    measured_engine: bool
    replay: Replay | None = None


class IdleReason(StrEnum):
    """Why a plan leaves a GPU idle."""

    NOT_NEEDED = "not_needed"
    """The load is served without it."""
    NO_GAIN = "no_gain"
    """Serving with it is not better by the objective."""
    TOO_FEW = "too_few"
    """No worker that holds the model fits into what is left beside it."""
    BUDGET = "budget"
    """The limit on GPUs or power."""
    AVOIDED = "avoided"
    """The goal keeps away from its node."""
    NOT_READY = "not_ready"
    """Its node is failed, draining or unknown."""


@dataclass(frozen=True, slots=True)
class IdleGpus:
    """GPUs of one node that no job holds and the plan does not use."""

    node: str
    gpus: tuple[int, ...]
    reason: IdleReason


class LossReason(StrEnum):
    """Reason against an alternative."""

    OBJECTIVE = "objective"
    """It meets the limits and is worse by the objective."""
    FIRST_TOKEN_LIMIT = "first_token_limit"  # noqa: S105 - a limit's name
    TOKEN_LIMIT = "token_limit"  # noqa: S105 - a limit's name
    ANSWER_LIMIT = "answer_limit"
    MEMORY = "memory"
    """A worker does not hold its weights and one request."""
    LOAD = "load"
    """As many as the cluster holds do not keep up with the load."""


LIMIT_LOSSES: Final = (LossReason.FIRST_TOKEN_LIMIT, LossReason.TOKEN_LIMIT, LossReason.ANSWER_LIMIT)
"""In the order of ``ServingWorkload.limits_s``."""


@dataclass(frozen=True, slots=True)
class ServingAlternative:
    """The best that workers of one shape, under one power cap or none, alone reach, and why they are not the plan.

    ``objective`` in the unit of the goal, ``worse_by`` its distance from the plan's as a share of the plan's;
    ``None`` where the limits or the load are missed.  ``reason_value``: seconds where a limit is missed,
    bytes missing on a GPU for memory, requests/s kept up with for the load, else ``worse_by``.
    ``slowest_part`` names the largest part of its decode step that the plan's has less of (a field of
    ``StepShares``), empty where none is.
    """

    model: int
    gpu_kind: str
    configuration: ServingConfiguration
    first_token_s: float | None
    token_s: float | None
    output_tokens_per_s: float | None
    objective: float | None
    worse_by: float | None
    reason: LossReason
    reason_value: float
    slowest_part: str = ""
    power_cap_watts: float | None = None


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A point of the Pareto front of throughput per GPU against speed for each user, of one group."""

    model: int
    gpu_kind: str
    configuration: ServingConfiguration
    concurrency: float
    tokens_per_s_per_gpu: float
    tokens_per_s_per_user: float
    first_token_s: float
    meets_limits: bool
    is_chosen: bool
    power_cap_watts: float | None = None


@dataclass(frozen=True, slots=True)
class ServingCertificate:
    """How far from optimal the plan can be, in the unit of its objective.

    No choice and placement of the enumerated groups beats ``bound``; ``gap = |bound - objective| / objective``.
    ``shapes`` workers were enumerated (GPU kind, degrees and links), ``shapes_too_large`` of them do not hold a
    request; ``groups`` were priced, at ``operating_points`` in all, ``groups_over_limits`` meet the limits at none.
    """

    objective: float
    bound: float
    gap: float
    stopped_by: StopReason
    shapes: int
    shapes_too_large: int
    groups: int
    groups_over_limits: int
    operating_points: int
    solver: str


class ServingWarningKind(StrEnum):
    """Doubt about a serving plan."""

    ESTIMATED_LINKS = "estimated_links"
    """Links that the plan uses were not measured; subject: the nodes."""
    UNMEASURED_ENGINE = "unmeasured_engine"
    """No runs of the engine on this kind of GPU; subject: engine and kind."""
    DEGRADED_NODES = "degraded_nodes"
    """The plan uses nodes that are degraded; subject: the nodes."""
    WIDENED_WEIGHTS = "widened_weights"
    """Weights are multiplied in 16 bits, for want of tensor cores of their format; subject: format and kinds."""
    DRAFT = "draft"
    """The solver was ended by force: the plan is the last that it told of."""


@dataclass(frozen=True, slots=True)
class ServingWarning:
    """A doubt, and about what."""

    kind: ServingWarningKind
    subject: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """Replicas on GPUs, their shares of the load, predictions and proof.

    ``figures`` has an entry for each of ``models``.  ``price_usd_per_hour``: ``None`` where a kind has no price.
    """

    goal: ServingGoal
    models: tuple[ServedModel, ...]
    groups: tuple[ReplicaGroup, ...]
    figures: tuple[ModelFigures, ...]
    gpus: int
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    price_usd_per_hour: float | None
    power_watts: float
    idle: tuple[IdleGpus, ...]
    certificate: ServingCertificate
    alternatives: tuple[ServingAlternative, ...]
    front: tuple[FrontPoint, ...]
    warnings: tuple[ServingWarning, ...]
    provenance: Provenance

    @property
    def drawn_watts(self) -> Interval | None:
        """Mean power of the GPUs used, estimated; groups err together."""
        drawn = [group.drawn_watts for group in self.groups]
        ends = (sum(getattr(each, end) for each in drawn if each) for end in Interval.__slots__)
        return Interval(*ends) if all(drawn) else None

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """All replicas in the order of their numbers."""
        return tuple(replica for group in self.groups for replica in group.replicas)

    @property
    def pools(self) -> tuple[PlannedPool, ...]:
        """Replicas of one model, phase, shape, GPU kind and power cap together, as launch files name them."""
        members = [
            (
                (group.model, replica.phase, str(replica.worker), replica.gpu_kind, replica.power_cap_watts or 0.0),
                replica,
            )
            for group in self.groups
            for replica in group.replicas
        ]
        members.sort(key=lambda each: (each[0][0], list(Phase).index(each[0][1]), each[0][2:], each[1].number))
        return tuple(
            PlannedPool(key[0], key[1], key[3], tuple(replica for _, replica in same))
            for key, same in groupby(members, key=lambda each: each[0])
        )


@dataclass(frozen=True, slots=True)
class PlannedPool:
    """Equal replicas of one model and phase."""

    model: int
    phase: Phase
    gpu_kind: str
    replicas: tuple[Replica, ...]

    @property
    def pool(self) -> Pool:
        """Worker and number."""
        return Pool(self.replicas[0].worker, len(self.replicas))

    @property
    def power_cap_watts(self) -> float | None:
        """Power cap of each GPU, ``None``: none."""
        return self.replicas[0].power_cap_watts
