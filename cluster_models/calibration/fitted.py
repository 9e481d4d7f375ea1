"""Parameters of the cost model as fitted on measurements, by GPU kind and framework generation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster_models.serving.own_rates import FittedServing, OwnRates
from cluster_models.training.frameworks import Framework


@dataclass(frozen=True, slots=True)
class FittedValue:
    """A parameter fitted on ``steps`` measured runs: between ``low`` and ``high`` with 90 % confidence."""

    value: float
    low: float
    high: float
    steps: int


@dataclass(frozen=True, slots=True)
class ErrorSpread:
    """10th, 50th and 90th percentile of log(measured / predicted) step times.

    ``runs``: how many were measured, of a user's own how many independent ones they are worth.
    """

    p10: float
    p50: float
    p90: float
    runs: int


@dataclass(frozen=True, slots=True)
class FittedParameters:
    """Fitted values by owner and parameter: ``gpus["H100"]["memory_share"]`` (``solver.costs.calibration``).

    GPU kinds are matched by the longest prefix of their name.  ``source`` says what they were fitted on,
    ``errors`` how far each of those runs is from its prediction without it (``None``: not known).  ``described``
    holds the frameworks among those of the runs that their user described, by name.  ``serving`` has the rates of
    serving engines by engine generation and GPU kind: ``serving["vllm-0.16@H100-SXM5-80GB"]``.
    """

    gpus: Mapping[str, Mapping[str, FittedValue]] = field(hash=False)
    frameworks: Mapping[str, Mapping[str, FittedValue]] = field(hash=False)
    source: str
    errors: ErrorSpread | None = None
    described: Mapping[str, Framework] = field(default_factory=dict, hash=False)
    serving: Mapping[str, FittedServing] = field(default_factory=dict, hash=False)

    def own_rates(self, engine: str) -> OwnRates:
        """Rates of a serving engine by GPU kind; none where no point of it was measured."""
        found = {
            name.rpartition("@")[2]: each for name, each in self.serving.items() if name.startswith(f"{engine}@")
        }
        return OwnRates(self.source, found)
