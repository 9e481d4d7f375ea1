"""NCCL and RCCL topology files: counts, rates, joints; hostile and damaged XML."""

from __future__ import annotations

import pytest
from hypothesis import given

from readers import registry
from readers.formats.nccl.topology_xml import FORMAT, MOST_DEVICES
from readers.frame.facts import HostFact, JointKind, Nics, WiringFact
from readers.frame.reading import Contents
from tests.readers.damage import damaged, sound
from tests.readers.real_files import real, source_of, understood

FOLDER = "topology/nccl_topo_xml"
HIDDEN = ["nvlink-hidden"]


def both(found: Contents) -> tuple[HostFact, WiringFact]:
    host, wiring = found.facts
    assert isinstance(host, HostFact)
    assert isinstance(wiring, WiringFact)
    return host, wiring


def direct(fact: WiringFact) -> dict[tuple[str, str], int | None]:
    """Links of the pairs that NVLink or XGMI joins."""
    links = {JointKind.NVLINK, JointKind.XGMI}
    return {(joint.first, joint.second): joint.links for joint in fact.joints if joint.kind in links}


def kind(fact: WiringFact, first: str, second: str) -> str:
    (found,) = (joint.kind.value for joint in fact.joints if {joint.first, joint.second} == {first, second})
    return found


def gpu(index: int, *links: str, bus: str | None = None) -> str:
    bus = bus or f"0000:{16 + index:02x}:00.0"
    inside = f'<gpu dev="{index}" sm="90" rank="{index}" gdr="1">{"".join(links)}</gpu>'
    return f'<pci busid="{bus}" class="0x030200" vendor="0x10de" device="0x2335" link_speed="">\n{inside}\n</pci>\n'


def nic(index: int, speed: str = "400000", name: str = "mlx5") -> str:
    net = f'<net name="{name}_{index}" dev="{index}" speed="{speed}" port="1" guid="0x0" gdr="1"/>'
    return f'<pci busid="0000:{96 + index:02x}:00.0" class="0x020700" link_speed="16 GT/s"><nic>{net}</nic></pci>\n'


def switch(index: int, inside: str) -> str:
    return f'<pci busid="ffff:ff:{index:02x}.0" class="0x060400" link_speed="16 GT/s">\n{inside}</pci>\n'


def system(*sockets: str, attribute: str = "") -> str:
    cpus = "".join(f'<cpu numaid="{index}" {attribute}>\n{inside}</cpu>\n' for index, inside in enumerate(sockets))
    return f'<system version="1">\n{cpus}</system>\n'


def fabric(*targets: tuple[str, int], target_class: str = "0x068000") -> list[str]:
    return [f'<nvlink target="{bus}" count="{count}" tclass="{target_class}"/>' for bus, count in targets]


@pytest.mark.parametrize(
    ("name", "gpus", "nics", "first", "last", "product", "links", "codes"),
    [
        ("aws_p4d-24xl-topo.xml", 8, (4, None, "efa"), 17, 40, "NVIDIA A100-SXM4-40GB", 0, HIDDEN),
        ("aws_p4de-24xl-topo.xml", 8, (4, None, "efa"), 17, 40, "NVIDIA A100-SXM4-80GB", 0, HIDDEN),
        ("aws_p5.48xl-topo.xml", 8, (32, 12.5e9, "efa"), 3, 204, None, 0, HIDDEN),
        ("azure_nc48v4-topo.xml", 2, (1, 12.5e9, ""), 3, 19, "NVIDIA A100 80GB PCIe", 1, []),
        ("azure_ncv4-topo.xml", 4, (1, 12.5e9, ""), 3, 33, "NVIDIA A100 80GB PCIe", 0, ["nvlink-to-itself"]),
        ("azure_ndv2-topo.xml", 8, (1, None, "infiniband"), 3, 15, None, 0, HIDDEN),
        ("azure_ndv4-topo.xml", 8, (8, None, "infiniband"), 4, 34, None, 0, HIDDEN),
        ("azure_ndv5-topo.xml", 8, (8, None, "infiniband"), 4, 38, None, 0, HIDDEN),
        ("azure_ndv5-topo_superbench.xml", 8, (8, None, "infiniband"), 4, 38, None, 0, HIDDEN),
        ("rccl_topo_3p_pcie.xml", 3, (1, 25e9, "infiniband"), 8, 30, "AMD Instinct MI210", 0, HIDDEN),
        ("rccl_topo_8p6l_6nic.xml", 8, (6, 25e9, "ethernet"), 8, 136, None, 24, []),
        ("rccl_topo_8p_90a.xml", 8, None, 7, 71, None, 12, ["slow-nic"]),
        ("rccl_topo_8p_90a_1.xml", 8, None, 7, 71, "AMD Instinct MI250X", 12, ["slow-nic"]),
        ("rccl_topo_8p_940.xml", 8, (8, 50e9, "infiniband"), 6, 182, "AMD Instinct MI300X", 28, []),
        ("rccl_topo_8p_940vm.xml", 8, (8, 50e9, "infiniband"), 3, 134, "AMD Instinct MI300X", 28, []),
        ("rccl_topo_8p_rome_vm1.xml", 8, (1, 12.5e9, ""), 7, 73, "AMD Instinct MI100", 12, []),
    ],
)
def test_a_real_topology_is_read(
    name: str,
    gpus: int,
    nics: tuple[int, float | None, str] | None,
    first: int,
    last: int,
    product: str | None,
    links: int,
    codes: list[str],
) -> None:
    """GPUs, cards with their rate, product by PCI number, NVLink or XGMI pairs, doubts."""
    found = understood(FORMAT, real(f"{FOLDER}/{name}"))
    host, wiring = both(found)
    assert (host.gpu_count, len(wiring.gpus), host.gpu_product) == (gpus, gpus, product)
    assert [(card.count, card.bytes_per_s, card.fabric) for card in host.nics] == ([] if nics is None else [nics])
    assert (wiring.origin.last_line, len(direct(wiring))) == (last, links)
    assert wiring.origin.first_line <= first
    assert wiring.hides_nvlink == (codes in (HIDDEN, ["nvlink-to-itself"]))
    assert [doubt.code for doubt in found.doubts] == codes
    assert not found.refusals


def test_spots_of_real_topologies() -> None:
    """Twelve links between the GPUs of NC48; two kinds of cards; a card on its GPU's switch."""
    _, pair = both(understood(FORMAT, real(f"{FOLDER}/azure_nc48v4-topo.xml")))
    assert direct(pair) == {("GPU0", "GPU1"): 12}
    host, hives = both(understood(FORMAT, real(f"{FOLDER}/rccl_topo_4p2h_2nic.xml")))
    assert [(card.devices, card.fabric) for card in host.nics] == [
        (("mlx5_0",), "ethernet"),
        (("mlx5_1",), "infiniband"),
    ]
    assert len(direct(hives)) == 8
    _, eight = both(understood(FORMAT, real(f"{FOLDER}/azure_ndv5-topo.xml")))
    assert kind(eight, "GPU7", "NIC7") == "pix"
    assert kind(eight, "GPU7", "NIC6") == "phb"
    assert kind(eight, "GPU7", "NIC0") == "sys"


def test_gpus_on_nvswitches_are_joined_by_what_the_lesser_has() -> None:
    """Links to several switches add up; eighteen and sixteen make sixteen."""
    one = gpu(0, *fabric(("0000:c3:00.0", 9), ("0000:c4:00.0", 9)))
    other = gpu(1, *fabric(("0000:c3:00.0", 9), ("0000:c4:00.0", 7)))
    host, wiring = both(understood(FORMAT, source_of(system(one + other, nic(0)), host="cw7")))
    assert direct(wiring) == {("GPU0", "GPU1"): 16}
    assert (wiring.host, [name.text for name in host.names], host.gpu_product) == ("cw7", ["cw7"], "NVIDIA H200")
    assert host.nics == (Nics(1, 50e9, "infiniband", ("mlx5_0",)),)


def test_direct_links_stand_between_the_gpus_that_they_name() -> None:
    """Two bridged pairs of three; case of bus ids does not matter."""
    buses = [f"000a:{index:02x}:00.0" for index in range(3)]
    texts = [
        gpu(0, *fabric((buses[1].upper(), 4), target_class="0x030200"), bus=buses[0]),
        gpu(1, *fabric((buses[0], 4), target_class="0x030200"), bus=buses[1]),
        gpu(2, bus=buses[2]),
    ]
    _, wiring = both(understood(FORMAT, source_of(system("".join(texts)))))
    assert direct(wiring) == {("GPU0", "GPU1"): 4}
    assert not wiring.hides_nvlink


def test_bridges_say_how_near_two_devices_are() -> None:
    """On one switch PIX, on two below one PXB, on one socket PHB, on two SYS."""
    inner = switch(2, gpu(1)) + switch(3, nic(1))
    text = system(switch(1, gpu(0) + nic(0)) + switch(9, inner), gpu(2))
    _, wiring = both(understood(FORMAT, source_of(text)))
    pairs = {("GPU0", "mlx5_0"): "pix", ("GPU1", "mlx5_1"): "pxb", ("GPU0", "GPU1"): "phb", ("GPU1", "GPU2"): "sys"}
    assert {pair: kind(wiring, *pair) for pair in pairs} == pairs


@pytest.mark.parametrize(
    ("speed", "rate", "code"),
    [
        ("100000", 12.5e9, None),
        ("800000", 100e9, None),
        ("1000", None, "slow-nic"),
        ("200000000", None, "nic-speed-unit"),
        ("", None, "nic-speed-unit"),
        ("-1", None, "nic-speed-unit"),
        ("4e5", None, "nic-speed-unit"),
    ],
)
def test_the_speed_of_a_card_is_mbit_per_second_or_unknown(
    speed: str, rate: float | None, code: str | None
) -> None:
    """An implausible number of Mbit/s leaves the rate open and is doubted with its line."""
    found = understood(FORMAT, source_of(system(gpu(0) + nic(0, speed))))
    host, wiring = both(found)
    assert wiring.nics == ("mlx5_0",)
    assert [card.bytes_per_s for card in host.nics] == ([] if code == "slow-nic" else [rate])
    assert [(doubt.code, doubt.first_line) for doubt in found.doubts] == ([] if code is None else [(code, 6)])


@pytest.mark.parametrize(
    "head",
    [
        '<!DOCTYPE system [<!ENTITY a "b"><!ENTITY c "&a;&a;">]>\n',
        '<?xml version="1.0"?>\n<!DOCTYPE system SYSTEM "file:///etc/hostname">\n',
        "<!DOCTYPE system>",
    ],
)
def test_document_types_are_refused_before_anything_is_read(head: str) -> None:
    """No entity is ever expanded and no file opened; the refusal says what is wrong."""
    found = understood(FORMAT, source_of(head + system(gpu(0))))
    assert not found.facts
    assert "document type" in found.refusals[0].sentence


def test_undeclared_entities_and_deep_nesting_stop_the_reading() -> None:
    """An entity nobody declared, and a thousand elements in each other."""
    (entity,) = understood(FORMAT, source_of('<system version="&name;">\n</system>\n')).refusals
    assert "damaged" in entity.sentence
    deep = system("<pci>" * 1000 + "</pci>" * 1000)
    (nested,) = understood(FORMAT, source_of(deep)).refusals
    assert "in each other" in nested.sentence


def test_more_devices_than_a_host_has_are_refused() -> None:
    """Pairs grow with the square of the devices: there is a limit."""
    text = system("".join(gpu(index, bus=f"{index:04x}:00:00.0") for index in range(MOST_DEVICES + 1)))
    found = understood(FORMAT, source_of(text))
    assert not found.facts
    assert "more than any host" in found.refusals[0].sentence


def test_a_file_cut_in_the_middle_gives_what_stands_before() -> None:
    """Two of three GPUs, marked as partial, without a count, and a refusal at the last line."""
    whole = system(gpu(0) + gpu(1) + gpu(2))
    cut = whole[: whole.index('<pci busid="0000:12')]
    found = understood(FORMAT, source_of(cut))
    host, wiring = both(found)
    assert (wiring.gpus, wiring.partial, host.gpu_count) == (("GPU0", "GPU1"), True, None)
    assert [refusal.first_line for refusal in found.refusals] == [cut.count("\n")]


def test_comments_declarations_and_what_follows_are_passed_over() -> None:
    """A licence in front, a declaration, a prompt behind; lines count from the top of the file."""
    text = f'<!--\n Cards of our own\n-->\n<?xml version="1.0"?>\n{system(gpu(0))}ops@cw1:~$ exit\n'
    reading = registry.read(source_of(text))
    ((section, found),) = reading.sections
    assert section.format == "nccl-topology"
    assert not found.refusals
    assert both(found)[1].origin.first_line == 7


def test_several_hosts_in_one_file_are_told_apart_and_doubted() -> None:
    """NVLink domains over hosts: the hash of the host stands at its sockets."""
    first = system(gpu(0) + gpu(1), attribute='host_hash="0xa1"')
    second = f'<cpu numaid="0" host_hash="0xb2">\n{gpu(0)}</cpu>\n</system>'
    found = understood(FORMAT, source_of(first.replace("</system>\n", second)))
    wirings = [fact for fact in found.facts if isinstance(fact, WiringFact)]
    assert [len(wiring.gpus) for wiring in wirings] == [2, 1]
    assert "several-hosts" in [doubt.code for doubt in found.doubts]


def test_xml_without_devices_is_refused() -> None:
    """Some other system."""
    found = understood(FORMAT, source_of('<system version="1">\n<cpu numaid="0"/>\n</system>\n'))
    assert "no GPU" in found.refusals[0].sentence


WHOLE = system(
    switch(1, gpu(0, *fabric(("0000:c3:00.0", 4))) + nic(0)), gpu(1, *fabric(("0000:c3:00.0", 4))) + nic(1)
)


@given(damaged(WHOLE))
def test_damage_never_stops_the_reader(text: str) -> None:
    """Damaged files are refused or counted; nothing is drawn twice."""
    for fact in sound(FORMAT, text).facts:
        if isinstance(fact, WiringFact):
            names = {*fact.gpus, *fact.nics}
            pairs = [frozenset((joint.first, joint.second)) for joint in fact.joints]
            assert len(pairs) == len(set(pairs)) == len(names) * (len(names) - 1) // 2
            assert all(pair <= names for pair in pairs)
