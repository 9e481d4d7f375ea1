"""p2pBandwidthLatencyTest: every table, real ones and our own, whole and damaged."""

from __future__ import annotations

import pytest

from cluster_models.cluster.measurements import Direction
from readers.formats.gpu_matrices import header_of, read_table, warm_up
from readers.formats.nvidia.p2p_test import FORMAT
from readers.frame.facts import Memory, Quantity
from readers.frame.lines import clean_lines
from readers.frame.reading import Contents
from tests.readers.real_files import matrices, real, source_of, understood


def codes(found: Contents) -> set[str]:
    return {doubt.code for doubt in found.doubts}


def table(count: int, corner: str = "D\\D", far: float = 21.25) -> str:
    """A table whose figure from i to j is ``far`` + i + j / 100."""
    head = f"   {corner}" + "".join(f"{j:6d} " for j in range(count))
    rows = [
        f"{i:6d} " + "".join(f"{(900.5 if i == j else far + i + j / 100):6.2f} " for j in range(count))
        for i in range(count)
    ]
    return "\n".join([head, *rows])


def access(count: int, *, reached: int) -> str:
    head = "     D\\D" + "".join(f"{j:6d}" for j in range(count))
    rows = [f"{i:6d}\t" + "".join(f"{1 if i == j else reached:6d}" for j in range(count)) for i in range(count)]
    return "\n".join(["P2P Connectivity Matrix", head, *rows])


def whole(count: int, *, reached: int = 1) -> str:
    parts = [
        "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]",
        *(f"Device: {i}, Own GPU, pciBusID: {i}, pciDeviceID: 0, pciDomainID:0" for i in range(count)),
        access(count, reached=reached),
    ]
    for ways in ("Unidirectional", "Bidirectional"):
        parts += [f"{ways} P2P=Disabled Bandwidth Matrix (GB/s)", table(count, far=11.5)]
        how = " (P2P Writes)" if ways == "Unidirectional" else ""
        parts += [f"{ways} P2P=Enabled Bandwidth{how} Matrix (GB/s)", table(count)]
    for state in ("P2P=Disabled Latency Matrix (us)", "P2P=Enabled Latency (P2P Writes) Matrix (us)"):
        parts += [state, table(count, "GPU", 1.5), "", table(count, "CPU", 2.5)]
    return "\n".join([*parts, "", "NOTE: The CUDA Samples are not meant for performance measurements.", ""])


@pytest.mark.parametrize(
    ("file", "facts", "which", "cell", "figure", "line", "expected"),
    [
        ("pcie8_full", 9, 2, (0, 7), 18.60e9, 26, {"both-directions"}),
        ("pcie8_full", 9, 2, (4, 7), 25.01e9, 26, {"both-directions"}),
        ("rtx4090x8_patched_driver_bidir", 1, 0, (0, 1), 49.78e9, 3, {"both-directions"}),
        ("rtx5090x2_no_p2p", 9, 2, (0, 1), 38.20e9, 20, {"both-directions", "no-peer-access"}),
    ],
)
def test_real_files(
    file: str, facts: int, which: int, cell: tuple[int, int], figure: float, line: int, expected: set[str]
) -> None:
    found = understood(FORMAT, real(f"topology/p2p/p2pBandwidthLatencyTest_{file}.txt"))
    fact = matrices(found)[which]
    assert len(found.facts) == facts
    assert fact.values[cell[0]][cell[1]] == pytest.approx(figure)
    assert fact.lines[0] == line
    assert fact.values[0][0] is None
    assert not found.refusals
    assert codes(found) == expected


def test_real_file_without_peer_access_says_so_of_its_enabled_tables() -> None:
    found = matrices(understood(FORMAT, real("topology/p2p/p2pBandwidthLatencyTest_rtx5090x2_no_p2p.txt")))
    assert {fact.peer_access for fact in found if fact.method.startswith("p2p=")} == {False}
    assert found[0].values == ((1.0, 0.0), (0.0, 1.0))


@pytest.mark.parametrize("count", [4, 8, 16])
def test_every_table_of_a_whole_run_is_read(count: int) -> None:
    found = understood(FORMAT, source_of(whole(count), host="m7"))
    facts = matrices(found)
    assert [fact.quantity for fact in facts] == [
        Quantity.ACCESS,
        *[Quantity.BANDWIDTH] * 4,
        *[Quantity.LATENCY] * 4,
    ]
    assert {(len(fact.rows), len(fact.columns), fact.host, fact.cut) for fact in facts} == {
        (count, count, "m7", False)
    }
    assert facts[2].values[1][3] == pytest.approx(22.28e9)
    assert facts[5].values[2][0] == pytest.approx(3.5e-6)
    assert [fact.direction for fact in facts[1:5]] == [*[Direction.FORWARD] * 2, *[Direction.BOTH] * 2]
    assert [fact.peer_access for fact in facts[1:5]] == [False, True, False, True]
    assert [fact.memory for fact in facts[5:]] == [Memory.GPU, Memory.HOST] * 2
    assert not found.refusals


def test_reads_are_turned() -> None:
    text = "Unidirectional P2P=Enabled Bandwidth (P2P Reads) Matrix (GB/s)\n" + table(4)
    fact = matrices(understood(FORMAT, source_of(text)))[0]
    assert fact.values[3][1] == pytest.approx((21.25 + 1 + 0.03) * 1e9)


def test_peers_that_cannot_reach_each_other_raise_a_doubt() -> None:
    assert "no-peer-access" in codes(understood(FORMAT, source_of(whole(4, reached=0))))
    assert "no-peer-access" not in codes(understood(FORMAT, source_of(whole(4))))


def test_a_number_cut_in_the_middle_is_not_a_figure() -> None:
    text = "Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n" + table(8, far=774.31)
    found = understood(FORMAT, source_of(text.rstrip()[:-4]))
    fact = matrices(found)[0]
    assert fact.values[6][7] is not None
    assert fact.values[7][6] == pytest.approx(781.37e9)
    assert fact.cut
    assert "cut" in codes(found)
    shorter = "\n".join(text.splitlines()[:6]) + "\n     4 778.31 77"
    cut = matrices(understood(FORMAT, source_of(shorter)))[0]
    assert cut.rows == ("0", "1", "2", "3", "4")
    assert cut.values[4] == (pytest.approx(778.31e9), *(None,) * 7)


def test_numbers_that_touch_are_taken_apart() -> None:
    rows = "   D\\D     0      1\n     0 2536.3820.56\n     1  24.182550.10"
    text = "Unidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n" + rows
    fact = matrices(understood(FORMAT, source_of(text)))[0]
    assert fact.values == ((None, pytest.approx(20.56e9)), (pytest.approx(24.18e9), None))


def test_a_row_that_lacks_figures_is_refused_and_the_others_kept() -> None:
    rows = table(4).splitlines()
    rows[2] = rows[2][:20]
    found = understood(FORMAT, source_of("\n".join(["Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)", *rows])))
    assert matrices(found)[0].rows == ("0", "2", "3")
    assert found.refusals[0].first_line == 4
    assert "columns" in found.refusals[0].sentence


def test_a_figure_that_nothing_can_be_is_damage() -> None:
    text = "Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n" + table(4).replace("22.28", "1e308")
    found = understood(FORMAT, source_of(text))
    assert matrices(found)[0].rows == ("0", "2", "3")
    assert len(found.refusals) == 1


def test_first_pairs_that_are_slow_one_way_only_are_warming_up() -> None:
    cold = tuple(tuple(None if i == j else (370e9 if i == 0 else 393e9) for j in range(8)) for i in range(8))
    slow = tuple(tuple(None if i == j else (370e9 if 0 in {i, j} else 393e9) for j in range(8)) for i in range(8))
    assert [doubt.code for doubt in warm_up(cold, 3)] == ["warm-up"]
    assert warm_up(slow, 3) == ()


def test_output_without_tables_is_refused() -> None:
    found = understood(FORMAT, source_of("[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\nDevice: 0, Own GPU"))
    assert found.facts == ()
    assert len(found.refusals) == 1


@pytest.mark.parametrize("text", ["", "0 2 1", "1 2 3", "D\\D", "a b"])
def test_other_rows_are_no_headers(text: str) -> None:
    assert header_of(text) is None
    assert read_table(clean_lines(text + "\n0 1.00"), 0) is None
