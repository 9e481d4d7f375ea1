"""A cluster as its owner writes it: nodes, GPU kinds of its own, and what was measured between the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

from pydantic import Field

from app.documents.gpu_kinds import GpuKindDocument
from app.documents.long_lists import long_list
from app.documents.measurements import (
    MeasurementDocument,
    MeasurementsDocument,
    MeasurementTableDocument,
    Numbered,
    Samples,
    Tables,
)
from app.documents.nodes import NodeDocument
from app.documents.reading import MAX_PROBLEMS, Document, FieldProblem, InvalidDocument, Prose, Text, problems_of
from app.documents.sample_checks import checked_samples
from app.documents.switches import MOST_SWITCHES, SwitchDocument
from cluster_models.cluster.catalogue import gpu_kinds
from cluster_models.cluster.gpus import GpuKind
from cluster_models.cluster.measurements import Sample
from cluster_models.cluster.switches import Switch
from cluster_models.cluster.topology import MOST_NODES, Cluster, Node
from cluster_models.errors import InvalidCluster, InvalidInput

_MOST_KINDS: Final = 1000


class ClusterDocument(Document):
    """A whole cluster file."""

    name: Text = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="Name of the cluster: letters, digits, dot, dash, underscore.",
        examples=["h100-17-nodes"],
    )
    source: Prose = Field("", description="Where the figures come from.", examples=["our own NCCL sweep"])
    nodes: Annotated[list[NodeDocument], Field(max_length=MOST_NODES), long_list(MOST_NODES)] = Field(
        description="The hosts, in any order."
    )
    gpu_kinds: list[GpuKindDocument] = Field(
        default_factory=list,
        max_length=_MOST_KINDS,
        description="GPU kinds that the catalogue does not have.",
        examples=[[]],
    )
    switches: list[SwitchDocument] = Field(
        default_factory=list,
        max_length=MOST_SWITCHES,
        description="Switches whose way up many nodes share; those not listed limit nothing.",
        examples=[[{"label": "leaf", "oversubscription": 4.0}]],
    )
    measurement_tables: Tables = Field(
        default_factory=list, description="Measured bandwidth, a table for each run of a tool.", examples=[[]]
    )
    samples: Samples = Field(default_factory=list, description="Single measurements.", examples=[[]])

    def to_cluster(self) -> Cluster:
        """The nodes and the GPU kinds they use; raises ``InvalidDocument`` with all that is wrong."""
        if not self.nodes:
            raise InvalidCluster("nodes", [], "the cluster has no nodes", "list at least one node")
        problems: list[FieldProblem] = []
        own_kinds = self._own_kinds(problems)
        nodes: list[Node] = []
        kinds: dict[str, GpuKind] = {}
        first_seen: dict[str, int] = {}
        for index, document in enumerate(self.nodes):
            field = f"nodes[{index}]"
            try:
                if (first := first_seen.setdefault(document.name, index)) != index:
                    raise InvalidCluster(
                        f"{field}.name",
                        document.name,
                        f"the node is listed twice: nodes[{first}] has the same name",
                        "give each node once",
                    )
                node, kind = document.to_node(own_kinds, field)
            except InvalidInput as error:
                problems.extend(problems_of(error))
                if len(problems) >= MAX_PROBLEMS:
                    break
            else:
                nodes.append(node)
                kinds[kind.name] = kind
        switches = self._switches(problems)
        if problems:
            raise InvalidDocument(problems)
        return Cluster(
            name=self.name, nodes=tuple(nodes), gpu_kinds=kinds, source=self.source, switches=tuple(switches)
        )

    def to_samples(self, cluster: Cluster | None = None) -> tuple[Sample, ...]:
        """All measurements, checked against ``cluster`` (default: the one this document describes)."""
        return read_samples(cluster or self.to_cluster(), self.measurement_tables, self.samples)

    @classmethod
    def from_cluster(cls, cluster: Cluster, samples: Sequence[Sample] = ()) -> ClusterDocument:
        """The document of a cluster; measurements are listed one by one."""
        catalogue = gpu_kinds()
        return cls(
            name=cluster.name,
            source=cluster.source,
            nodes=[NodeDocument.from_value(node) for node in cluster.nodes],
            gpu_kinds=[
                GpuKindDocument.from_value(kind)
                for kind in cluster.gpu_kinds.values()
                if kind.name not in catalogue
                or catalogue[kind.name].in_domains_of(kind.scale_up_domain_gpus) != kind
            ],
            switches=[SwitchDocument.from_value(switch) for switch in cluster.switches],
            samples=[MeasurementDocument.from_value(sample) for sample in samples],
        )

    def _switches(self, problems: list[FieldProblem]) -> list[Switch]:
        switches: list[Switch] = []
        for index, document in enumerate(self.switches):
            try:
                switches.append(document.to_value())
            except InvalidCluster as error:
                path = f"switches[{index}]"
                problems.append(FieldProblem(path, error.value, error.problem, error.remedy))
        return switches

    def _own_kinds(self, problems: list[FieldProblem]) -> dict[str, GpuKind]:
        kinds: dict[str, GpuKind] = {}
        for index, document in enumerate(self.gpu_kinds):
            if document.name in kinds:
                where = f"gpu_kinds[{index}].name"
                problems.append(FieldProblem(where, document.name, "the GPU kind is listed twice"))
                continue
            try:
                kinds[document.name] = document.to_value()
            except InvalidInput as error:
                problems.extend(problems_of(error))
        return kinds


def samples_of(document: MeasurementsDocument, cluster: Cluster) -> tuple[Sample, ...]:
    """New measurements of ``cluster``, checked; raises ``InvalidDocument`` with all that is wrong."""
    return read_samples(cluster, document.measurement_tables, document.samples)


def read_samples(
    cluster: Cluster,
    tables: Sequence[MeasurementTableDocument],
    singles: Sequence[MeasurementDocument],
) -> tuple[Sample, ...]:
    """Tables first, then single measurements, checked against the cluster and one another."""
    problems: list[FieldProblem] = []

    def numbered() -> Iterator[Numbered]:
        for index, table in enumerate(tables):
            yield from table.to_samples(f"measurement_tables[{index}]", problems)
        for index, single in enumerate(singles):
            path = f"samples[{index}]"
            try:
                yield path, single.to_sample(path)
            except InvalidInput as error:
                problems.extend(problems_of(error))

    return checked_samples(cluster, numbered(), problems)
