"""Clusters and their physical graph."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import pytest

from cluster_models.cluster.topology import MOST_NODES, NicGroup, Node
from cluster_models.errors import InvalidCluster
from cluster_models.links.classes import Proximity, classify
from tests.cluster_models.clusters import cluster_of, host, sample, snapshot


def test_two_gpus_of_a_node_meet_in_their_nvlink_domain() -> None:
    """The path between GPUs of one node is one hop up and one down."""
    graph = cluster_of([host("a"), host("b")]).graph()
    assert nx.shortest_path(graph, "a/gpu0", "a/gpu7") == ["a/gpu0", "nvlink:a", "a/gpu7"]


def test_gpus_in_use_are_not_free() -> None:
    """The others are; a node that is full is not usable; numbers the node lacks are refused by name."""
    node = replace(host("a", gpus=4), gpus_in_use=(1, 2))
    assert (node.free_gpus, node.usable) == ((0, 3), True)
    assert not replace(node, gpus_in_use=(0, 1, 2, 3)).usable
    for wrong in ((4,), (-1,), (1, 1), (2, 1)):
        with pytest.raises(InvalidCluster, match=r"nodes\.a\.gpus_in_use"):
            replace(node, gpus_in_use=wrong)


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
    assert cluster.graph().nodes["nvlink:rack"]["gpus"] == 8
    assert nx.shortest_path(cluster.graph(), "a/gpu0", "b/gpu3") == ["a/gpu0", "nvlink:rack", "b/gpu3"]


def test_proximity_reads_labels() -> None:
    """Same node, domain, leaf, zone, or none of them."""

    def proximity(*pair: Node) -> Proximity:
        classes, matrix = classify(cluster_of(pair))
        return classes[matrix[0, -1]].proximity

    a = host("a", leaf="1")
    assert proximity(a) is Proximity.SAME_NODE
    assert proximity(a, host("b", leaf="1")) is Proximity.SAME_LEAF
    assert proximity(a, host("b", leaf="2")) is Proximity.SAME_ZONE
    assert proximity(a, host("b", leaf="1", zone="west")) is Proximity.OTHER
    assert proximity(host("c"), host("d")) is Proximity.SAME_ZONE
    assert proximity(host("c", leaf=""), host("d", leaf="")) is Proximity.SAME_ZONE
    assert proximity(a, host("b", domain="a")) is Proximity.SAME_NVLINK_DOMAIN


def test_every_pair_gets_the_class_of_its_two_nodes_alone() -> None:
    """The class of a pair depends neither on the rest of the cluster nor on the direction."""
    nodes = [
        host("a", leaf="1"),
        host("b", leaf="1", gpu="A100-SXM4-80GB"),
        host("c", zone="west", cards=4),
        host("d", domain="a", gpus=4),
        host("e", leaf="1", zone="west", fabric="roce"),
    ]
    classes, matrix = classify(cluster_of(nodes))
    assert (matrix == matrix.T).all()
    assert list(classes) == sorted(set(classes), key=classes.index)
    for row, first in enumerate(nodes):
        for column, second in enumerate(nodes):
            pair = [first] if row == column else [first, second]
            alone, places = classify(cluster_of(pair))
            assert classes[matrix[row, column]].key == alone[places[0, -1]].key


def test_a_cluster_has_a_size_that_its_links_fit_into_memory() -> None:
    """Tables of all pairs grow with the square of the nodes."""
    assert len(cluster_of([host(f"n{index}") for index in range(MOST_NODES)]).nodes) == MOST_NODES
    with pytest.raises(InvalidCluster, match=f"at most {MOST_NODES} nodes"):
        cluster_of([host(f"n{index}") for index in range(MOST_NODES + 1)])


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
