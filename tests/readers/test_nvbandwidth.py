"""nvbandwidth: arrows, hosts of a multinode run, sums, waived tests, JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.measurements import Direction
from readers.formats.nvidia.nvbandwidth import FORMATS
from readers.frame.facts import Memory, Quantity
from readers.frame.findings import Severity
from readers.frame.reading import Contents
from readers.frame.sources import Source
from tests.readers.real_files import matrices, real, source_of, understood

TEXT, JSON = FORMATS
READ = "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)"
WRITE = "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)"
_ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(("name", "status", "bandwidth_matrix", "bandwidth_description", "sum")),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


def codes(found: Contents) -> set[str]:
    return {doubt.code for doubt in found.doubts}


def figure(row: int, column: int) -> float:
    return round(300 + row + column / 10, 2)


def block(title: str, test: str, count: int, own: str = "N/A") -> str:
    """A test whose figure in row i and column j is 300 + i + j / 10."""
    head = "  " + "".join(f"{j:10d}" for j in range(count))
    rows = [
        f"{i:2d}" + "".join(f"{own:>10}" if i == j else f"{figure(i, j):10.2f}" for j in range(count))
        for i in range(count)
    ]
    total = sum(figure(i, j) for i in range(count) for j in range(count) if i != j)
    return "\n".join([f"Running {test}.", title, head, *rows, "", f"SUM {test} {total:.2f}", ""])


def whole(count: int = 4) -> str:
    devices = [f"Device {i}: Own GPU 80GB (0000000{i}:01:00)" for i in range(count)]
    head = ["nvbandwidth Version: v0.8", "Built from Git version: v0.8", "", *devices, ""]
    host = "\n".join(
        [
            "Running host_to_device_memcpy_ce.",
            "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
            "  " + "".join(f"{j:10d}" for j in range(count)),
            " 0" + "     55.25" * count,
            "",
            f"SUM host_to_device_memcpy_ce {55.25 * count:.2f}",
            "COEFFICIENT_OF_VARIATION host_to_device_memcpy_ce 0.00",
            "",
        ]
    )
    return "\n".join(
        [
            *head,
            host,
            block(READ, "device_to_device_memcpy_read_ce", count),
            block(WRITE, "device_to_device_memcpy_write_ce", count, own="0.00"),
            block(
                "memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)",
                "device_to_device_bidirectional_memcpy_read_ce",
                count,
            ),
            block("memory latency SM GPU(row) <-> GPU(column) (ns)", "device_to_device_latency_sm", count),
            "Waived: ",
            "Waived: ",
            "NOTE: The reported results may not reflect the full capabilities of the platform.",
        ]
    )


@pytest.mark.parametrize(
    ("file", "cell", "figure_gbs", "line", "tool"),
    [
        ("a100x8_d2d_write_ce_text.txt", (6, 0), 274.89, 10, "nvbandwidth"),
        ("h100x8_azure_v04_read_ce.txt", (2, 4), 370.38, 27, "nvbandwidth 0.4"),
        ("oci_gb200_multinode_8gpu_v07_mpi_bindings.txt", (0, 7), 797.88, 39, "nvbandwidth 0.7"),
    ],
)
def test_real_files(file: str, cell: tuple[int, int], figure_gbs: float, line: int, tool: str) -> None:
    found = understood(TEXT, real(f"topology/nvbandwidth/{file}"))
    (fact,) = matrices(found)
    assert fact.values[cell[0]][cell[1]] == pytest.approx(figure_gbs * 1e9)
    assert line in fact.lines
    assert fact.tool == tool
    assert all(fact.values[own][own] is None for own in range(8))
    assert found.refusals == ()
    assert found.doubts == ()


def test_real_multinode_run_gives_each_gpu_its_host_and_the_printed_sum() -> None:
    file = "topology/nvbandwidth/oci_gb200_multinode_8gpu_v07_mpi_bindings.txt"
    (fact,) = matrices(understood(TEXT, real(file, host="ignored")))
    assert fact.host is None
    assert [fact.hosts[str(gpu)][-1] for gpu in range(8)] == ["0"] * 4 + ["1"] * 4
    assert sum(value or 0 for row in fact.values for value in row) == pytest.approx(44685.29e9, rel=1e-5)


def test_every_table_of_a_run_is_read_from_row_to_column() -> None:
    found = understood(TEXT, source_of(whole(), host="m1"))
    host, read, write, both, latency = matrices(found)
    assert (host.memory, host.rows, host.values[0][3]) == (Memory.HOST, ("cpu0",), pytest.approx(55.25e9))
    assert read.values[1][3] == pytest.approx(figure(3, 1) * 1e9)  # GPU 3 reads from GPU 1 in its own row
    assert write.values[1][3] == pytest.approx(figure(1, 3) * 1e9)  # GPU 1 writes to GPU 3 in its own row
    assert both.direction is Direction.BOTH
    assert {fact.direction for fact in (host, read, write, latency)} == {Direction.FORWARD}
    assert (latency.quantity, latency.values[0][1]) == (Quantity.LATENCY, pytest.approx(figure(0, 1) * 1e-9))
    assert [fact.method for fact in (read, write)] == ["copy engine read", "copy engine write"]
    assert {fact.host for fact in matrices(found)} == {"m1"}
    assert codes(found) == {"both-directions"}
    assert [(refusal.first_line, refusal.last_line) for refusal in found.refusals] == [
        (len(whole().splitlines()) - 2, len(whole().splitlines()) - 1)
    ]


def test_copies_to_the_host_are_turned() -> None:
    title = "memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)"
    text = f"Running device_to_host_memcpy_ce.\n{title}\n  0 1\n0 50.25 51.25"
    (fact,) = matrices(understood(TEXT, source_of(text)))
    assert (fact.rows, fact.columns, fact.lines) == (("0", "1"), ("cpu0",), (4, 4))
    assert fact.values == ((pytest.approx(50.25e9),), (pytest.approx(51.25e9),))


def test_one_stream_of_two_and_their_sum_differ() -> None:
    title = "memcpy {} GPU(row) <-> GPU(column) {}bandwidth (GB/s)"
    expected = {
        title.format("CE", "Read1 "): Direction.FORWARD,
        title.format("SM", "Total "): Direction.BOTH,
        title.format("CE", ""): Direction.FORWARD,
        title.format("SM", ""): Direction.BOTH,
    }
    for text, direction in expected.items():
        source = source_of(block(text, "device_to_device_bidirectional_memcpy_write", 3))
        assert matrices(understood(TEXT, source))[0].direction is direction


def test_the_first_stream_of_two_runs_from_the_column_to_the_row() -> None:
    title = "memcpy CE GPU(row) <-> GPU(column) {} bandwidth (GB/s)"
    for words, cell in {"Read1": (2, 0), "Read2": (0, 2), "Write1": (2, 0), "Write2": (0, 2)}.items():
        source = source_of(block(title.format(words), "device_to_device_bidirectional_memcpy_read_ce", 3))
        (fact,) = matrices(understood(TEXT, source))
        assert fact.values[cell[0]][cell[1]] == pytest.approx(figure(0, 2) * 1e9)


def test_a_sum_that_does_not_fit_is_doubted() -> None:
    lines = block(READ, "device_to_device_memcpy_read_ce", 4).splitlines()
    assert codes(understood(TEXT, source_of("\n".join(lines)))) == set()
    del lines[6]
    assert "partial" in codes(understood(TEXT, source_of("\n".join(lines))))


def test_more_columns_than_devices_are_rejected() -> None:
    text = "nvbandwidth Version: v0.6\nDevice 0: Own GPU\n" + block(READ, "device_to_device_memcpy_read_ce", 3)
    (doubt,) = understood(TEXT, source_of(text)).doubts
    assert (doubt.code, doubt.severity) == ("impossible-shape", Severity.REJECT)


def test_totals_and_errors_are_refused() -> None:
    text = block("memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)", "all_to_one_write_ce", 2)
    found = understood(TEXT, source_of(text + "\nERROR: [CUDA_ERROR_NOT_SUPPORTED] in expression x"))
    assert found.facts == ()
    assert len(found.refusals) == 2
    assert understood(TEXT, source_of("nvbandwidth Version: v0.6")).refusals


def test_a_second_run_has_its_own_devices() -> None:
    first = "nvbandwidth Version: v0.6\nProcess 0 (m1): device 0: Own GPU\nProcess 1 (m2): device 0: Own GPU\n"
    table = block(READ, "device_to_device_memcpy_read_ce", 2)
    found = understood(TEXT, source_of(first + table + "nvbandwidth Version: v0.7\n" + table, host="m3"))
    one, other = matrices(found)
    assert (one.host, one.hosts) == (None, {"0": "m1", "1": "m2"})
    assert (other.host, other.hosts, other.tool) == ("m3", {}, "nvbandwidth 0.7")


def json_run() -> dict[str, object]:
    cells = [["N/A" if i == j else str(figure(i, j)) for j in range(3)] for i in range(3)]
    total = sum(figure(i, j) for i in range(3) for j in range(3) if i != j)
    return {
        "nvbandwidth": {
            "version": "v0.8",
            "GPU Device list": [f"{i}: Own GPU (0000000{i}:01:00)" for i in range(3)],
            "testcases": [
                {
                    "name": "device_to_device_memcpy_write_ce",
                    "status": "Passed",
                    "bandwidth_description": WRITE,
                    "bandwidth_matrix": cells,
                    "sum": total,
                },
                {"name": "device_to_device_memcpy_read_sm", "status": "Waived"},
                {"name": "device_to_device_memcpy_read_ce", "status": "Error"},
                {
                    "name": "device_to_device_bidirectional_memcpy_read_sm",
                    "status": "Passed",
                    "bandwidth_description": "memcpy SM GPU(row) <-> GPU(column) Total bandwidth (GB/s)",
                    "bandwidth_matrix": [["N/A", "1", "1"]] * 6 + cells,
                    "sum": total,
                },
            ],
        }
    }


def test_json_is_read_like_text() -> None:
    tree = json_run()
    text = json.dumps(tree, indent=1)
    assert JSON.fits is not None
    assert JSON.fits(tree)
    found = understood(JSON, Source("run.json", text, tree))
    write, both = matrices(found)
    assert write.values[0][2] == pytest.approx(figure(0, 2) * 1e9)
    assert write.values[1][1] is None
    assert "write_ce" in text.splitlines()[write.lines[0] - 1]
    assert (both.direction, len(both.rows)) == (Direction.BOTH, 3)
    assert both.origin.path == "nvbandwidth.testcases[3]"
    assert len(found.refusals) == 2
    assert "waived" in found.refusals[0].sentence
    assert codes(found) == {"both-directions"}


@pytest.mark.parametrize("cells", [[["x", "1"]], [["1"], ["1", "2"]], [[]], "no", [["-5", "1"], ["1", "2"]]])
def test_json_without_figures_is_refused(cells: object) -> None:
    tree = {"nvbandwidth": {"testcases": [{"name": "a_ce", "status": "Passed", "bandwidth_matrix": cells}]}}
    found = understood(JSON, Source("run.json", json.dumps(tree), tree))
    assert (len(found.facts), len(found.refusals)) == (0, 1)


@given(_ANY_JSON)
def test_any_json_is_taken(tests: object) -> None:
    tree = {"nvbandwidth": {"testcases": tests if isinstance(tests, list) else [tests], "version": tests}}
    understood(JSON, Source("run.json", "", tree))
    understood(JSON, Source("run.json", "", tests))
