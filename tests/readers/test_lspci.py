"""``lspci``, flat and as a tree."""

from __future__ import annotations

from hypothesis import given

from readers import registry
from readers.formats.pcie.lspci import FORMAT
from readers.frame.facts import HostFact, WiringFact
from readers.frame.reading import Contents
from tests.readers.damage import damaged, sound
from tests.readers.real_files import real, source_of, understood

GPU = "NVIDIA Corporation GH100 [H200 SXM 141GB]"
CARD = "Mellanox Technologies MT2910 Family [ConnectX-7]"
FLAT = f"""0000:00:00.0 Host bridge [0600]: Some Bridge [8086:09a2] (rev 11)
0000:0f:00.0 3D controller [0302]: {GPU} [10de:2335] (rev a1)
0000:10:00.0 VGA compatible controller [0300]: ASPEED Technology, Inc. ASPEED Graphics Family [1a03:2000]
0000:2d:00.0 3D controller [0302]: {GPU} [10de:2335] (rev a1)
0000:3a:00.0 Infiniband controller [0207]: {CARD} [15b3:1021]
0000:b5:00.0 Ethernet controller [0200]: Intel Corporation Ethernet Controller X710 [8086:1572]
0000:c4:00.0 Bridge [0680]: NVIDIA Corporation GH100 [H100 NVSwitch] [10de:22a3]
"""
TREE = f"""-+-[0000:c0]-+-00.0  Some Root Complex
 |           +-01.1-[c1-c8]----00.0-[c2-c8]--+-00.0-[c3]----00.0  {GPU}
 |           |                               +-01.0-[c4]----00.0  {CARD}
 |           |                               \\-02.0-[c5]--+-00.0  {GPU}
 |           |                                            \\-00.1  NVIDIA Corporation Device 22a3
 |           \\-03.1-[d1]----00.0  {GPU}
 \\-[0000:00]-+-00.0  Some Bridge
             +-02.0-[17]----00.0  {GPU}
             \\-1f.0  Intel Corporation Device 1b81
"""


def both(found: Contents) -> tuple[HostFact, WiringFact]:
    host, wiring = found.facts
    assert isinstance(host, HostFact)
    assert isinstance(wiring, WiringFact)
    return host, wiring


def test_a_real_list_is_read() -> None:
    """Eight A100, eight InfiniBand functions; the Ethernet card of the guest is not a card for training."""
    found = understood(FORMAT, real("topology/pci/lspci_nn_a100.txt"))
    host, wiring = both(found)
    assert (host.gpu_product, host.gpu_count) == ("A100 SXM4 80GB", 8)
    assert [(nics.count, nics.fabric, nics.bytes_per_s) for nics in host.nics] == [(8, "infiniband", None)]
    assert (len(wiring.nics), wiring.joints, wiring.hides_nvlink) == (9, (), True)
    assert (wiring.origin.first_line, wiring.origin.last_line) == (1, 29)
    assert [doubt.code for doubt in found.doubts] == ["nvlink-hidden"]
    assert not found.refusals


def test_a_flat_list_names_gpus_and_cards() -> None:
    """Screens, bridges and NVSwitches are neither; without numbers and domains the same."""
    host, wiring = both(understood(FORMAT, source_of(FLAT)))
    assert (host.gpu_product, host.gpu_count, wiring.gpus) == ("H200 SXM 141GB", 2, ("GPU0", "GPU1"))
    assert [nics.devices for nics in host.nics] == [("NIC0",)]
    assert wiring.nics == ("NIC0", "NIC1")
    plain = "\n".join(line.removeprefix("0000:") for line in FLAT.splitlines())
    for number in ("0600", "0302", "0300", "0207", "0200", "0680"):
        plain = plain.replace(f" [{number}]:", ":")
    assert both(understood(FORMAT, source_of(plain)))[0].gpu_count == 2


def test_a_tree_shows_which_devices_share_a_switch() -> None:
    """One switch: PIX; one host bridge: PHB; of two host bridges nothing is said."""
    reading = registry.read(source_of(TREE))
    ((section, found),) = reading.sections
    host, wiring = both(found)
    said = {(joint.first, joint.second): joint.kind.value for joint in wiring.joints}
    assert section.format == "lspci"
    assert (host.gpu_count, wiring.nics) == (4, ("NIC0",))
    assert said == {
        ("GPU0", "GPU1"): "pix",
        ("GPU0", "NIC0"): "pix",
        ("GPU1", "NIC0"): "pix",
        ("GPU0", "GPU2"): "phb",
        ("GPU1", "GPU2"): "phb",
        ("GPU2", "NIC0"): "phb",
    }


def test_amazon_and_amd_are_known() -> None:
    """EFA is told from the other Ethernet cards, an Instinct from a screen."""
    text = (
        "10:00.0 Ethernet controller: Amazon.com, Inc. Elastic Network Adapter (ENA)\n"
        "11:00.0 Ethernet controller: Amazon.com, Inc. Elastic Fabric Adapter (EFA)\n"
        "12:00.0 Processing accelerators: Advanced Micro Devices, Inc. [AMD/ATI] Aqua Vanjaram [Instinct MI300X]\n"
    )
    host, _ = both(understood(FORMAT, source_of(text)))
    assert [(nics.count, nics.fabric) for nics in host.nics] == [(1, "efa")]
    assert host.gpu_product == "Instinct MI300X"


def test_addresses_that_come_again_are_doubted() -> None:
    """Two hosts in one file are not added up."""
    found = understood(FORMAT, source_of(FLAT + FLAT))
    assert both(found)[0].gpu_count == 2
    assert ("several-hosts", 9) in [(doubt.code, doubt.first_line) for doubt in found.doubts]


def test_a_machine_without_gpus_and_cards_is_refused() -> None:
    """And so is one with more than any host has."""
    (none,) = understood(FORMAT, source_of("00:00.0 Host bridge: Some Bridge\n")).refusals
    assert "0 GPUs" in none.sentence
    many = "".join(f"{bus:02x}:{slot:02x}.0 3D controller: {GPU}\n" for bus in range(16) for slot in range(16))
    assert "256 GPUs" in understood(FORMAT, source_of(many)).refusals[0].sentence


@given(damaged(FLAT), damaged(TREE))
def test_damage_never_stops_the_reader(flat: str, tree: str) -> None:
    """Every joint is between devices of the host."""
    for text in (flat, tree):
        for fact in sound(FORMAT, text).facts:
            if isinstance(fact, WiringFact):
                names = {*fact.gpus, *fact.nics}
                assert all({joint.first, joint.second} <= names for joint in fact.joints)
