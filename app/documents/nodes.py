"""The hosts of a cluster document, with catalogue kinds as a shorthand."""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

from pydantic import Field

from app.documents.reading import Count, Line, Number, Positive, Text
from app.documents.values import Given, Holds, ValueDocument
from cluster_models.cluster.catalogue import NodeKind, gpu_kind, node_kind
from cluster_models.cluster.gpus import GpuKind
from cluster_models.cluster.hosts import HostMemory
from cluster_models.cluster.topology import NicGroup, Node, NodeState
from cluster_models.errors import InvalidCluster
from cluster_models.units import GBIT, GBYTE, GIB

T = TypeVar("T")


MOST_GPUS: Final = 1024
MOST_CARDS: Final = 1024
FASTEST_CARD_GBITS_PER_S: Final = 1e5
"""A hundred times the fastest card on sale in 2026: what is above is a slip of the unit."""
GREATEST_SLOWDOWN: Final = 1000.0
_MOST_LABELS: Final = 100
_GREATEST_HOST: Final = 1e7
"""A hundred times the memory in GiB and the rates in GB/s of the largest node of 2026."""

Slowdown = Annotated[Number, Field(ge=1, le=GREATEST_SLOWDOWN)]
GpusInUse = Annotated[list[Annotated[int, Field(strict=True, ge=0, lt=MOST_GPUS)]], Field(max_length=MOST_GPUS)]
Labels = Annotated[dict[Text, Line], Field(max_length=_MOST_LABELS)]


class NicsDocument(ValueDocument[NicGroup]):
    """The equal network cards of one node."""

    count: Annotated[Count, Field(le=MOST_CARDS)] = Field(
        description="Cards used for training traffic.", examples=[8]
    )
    rate_gbits_per_s: Annotated[Positive, Holds("bytes_per_s", GBIT)] = Field(
        le=FASTEST_CARD_GBITS_PER_S,
        description="Nominal rate of one card in Gbit/s, one direction.",
        examples=[400.0],
    )
    fabric: Text = Field("unknown", description="Family of the network.", examples=["infiniband"])


_HostFigure = Annotated[Positive, Field(le=_GREATEST_HOST)] | None


class HostDocument(ValueDocument[HostMemory]):
    """Memory and processors of one node, for what GPUs offload; figures that are absent are estimated."""

    memory_gib: Annotated[_HostFigure, Holds("memory_bytes", GIB)] = Field(
        None, description="Memory of the node in GiB.", examples=[2048.0]
    )
    memory_bandwidth_gbytes_per_s: Annotated[_HostFigure, Holds("memory_bytes_per_s", GBYTE)] = Field(
        None, description="Nominal bandwidth of that memory in GB/s: channels times rate.", examples=[614.4]
    )
    link_gbytes_per_s: Annotated[_HostFigure, Holds("link_bytes_per_s", GBYTE)] = Field(
        None,
        description="Nominal rate between a GPU and that memory in GB/s, one direction, while all GPUs transfer.",
        examples=[63.0],
    )
    disk_gib: Annotated[_HostFigure, Holds("disk_bytes", GIB)] = Field(
        None,
        description="Room on the node's disks that offloaded optimizer states may fill, in GiB; absent = none.",
        examples=[14000.0],
    )
    disk_read_gbytes_per_s: Annotated[_HostFigure, Holds("disk_read_bytes_per_s", GBYTE)] = Field(
        None,
        description="Rate in GB/s at which all GPUs of a node together read them, measured.",
        examples=[25.0],
    )
    disk_write_gbytes_per_s: Annotated[_HostFigure, Holds("disk_write_bytes_per_s", GBYTE)] = Field(
        None, description="The same of writing.", examples=[14.0]
    )


class NodeDocument(ValueDocument[Node]):
    """One host.  ``node_kind`` fills in GPUs and cards that are not given."""

    name: Text = Field(description="Host name, as the launcher knows it.", examples=["cnode2-001"])
    node_kind: Annotated[Text | None, Given()] = Field(
        None, description="A node kind of the catalogue.", examples=["DGX H100/H200", "DGX A100"]
    )
    gpu_kind: Text | None = Field(
        None, description="A GPU kind of the catalogue or of gpu_kinds.", examples=["H100-SXM5-80GB"]
    )
    gpu_count: Annotated[Count, Field(le=MOST_GPUS)] | None = Field(
        None, description="GPUs of the node.", examples=[8]
    )
    nics: NicsDocument | None = Field(None, description="Network cards.")
    nvlink_domain: Text | None = Field(
        None,
        description="Scale-up domain of the GPUs; nodes that name the same one share it.  Default: its own.",
        examples=["rack-3"],
    )
    labels: Labels = Field(
        default_factory=dict,
        description="Where the node stands: leaf, rack, zone, ...",
        examples=[{"leaf": "a", "rack": "r12"}],
    )
    state: NodeState = Field(
        NodeState.READY, description="Only ready and degraded nodes carry ranks.", examples=["ready"]
    )
    compute_slowdown: Slowdown = Field(
        1.0,
        description="Measured step compute time over that of a healthy node of its kind; 1 = healthy.",
        examples=[1.0],
    )

    gpus_in_use: GpusInUse = Field(
        default_factory=list,
        description="Numbers of the GPUs that other jobs hold, from 0; plans use the others.",
        examples=[[0, 1]],
    )
    host: HostDocument | None = Field(
        None, description="Memory and processors; absent = as its GPU kind is usually sold, estimated."
    )

    def to_node(self, own_kinds: dict[str, GpuKind], field: str) -> tuple[Node, GpuKind]:
        """The domain value and its GPU kind, looked up in ``own_kinds`` before the catalogue."""
        sold = node_kind(self.node_kind, field=f"{field}.node_kind") if self.node_kind else None
        kind_name = self.gpu_kind
        if kind_name is None:
            kind_name = _sold_gpu_kind(sold, field)
        kind = own_kinds.get(kind_name) or gpu_kind(kind_name, field=f"{field}.gpu_kind")
        gpu_count = self.gpu_count if self.gpu_count or sold is None else sold.gpu_count
        nics = self.nics.to_value() if self.nics else sold.nics if sold else None
        node = Node(
            name=self.name,
            gpu_kind=kind.name,
            gpu_count=_given(gpu_count, f"{field}.gpu_count"),
            nvlink_domain=self.nvlink_domain or self.name,
            nics=_given(nics, f"{field}.nics"),
            labels=dict(self.labels),
            state=self.state,
            compute_slowdown=self.compute_slowdown,
            gpus_in_use=tuple(sorted(self.gpus_in_use)),
            host=self.host.to_value() if self.host else None,
        )
        return node, kind


def _given(value: T | None, field: str) -> T:
    if value is None:
        raise InvalidCluster(field, None, "is missing", "give it, or a node_kind of the catalogue")
    return value


def _sold_gpu_kind(sold: NodeKind | None, field: str) -> str:
    """The GPU kind that comes with a node kind, where there is just one."""
    if sold is None:
        return _given(None, f"{field}.gpu_kind")
    if len(sold.gpu_kinds) > 1:
        raise InvalidCluster(
            f"{field}.gpu_kind",
            None,
            f"is missing: {sold.name} is sold with several GPU kinds",
            f"give one of {', '.join(sold.gpu_kinds)}",
        )
    return sold.gpu_kinds[0]
