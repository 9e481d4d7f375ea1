"""``rocm-smi --showtopo``: hives, halves that differ, tables cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers import registry
from readers.formats.amd.rocm_topo import FORMAT
from readers.frame.facts import JointKind, WiringFact
from readers.frame.reading import Contents
from tests.readers.damage import damaged, sound
from tests.readers.real_files import real, source_of, understood

FOLDER = "topology/rocm_smi_topo"


def grid(title: str, words: list[list[str]]) -> str:
    names = [f"GPU{index}" for index in range(len(words))]
    lines = [f"================ {title} ================", "       " + "         ".join(names)]
    lines += [f"{name}   " + "   ".join(row) for name, row in zip(names, words, strict=True)]
    return "\n".join(lines) + "\n\n"


def words(hive: list[int], near: str, far: str) -> list[list[str]]:
    """A table of GPUs, each in the hive of its number."""
    size = range(len(hive))
    return [["0" if a == b else (near if hive[a] == hive[b] else far) for b in size] for a in size]


def output(hive: list[int], *, tabs: bool = False) -> str:
    gap = "\t\t" if tabs else "          "
    numa = [f"GPU[{index}]{gap}: (Topology) Numa Node: {home}" for index, home in enumerate(hive)]
    return (
        "============ ROCm System Management Interface ============\n"
        + grid("Weight between two GPUs", words(hive, "15", "72"))
        + grid("Hops between two GPUs", words(hive, "1", "3"))
        + grid("Link Type between two GPUs", words(hive, "XGMI", "PCIE"))
        + "================ Numa Nodes ================\n"
        + "\n".join(numa)
        + "\n================ End of ROCm SMI Log ================\n"
    )


def wiring(found: Contents) -> WiringFact:
    (fact,) = found.facts
    assert isinstance(fact, WiringFact)
    return fact


def kinds(fact: WiringFact) -> tuple[int, int]:
    """Joints over XGMI and over PCIe."""
    xgmi = sum(joint.kind is JointKind.XGMI for joint in fact.joints)
    return xgmi, len(fact.joints) - xgmi


@pytest.mark.parametrize(
    ("name", "joints", "last", "codes"),
    [
        ("mi2xx_8gpu_two_hives_pcie_between.txt", (12, 16), 52, ["two-hives"]),
        ("mi308x_8gpu_all_xgmi.txt", (28, 0), 54, ["low-power"]),
    ],
)
def test_a_real_topology_is_read(name: str, joints: tuple[int, int], last: int, codes: list[str]) -> None:
    """Joints of eight GPUs, NUMA nodes behind tabs and blanks, and what is special."""
    found = understood(FORMAT, real(f"{FOLDER}/{name}"))
    fact = wiring(found)
    assert (len(fact.gpus), fact.expected_gpus, fact.partial) == (8, 8, False)
    assert (kinds(fact), fact.origin.last_line) == (joints, last)
    assert [doubt.code for doubt in found.doubts] == codes
    assert not found.refusals


@given(st.lists(st.integers(0, 2), min_size=2, max_size=7), st.booleans())
def test_gpus_of_one_hive_are_joined_by_xgmi(hive: list[int], tabs: bool) -> None:
    """Any split into hives comes back, as a doubt where there are two of more than one GPU."""
    found = understood(FORMAT, source_of(output(hive, tabs=tabs)))
    fact = wiring(found)
    for joint in fact.joints:
        same = hive[int(joint.first[3:])] == hive[int(joint.second[3:])]
        assert joint.kind is (JointKind.XGMI if same else JointKind.PCIE)
    assert len(fact.joints) == len(hive) * (len(hive) - 1) // 2
    several = sum(hive.count(home) > 1 for home in set(hive)) > 1
    assert [doubt.code for doubt in found.doubts] == (["two-hives"] if several else [])


def test_one_hop_over_pcie_is_a_link_that_is_down() -> None:
    """The hops say neighbours, the type says PCIe."""
    text = (
        output([0, 0, 0])
        .replace("XGMI   0   XGMI", "PCIE   0   XGMI")
        .replace("0   XGMI   XGMI", "0   PCIE   XGMI")
    )
    (doubt,) = understood(FORMAT, source_of(text)).doubts
    assert (doubt.code, "GPU0-GPU1" in doubt.sentence) == ("links-missing", True)


def test_halves_that_differ_are_doubted() -> None:
    """XGMI one way, PCIe the other: PCIe."""
    text = output([0, 0, 0]).replace("XGMI   XGMI   0", "PCIE   XGMI   0")
    found = understood(FORMAT, source_of(text))
    assert kinds(wiring(found)) == (2, 1)
    assert "asymmetric-matrix" in [doubt.code for doubt in found.doubts]


def test_a_cut_table_is_filled_from_its_columns() -> None:
    """Two of four rows of link types: five of six pairs are known."""
    text = output([0, 0, 0, 0]).split("================ Link Type")[0]
    kept = "================ Link Type between two GPUs ================\n GPU0 GPU1 GPU2 GPU3\n"
    fact = wiring(understood(FORMAT, source_of(text + kept + "GPU0 0 XGMI XGMI XGMI\nGPU1 XGMI 0 XGMI XGMI\n")))
    assert (len(fact.joints), fact.partial, fact.expected_gpus) == (5, True, 4)


def test_other_output_of_rocm_smi_is_refused() -> None:
    """Without the table of link types there is nothing to draw."""
    head = "============ ROCm System Management Interface ============\n"
    (refusal,) = understood(FORMAT, source_of(head + "GPU  Temp  Power\n0  40c  90W\n")).refusals
    assert "Link Type" in refusal.sentence
    (unknown,) = understood(
        FORMAT, source_of(head + grid("Link Type between two GPUs", words([0, 0], "FOO", "")))
    ).refusals
    assert "FOO" in unknown.sentence


def test_tables_of_rocm_smi_are_not_taken_for_those_of_nvidia_smi() -> None:
    """Both begin with GPU0 and GPU1."""
    text = "low on disk\n" + output([0, 0]) + output([0, 0, 0])
    reading = registry.read(source_of(text))
    assert [section.format for section, _ in reading.sections] == ["rocm-smi-topo"]
    assert [
        len(fact.gpus) for _, found in reading.sections for fact in found.facts if isinstance(fact, WiringFact)
    ] == [
        2,
        3,
    ]


@given(damaged(output([0, 0, 1, 1])))
def test_damage_never_stops_the_reader(text: str) -> None:
    """No pair is drawn twice."""
    for fact in sound(FORMAT, text).facts:
        assert isinstance(fact, WiringFact)
        pairs = [frozenset((joint.first, joint.second)) for joint in fact.joints]
        assert len(pairs) == len(set(pairs))
        assert all(len(pair) == 2 and pair <= set(fact.gpus) for pair in pairs)
