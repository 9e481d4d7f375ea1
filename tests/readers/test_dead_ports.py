"""Ports that are out of service: rails over InfiniBand and RoCE are doubted, cards of other kinds are not."""

from __future__ import annotations

import pytest

from readers.formats.infiniband.ibstat import FORMATS
from readers.formats.infiniband.ibstatus import FORMAT as IBSTATUS
from readers.frame.reading import Contents
from tests.readers.real_files import source_of, understood

ETHERNET = "Ethernet"


def port(
    name: str,
    state: str = "Active/LinkUp",
    *,
    rate: int = 400,
    kind: str = "MT4129",
    card: str = "",
    layer: str = ETHERNET,
) -> str:
    """One port as ``ibstat`` prints it; ``card``: what the ports of one card share."""
    logical, _, physical = state.partition("/")
    image = f"\tSystem image GUID: 0x0000000000{card}\n" if card else ""
    return (
        f"CA '{name}'\n\tCA type: {kind}\n\tNumber of ports: 1\n{image}\tPort 1:\n\t\tState: {logical}\n"
        f"\t\tPhysical state: {physical}\n\t\tRate: {rate}\n\t\tBase lid: 0\n\t\tLink layer: {layer}\n"
    )


def down(found: Contents) -> list[str]:
    return [doubt.sentence.split()[0] for doubt in found.doubts if doubt.code == "port-down"]


@pytest.mark.parametrize("host", [None, "gpu-7"])
@pytest.mark.parametrize("dead", ["Down/Polling", "Down/Disabled"])
@pytest.mark.parametrize("rate", [400, 40])
def test_dead_rails_of_a_roce_host_are_seen(host: str | None, dead: str, rate: int) -> None:
    """Six of eight rails run; a dead port shows the rate of its card or one that it starts from."""
    rails = "".join(port(f"mlx5_{i}") for i in range(6))
    lost = port("mlx5_6", dead, rate=rate) + port("mlx5_7", dead, rate=rate)
    storage = port("mlx5_8", rate=100, kind="MT4125") + port("mlx5_9", dead, rate=40, kind="MT4125")
    found = understood(FORMATS[0], source_of(rails + lost + storage, host=host))
    assert down(found) == ["mlx5_6", "mlx5_7"]


def test_the_port_that_no_card_uses_is_not_doubted() -> None:
    """Cards with two ports of which one is cabled; where one card has none up, its ports are."""
    cards = "".join(
        port(f"mlx5_{2 * i}", card=f"aa{i}") + port(f"mlx5_{2 * i + 1}", "Down/Disabled", card=f"aa{i}")
        for i in range(3)
    )
    assert down(understood(FORMATS[0], source_of(cards))) == []
    dead = port("mlx5_6", "Down/Polling", card="aa6") + port("mlx5_7", "Down/Disabled", card="aa6")
    assert down(understood(FORMATS[0], source_of(cards + dead))) == ["mlx5_6", "mlx5_7"]


def test_ethernet_beside_infiniband_is_no_rail() -> None:
    """Where InfiniBand carries the jobs, what is down of the Ethernet ports does not matter to them."""
    text = port("mlx5_0", layer="InfiniBand") + port("mlx5_1", rate=400) + port("mlx5_2", "Down/Polling")
    assert down(understood(FORMATS[0], source_of(text))) == []


@pytest.mark.parametrize(("layer", "lost"), [("InfiniBand", "10"), ("Ethernet", "400")])
def test_dead_rails_are_seen_in_ibstatus_too(layer: str, lost: str) -> None:
    """It names no kinds of cards: InfiniBand ports are rails, and Ethernet ports of the rails' rate."""

    def status(device: int, state: str, rate: str, link: str) -> str:
        return (
            f"Infiniband device 'mlx5_{device}' port 1 status:\n\tstate:\t\t {state}\n"
            f"\tphys state:\t 2: Polling\n\trate:\t\t {rate} Gb/sec (4X NDR)\n\tlink_layer:\t {link}\n\n"
        )

    text = status(0, "4: ACTIVE", "400", layer) + status(1, "1: DOWN", lost, layer)
    text += status(2, "1: DOWN", "40", "Ethernet")
    assert down(understood(IBSTATUS, source_of(text))) == ["mlx5_1"]
