"""Small clusters and samples for the tests of links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.measurements import Collective, Direction, Sample, SampleStatus
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster, NicGroup, Node
from cluster_models.units import GBIT, GBYTE, MIB


def host(
    name: str,
    *,
    leaf: str | None = None,
    zone: str | None = None,
    domain: str | None = None,
    gpu: str = "H100-SXM5-80GB",
    gpus: int = 8,
    cards: int = 8,
    gbits_per_s: float = 400,
    fabric: str = "infiniband",
) -> Node:
    """A node; its NVLink domain is its own unless given."""
    labels = {key: value for key, value in (("leaf", leaf), ("zone", zone)) if value is not None}
    return Node(
        name=name,
        gpu_kind=gpu,
        gpu_count=gpus,
        nvlink_domain=domain or name,
        nics=NicGroup(cards, gbits_per_s * GBIT, fabric),
        labels=labels,
    )


def sample(
    a: str,
    b: str,
    gbytes_per_s: float | None = 40.0,
    *,
    collective: Collective = Collective.SEND_RECV,
    ranks: int = 1,
    mib: float = 256.0,
    direction: Direction = Direction.BOTH,
    failed: bool = False,
    at: datetime | None = None,
    pairs_active: int = 1,
    latency_s: float | None = None,
) -> Sample:
    """One sample; bandwidth in GB/s, message in MiB."""
    return Sample(
        source=a,
        destination=b,
        direction=direction,
        tool="nccl-tests",
        collective=collective,
        message_bytes=mib * MIB,
        ranks_per_node=ranks,
        pairs_active=pairs_active,
        status=SampleStatus.FAILED if failed else SampleStatus.OK,
        bytes_per_s=None if failed or gbytes_per_s is None else gbytes_per_s * GBYTE,
        latency_s=latency_s,
        measured_at=at,
    )


def cluster_of(nodes: Sequence[Node]) -> Cluster:
    """A cluster of ``nodes`` with the catalogue's GPU kinds."""
    kinds: Mapping[str, object] = {node.gpu_kind: None for node in nodes}
    return Cluster("test", tuple(nodes), {name: gpu_kind(name) for name in kinds})


def snapshot(nodes: Sequence[Node], samples: Sequence[Sample] = ()) -> ClusterSnapshot:
    """A snapshot of ``nodes`` and ``samples``."""
    return ClusterSnapshot("test", cluster_of(nodes), tuple(samples))


BIG = 256 * MIB
"""A message whose time is all bandwidth."""
NAMES = ("a", "b", "c", "d", "e")
FIVE = tuple(host(name, leaf=leaf) for name, leaf in zip(NAMES, "xxyyy", strict=True))
"""Two nodes under one leaf and three under another."""
