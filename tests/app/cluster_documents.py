"""A small cluster document, and what reading it (or a changed one) gives."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from app.documents.cluster import ClusterDocument
from app.documents.reading import FieldProblem, parse_text, problems_of, read_document
from cluster_models.cluster.measurements import Sample
from cluster_models.errors import InvalidInput

TEXT = """
name: three-nodes
source: built for tests
nodes:
  - {name: n1, gpu_kind: H100-SXM5-80GB, gpu_count: 8, nics: {count: 8, rate_gbits_per_s: 200}, labels: {leaf: a}}
  - {name: n2, node_kind: DGX A100, gpu_kind: A100-SXM4-80GB}
  - {name: n3, node_kind: DGX A100, gpu_kind: A100-SXM4-80GB, state: degraded, compute_slowdown: 1.2}
measurement_tables:
  - tool: nccl-tests
    collective: alltoall
    direction: both
    ranks_per_node: 8
    measured_at: 2025-11-15T00:00:00Z
    message_bytes: [33554432, 268435456]
    pairs: [[n1, n2, 13.1, 23.4], [n1, n3, failed], [n2, n3, null, 20]]
samples:
  - {source: n1, destination: n2, direction: forward, tool: mpigraph, collective: point_to_point,
     message_bytes: 1048576, bandwidth_gbytes_per_s: 18.2, latency_us: 3.1}
"""


def document(**changes: Any) -> dict[str, Any]:
    """The plain value of the cluster above, with some top-level fields changed."""
    return {**copy.deepcopy(parse_text(TEXT, what="cluster")), **changes}


def read(value: object) -> tuple[Any, tuple[Sample, ...]]:
    """Cluster and samples of a plain value."""
    parsed = read_document(ClusterDocument, value, what="cluster")
    cluster = parsed.to_cluster()
    return cluster, parsed.to_samples(cluster)


def problems(value: object) -> tuple[FieldProblem, ...]:
    """Problem with a plain value."""
    with pytest.raises(InvalidInput) as caught:
        read(value)
    return problems_of(caught.value)


def with_node(**fields: Any) -> dict[str, Any]:
    """The cluster with other fields on its first node; ``None`` takes a field away."""
    value = document()
    node = {**value["nodes"][0], **fields}
    value["nodes"][0] = {key: item for key, item in node.items() if item is not None}
    return value


def with_rows(*rows: list[Any]) -> dict[str, Any]:
    """The cluster with other rows in its table."""
    value = document(samples=[])
    value["measurement_tables"][0]["pairs"] = list(rows)
    return value
