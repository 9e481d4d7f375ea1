"""The Pareto front of throughput per GPU against speed for each user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cluster_models.serving.plan import FrontPoint
from cluster_models.serving.replicas import ReplicaGroup
from solver.candidates import IntArray
from solver.serving.loads import FloatArray
from solver.serving.planning.offers import Priced
from solver.serving.planning.zones import Zone

MOST_POINTS: Final = 40


def front_of(
    model: int, prices: Priced, zones: Sequence[Zone], chosen: Sequence[ReplicaGroup]
) -> tuple[FrontPoint, ...]:
    """Points of priced groups that no other beats in both figures, by rising speed, and those of the plan.

    None where answers have one token: users see no speed after the first.
    """
    points, outputs = prices.points, prices.served.workload.output_tokens
    if outputs == 1:
        return ()
    gpus = np.array([float(group.gpus) for group in prices.groups])
    throughput = points.requests_per_s * outputs / gpus[points.group]
    rows = _undominated(throughput, 1.0 / points.token_s)
    return (
        *(
            FrontPoint(
                model=model,
                gpu_kind=zones[prices.groups[points.group[row]].zone].gpu.name,
                configuration=prices.groups[points.group[row]].configuration,
                concurrency=float(points.concurrency[row]),
                tokens_per_s_per_gpu=float(throughput[row]),
                tokens_per_s_per_user=1.0 / float(points.token_s[row]),
                first_token_s=float(points.first_token_s[row]),
                meets_limits=bool(points.meets[row]),
                is_chosen=False,
                power_cap_watts=prices.groups[points.group[row]].cap_watts,
            )
            for row in rows
        ),
        *dict.fromkeys(_chosen(model, group, outputs) for group in chosen),
    )


def _chosen(model: int, group: ReplicaGroup, outputs: float) -> FrontPoint:
    return FrontPoint(
        model=model,
        gpu_kind=group.replicas[0].gpu_kind,
        configuration=group.configuration,
        concurrency=group.concurrency,
        tokens_per_s_per_gpu=group.requests_per_s * outputs / group.gpus,
        tokens_per_s_per_user=1.0 / group.token_s.value,
        first_token_s=group.first_token_s.value,
        meets_limits=True,
        is_chosen=True,
        power_cap_watts=group.replicas[-1].power_cap_watts,
    )


def _undominated(throughput: FloatArray, speed: FloatArray) -> IntArray:
    """Rows that no other beats in both, by rising speed; at most ``MOST_POINTS``, evenly taken."""
    order = np.lexsort((-throughput, -speed))
    best = np.maximum.accumulate(throughput[order])
    is_new = np.concatenate([[True], throughput[order][1:] > best[:-1]])
    rows = order[is_new][::-1]
    picks = np.unique(np.linspace(0, len(rows) - 1, min(MOST_POINTS, len(rows))).round().astype(np.int64))
    return np.asarray(rows[picks])
