"""Unknowns of a fit: one parameter of one GPU kind or of one framework generation, on an unbounded scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from cluster_models.calibration.fitted import FittedParameters, FittedValue
from cluster_models.calibration.training_run import TrainingRun
from cluster_models.cluster.gpus import GpuKind
from solver.costs.calibration import PARAMETERS, Calibration, Owner

EDGE: Final = 1e-3
"""Values start at least this share of their range away from its ends, where the scale is infinite."""

COMMON_FACTOR: Final = "slowdown"
"""The parameter that all runs of a framework share and that has no mechanism: own runs alone are fitted with it."""

MEMORY_PARAMETERS: Final = ("runtime_bytes", "group_bytes", "fragmentation_share")
"""The parameters of peak memory; all others are of step times."""

KindName = Callable[[GpuKind], str]


@dataclass(frozen=True, slots=True, order=True)
class Unknown:
    """One ``parameter`` of the GPU kind or framework generation called ``name``."""

    owner: Owner
    name: str
    parameter: str

    def __str__(self) -> str:
        return f"{self.name} {self.parameter}"

    def concerns(self, run: TrainingRun, kind_name: KindName) -> bool:
        """Whether ``run`` used that GPU kind or framework."""
        return self.name == (kind_name(run.gpu) if self.owner is Owner.GPU else run.workload.framework.name)

    def to_free(self, value: float) -> float:
        """``value`` on the unbounded scale: the logit within the physical range."""
        limits = PARAMETERS[self.parameter]
        share = (value - limits.low) / (limits.high - limits.low)
        share = min(max(share, EDGE), 1.0 - EDGE)
        return math.log(share / (1.0 - share))

    def to_value(self, free: float) -> float:
        """The value of ``free``, inside the physical range."""
        limits = PARAMETERS[self.parameter]
        return limits.low + (limits.high - limits.low) / (1.0 + math.exp(-min(max(free, -30.0), 30.0)))


def kind_itself(gpu: GpuKind) -> str:
    """The whole name of the GPU kind."""
    return gpu.name


def unknowns_of(
    runs: Sequence[TrainingRun], parameters: Collection[str] | None, kind_name: KindName
) -> tuple[Unknown, ...]:
    """Every parameter of every GPU kind and framework in ``runs``, sorted; ``None``: all parameters."""
    wanted = PARAMETERS if parameters is None else parameters
    found = {
        Unknown(owner, kind_name(run.gpu) if owner is Owner.GPU else run.workload.framework.name, name)
        for run in runs
        for name in wanted
        if (owner := PARAMETERS[name].owner)
    }
    return tuple(sorted(found))


def prior_value(
    unknown: Unknown,
    runs: Sequence[TrainingRun],
    prior_of: Callable[[TrainingRun], Calibration],
    kind_name: KindName,
) -> float:
    """Value that ``prior_of`` gives ``unknown``, by the first run that it concerns."""
    first = next(run for run in runs if unknown.concerns(run, kind_name))
    return float(getattr(prior_of(first), unknown.parameter))


def with_values(base: FittedParameters | None, values: dict[Unknown, FittedValue], source: str) -> FittedParameters:
    """``base`` with ``values`` put in, sorted by owner and parameter."""
    owners: dict[Owner, dict[str, dict[str, FittedValue]]] = {
        Owner.GPU: {} if base is None else {name: dict(each) for name, each in base.gpus.items()},
        Owner.FRAMEWORK: {} if base is None else {name: dict(each) for name, each in base.frameworks.items()},
    }
    for unknown, value in values.items():
        owners[unknown.owner].setdefault(unknown.name, {})[unknown.parameter] = value
    ordered = {
        owner: {name: dict(sorted(each.items())) for name, each in sorted(tables.items())}
        for owner, tables in owners.items()
    }
    return FittedParameters(ordered[Owner.GPU], ordered[Owner.FRAMEWORK], source)
