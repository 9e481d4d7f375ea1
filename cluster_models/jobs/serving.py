"""Serving deployments that run on a cluster, and what becomes of them after failures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cluster_models.jobs.running import InvalidRunningJob
from cluster_models.jobs.times import TimeRange
from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.refusal import NoServingReason
from cluster_models.serving.replicas import Replica

SHORT: Final = 0.999
"""Share of the load asked for below which a deployment answers less than that."""


@dataclass(frozen=True, slots=True)
class ServingPolicy:
    """How replicas start again, and what may be done with those that live.

    Weights come from storage at ``storage_bytes_per_s`` for all replicas that start together; from then to the
    first answer it takes ``start_low_s`` to ``start_high_s`` (processes, communicators, graphs; vLLM and SGLang log
    half a minute to three for large models).  ``may_replan``: replicas that live may be stopped for better ones.
    ``least_gain_share``: share of the worth over the horizon that stopping them must gain.
    """

    storage_bytes_per_s: float = 25e9
    start_low_s: float = 30.0
    start_high_s: float = 180.0
    may_replan: bool = True
    least_gain_share: float = 0.02

    def __post_init__(self) -> None:
        if not 0 < self.storage_bytes_per_s < math.inf:
            raise InvalidRunningJob("recovery.storage_bytes_per_s", self.storage_bytes_per_s, "must be positive")
        if not 0 <= self.start_low_s <= self.start_high_s < math.inf:
            problem = "must be at least the lower time, and that not negative"
            raise InvalidRunningJob("recovery.restart_high_s", self.start_high_s, problem)
        if not 0 <= self.least_gain_share <= 1:
            raise InvalidRunningJob("recovery.least_gain_share", self.least_gain_share, "must lie between 0 and 1")


@dataclass(frozen=True, slots=True)
class ServingJob:
    """A deployment by its plan; ``weight`` is what a FLOP of its answers is worth against those of other jobs.

    One that ``is_paused`` answers nothing and holds no GPU: ``plan`` is the one that it served by last.
    ``meant``: the plan that its owner gave it, where a failure left it another; its load and goal are asked for.
    """

    id: str
    name: str
    plan: ServingPlan
    weight: float = 1.0
    policy: ServingPolicy = ServingPolicy()
    is_paused: bool = False
    meant: ServingPlan | None = None

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise InvalidRunningJob("weight", self.weight, "must be positive")

    @property
    def gpus(self) -> frozenset[tuple[str, int]]:
        """The GPUs that it holds, by node and number."""
        return frozenset() if self.is_paused else plan_gpus(self.plan)

    @property
    def asked(self) -> ServingPlan:
        """The plan whose goal and load are asked for."""
        return self.meant or self.plan

    @property
    def is_short(self) -> bool:
        """Whether it answers less than is asked for."""
        pairs = zip(self.plan.figures, self.asked.figures, strict=True)
        return self.is_paused or any(now.requests_per_s < SHORT * asked.requests_per_s for now, asked in pairs)


def plan_gpus(plan: ServingPlan) -> frozenset[tuple[str, int]]:
    """The GPUs of all replicas of a plan, by node and number."""
    return frozenset(gpu for replica in plan.replicas for gpu in gpus_of(replica))


def gpus_of(replica: Replica) -> tuple[tuple[str, int], ...]:
    """The GPUs of one replica in rank order, by node and number."""
    return tuple((place.node, gpu) for place in replica.places for gpu in place.gpus)


class ServingAction(StrEnum):
    """Action on a serving deployment."""

    CARRY_ON = "carry_on"
    """The replicas that live answer what they can; nothing starts."""
    START_REPLICAS = "start_replicas"
    """Replicas that live go on, and others start in place of the lost ones."""
    REPLAN = "replan"
    """Other replicas in place of all but those that are planned as they are."""
    STOP = "stop"
    """Nothing can answer any more."""


@dataclass(frozen=True, slots=True)
class ServedLoad:
    """Requests a second to one model.

    Asked for (infinite: as many as can be), and answered before the failure, until replicas started, and after it.
    """

    model: int
    asked_per_s: float
    before_per_s: float
    during_per_s: float
    after_per_s: float


@dataclass(frozen=True, slots=True)
class ConsideredServing:
    """An action that lost, with its GPUs; ``value_flop`` as in the decision.

    ``None`` where ``refused`` says what stands against it.
    """

    action: ServingAction
    gpus: int
    value_flop: float | None
    refused: NoServingReason | None = None


@dataclass(frozen=True, slots=True)
class ServingDecision:
    """Decision about one deployment.

    ``plan`` is the one that it serves by afterwards, ``None`` where nothing serves.  Replicas by their numbers:
    ``lost`` and ``stopped`` of the plan before, ``kept`` pairs of old and new number, ``started`` of the new plan.
    ``value_flop``: FLOPs of the answers over the horizon times the weight, less what spares are worth.
    """

    job_id: str
    job_name: str
    action: ServingAction
    plan: ServingPlan | None
    lost: tuple[int, ...]
    stopped: tuple[int, ...]
    kept: tuple[tuple[int, int], ...]
    started: tuple[int, ...]
    loads: tuple[ServedLoad, ...]
    start: TimeRange
    weight_bytes: float
    value_flop: float
    considered: tuple[ConsideredServing, ...] = ()

    @property
    def held(self) -> frozenset[tuple[str, int]]:
        """The GPUs that it holds afterwards."""
        return frozenset() if self.plan is None else plan_gpus(self.plan)

    @property
    def is_to_be_done(self) -> bool:
        """Whether somebody has to act: replicas come or go."""
        return bool(self.lost or self.stopped or self.started)
