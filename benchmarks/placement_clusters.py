"""Clusters made up with the unevenness that is measured on real ones, and the training that is placed on them.

Nodes hang on leaf switches; links of one class (inside a leaf, between leaves) differ by a quarter; one node in
eight is degraded to between 30 and 60 % of its bandwidth.  Communication makes about a fifth of a well placed step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from benchmarks.measured_links import SEVENTEEN_NODES, pairwise
from benchmarks.placement_grid import Training
from cluster_models.units import GBYTE
from solver.candidates import FloatArray

LEAF_NODES: Final = 8
INSIDE_LEAF: Final = 46 * GBYTE
BETWEEN_LEAVES: Final = 38 * GBYTE
SPREAD: Final = 0.25
"""Links of one class lie between their nominal bandwidth and this much below it."""
DEGRADED_ONE_IN: Final = 8
DEGRADED_TO: Final = (0.3, 0.6)
SHAPES: Final = {
    8: (2, 4),
    16: (4, 4),
    32: (4, 8),
    64: (8, 8),
    128: (16, 8),
    256: (16, 16),
}
"""Replicas and stages by number of nodes."""
FORWARD_S: Final = 0.030
BACKWARD_S: Final = 0.060
COMMUNICATION: Final = 0.15
"""At nominal bandwidth; degraded nodes and the slowest links of rings make it a fifth."""
STEEP_INSIDE_LEAF: Final = 24 * GBYTE
STEEP_BETWEEN_LEAVES: Final = 16 * GBYTE
UNEVEN_LEAVES: Final = (4, 13)
UPLINKS: Final = (0.6, 1.0)
"""Share of the bandwidth inside a leaf that its uplinks pass."""
RAILS: Final = 8
REPEATED: Final = 0.05
"""How far two links that resemble the same measured one lie apart."""
LARGE: Final = 256
LARGE_LEAF_NODES: Final = 16
"""Leaves of steep clusters of at least ``LARGE`` nodes."""


def made_up_links(nodes: int, seed: int) -> FloatArray:
    """(N, N) bytes per second, directed."""
    random = np.random.default_rng(seed)
    leaf = random.permutation(nodes) // LEAF_NODES
    nominal = np.where(leaf[:, None] == leaf[None, :], INSIDE_LEAF, BETWEEN_LEAVES)
    health = np.ones(nodes)
    degraded = random.choice(nodes, size=max(1, nodes // DEGRADED_ONE_IN), replace=False)
    health[degraded] = random.uniform(*DEGRADED_TO, size=len(degraded))
    links = nominal * (1 - random.uniform(0.0, SPREAD, (nodes, nodes)))
    return links * np.minimum(health[:, None], health[None, :])


def training_on(shape: tuple[int, int], bytes_per_s: float) -> Training:
    """A step of ``shape`` (replicas, stages) whose communication is half transfers and half all-reduces.

    It makes ``COMMUNICATION`` of the step where every link has ``bytes_per_s``.
    """
    dp, pp = shape
    micro_batches = 4 * pp
    compute_s = (micro_batches + pp - 1) * (FORWARD_S + BACKWARD_S)
    communication_s = compute_s * COMMUNICATION / (1 - COMMUNICATION)
    # 1F1B waits for a round trip of transfers in every ``pp`` micro-batches
    trips = 2 * (pp - 1) * micro_batches / pp
    transfers_s = communication_s * (0.5 if dp > 1 else 1.0) if pp > 1 else 0.0
    return Training(
        dp=dp,
        pp=pp,
        forward_s=FORWARD_S,
        backward_s=BACKWARD_S,
        activation_bytes=float(round(transfers_s / max(1.0, trips) * bytes_per_s)),
        gradient_bytes=float(round((communication_s - transfers_s) / max(1.0, 2 * (dp - 1) / dp) * bytes_per_s)),
        micro_batches=micro_batches,
    )


def made_up_training(nodes: int) -> Training:
    """The step that is placed on ``made_up_links``, taking all nodes."""
    return training_on(SHAPES[nodes], BETWEEN_LEAVES)


def steep_links(nodes: int, seed: int) -> FloatArray:
    """(N, N) bytes per second, directed: leaves differ more, and between two degraded nodes both shares count."""
    random = np.random.default_rng(seed)
    leaf = random.permutation(nodes) // (LARGE_LEAF_NODES if nodes >= LARGE else LEAF_NODES)
    nominal = np.where(leaf[:, None] == leaf[None, :], STEEP_INSIDE_LEAF, STEEP_BETWEEN_LEAVES)
    links = nominal * random.uniform(1 - SPREAD, 1.0, (nodes, nodes))
    health = np.ones(nodes)
    degraded = random.choice(nodes, size=max(1, nodes // DEGRADED_ONE_IN), replace=False)
    health[degraded] = random.uniform(*DEGRADED_TO, size=len(degraded))
    return links * health[:, None] * health[None, :]


def steep_training(nodes: int) -> Training:
    """A step whose transfers and rings wait for degraded nodes longer than in ``made_up_training``."""
    dp, pp = SHAPES[nodes]
    return Training(
        dp=dp,
        pp=pp,
        forward_s=0.02,
        backward_s=0.04,
        activation_bytes=6.7e7,
        gradient_bytes=3e9,
        micro_batches=64,
    )


def enlarged_links(measured: FloatArray, nodes: int, seed: int) -> FloatArray:
    """(N, N) bytes per second, directed: a measured cluster, (M, M), made as large as asked for.

    Every node resembles a measured one.  Leaves hold 4 to 12 nodes and have uplinks of their own; one node in eight
    lacks one to four of its eight rails.
    """
    random = np.random.default_rng(seed)
    off = ~np.eye(len(measured), dtype=bool) & np.isfinite(measured)
    like = random.integers(len(measured), size=nodes)
    links = measured[like[:, None], like[None, :]]
    # two that resemble the same node, and pairs that nobody measured, have some link of the measured ones
    unknown = ~off[like[:, None], like[None, :]]
    links[unknown] = random.choice(measured[off], int(unknown.sum()))
    leaf = np.repeat(np.arange(nodes), random.integers(*UNEVEN_LEAVES, size=nodes))[:nodes]
    leaf, uplink = random.permutation(leaf), random.uniform(*UPLINKS, size=nodes)
    rails = np.full(nodes, RAILS)
    lacking = random.choice(nodes, size=max(1, nodes // DEGRADED_ONE_IN), replace=False)
    rails[lacking] -= random.integers(1, RAILS // 2 + 1, size=len(lacking))
    across = np.where(leaf[:, None] == leaf[None, :], 1.0, np.minimum(uplink[leaf][:, None], uplink[leaf][None, :]))
    repeated = random.uniform(1 - REPEATED, 1.0, (nodes, nodes))
    return np.asarray(links * repeated * across * np.minimum(rails[:, None], rails[None, :]) / RAILS)


def _enlarged(nodes: int, seed: int) -> FloatArray:
    return enlarged_links(pairwise(SEVENTEEN_NODES, "sendrecv", "busbw_gbs").bytes_per_s, nodes, seed)


def _enlarged_training(nodes: int) -> Training:
    measured = pairwise(SEVENTEEN_NODES, "sendrecv", "busbw_gbs").bytes_per_s
    return training_on(SHAPES[nodes], float(np.nanmedian(measured)))


class Clusters(NamedTuple):
    """Links (N, N) by number of nodes and seed, and the training placed on them by number of nodes."""

    links: Callable[[int, int], FloatArray]
    training: Callable[[int], Training]


CLUSTERS: Final = {
    "even": Clusters(made_up_links, made_up_training),
    "steep": Clusters(steep_links, steep_training),
    "enlarged": Clusters(_enlarged, _enlarged_training),
}
"""Kinds of clusters: links that differ little, links that differ more, and 17 measured nodes enlarged."""
