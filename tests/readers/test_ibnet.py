"""``ibnetdiscover``: leaf sets of rail fabrics, levels, nameless ports, cut files, the port list of ``-p``."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given

from readers import registry
from readers.formats.infiniband.ibnet import FORMATS
from readers.frame.facts import HostFact, PortFact, SwitchFact
from readers.frame.reading import Contents
from tests.readers.damage import damaged, sound
from tests.readers.real_files import real, source_of, understood

TOPOLOGY, PORTS = FORMATS
FOLDER = "topology/ib"


def rail_fabric(hosts: int, rails: int, groups: int = 1, speed: str = "4xNDR") -> str:
    """Groups of hosts, each on one leaf a rail; every leaf has one cable to the single spine."""
    blocks, spine = ["#\n# Topology file: generated on Mon Jan  5 10:00:00 2026\n#"], "00000000000000ff"
    for group in range(groups):
        for rail in range(rails):
            leaf = f"{group:02x}{rail:02x}000000000a"
            rows = [
                f'Switch\t65 "S-00{leaf}"\t\t# "MF0;leaf-{rail}-g{group}:MQM9700/U1" enhanced port 0 lid 7 lmc 0'
            ]
            for host in range(hosts):
                card = f"{group:02x}{rail:02x}{host:02x}0000000c"
                rows.append(
                    f'[{host + 1}]\t"H-00{card}"[1]({card}) \t\t# "gpu-{group}-{host} mlx5_{rail}" lid 9 {speed}'
                )
            rows.append(f'[60]\t"S-{spine}"[{group * rails + rail + 1}]\t\t# "MF0;spine:MQM9700/U1" lid 3 {speed}')
            blocks.append(f"vendid=0x2c9\ndevid=0xd2f2\nswitchguid=0x{leaf}({leaf})\n" + "\n".join(rows))
    return "\n\n".join(blocks) + "\n"


def hosts_of(found: Contents) -> dict[str, HostFact]:
    return {fact.names[0].text: fact for fact in found.facts if isinstance(fact, HostFact)}


def switches_of(found: Contents) -> dict[str, SwitchFact]:
    return {fact.name: fact for fact in found.facts if isinstance(fact, SwitchFact)}


def ports_of(found: Contents) -> list[PortFact]:
    return [fact for fact in found.facts if isinstance(fact, PortFact)]


def test_a_large_rail_fabric_is_read_whole() -> None:
    """40 switches and 542 ports of hosts, 69 with the name of their maker and 3 called localhost."""
    found = understood(TOPOLOGY, real(f"{FOLDER}/ibnetdiscover_dgx_h100_ndr_300KB.txt"))
    hosts, switches = hosts_of(found), switches_of(found)
    assert len(switches) == 40
    assert len(ports_of(found)) == 582 - 40
    assert len(found.refusals) == 69 + 3
    assert all("no host name" in refusal.sentence for refusal in found.refusals)
    assert found.refusals[0].first_line == 55
    leaf = switches["A09-P1-IBLEAF-04-04"]
    assert (leaf.level, leaf.up_ports, leaf.down_ports, leaf.origin.first_line) == (1, 16, 17, 10)
    assert switches["A10-P1-IBSPINE-02"].level == 2
    assert hosts["b05-p1-dgx-05-c08"].labels == {"leaf": "B09-P1-IBLEAF-*-05"}
    assert [nics.count for nics in hosts["a08-p1-dgx-04-c01"].nics] == [4]
    assert Counter(fact.nics[0].count for fact in hosts.values())[4] == 109
    assert len({fact.labels["leaf"] for fact in hosts.values()}) == 8
    assert {doubt.code for doubt in found.doubts} == {"rails-missing"}


def test_a_director_counts_its_levels_from_the_hosts() -> None:
    """Leaves below line boards below a spine board; the file says that it was faked."""
    found = understood(TOPOLOGY, real(f"{FOLDER}/ibnetdiscover_hdr_cs8500_anonymised.txt"))
    switches = switches_of(found)
    assert [switches[f"rmd70-0101-0908-01ib1-A/{board}"].level for board in ("S01", "L01", "L02")] == [3, 2, 2]
    assert switches["rmd70-0101-0919-01ib0"].hosts == ("RMD701091901003", "RMD701091901019")
    assert len(hosts_of(found)) == 10
    port = ports_of(found)[0]
    assert (port.origin.first_line, port.bytes_per_s, port.guid) == (41, 25e9, "0ff08c4321664e96")
    assert [(doubt.code, doubt.first_line) for doubt in found.doubts] == [("not-real", 1)]


def test_a_run_that_saw_only_itself_is_refused() -> None:
    """No fact, and what to do."""
    found = understood(TOPOLOGY, real(f"{FOLDER}/ibnetdiscover_gb200_truncated.txt"))
    assert found.facts == ()
    assert "only its own adapter" in found.refusals[0].sentence
    assert "active port" in found.refusals[0].remedy


def test_the_list_of_ports_knows_closed_ports() -> None:
    """Three hosts at EDR; two ports of switches without a link."""
    found = understood(PORTS, real(f"{FOLDER}/ibnetdiscover_p_format_test.txt"))
    assert [port.bytes_per_s for port in ports_of(found)] == [12.5e9] * 3
    assert hosts_of(found)["p0001"].labels == {"leaf": "ib-i4l1s01"}
    levels = {name: switch.level for name, switch in switches_of(found).items()}
    assert levels == {"ib-i1l1s01": 1, "ib-i4l1s01": 1, "ib-i1l2s01": 2, "ib-i7l2s01": 0}
    assert found.refusals == ()


@pytest.mark.parametrize(("speed", "rate"), [("4xNDR", 50e9), ("4xHDR s=4 w=2 v=4 e=4", 25e9), ("2xNDR", 25e9)])
def test_rails_of_a_group_form_one_leaf(speed: str, rate: float) -> None:
    """Hosts of a group share a label, those of another have another; the rate is the link's."""
    found = understood(TOPOLOGY, source_of(rail_fabric(4, 3, groups=2, speed=speed)))
    hosts = hosts_of(found)
    assert {fact.labels["leaf"] for fact in hosts.values()} == {"leaf-*-g0", "leaf-*-g1"}
    assert all(fact.nics[0].count == 3 and fact.nics[0].bytes_per_s == rate for fact in hosts.values())
    assert switches_of(found)["spine"].down_ports == 6
    assert not found.refusals
    assert not found.doubts


def test_a_host_that_lacks_a_rail_is_doubted() -> None:
    """One cable fewer: the doubt names the host and its leaves."""
    text = "\n".join(line for line in rail_fabric(4, 3).split("\n") if '"gpu-0-2 mlx5_1"' not in line)
    (doubt,) = understood(TOPOLOGY, source_of(text)).doubts
    assert doubt.code == "rails-missing"
    assert "gpu-0-2 is on 2 of 3 leaves" in doubt.sentence


def test_rows_that_were_cut_are_refused_with_their_lines() -> None:
    """A file that ends in mid row keeps what stood before."""
    text = rail_fabric(3, 2).rstrip()
    found = understood(TOPOLOGY, source_of(text[: text.rindex('"S-')]))
    assert len(hosts_of(found)) == 3
    (refusal,) = found.refusals
    assert refusal.first_line == text.count("\n") + 1


def test_names_behind_a_host_on_the_spine_do_not_make_it_a_leaf() -> None:
    """A management host on a spine with many cables leaves the spine where it is."""
    text = rail_fabric(2, 4, groups=4)
    extra = '[17]\t"H-00000000000000aa"[1](aa) \t\t# "manager HCA-1" lid 90 4xNDR'
    rows = [
        f'[{port}]\t"S-00{port:02x}"[1]\t\t# "MF0;leaf-x{port}:MQM9700/U1" lid 4 4xNDR' for port in range(1, 17)
    ]
    block = '\nSwitch\t65 "S-00000000000000ff"\t\t# "MF0;spine:MQM9700/U1" enhanced port 0 lid 3 lmc 0\n'
    found = understood(TOPOLOGY, source_of(text + block + "\n".join([*rows, extra]) + "\n"))
    assert switches_of(found)["spine"].level == 2
    assert hosts_of(found)["manager"].labels == {}


def test_both_forms_are_recognised() -> None:
    """By their first lines, alone and with a prompt before."""
    assert [section.format for section in registry.recognise(source_of(rail_fabric(2, 2)))] == ["ibnetdiscover"]
    row = "CA   7  1 0x00000000000000a1 4x HDR - SW  2  5 0x00000000000000b1 ( 'n1 HCA-1' - 'leaf' )\n"
    assert [section.format for section in registry.recognise(source_of("# -p\n" + row))] == ["ibnetdiscover-ports"]


@given(damaged(rail_fabric(3, 2)))
def test_damage_never_stops_the_reader(text: str) -> None:
    """Every port's switch is a switch of the file."""
    found = sound(TOPOLOGY, text)
    names = set(switches_of(found))
    assert {port.switch for port in ports_of(found)} <= names | {""}
