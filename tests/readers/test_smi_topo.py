"""``nvidia-smi topo -m`` of every vintage: tables whole, cut, coloured, squeezed; wiring that lacks links."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers import registry
from readers.formats.nvidia.smi_topo import FORMAT
from readers.frame.facts import JointKind, MatrixFact, Quantity, WiringFact
from readers.frame.findings import Severity
from readers.frame.reading import Contents
from tests.readers.damage import damaged, sound
from tests.readers.real_files import real, source_of, understood
from tests.readers.uploads import report_of

FOLDER = "topology/nvidia_smi_topo"


def wiring(found: Contents) -> WiringFact:
    (fact,) = found.facts
    assert isinstance(fact, WiringFact)
    return fact


def joined(fact: WiringFact, first: str, second: str) -> tuple[str, int | None] | None:
    for joint in fact.joints:
        if {joint.first, joint.second} == {first, second}:
            return joint.kind.value, joint.links
    return None


def table(
    cells: list[list[str]],
    names: list[str],
    *,
    gap: str = "\t",
    lead: str = "\t",
    numa: list[str] | None = None,
    legend: str = "",
) -> str:
    """A table as nvidia-smi prints it; without ``numa`` as drivers before 2020 did."""
    right = ["CPU Affinity"] + (["NUMA Affinity", "GPU NUMA ID"] if numa is not None else [])
    rows = [lead + gap.join([*names, *right])]
    for index, (name, row) in enumerate(zip(names, cells, strict=True)):
        more = ["0-31"] + ([numa[index], "" if gap == "\t" else "N/A"] if numa is not None else [])
        rows.append(gap.join([name, *row, *(more if name.startswith("GPU") else [])]))
    return "\n".join(rows) + "\n" + legend


def matrix(size: int, word: str) -> list[list[str]]:
    return [[" X " if row == column else word for column in range(size)] for row in range(size)]


@pytest.mark.parametrize(
    ("name", "gpus", "nics", "lines", "pair", "said", "codes", "partial"),
    [
        ("a100_nvlink_pairs_4gpu_4numa.txt", 4, 0, (1, 5), "GPU2 GPU3", ("nvlink", 12), ["bridged-pairs"], False),
        ("aws_g7e_2gpu_pix_no_leading_tab.txt", 2, 0, (1, 3), "GPU0 GPU1", ("pix", None), [], False),
        ("dgx2_v100_16gpu_nv6_partial.txt", 16, 10, (2, 6), "GPU3 GPU15", ("nvlink", 6), [], True),
        ("emulated_nvlink_degraded_nv16.txt", 4, 0, (1, 5), "GPU1 GPU2", ("nvlink", 16), ["links-missing"], False),
        ("gb200_nvl72_tray_4gpu_8nic.txt", 4, 8, (2, 35), "NIC2 NIC3", ("pix", None), [], False),
        ("hgx_b300_8gpu_9nic_ansi_escapes.txt", 8, 9, (1, 40), "GPU5 NIC5", ("pxb", None), [], False),
        ("hgx_h800_8gpu_nv8_9nic_partial.txt", 8, 9, (1, 8), "GPU6 GPU7", ("nvlink", 8), [], True),
        ("stas_2gpu_nv2_numa_na.txt", 2, 0, (1, 3), "GPU0 GPU1", ("nvlink", 2), [], False),
        ("stas_h100x8_nv18_ht_ranges.txt", 8, 0, (2, 10), "GPU0 GPU7", ("nvlink", 18), [], False),
    ],
)
def test_a_real_table_is_read(
    name: str,
    gpus: int,
    nics: int,
    lines: tuple[int, int],
    pair: str,
    said: tuple[str, int | None],
    codes: list[str],
    partial: bool,
) -> None:
    """Devices, one cell, doubts and the lines of tables of real hosts."""
    found = understood(FORMAT, real(f"{FOLDER}/{name}"))
    fact = wiring(found)
    assert (len(fact.gpus), len(fact.nics), fact.expected_gpus) == (gpus, nics, gpus)
    assert (fact.origin.first_line, fact.origin.last_line) == lines
    assert joined(fact, *pair.split()) == said
    assert [doubt.code for doubt in found.doubts] == codes
    assert (fact.partial, fact.hides_nvlink, found.refusals) == (partial, False, ())


def test_gpus_of_a_real_tray_cross_to_every_card() -> None:
    """GB200, where that is not a fault."""
    fact = wiring(understood(FORMAT, real(f"{FOLDER}/gb200_nvl72_tray_4gpu_8nic.txt")))
    assert {joined(fact, "GPU0", nic) for nic in fact.nics} == {("sys", None)}


def test_a_cut_row_is_filled_from_the_columns_of_the_others() -> None:
    """DGX-2 with four of sixteen rows: those four are joined to all, the others to nobody."""
    fact = wiring(understood(FORMAT, real(f"{FOLDER}/dgx2_v100_16gpu_nv6_partial.txt")))
    assert sum(joint.kind is JointKind.NVLINK for joint in fact.joints) == 6 + 4 * 12
    assert joined(fact, "GPU8", "GPU9") is None


@pytest.mark.parametrize(("gap", "lead"), [("\t", "\t"), ("   ", "      "), ("\t", ""), ("  ", "")])
@pytest.mark.parametrize("numa", [None, ["0", "0", "1", "1"]])
def test_blanks_and_vintages_change_nothing(gap: str, lead: str, numa: list[str] | None) -> None:
    """Tabs or blanks, a lost leading tab, with and without NUMA columns: the same joints."""
    names = ["GPU0", "GPU1", "GPU2", "GPU3"]
    found = understood(FORMAT, source_of(table(matrix(4, "NV12"), names, gap=gap, lead=lead, numa=numa)))
    fact = wiring(found)
    assert {joint.links for joint in fact.joints} == {12}
    assert len(fact.joints) == 6
    assert not found.doubts


def test_colours_prompts_and_prefixes_change_nothing() -> None:
    """An underlined header, with or without its escape character, under a prompt, told by srun."""
    plain = table(matrix(2, "NV4"), ["GPU0", "GPU1"], numa=["0", "1"])
    header, rest = plain.split("\n", 1)
    for start, end in (("\x1b[4m", "\x1b[0m"), ("[4m", "[0m")):
        coloured = f"ops@cw3:~$ nvidia-smi topo -m\n\t{start}{header.strip()}{end}\n{rest}"
        assert wiring(understood(FORMAT, source_of(coloured))).joints == wiring(sound(FORMAT, plain)).joints
    told = "".join(f" 3: {line}\n" for line in plain.splitlines())
    assert wiring(understood(FORMAT, source_of(told))).joints == wiring(sound(FORMAT, plain)).joints


def test_a_hybrid_cube_mesh_lacks_no_links() -> None:
    """Without a switch the links of a GPU are added up: NV1, NV1, NV2 and NV2 at each of eight."""
    rings = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2, (2, 6): 1}
    rings |= {(3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2}
    cells = matrix(8, "SYS")
    for (first, second), links in rings.items():
        cells[first][second] = cells[second][first] = f"NV{links}"
    names = [f"GPU{index}" for index in range(8)]
    found = understood(FORMAT, source_of(table(cells, names)))
    assert not found.doubts
    cells[0][3] = cells[3][0] = "NV1"
    (doubt,) = understood(FORMAT, source_of(table(cells, names))).doubts
    assert doubt.code == "links-missing"
    assert "GPU0 has 5" in doubt.sentence
    assert "GPU3 has 5" in doubt.sentence


def test_halves_that_differ_are_doubted_and_the_worse_is_taken() -> None:
    """NV12 one way and NV8 the other: eight links, and a doubt."""
    cells = matrix(2, "NV12")
    cells[1][0] = "NV8"
    found = understood(FORMAT, source_of(table(cells, ["GPU0", "GPU1"])))
    assert joined(wiring(found), "GPU0", "GPU1") == ("nvlink", 8)
    assert [(doubt.code, doubt.severity) for doubt in found.doubts] == [("asymmetric-matrix", Severity.DOUBT)]


def test_the_view_of_pcie_alone_says_nothing_about_nvlink() -> None:
    """``-mp``, and tables without any NVLink: PCIe cards, or a guest that does not see its links."""
    pcie = "$ nvidia-smi topo -mp\n" + table(matrix(2, "PIX"), ["GPU0", "GPU1"])
    names = ["GPU0", "GPU1", "GPU2", "GPU3"]
    guest = table(matrix(4, "SYS"), names, numa=["0", "0", "1", "1"])
    for text in (pcie, guest):
        found = understood(FORMAT, source_of(text))
        assert wiring(found).hides_nvlink
        assert [doubt.code for doubt in found.doubts] == ["nvlink-hidden"]


def test_peer_access_below_a_table_is_a_matrix() -> None:
    """``topo -p2p`` after ``topo -m`` in one paste: two facts, the second of ones and zeros."""
    access = " \tGPU0\tGPU1\n GPU0\tX\tGNS\n GPU1\tOK\tX\n\nLegend:\n\n  GNS = GPU not supported\n"
    text = table(matrix(2, "PHB"), ["GPU0", "GPU1"]) + "\n$ nvidia-smi topo -p2p rw\n" + access
    found = understood(FORMAT, source_of(text))
    wired, peers = found.facts
    assert isinstance(wired, WiringFact)
    assert isinstance(peers, MatrixFact)
    assert (peers.quantity, peers.values, peers.lines) == (Quantity.ACCESS, ((None, 0.0), (1.0, None)), (7, 8))
    assert (found.refusals, peers.cut) == ((), False)


def test_peer_access_is_known_without_its_command() -> None:
    """As it lies in the file that the tool's output was sent to."""
    text = (
        " \tGPU0\tGPU1\tGPU2\n GPU0\tX\tOK\tGNS\n GPU1\tOK\tX\tGNS\n GPU2\tGNS\tGNS\tX\n\nLegend:\n\n  X = Self\n"
    )
    assert [section.format for section in registry.recognise(source_of(text))] == ["nvidia-smi-topo"]
    found = understood(FORMAT, source_of(text))
    (peers,) = found.facts
    assert isinstance(peers, MatrixFact)
    assert peers.values == ((None, 1.0, 0.0), (1.0, None, 0.0), (0.0, 0.0, None))
    assert [doubt.code for doubt in found.doubts] == ["no-peer-access"]


def test_a_table_in_a_program_and_spaced_affinities_are_read() -> None:
    """A quotation mark in front of the header; blanks behind the commas of an affinity."""
    header = 'DGX = "  GPU0  GPU1  CPU Affinity  NUMA Affinity\n'
    text = header + "GPU0  X  NV2  0, 2, 4  1\nGPU1  NV2  X  1, 3  0\n"
    fact = wiring(understood(FORMAT, source_of(text)))
    assert joined(fact, "GPU0", "GPU1") == ("nvlink", 2)
    assert [section.format for section in registry.recognise(source_of(text))] == ["nvidia-smi-topo"]


def test_a_cut_legend_leaves_the_cards() -> None:
    """Columns of cards whose rows and half of whose legend are missing still stand."""
    names = ["GPU0", "GPU1", "NIC0", "NIC1"]
    text = table(matrix(4, "NODE"), names, legend="\nNIC Legend:\n\n  NIC0: mlx5_4\n")
    rows = text.split("\n")
    found = understood(FORMAT, source_of("\n".join(row for row in rows if not row.startswith("NIC1"))))
    fact = wiring(found)
    assert fact.nics == ("NIC0", "NIC1")
    assert fact.partial


def test_the_last_cell_of_a_table_cut_in_a_row_is_not_believed() -> None:
    """NV1 at the very end may be the beginning of NV18."""
    text = table(matrix(3, "NV18"), ["GPU0", "GPU1", "GPU2"]).split("GPU2\tNV18")[0] + "GPU2\tNV1"
    fact = wiring(understood(FORMAT, source_of(text)))
    assert joined(fact, "GPU0", "GPU2") == ("nvlink", 18)
    assert fact.partial


def test_words_that_nvidia_smi_does_not_print_are_refused_with_their_line() -> None:
    """One unknown cell, and a row whose X stands in another column."""
    cells = matrix(3, "NV4")
    cells[0][1] = "FOO"
    found = understood(FORMAT, source_of(table(cells, ["GPU0", "GPU1", "GPU2"])))
    assert [(refusal.first_line, "FOO" in refusal.sentence) for refusal in found.refusals] == [(2, True)]
    assert joined(wiring(found), "GPU0", "GPU1") == ("nvlink", 4)
    shifted = matrix(3, "NV4")
    del shifted[1][0]
    (refusal,) = understood(FORMAT, source_of(table(shifted, ["GPU0", "GPU1", "GPU2"]))).refusals
    assert (refusal.first_line, "no X" in refusal.sentence) == (3, True)


def test_one_gpu_is_a_table_too() -> None:
    """A host with one GPU has no joint, and no doubt."""
    found = understood(
        FORMAT, source_of("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-19\t0\t\tN/A\n")
    )
    assert (wiring(found).gpus, wiring(found).joints, found.doubts) == (("GPU0",), (), ())


def test_a_header_without_rows_is_refused() -> None:
    """Nothing is made up where all rows are missing."""
    found = understood(FORMAT, source_of("\tGPU0\tGPU1\tCPU Affinity\n\nLegend:\n"))
    assert not found.facts
    assert "without its rows" in found.refusals[0].sentence


def test_two_tables_in_one_file_are_two_facts() -> None:
    """A paste of two hosts."""
    text = "$ nvidia-smi topo -mp\n" + table(matrix(2, "PIX"), ["GPU0", "GPU1"])
    text += "\n$ nvidia-smi topo -m\n" + table(matrix(2, "NV4"), ["GPU0", "GPU1"])
    reading = registry.read(source_of(text))
    facts = [fact for _, found in reading.sections for fact in found.facts if isinstance(fact, WiringFact)]
    assert [(fact.hides_nvlink, fact.joints[0].kind) for fact in facts] == [
        (True, JointKind.PIX),
        (False, JointKind.NVLINK),
    ]


def test_tables_of_several_hosts_in_one_file_are_doubted() -> None:
    """The same table twice is one host looked at twice; another table is another host."""
    one = table(matrix(2, "NV4"), ["GPU0", "GPU1"])
    assert not understood(FORMAT, source_of(one + "\n" + one)).doubts
    found = understood(FORMAT, source_of(one + "\n" + table(matrix(3, "NV4"), ["GPU0", "GPU1", "GPU2"])))
    assert [doubt.code for doubt in found.doubts] == ["several-hosts"]


def test_more_columns_than_a_host_has_devices_are_refused() -> None:
    """And so is a command that printed no table; rows without columns end at the same limit."""
    wide = "\t".join(f"GPU{index}" for index in range(300)) + "\tCPU Affinity\nGPU0\t X \n"
    for text in (wide, "$ nvidia-smi topo -m\nbash: nvidia-smi: command not found\n"):
        found = understood(FORMAT, source_of(text))
        assert not found.facts
        assert "no table" in found.refusals[0].sentence
    long = "\tGPU0\tGPU1\tCPU Affinity\n" + "".join(f"GPU{index}\n" for index in range(2000))
    assert len(wiring(understood(FORMAT, source_of(long))).gpus) <= 256


@given(st.permutations(range(4)), st.lists(st.sampled_from(("NV18", "NV12", "SYS", "PIX")), min_size=6, max_size=6))
def test_the_order_of_rows_says_nothing(order: list[int], words: list[str]) -> None:
    """Rows in any order draw the same wiring."""
    cells = matrix(4, "")
    pairs = [(row, column) for row in range(4) for column in range(row)]
    for (row, column), word in zip(pairs, words, strict=True):
        cells[row][column] = cells[column][row] = word
    header, *rows = table(cells, [f"GPU{index}" for index in range(4)]).splitlines()
    one = understood(FORMAT, source_of("\n".join([header, *rows])))
    other = understood(FORMAT, source_of("\n".join([header, *(rows[index] for index in order)])))
    assert wiring(one).joints == wiring(other).joints
    assert {joint.kind.value if joint.links is None else f"NV{joint.links}" for joint in wiring(one).joints} == {
        word if word.startswith("NV") else word.lower() for word in words
    }


WHOLE = "$ nvidia-smi topo -m\n" + table(
    matrix(6, "NV18"), ["GPU0", "GPU1", "GPU2", "GPU3", "NIC0", "NIC1"], numa=["0"] * 6, legend="\n  NIC0: mlx5_0\n"
)


@given(damaged(WHOLE))
def test_damage_never_stops_the_reader(text: str) -> None:
    """No device comes from nowhere, and no pair is drawn twice."""
    for fact in sound(FORMAT, text).facts:
        if not isinstance(fact, WiringFact):
            continue
        names = {*fact.gpus, *fact.nics}
        pairs = [frozenset((joint.first, joint.second)) for joint in fact.joints]
        assert len(pairs) == len(set(pairs))
        assert all(pair <= names and len(pair) == 2 for pair in pairs)


@pytest.mark.parametrize(
    ("words", "command", "told"),
    [
        ("GNS", "$ nvidia-smi topo -p2p r\n", True),
        ("CNS", "", True),
        ("NS", "$ nvidia-smi topo -p2p w\n", True),
        ("NS", "$ nvidia-smi topo -p2p n\n", False),
        ("OK", "$ nvidia-smi topo -p2p r\n", False),
    ],
)
def test_gpus_that_cannot_reach_each_other_are_doubted(words: str, command: str, *, told: bool) -> None:
    """By the words of reading and writing; that NVLink is not there says nothing of peers."""
    access = f" \tGPU0\tGPU1\tGPU2\n GPU0\tX\t{words}\tOK\n GPU1\t{words}\tX\tOK\n GPU2\tOK\tOK\tX\n\nLegend:\n"
    head = table(matrix(3, "PHB"), ["GPU0", "GPU1", "GPU2"]) + "\n"
    found = understood(FORMAT, source_of(head + command + access))
    sentences = [doubt.sentence for doubt in found.doubts if doubt.code == "no-peer-access"]
    assert bool(sentences) is told
    assert not told or f"GPU0 to GPU1 ({words})" in sentences[0]


@pytest.mark.parametrize("rows", [4, 6, 8])
def test_a_table_without_all_rows_has_its_note(rows: int) -> None:
    """Rows of GPUs or of cards: what they would have said is in the other rows, but for pairs of two cut ones."""
    names = [*(f"GPU{at}" for at in range(8)), "NIC0", "NIC1"]
    text = "\n".join(table(matrix(10, "NV18"), names).splitlines()[: rows + 1]) + "\n"
    (told,) = [doubt for doubt in report_of({"topo.txt": text}).proposal.doubts if doubt.code == "partial"]
    pairs = {4: 22, 6: 27, 8: 28}[rows]
    assert (told.severity, f"{pairs} of 28 pairs of GPUs" in told.sentence) == (Severity.NOTE, True)
    whole = report_of({"topo.txt": table(matrix(10, "NV18"), names)}).proposal
    assert "partial" not in [doubt.code for doubt in whole.doubts]
