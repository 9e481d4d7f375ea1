"""ibstatus: ports in force, cards of the host."""

from __future__ import annotations

import pytest

from readers import registry
from readers.formats.infiniband.ibstatus import FORMAT
from readers.frame.facts import HostFact, PortFact
from tests.readers.real_files import source_of, understood


def port(
    device: int, state: str = "4: ACTIVE", rate: str = "400 Gb/sec (4X NDR)", layer: str = "InfiniBand"
) -> str:
    return (
        f"Infiniband device 'mlx5_{device}' port 1 status:\n\tdefault gid:\t fe80::1\n\tbase lid:\t 0x3\n"
        f"\tstate:\t\t {state}\n\tphys state:\t 5: LinkUp\n\trate:\t\t {rate}\n\tlink_layer:\t {layer}\n\n"
    )


def test_ports_in_service_are_the_cards_and_ethernet_is_not() -> None:
    text = port(0) + port(1) + port(2, state="1: DOWN") + port(3, rate="100 Gb/sec (4X EDR)", layer="Ethernet")
    found = understood(FORMAT, source_of(text, host="m1"))
    ports = [fact for fact in found.facts if isinstance(fact, PortFact)]
    (host,) = [fact for fact in found.facts if isinstance(fact, HostFact)]
    assert [fact.up for fact in ports] == [True, True, False, True]
    assert ports[0].bytes_per_s == pytest.approx(50e9)
    assert [(nics.count, nics.bytes_per_s, nics.fabric) for nics in host.nics] == [(2, 50e9, "infiniband")]
    assert [name.text for name in host.names] == ["m1"]


def test_it_is_recognised() -> None:
    assert [section.format for section in registry.recognise(source_of(port(0)))] == ["ibstatus"]
