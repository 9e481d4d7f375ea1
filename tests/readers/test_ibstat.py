"""``ibstat``, lists of GUIDs and cluster UUIDs, and counters that are refused."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given

from cluster_models.cluster.topology import NodeState
from readers import registry
from readers.formats.infiniband.ibstat import FORMATS
from readers.frame.facts import HealthFact, HostFact, Name, NameKind, PortFact
from tests.readers.damage import damaged, sound
from tests.readers.real_files import real, source_of, understood

IBSTAT, GUIDS, UUIDS, PERFQUERY = FORMATS


def adapter(
    name: str, rate: int = 400, state: str = "Active", kind: str = "MT4129", layer: str = "InfiniBand"
) -> str:
    physical = "LinkUp" if state == "Active" else "Polling"
    return (
        f"CA '{name}'\n\tCA type: {kind}\n\tNumber of ports: 1\n\tNode GUID: 0x00000000000000c0\n\tPort 1:\n"
        f"\t\tState: {state}\n\t\tPhysical state: {physical}\n\t\tRate: {rate}\n\t\tBase lid: 9\n"
        f"\t\tPort GUID: 0x00000000000000c{name[-1]}\n\t\tLink layer: {layer}\n"
    )


def ports_of(text: str) -> list[PortFact]:
    return [fact for fact in understood(IBSTAT, source_of(text)).facts if isinstance(fact, PortFact)]


@pytest.mark.parametrize(
    ("file", "ports", "first"),
    [("ibstat.47.0.h100.all.active.2.txt", 9, "58a2e10300a7820e"), ("ibstat.47.0.h100.some.down.0.txt", 12, None)],
)
def test_real_hosts_have_eight_cards_of_400_gbits(file: str, ports: int, first: str | None) -> None:
    """Ethernet ports, up or down, are ports but not cards of the fabric."""
    found = understood(IBSTAT, real(f"topology/ib/{file}", host="gpu-9"))
    (host,) = [fact for fact in found.facts if isinstance(fact, HostFact)]
    listed = [fact for fact in found.facts if isinstance(fact, PortFact)]
    assert len(listed) == ports
    assert listed[0].origin.first_line == 8
    assert first is None or listed[0].guid == first
    assert host.names == (Name(NameKind.HOST, "gpu-9"),)
    assert [(nics.count, nics.bytes_per_s, nics.fabric) for nics in host.nics] == [(8, 50e9, "infiniband")]
    assert found.refusals == ()
    assert found.doubts == ()


def test_a_dead_card_among_equals_is_doubted() -> None:
    """A dead port reports the rate it was trained at; its type says what it should run at."""
    text = "".join(adapter(f"mlx5_{i}") for i in range(3)) + adapter("mlx5_3", 10, "Down") + adapter("mlx5_4", 200)
    found = understood(IBSTAT, source_of(text))
    assert [(doubt.code, doubt.sentence.split()[0]) for doubt in found.doubts] == [
        ("port-down", "mlx5_3"),
        ("slow-port", "mlx5_4"),
    ]
    (host,) = [fact for fact in found.facts if isinstance(fact, HostFact)]
    assert host.nics[0].count == 3
    assert host.names == ()


def test_a_host_with_ethernet_only_says_so() -> None:
    """The fastest Ethernet ports are shown as cards, with a note."""
    text = adapter("mlx5_0", 400, layer="Ethernet") + adapter("mlx5_1", 25, layer="Ethernet")
    found = understood(IBSTAT, source_of(text))
    (host,) = [fact for fact in found.facts if isinstance(fact, HostFact)]
    assert [(nics.count, nics.bytes_per_s, nics.fabric) for nics in host.nics] == [(1, 50e9, "ethernet")]
    assert [doubt.code for doubt in found.doubts] == ["ethernet-cards"]


@pytest.mark.parametrize("before", ["", adapter("mlx5_0")])
def test_a_panic_is_refused_and_is_a_sign_of_trouble(before: str) -> None:
    """The lines before it are kept."""
    text = before + "ibpanic: [4711] main: stat of IB device 'mlx5_1' failed: No such file or directory\n"
    found = understood(IBSTAT, source_of(text))
    (health,) = [fact for fact in found.facts if isinstance(fact, HealthFact)]
    assert (health.state, health.entity) == (NodeState.DEGRADED, "node")
    assert [refusal.sentence for refusal in found.refusals] == ["ibstat failed on this node"]
    assert len(ports_of(text)) == (1 if before else 0)
    assert [section.format for section in registry.recognise(source_of(text))] == ["ibstat"]


def test_labels_of_a_launcher_keep_hosts_apart() -> None:
    """Two hosts in turns: each has its own cards."""
    first, second = adapter("mlx5_0").split("\n")[:-1], adapter("mlx5_0", 200).split("\n")[:-1]
    mixed = "".join(f"0: {a}\n1: {b}\n" for a, b in zip(first, second, strict=True))
    found = understood(IBSTAT, source_of(mixed))
    hosts = [fact for fact in found.facts if isinstance(fact, HostFact)]
    assert [host.nics[0].bytes_per_s for host in hosts] == [50e9, 25e9]


def test_real_lists_name_hosts() -> None:
    """Ten hosts with a GUID each; 72 hosts in four NVLink domains."""
    guids = understood(GUIDS, real("topology/ib/ibstat_guid_list_for_above.txt"))
    assert len(guids.facts) == 10
    assert isinstance(guids.facts[0], HostFact)
    assert guids.facts[0].names[1] == Name(NameKind.PORT_GUID, "0ff08c4321664e96")
    uuids = understood(UUIDS, real("topology/slurm/azure_nodes_clusterUUIDs.txt"))
    domains = Counter(fact.scale_up_domain for fact in uuids.facts if isinstance(fact, HostFact))
    assert sorted(domains.values()) == [18] * 4
    assert guids.refusals == uuids.refusals == ()


@pytest.mark.parametrize(
    "text",
    [
        "VM_hostname n1\n00000000000000a1\n00000000000000a2\n",
        "n1: 0xa1000000000001 0xa1000000000002\n",
        "n1,0xa1000000000001\nn1,0xa1000000000002\n",
        "0xa1000000000001 n1\n0xa1000000000002 n1\n",
    ],
)
def test_lists_of_guids_come_in_many_forms(text: str) -> None:
    """A heading, a line a host, a line a port, either order."""
    assert [section.format for section in registry.recognise(source_of(text))] == ["port-guids"]
    (host,) = understood(GUIDS, source_of(text)).facts
    assert isinstance(host, HostFact)
    assert host.names[0] == Name(NameKind.HOST, "n1")
    assert [name.kind for name in host.names[1:]] == [NameKind.PORT_GUID] * 2
    assert all(len(name.text) == 16 for name in host.names[1:])


def test_a_clique_is_part_of_the_domain() -> None:
    """Two cliques of a cluster are two domains."""
    uuid = "01234567-89ab-cdef-0123-456789abcdef"
    found = understood(UUIDS, source_of(f"n1 {uuid}.1\nn2 {uuid}.2\nnot a line of it, at all\n"))
    assert [fact.scale_up_domain for fact in found.facts if isinstance(fact, HostFact)] == [
        f"{uuid}.1",
        f"{uuid}.2",
    ]
    assert [refusal.first_line for refusal in found.refusals] == [3]


def test_counters_are_refused_with_what_to_send() -> None:
    """They are known, and say nothing of what a link carries."""
    source = real("topology/ib/perfquery_two_ports.txt")
    found = understood(PERFQUERY, source)
    assert found.facts == ()
    assert "nccl-tests" in found.refusals[0].remedy
    assert [section.format for section in registry.recognise(source)] == ["perfquery"]


@given(damaged("".join(adapter(f"mlx5_{i}") for i in range(3))))
def test_damage_never_stops_the_reader(text: str) -> None:
    """Cards are never more than ports in service."""
    found = sound(IBSTAT, text)
    up = sum(isinstance(fact, PortFact) and fact.up for fact in found.facts)
    assert sum(nics.count for fact in found.facts if isinstance(fact, HostFact) for nics in fact.nics) <= up


def test_guids_below_the_bare_name_of_their_host_are_its_ports() -> None:
    """A name without GUIDs is told, and so are GUIDs without a name."""
    text = "red-1\n0x00000000000000a1\n0x00000000000000a2\nred-2:\n  00000000000000b1\nred-3\n"
    ((section, found),) = registry.read(source_of(text)).sections
    assert section.format == "port-guids"
    names = [[name.text for name in fact.names] for fact in found.facts if isinstance(fact, HostFact)]
    assert names == [["red-1", "00000000000000a1", "00000000000000a2"], ["red-2", "00000000000000b1"]]
    assert [refusal.first_line for refusal in found.refusals] == [6]
    alone = registry.read(source_of("0x00000000000000a1\n0x00000000000000a2\n")).sections[0][1]
    assert (alone.facts, len(alone.refusals)) == ((), 1)
