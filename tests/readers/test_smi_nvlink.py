"""``nvidia-smi nvlink`` and ``nvidia-smi -L``: links counted, links that are down, lists of GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given

from cluster_models.cluster.topology import NodeState
from readers.formats.nvidia.smi_nvlink import FORMAT, SWITCH
from readers.frame.facts import HealthFact, HostFact, WiringFact
from readers.frame.reading import Contents
from tests.readers.damage import damaged, sound
from tests.readers.real_files import real, source_of, understood

FOLDER = "topology/nvidia_smi_nvlink"


def gpu(index: int, product: str, *lines: str) -> str:
    return f"GPU {index}: {product} (UUID: GPU-0000000{index}-aaaa)\n" + "".join(f"\t {line}\n" for line in lines)


def status(index: int, *rates: str, product: str = "NVIDIA H200") -> str:
    return gpu(index, product, *(f"Link {link}: {rate}" for link, rate in enumerate(rates)))


def wiring(found: Contents) -> WiringFact:
    (fact,) = (fact for fact in found.facts if isinstance(fact, WiringFact))
    return fact


@pytest.mark.parametrize(
    ("name", "gpus", "expected", "links", "last", "faults", "codes"),
    [
        ("azure_good_nvlink_status.txt", ("GPU7",), 8, 12, 13, [], []),
        ("azure_bad_nvlink_status.txt", ("GPU6",), 7, None, 2, ["gpu:6"], ["links-missing"]),
        ("nvlink_status_a100x8.txt", tuple(f"GPU{index}" for index in range(8)), 8, 12, 104, [], []),
    ],
)
def test_a_real_status_is_read(
    name: str,
    gpus: tuple[str, ...],
    expected: int,
    links: int | None,
    last: int,
    faults: list[str],
    codes: list[str],
) -> None:
    """Links per GPU at 25 GB/s each; the GPU whose links are inactive is degraded."""
    found = understood(FORMAT, real(f"{FOLDER}/{name}"))
    fact = wiring(found)
    assert (fact.gpus, fact.expected_gpus, fact.origin.last_line) == (gpus, expected, last)
    assert set(fact.gpu_products) == {"NVIDIA A100-SXM4-80GB"}
    assert fact.partial == (len(gpus) < expected)
    ends = {(joint.second, joint.links, joint.bytes_per_s) for joint in fact.joints}
    assert ends == (set() if links is None else {(SWITCH, links, 25e9)})
    health = [fact for fact in found.facts if isinstance(fact, HealthFact)]
    assert [fault.entity for fault in health] == faults
    assert all(fault.state is NodeState.DEGRADED for fault in health)
    assert [doubt.code for doubt in found.doubts] == codes


def test_an_inactive_link_degrades_its_gpu() -> None:
    """Three of four links: the joint counts three, and the GPU is reported with its line."""
    text = status(0, *["26.562 GB/s"] * 4) + status(1, "26.562 GB/s", "<inactive>", "26.562 GB/s", "26.562 GB/s")
    found = understood(FORMAT, source_of(text))
    assert [joint.links for joint in wiring(found).joints] == [4, 3]
    assert wiring(found).joints[0].bytes_per_s == 26.562e9
    (fault,) = (fact for fact in found.facts if isinstance(fact, HealthFact))
    assert (fault.entity, fault.origin.first_line, fault.origin.last_line) == ("gpu:1", 6, 10)
    assert "3 of 4" in fault.text


def test_cards_without_a_bridge_are_not_broken() -> None:
    """PCIe cards that all lack links: a note, and no fault; one card among linked ones is a fault."""
    inactive = "Unable to retrieve NVLink information as all links are inActive"
    card = "NVIDIA A100 80GB PCIe"
    alone = gpu(0, card, inactive) + gpu(1, card, inactive)
    found = understood(FORMAT, source_of(alone))
    assert [doubt.code for doubt in found.doubts] == ["nvlink-unused"]
    assert len(found.facts) == 1
    mixed = status(0, "25 GB/s", product=card) + gpu(1, card, inactive)
    assert [doubt.code for doubt in understood(FORMAT, source_of(mixed)).doubts] == ["links-missing"]


def test_capabilities_and_far_ends_count_links_without_rates() -> None:
    """``-c`` says six things of each link and ``-R`` its far end: links are counted once."""
    lines = [f"Link {link}, {what} is supported: true" for link in range(3) for what in ("P2P", "SLI", "Atomics")]
    fact = wiring(understood(FORMAT, source_of(gpu(0, "NVIDIA L", *lines))))
    assert [(joint.links, joint.bytes_per_s) for joint in fact.joints] == [(3, None)]
    both = gpu(0, "NVIDIA L", *lines) + status(0, *["50 GB/s"] * 3, product="NVIDIA L")
    joints = wiring(understood(FORMAT, source_of(both))).joints
    assert [(joint.links, joint.bytes_per_s) for joint in joints] == [(3, 50e9)]


def test_errors_are_noted() -> None:
    """Counters of errors above zero are said once for each GPU."""
    lines = ["Link 0: Replay Errors: 0", "Link 0: CRC Errors: 4", "Link 1: CRC Errors: 3"]
    (doubt,) = understood(FORMAT, source_of(gpu(2, "NVIDIA H200", *lines))).doubts
    assert doubt.code == "nvlink-errors"
    assert "7 errors" in doubt.sentence


def test_a_bare_list_gives_the_gpus_of_a_host() -> None:
    """``nvidia-smi -L``: product and count; a gap in the numbers leaves the count open, slices are marked."""
    text = "".join(gpu(index, "NVIDIA H200") for index in range(4))
    (host,) = understood(FORMAT, source_of(text, host="cw1")).facts
    assert isinstance(host, HostFact)
    assert (host.gpu_product, host.gpu_count, host.gpu_in_slices) == ("NVIDIA H200", 4, False)
    assert [name.text for name in host.names] == ["cw1"]
    (gap,) = understood(FORMAT, source_of(gpu(0, "NVIDIA H200") + gpu(2, "NVIDIA H200"))).facts
    assert isinstance(gap, HostFact)
    assert gap.gpu_count is None
    sliced = gpu(0, "NVIDIA H200", "MIG 1g.18gb     Device  0: (UUID: MIG-1)")
    (slices,) = understood(FORMAT, source_of(sliced)).facts
    assert isinstance(slices, HostFact)
    assert slices.gpu_in_slices


def test_another_uuid_under_the_same_number_is_another_host() -> None:
    """Two hosts in one file: two facts and a doubt; the same GPU twice is one."""
    one = status(0, "25 GB/s")
    assert len(understood(FORMAT, source_of(one + one)).facts) == 1
    found = understood(FORMAT, source_of(one + one.replace("aaaa", "bbbb")))
    assert len([fact for fact in found.facts if isinstance(fact, WiringFact)]) == 2
    assert [doubt.code for doubt in found.doubts] == ["several-hosts"]


def test_a_link_without_a_number_is_refused_with_its_line() -> None:
    """A line on a link that cannot be read is named."""
    found = understood(FORMAT, source_of(gpu(0, "NVIDIA H200", "Link 0: 25 GB/s", "Link : 25 GB/s")))
    assert [refusal.first_line for refusal in found.refusals] == [3]


@given(damaged("".join(status(index, *["25 GB/s"] * 4) for index in range(3))))
def test_damage_never_stops_the_reader(text: str) -> None:
    """No GPU has more links than lines say."""
    for fact in sound(FORMAT, text).facts:
        if isinstance(fact, WiringFact):
            assert all(1 <= (joint.links or 0) <= text.count("Link") for joint in fact.joints)
