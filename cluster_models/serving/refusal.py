"""Serving that no plan meets: what stands against it, what comes nearest, and what would help."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cluster_models.serving.figures import LimitedLatencies
from cluster_models.serving.goal import ServedModel, ServingGoal
from cluster_models.serving.workload import ServingConfiguration
from cluster_models.training.plan import Provenance


class NoServingReason(StrEnum):
    """The tightest of what stands against every plan."""

    NO_GPUS = "no_gpus"
    """No usable GPU is free."""
    MEMORY = "memory"
    """No worker that the cluster has room for holds the model and one request."""
    FIRST_TOKEN_LIMIT = "first_token_limit"  # noqa: S105 - a limit's name
    TOKEN_LIMIT = "token_limit"  # noqa: S105 - a limit's name
    ANSWER_LIMIT = "answer_limit"
    LIMITS_TOGETHER = "limits_together"
    """Each limit can be met, not all at once."""
    LOAD = "load"
    """The cluster does not keep up with the load within the limits."""


class RemedyKind(StrEnum):
    """Remedy that would make a plan possible."""

    FIRST_TOKEN_LIMIT = "first_token_limit"  # noqa: S105 - a limit's name
    """Raise the limit on the time to the first token to ``value`` seconds."""
    TOKEN_LIMIT = "token_limit"  # noqa: S105 - a limit's name
    """Raise the limit on the time per output token to ``value`` seconds."""
    ANSWER_LIMIT = "answer_limit"
    """Raise the limit on the time to the last token to ``value`` seconds."""
    LIMITS = "limits"
    """Raise all limits that are missed to what the nearest configuration reaches."""
    REQUESTS_PER_S = "requests_per_s"
    """Lower the rate to ``value``."""
    CONCURRENCY = "concurrency"
    """Lower the requests in flight to ``value``."""
    MAX_GPUS = "max_gpus"
    """Allow ``value`` GPUs."""
    MAX_POWER = "max_power"
    """Allow ``value`` watts."""
    GPUS = "gpus"
    """Add GPUs: ``value`` in all, of kind ``name``."""
    WEIGHTS = "weights"
    """Serve with weights of format ``name``."""
    GPU_KIND = "gpu_kind"
    """Serve on GPUs of kind ``name``."""
    MODES = "modes"
    """Allow both modes."""
    PINNED = "pinned"
    """Unpin degrees."""
    MEMORY_FRACTION = "memory_fraction"
    """Leave the engine's share of memory as it is by default, ``value``."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change that would help, by itself; ``name`` of a limit is the class of requests that it is on."""

    kind: RemedyKind
    value: float | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class NearestServing:
    """The configuration that comes nearest to the limits, and its mean latencies there.

    ``limited_s`` are the latencies that the limits hold for.
    """

    gpu_kind: str
    configuration: ServingConfiguration
    first_token_s: float
    token_s: float
    requests_per_s: float
    limited_s: LimitedLatencies


@dataclass(frozen=True, slots=True)
class NoServingPlan:
    """Nothing meets the limits and the load of ``model`` (counted in ``models``)."""

    goal: ServingGoal
    models: tuple[ServedModel, ...]
    model: int
    reason: NoServingReason
    nearest: NearestServing | None
    remedies: tuple[Remedy, ...]
    provenance: Provenance
