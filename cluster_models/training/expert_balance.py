"""How evenly a plan's map of experts shares out the tokens that were counted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkloadBalance:
    """Load of the slowest expert rank over the mean, mean of the counted layers, for one workload.

    ``contiguous``: the same with experts in their natural order.  ``weight``: its share in what was planned for.
    """

    name: str
    weight: float
    imbalance: float
    contiguous: float


@dataclass(frozen=True, slots=True)
class LayerBalance:
    """The same of one decoder layer, weighted over the workloads; no map without copies is below ``least``."""

    layer: int
    imbalance: float
    contiguous: float
    least: float


@dataclass(frozen=True, slots=True)
class ExpertBalance:
    """The counted layers, the workloads, and what they are worth together.

    ``imbalance``, ``contiguous``, ``least``: means over the layers.  ``leaving_copies``: where an expert group
    spans NVLink domains, copies of each token that the busiest domain sends or receives, in tokens that start in
    a domain; 0 where it does not.  ``contiguous_step_s``: the predicted step of the same plan with experts in their
    natural order.
    """

    imbalance: float
    contiguous: float
    least: float
    leaving_copies: float
    contiguous_step_s: float
    layers: tuple[LayerBalance, ...]
    workloads: tuple[WorkloadBalance, ...]
