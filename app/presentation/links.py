"""At which load the bandwidths of a cluster are shown, and in which order its nodes."""

from __future__ import annotations

from typing import Final

import numpy as np

from cluster_models.links import LinkModel
from cluster_models.topology import Cluster
from cluster_models.units import MIB

SHOWN_MESSAGE_BYTES: Final = 256 * MIB
"""Large enough that latency does not count."""


def shown_flows(model: LinkModel, gpus_per_node: int) -> int:
    """The most flows that most links between nodes were measured with; all GPUs of a node where none was."""
    between = np.array([a != b for a, b in model.tables.pairs], dtype=np.bool_)
    levels = model.tables.highest_flows[between]
    if not len(levels):
        return gpus_per_node
    values, counts = np.unique(levels, return_counts=True)
    return int(values[counts.argmax()])


def shown_load(flows: int) -> str:
    """The load in words: "each of 8 flows at once, 256 MiB messages"."""
    at_once = "one flow at a time" if flows == 1 else f"each of {flows} flows at once"
    return f"{at_once}, {SHOWN_MESSAGE_BYTES // MIB} MiB messages"


def by_place(cluster: Cluster) -> list[int]:
    """Positions of the nodes by zone, leaf and rack, so that what is close stands together."""

    def place(position: int) -> list[str]:
        return [cluster.nodes[position].labels.get(key, "") for key in ("zone", "leaf", "rack")]

    return sorted(range(len(cluster.nodes)), key=place)
