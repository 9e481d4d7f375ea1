"""Answers about the physical graph of a cluster."""

from __future__ import annotations

from pydantic import BaseModel, Field

from cluster_models.cluster.topology import Cluster
from cluster_models.units import GBYTE


class Vertex(BaseModel):
    """A GPU, a node, a scale-up domain or a switch."""

    name: str = Field(description="Unique in the graph.", examples=["cnode2-001/gpu0"])
    kind: str = Field(description="gpu, node, nvlink_domain, leaf, zone or fabric.", examples=["gpu"])


class Edge(BaseModel):
    """Link between two vertices."""

    source: str = Field(description="One end.", examples=["cnode2-001/gpu0"])
    target: str = Field(description="The other end.", examples=["nvlink:cnode2-001"])
    nominal_bandwidth_gbytes_per_s: float | None = Field(
        description="One direction, 10^9 bytes per second: data sheet figures, and of a switch's way up what the "
        "cluster states, else null.",
        examples=[450.0],
    )


class TopologyAnswer(BaseModel):
    """The cluster as it is wired, as far as its nodes and labels tell; measured figures have their own address."""

    vertices: list[Vertex] = Field(description="GPUs, nodes, scale-up domains and switches.")
    edges: list[Edge] = Field(description="Pairs of them that are joined; each joint is listed once.")

    @classmethod
    def from_cluster(cls, cluster: Cluster) -> TopologyAnswer:
        """The graph of a cluster."""
        graph = cluster.graph()
        return cls(
            vertices=[Vertex(name=name, kind=kind) for name, kind in graph.nodes(data="kind")],
            edges=[
                Edge(
                    source=source,
                    target=target,
                    nominal_bandwidth_gbytes_per_s=_gbytes_per_s(edge.get("bytes_per_s")),
                )
                for source, target, edge in graph.edges(data=True)
            ],
        )


def _gbytes_per_s(rate: float | None) -> float | None:
    return None if rate is None else rate / GBYTE
