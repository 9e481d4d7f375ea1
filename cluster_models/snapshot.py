"""A cluster with the measurements known at one moment: what a plan is made from."""

from __future__ import annotations

from dataclasses import dataclass

from cluster_models.errors import InvalidCluster
from cluster_models.measurements import Sample
from cluster_models.topology import Cluster


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """One version of a cluster.  ``id`` is derived from the content, so equal snapshots share it."""

    id: str
    cluster: Cluster
    samples: tuple[Sample, ...]

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
