"""Traffic of the experts of one sparse layer: tokens travel to their experts' ranks and back."""

from __future__ import annotations

import numpy as np

from cluster_models.architecture import Architecture
from cluster_models.frameworks import ExpertDispatch
from cluster_models.gpus import GpuKind
from cluster_models.measurements import Collective
from solver.candidates import BoolArray
from solver.costs.calibration import Calibration
from solver.costs.collectives import domain_collective_s
from solver.costs.layer_costs import Seconds
from solver.costs.local_sizes import LocalSizes
from solver.costs.traffic import LayerTraffic


def expert_traffic(
    gpu: GpuKind,
    calibration: Calibration,
    architecture: Architecture,
    sizes: LocalSizes,
    *,
    together: BoolArray,
    gpus_per_node: int,
) -> LayerTraffic:
    """Dispatch and combination of a sparse layer: an all-to-all each, forward and backward.

    A rank sends its ``T/t`` tokens to ``active`` experts each; the busiest rank sets the pace.  Of a group that
    spans N nodes, ``1 - 1/N`` of the bytes leave the node; with ``node_dispatch`` a token goes once to each of
    the ``(N-1) (1 - (1 - 1/N)^active)`` other nodes that evenly spread experts reach (derived).
    """
    zeros = np.zeros_like(sizes.tokens)
    if (experts := architecture.experts) is None:
        return LayerTraffic(Seconds(zeros, zeros), zeros, zeros, zeros, zeros, zeros)
    message = sizes.element_bytes * architecture.hidden * sizes.shard_tokens * experts.active
    message = message * calibration.expert_imbalance
    inside = np.where(together, sizes.expert, 1.0)
    seconds = 2.0 * domain_collective_s(gpu, Collective.ALL_TO_ALL, inside, message)
    spans = ~together & (sizes.expert > 1)
    nodes = np.maximum(sizes.expert / gpus_per_node, 1.0)
    leaving = 1.0 - 1.0 / nodes
    if calibration.framework.expert_dispatch is not ExpertDispatch.ALL_TO_ALL:
        leaving = (nodes - 1.0) * (1.0 - (1.0 - 1.0 / nodes) ** experts.active) / experts.active
    return LayerTraffic(
        inside=Seconds(seconds, seconds),
        message_bytes=np.where(spans, message * leaving, 0.0),
        forward_count=np.where(spans, 2.0, 0.0),
        backward_count=np.where(spans, 2.0, 0.0),
        forward_hidden_s=zeros,
        backward_hidden_s=zeros,
    )
