"""Clusters and their physical graph."""

from __future__ import annotations

import networkx as nx
import pytest

from cluster_models.errors import InvalidCluster
from cluster_models.link_classes import Proximity, proximity
from cluster_models.topology import NicGroup
from tests.cluster_models.clusters import cluster_of, host, sample, snapshot


def test_two_gpus_of_a_node_meet_in_their_nvlink_domain() -> None:
    """The path between GPUs of one node is one hop up and one down."""
    graph = cluster_of([host("a"), host("b")]).graph()
    assert nx.shortest_path(graph, "a/gpu0", "a/gpu7") == ["a/gpu0", "nvlink:a", "a/gpu7"]


def test_nodes_meet_at_their_leaf_else_above_it() -> None:
    """Nodes of one leaf meet there; leaves of the same name in two zones are two switches."""
    nodes = [
        host("a", leaf="1", zone="east"),
        host("b", leaf="1", zone="east"),
        host("c", leaf="1", zone="west"),
        host("d"),
    ]
    graph = cluster_of(nodes).graph()
    assert nx.shortest_path(graph, "a", "b") == ["a", "leaf:east/1", "b"]
    assert nx.shortest_path(graph, "a", "c") == [
        "a",
        "leaf:east/1",
        "zone:east",
        "fabric",
        "zone:west",
        "leaf:west/1",
        "c",
    ]
    assert nx.shortest_path(graph, "c", "d")[-2:] == ["fabric", "d"]
    assert nx.is_connected(graph)


def test_a_shared_domain_counts_all_its_gpus() -> None:
    """Two trays of four GPUs in one rack are one domain of eight."""
    cluster = cluster_of([host(name, domain="rack", gpu="GB200", gpus=4) for name in "ab"] + [host("c")])
    assert cluster.domain_gpus() == {"rack": 8, "c": 8}
    assert cluster.nvlink_domains() == {"rack": ("a", "b"), "c": ("c",)}
    assert cluster.graph().nodes["nvlink:rack"]["gpus"] == 8
    assert nx.shortest_path(cluster.graph(), "a/gpu0", "b/gpu3") == ["a/gpu0", "nvlink:rack", "b/gpu3"]


def test_proximity_reads_labels() -> None:
    """Same node, domain, leaf, zone, or none of them."""
    a = host("a", leaf="1")
    assert proximity(a, a) is Proximity.SAME_NODE
    assert proximity(a, host("b", leaf="1")) is Proximity.SAME_LEAF
    assert proximity(a, host("b", leaf="2")) is Proximity.SAME_ZONE
    assert proximity(a, host("b", leaf="1", zone="west")) is Proximity.OTHER
    assert proximity(host("c"), host("d")) is Proximity.SAME_ZONE
    assert proximity(a, host("b", domain="a")) is Proximity.SAME_NVLINK_DOMAIN


def test_a_cluster_refuses_duplicates_and_emptiness() -> None:
    """Every refusal names the field."""
    with pytest.raises(InvalidCluster, match="listed twice"):
        cluster_of([host("a"), host("a")])
    with pytest.raises(InvalidCluster, match="no nodes"):
        cluster_of([])
    with pytest.raises(InvalidCluster, match="positive rate"):
        NicGroup(8, 0.0)


def test_a_sample_of_an_unknown_node_is_refused() -> None:
    """Measurements name nodes of the cluster."""
    with pytest.raises(InvalidCluster, match="is not a node of the cluster"):
        snapshot([host("a")], [sample("a", "zz")])
