"""``iblinkinfo``: lane rates, blocks, one line a port, single lines without their device."""

from __future__ import annotations

import pytest
from hypothesis import given

from readers import registry
from readers.formats.infiniband.iblinkinfo import FORMAT
from readers.frame.facts import HostFact, PortFact, SwitchFact
from tests.readers.damage import damaged, sound
from tests.readers.real_files import source_of, understood

ARROW = "==( 4X {:>11} Gbps Active/  LinkUp)==>"
BLOCKS = f"""CA: red-1 mlx5_0:
      0x00000000000000a1     11    1[  ] {ARROW.format("106.25")}       5    1[  ] "MF0;leaf-1:MQM9700/U1" ( )
Switch: 0x00000000000000b1 MF0;leaf-1:MQM9700/U1:
           5    1[  ] {ARROW.format("106.25")}      11    1[  ] "red-1 mlx5_0" ( )
           5    2[  ] {ARROW.format("53.125")}      12    1[  ] "red-2 mlx5_0" ( Could be 106.25 Gbps)
           5    3[  ] ==(                Down/ Polling)==>             [  ] "" ( )
           5   40[  ] {ARROW.format("106.25")}       6    9[  ] "MF0;spine-1:MQM9700/U1" ( )
"""
ONE_LINE = (
    f'0x00000000000000b1 "        MF0;leaf-1:MQM9700/U1"      5    1[  ] {ARROW.format("106.25")}  '
    '0x00000000000000a1     11    1[  ] "red-1 mlx5_0" ( )\n'
)


def test_blocks_give_ports_switches_and_slow_links() -> None:
    """The rate is that of the whole link; the tool's "Could be" is a doubt; a closed port is not a cable."""
    found = understood(FORMAT, source_of(BLOCKS))
    ports = {fact.host: fact for fact in found.facts if isinstance(fact, PortFact)}
    assert (ports["red-1"].bytes_per_s, ports["red-1"].guid, ports["red-1"].switch) == (
        50e9,
        "00000000000000a1",
        "leaf-1",
    )
    assert ports["red-2"].bytes_per_s == 25e9
    switches = {fact.name: fact for fact in found.facts if isinstance(fact, SwitchFact)}
    leaf = switches["leaf-1"]
    assert (leaf.level, leaf.down_ports, leaf.up_ports) == (1, 2, 1)
    assert switches["spine-1"].level == 2
    assert [(doubt.code, doubt.first_line) for doubt in found.doubts] == [("slow-link", 5)]
    assert found.refusals == ()


def test_one_line_a_port_says_the_same() -> None:
    """With --line both ends have GUIDs."""
    found = understood(FORMAT, source_of(ONE_LINE))
    (port,) = [fact for fact in found.facts if isinstance(fact, PortFact)]
    assert (port.host, port.device, port.guid, port.bytes_per_s) == ("red-1", "mlx5_0", "00000000000000a1", 50e9)


@pytest.mark.parametrize(
    ("width", "lane", "gbits"),
    [
        ("4X", "106.25", 400),
        ("2X", "106.25", 200),
        ("4X", "25.78125", 100),
        ("4X", "14.0625", 56),
        ("4X", "10.0", 40),
    ],
)
def test_a_lone_line_tells_its_far_end(width: str, lane: str, gbits: int) -> None:
    """Width times what a lane carries; the near end is unknown, so there is no switch."""
    text = f'   4   17[  ] ==( {width} {lane} Gbps Active/  LinkUp)==>  23   1[  ] "blue-7 mlx5_2" ( )\n'
    port, host = understood(FORMAT, source_of(text)).facts
    assert isinstance(port, PortFact)
    assert (port.host, port.device, port.switch, port.origin.first_line) == ("blue-7", "mlx5_2", "", 1)
    assert port.bytes_per_s == pytest.approx(gbits * 1e9 / 8)
    assert isinstance(host, HostFact)
    assert host.nics[0].count == 1


def test_a_port_that_is_down_has_no_rate() -> None:
    """A host's port without a link is kept as down."""
    text = 'CA: red-1 mlx5_0:\n   0xa1   11    1[  ] ==(   Down/ Polling)==>   [  ] "" ( )\n'
    port, _ = understood(FORMAT, source_of(text)).facts
    assert isinstance(port, PortFact)
    assert (port.up, port.bytes_per_s, port.state) == (False, None, "Down/Polling")


def test_lines_without_an_arrow_are_refused() -> None:
    """A cut line is named, the others are taken."""
    found = understood(FORMAT, source_of(BLOCKS + "           5   41[  ] ==( 4X   106"))
    assert [refusal.first_line for refusal in found.refusals] == [8]
    assert len(found.facts) == len(understood(FORMAT, source_of(BLOCKS)).facts)


@pytest.mark.parametrize("text", [BLOCKS, ONE_LINE, BLOCKS.split("\n")[3] + "\n"])
def test_all_forms_are_recognised(text: str) -> None:
    """Blocks, --line, and a single row."""
    assert [section.format for section in registry.recognise(source_of(text))] == ["iblinkinfo"]


@given(damaged(BLOCKS + ONE_LINE))
def test_damage_never_stops_the_reader(text: str) -> None:
    """No rate without a link in service."""
    for fact in sound(FORMAT, text).facts:
        if isinstance(fact, PortFact):
            assert fact.up or fact.bytes_per_s is None


@pytest.mark.parametrize(
    "line",
    [
        '`leaf-1  3 1[ ] ==( 4X 106.25 Gbps Active/ LinkUp)==> 57 1[ ] "red-4 mlx5_1" ( )`',
        '3   1[  ] ==( 4X 106.25 Gbps (NDR) Active/  LinkUp)==>  57  1[  ] "red-4 mlx5_1"',
        '==( 4X 106.25 Gbps Active/  LinkUp)==>  57  1[  ] "red-4 mlx5_1" ( )',
        '4X 106.25 Gbps Active/LinkUp "red-4 mlx5_1"',
    ],
)
def test_a_line_that_lost_its_ends_still_tells_the_rate_of_the_link(line: str) -> None:
    ((section, found),) = registry.read(source_of(line + "\n")).sections
    (port,) = [fact for fact in found.facts if isinstance(fact, PortFact)]
    assert (section.format, port.host, port.device) == ("iblinkinfo", "red-4", "mlx5_1")
    assert (port.bytes_per_s, port.up) == (50e9, True)
    assert found.refusals == ()
