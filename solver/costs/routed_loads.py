"""Loads of each candidate's expert ranks by counted routing and the plan's maps of experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster_models.model.architecture import Architecture
from cluster_models.routing.counts import ExpertLoads
from solver.candidates import CandidateBatch, FloatArray
from solver.costs.calibration import Calibration
from solver.experts.trained import TrainedMap, trained_map


@dataclass(frozen=True, slots=True, eq=False)
class RoutedLoads:
    """Loads of ``n`` candidates, means over the counted layers, all (n,); ``share``: these among sparse layers.

    ``imbalance``: load of the slowest rank over the mean; ``largest``: that of the worst layer.  ``rank_copies``
    and ``domain_copies`` as in ``TrainedMap``.
    """

    share: float
    imbalance: FloatArray
    largest: FloatArray
    rank_copies: FloatArray
    domain_copies: FloatArray

    def mean(self, calibration: Calibration) -> FloatArray:
        """(n,) imbalance of an average layer: layers without counts have the calibrated one."""
        return self.share * self.imbalance + (1.0 - self.share) * calibration.expert_imbalance

    def worst(self, calibration: Calibration) -> FloatArray:
        """(n,) imbalance of the worst layer."""
        return np.maximum(self.largest, calibration.expert_imbalance) if self.share < 1.0 else self.largest

    def copies(
        self, inside: FloatArray, leaving: FloatArray, imbalance: FloatArray, calibration: Calibration
    ) -> tuple[FloatArray, FloatArray]:
        """Copies that the busiest rank receives and the busiest domain sends, over ``imbalance``.

        ``inside`` and ``leaving`` (n,) are those of equally likely experts, for layers without counts.
        """
        rest = (1.0 - self.share) * calibration.expert_imbalance
        return (
            (self.share * self.rank_copies + rest * inside) / imbalance,
            (self.share * self.domain_copies + rest * leaving) / imbalance,
        )


def domains_of(expert: int, expert_tensor: int, domain: int) -> int:
    """How many NVLink domains of ``domain`` GPUs an expert group spans, with equally many of its ranks in each."""
    spanned = min(expert, -(-expert * expert_tensor // domain))
    return next(domains for domains in range(spanned, expert + 1) if expert % domains == 0)


def routed_loads(
    loads: Sequence[ExpertLoads],
    architecture: Architecture,
    batch: CandidateBatch,
    *,
    domain: int,
    keep_order: bool = False,
) -> RoutedLoads | None:
    """The figures of every candidate on NVLink domains of ``domain`` GPUs; ``None`` without counts.

    A candidate whose ranks hold all experts has nothing to share out.
    """
    if not loads or architecture.experts is None:
        return None
    given = tuple(loads)
    sizes = np.stack([batch.expert, batch.expert_tensor], axis=1)
    distinct, members = np.unique(sizes, axis=0, return_inverse=True)
    found = np.array(
        [
            _figures(trained_map(given, architecture.experts, ranks, domains_of(ranks, cut, domain), keep_order))
            if ranks > 1
            else (1.0, 1.0, 0.0, 0.0)
            for ranks, cut in distinct.tolist()
        ]
    )
    share = len(given[0].layers) / architecture.sparse_layers
    return RoutedLoads(share, *(found[members.ravel(), column] for column in range(4)))


def _figures(found: TrainedMap) -> tuple[float, float, float, float]:
    return (
        float(found.weighted.mean()),
        found.largest,
        float(found.rank_copies.mean()),
        float(found.domain_copies.mean()),
    )
