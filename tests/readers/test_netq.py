"""NetQ: compute nodes of NVLink domains, and the graph of an Ethernet fabric."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.topology import NodeState
from readers import registry
from readers.formats.network.netq import FORMATS
from readers.frame.facts import HostFact, SwitchFact
from tests.readers.real_files import real, source_of, understood

NODES, GRAPH = FORMATS


def node(name: str, gpus: int = 4, health: str = "HEALTHY", domain: str = "d-1") -> dict[str, Any]:
    return {"Name": name, "DomainUUID": domain, "GpuIDList": [f"{name}-{i}" for i in range(gpus)], "Health": health}


def test_real_compute_nodes_share_a_domain() -> None:
    """Two hosts with four GPUs each."""
    source = real("topology/network_other/netq_computeNodes.json")
    found = understood(NODES, source)
    hosts = [fact for fact in found.facts if isinstance(fact, HostFact)]
    assert [(host.names[0].text, host.gpu_count, host.origin.first_line) for host in hosts] == [
        ("node1", 4, 21),
        ("node2", 4, 43),
    ]
    assert {host.scale_up_domain for host in hosts} == {"3fbfc98b-7f95-4749-ab11-bd351a2aab3e"}
    assert {host.state for host in hosts} == {NodeState.READY}
    assert [section.format for section in registry.recognise(source)] == ["netq-nodes"]


def test_a_real_graph_counts_cables() -> None:
    """Two leaves with 16 cables down, 28 and 19 up, below one spine; eight hosts found by LLDP."""
    source = real("topology/network_other/netq_topologyGraph.json")
    found = understood(GRAPH, source)
    switches = {fact.name: fact for fact in found.facts if isinstance(fact, SwitchFact)}
    assert {name: (fact.level, fact.up_ports, fact.down_ports) for name, fact in switches.items()} == {
        "net-unit-l1": (1, 28, 16),
        "net-unit-l2": (1, 19, 16),
        "net-unit-s1": (2, 0, 47),
    }
    labels = {fact.names[0].text: fact.labels["leaf"] for fact in found.facts if isinstance(fact, HostFact)}
    assert len(labels) == 8
    assert labels["dgx-04"] == "net-unit-l1"
    assert labels["dgx-08"] == "net-unit-l2"
    assert [section.format for section in registry.recognise(source)] == ["netq-graph"]


@pytest.mark.parametrize(
    ("health", "state"),
    [("DEGRADED", NodeState.DEGRADED), ("UNHEALTHY", NodeState.FAILED), ("?", NodeState.UNKNOWN), ("", None)],
)
def test_health_becomes_a_state(health: str, state: NodeState | None) -> None:
    """A fact that NetQ lacks is not guessed."""
    (fact,) = understood(NODES, source_of(json.dumps([node("a", health=health)]), "x.json")).facts
    assert isinstance(fact, HostFact)
    assert fact.state is state


def test_a_nameless_node_is_refused() -> None:
    """The others are taken."""
    found = understood(NODES, source_of(json.dumps([node(""), node("b", gpus=0)]), "x.json"))
    assert [refusal.sentence for refusal in found.refusals] == ["[0] has no name"]
    assert [fact.gpu_count for fact in found.facts if isinstance(fact, HostFact)] == [None]


_LEAVES = st.none() | st.booleans() | st.integers(-2, 3) | st.text(max_size=4)
_TREES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ("nodes", "links", "id", "name", "tier", "compounded_nodes", "src", "target", "Name", "DomainUUID")
            )
            | st.sampled_from(("GpuIDList", "compounded_links", "size", "device_type")),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(_TREES)
def test_any_tree_is_taken(tree: Any) -> None:
    """Whatever is sent, the readers and their judges return."""
    source = source_of(json.dumps(tree), "x.json")
    for form in FORMATS:
        assert form.fits is not None
        found = understood(form, source)
        assert bool(form.fits(source.tree)) or not found.facts
