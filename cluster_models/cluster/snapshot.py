"""A cluster with the measurements known at one moment: what a plan is made from."""

from __future__ import annotations

from dataclasses import dataclass

from cluster_models.cluster.measurements import Sample
from cluster_models.cluster.topology import Cluster
from cluster_models.errors import InvalidCluster


@dataclass(frozen=True, slots=True, order=True)
class LinkShare:
    """Remaining share of the bandwidth that the links between two nodes had when they were measured.

    Both directions; ``other`` empty stands for all links that leave ``node``.  The least of several
    shares of one pair holds.
    """

    node: str
    other: str
    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InvalidCluster("link_shares.share", self.share, "must lie in (0, 1]")


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """One version of a cluster.  ``id`` is derived from the content, so equal snapshots share it.

    ``link_shares``: what failures left of links since they were measured; those of other nodes say nothing.
    ``links_faster``: a factor on the bandwidth between nodes that NVLink does not join, as if they had other links.
    """

    id: str
    cluster: Cluster
    samples: tuple[Sample, ...]
    link_shares: tuple[LinkShare, ...] = ()
    links_faster: float = 1.0

    def __post_init__(self) -> None:
        names = {node.name for node in self.cluster.nodes}
        for sample in self.samples:
            for end, name in (("source", sample.source), ("destination", sample.destination)):
                if name not in names:
                    raise InvalidCluster(
                        f"measurements.{end}",
                        name,
                        "is not a node of the cluster",
                        "add the node or fix the name",
                    )
