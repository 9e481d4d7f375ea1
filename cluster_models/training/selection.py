"""How a plan was taken among those that predictions cannot tell from the best found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cluster_models.training.workload import Choice


class Simplicity(StrEnum):
    """Properties that make one plan simpler and more usual than another; the first difference decides."""

    GPU_KINDS = "gpu_kinds"
    """Fewer GPU kinds."""
    PARALLELISM = "parallelism"
    """Fewer kinds of parallelism."""
    TENSOR_IN_NODE = "tensor_in_node"
    """Tensor parallel groups inside a node."""
    EVEN_LAYERS = "even_layers"
    """The same number of layers on all stages."""
    POWERS_OF_TWO = "powers_of_two"
    """Fewer sizes that are not a power of two."""
    VIRTUAL_STAGES = "virtual_stages"
    """Fewer virtual stages."""
    MEMORY_OPTIONS = "memory_options"
    """Nothing recomputed, or all alike, before modules by name and some layers of a stage."""
    MEASURED_SIZES = "measured_sizes"
    """Fewer sizes that no measured run had."""


@dataclass(frozen=True, slots=True)
class CloseCall:
    """An alternative that predictions cannot tell from the plan; ``alternative`` counts in ``Plan.alternatives``.

    Its measured objective over the plan's is expected between ``ratio_low`` and ``ratio_high`` (the level of
    ``Plan.confidence``) and below 1 with probability ``chance_better``.
    """

    alternative: int
    ratio_low: float
    ratio_high: float
    chance_better: float


@dataclass(frozen=True, slots=True)
class Trial:
    """The cheapest trial that tells one close call from the plan: both run ``steps``, after ``warm_up`` steps more.

    ``gpu_minutes`` are those of both; ``gain`` is the expected share of the objective that taking the better one
    saves.
    """

    alternative: int
    steps: int
    warm_up: int
    gpu_minutes: float
    gain: float


@dataclass(frozen=True, slots=True)
class Selection:
    """Choice of the plan among those that predictions cannot tell from the best found, and what else is as good.

    ``given_up``: by what share the plan's objective lies above that of the best found, which is ``fastest`` in
    ``Plan.alternatives`` (``None``: the plan is it).  ``simpler``: in what the plan is simpler than that.
    ``regret`` and ``fastest_regret``: share of the objective that the two lose, in one draw of ten or less, to
    whichever contender is best in the draw; of robust choices only.
    """

    choice: Choice
    given_up: float
    fastest: int | None
    simpler: tuple[Simplicity, ...]
    close_calls: tuple[CloseCall, ...]
    trial: Trial | None
    regret: float | None = None
    fastest_regret: float | None = None
