"""Our own CSV: long form, matrices of nodes, matrices of GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.measurements import Direction
from readers.formats.own_tables import FORMAT, unit_of
from readers.frame.facts import MatrixFact, Operation, Point, Quantity, RunEnd, RunFact
from readers.frame.reading import Contents
from tests.readers.real_files import real, source_of, understood


def _read(text: str, name: str = "table.csv", host: str | None = None) -> Contents:
    return understood(FORMAT, source_of(text, name, host))


def _matrix(found: Contents) -> MatrixFact:
    (fact,) = found.facts
    assert isinstance(fact, MatrixFact)
    return fact


def _runs(found: Contents) -> list[RunFact]:
    return [fact for fact in found.facts if isinstance(fact, RunFact)]


REAL = (
    ("matrix_clusterB_17node_h100_2025-11_alltoall_G4_peak_busbw.csv", "alltoall", 4, 17, 0, 1, 23.04e9),
    ("matrix_clusterA_8node_h100_2025-08_sendrecv_G8_peak_busbw.csv", "sendrecv", 8, 8, 0, 1, 29.03e9),
    ("pipette_16node_mpigraph_time0_send_MBps.csv", "point_to_point", None, 16, 1, 0, 19060.6e6),
    ("dtfm_10regions_bandwidth_Gbps.csv", "point_to_point", None, 10, 0, 1, 0.79e9 / 8),
    ("dtfm_10regions_delay_ms.csv", "point_to_point", None, 10, 0, 1, 0.067),
    ("gpu_h100x8_nvbandwidth_v010_latency_ns.csv", "point_to_point", None, 8, 0, 1, 826.42e-9),
    ("gpu_h100x8_p2ptest_unidir_GBps.csv", "point_to_point", None, 8, 0, 1, 365.3e9),
)


@pytest.mark.parametrize(("name", "operation", "flows", "size", "row", "column", "value"), REAL)
def test_real_matrices(
    name: str, operation: str, flows: int | None, size: int, row: int, column: int, value: float
) -> None:
    """Size, unit, and one figure."""
    found = understood(FORMAT, real(f"bandwidth/{name}"))
    fact = _matrix(found)
    assert (fact.operation, fact.ranks_per_node, len(fact.rows)) == (Operation(operation), flows, size)
    assert fact.values[row][column] == pytest.approx(value)
    assert not found.refusals


def test_a_real_long_table() -> None:
    """28 pairs, 4 numbers of GPUs, 2 collectives."""
    found = understood(FORMAT, real("bandwidth/nccl_pairwise_clusterA_8node_h100_2025-08.csv"))
    runs = _runs(found)
    assert len(runs) == 28 * 4 * 2
    assert runs[0].points[0].bytes_per_s == pytest.approx(25.69e9)
    assert runs[0].points[0].line == 2
    assert (runs[0].hosts, runs[0].ranks) == (("cnode4-005", "cnode4-006"), 2)


@pytest.mark.parametrize(
    ("text", "quantity", "factor"),
    [
        ("busbw_GBps", Quantity.BANDWIDTH, 1e9),
        ("bandwidth_Gbps", Quantity.BANDWIDTH, 1e9 / 8),
        ("node_MBps", Quantity.BANDWIDTH, 1e6),
        ("busbw_gbs", Quantity.BANDWIDTH, 1e9),
        ("received_gbps", Quantity.BANDWIDTH, 1e9 / 8),
        ("node (GB/s)", Quantity.BANDWIDTH, 1e9),
        ("100 Gbit/s", Quantity.BANDWIDTH, 1e9 / 8),
        ("latency_us", Quantity.LATENCY, 1e-6),
        ("gpu_ns", Quantity.LATENCY, 1e-9),
    ],
)
def test_units(text: str, quantity: Quantity, factor: float) -> None:
    """Bits have a small b; in small letters throughout, gbs are bytes and gbps bits."""
    unit = unit_of(text)
    assert unit is not None
    assert unit.quantity is quantity
    assert unit.factor == pytest.approx(factor)


@pytest.mark.parametrize("text", ["node", "gpus", "bandwidth", "hosts_names", "GPU0"])
def test_names_without_a_unit(text: str) -> None:
    """None is guessed."""
    assert unit_of(text) is None


def test_a_matrix_of_nodes_goes_from_row_to_column() -> None:
    """Empty is unknown, rows may be in any order."""
    fact = _matrix(_read("node_GBps,oak,elm,ash\nelm,4,,5\noak,,2,3\nash,6,,\n"))
    assert (fact.between, fact.rows, fact.columns) == ("nodes", ("elm", "oak", "ash"), ("oak", "elm", "ash"))
    assert fact.values == ((4e9, None, 5e9), (None, 2e9, 3e9), (6e9, None, None))
    assert (fact.lines, fact.direction, fact.host) == ((2, 3, 4), Direction.FORWARD, None)


def test_a_matrix_of_gpus_is_of_one_host_and_has_no_diagonal() -> None:
    """Its diagonal would be a GPU's own memory."""
    fact = _matrix(_read("# host: oak\n# unit: GB/s\ngpu,0,1\n0,800,40\n1,41,800\n"))
    assert (fact.between, fact.host, fact.values) == ("gpus", "oak", ((None, 40e9), (41e9, None)))
    assert _matrix(_read("gpu_GBps,0,1\n0,,40\n1,41,\n", host="elm")).host == "elm"


def test_a_figure_without_a_unit_is_refused_with_the_names_that_would_do() -> None:
    """GB/s and Gb/s are eight apart: none is guessed."""
    found = _read("node,oak,elm\noak,,4\nelm,4,\n")
    assert not found.facts
    assert (found.refusals[0].first_line, found.refusals[0].last_line) == (1, 3)
    assert "node_GBps" in found.refusals[0].remedy
    assert _matrix(_read("node,oak,elm\noak,,4\nelm,4,\n", "links_Gbps.csv")).values[0][1] == 0.5e9


@pytest.mark.parametrize("cell", ["0", "-3", "fast", "1e999"])
def test_a_cell_that_is_no_measurement_is_refused_and_unknown(cell: str) -> None:
    """0 above all: what was not measured is empty."""
    found = _read(f"node_GBps,oak,elm\noak,,{cell}\nelm,4,\n")
    assert _matrix(found).values == ((None, None), (4e9, None))
    (refusal,) = found.refusals
    assert refusal.first_line == 2
    assert ("never 0" in refusal.remedy) == (cell == "0")


def test_a_row_of_another_name_is_refused() -> None:
    """A matrix that is not square over the same names says nothing for that row."""
    found = _read("node_GBps,oak,elm\noak,,4\nyew,4,\n")
    assert len(_matrix(found).rows) == 1
    assert "'yew'" in found.refusals[0].sentence
    assert [doubt.code for doubt in found.doubts] == ["partial"]


def test_rows_of_the_long_form_make_runs() -> None:
    """One for each pair, number of GPUs and collective; a failed row fails its run."""
    text = (
        "node_a,node_b,gpus_per_node,collective,size_bytes,busbw_GBps,status,error\n"
        "oak,elm,8,alltoall,1M,10,ok,\n"
        "oak,elm,8,alltoall,1048576000,90,ok,\n"
        "oak,ash,8,alltoall,1M,,failed,no route\n"
        "elm,ash,1,,1M,5,,\n"
        "elm,elm,8,all_reduce,1M,300,ok,\n"
        "ash,oak,1,,1M,0,ok,\n"
    )
    found = _read(text)
    first, failed, one_way, inside = _runs(found)
    assert [(p.message_bytes, p.bytes_per_s, p.line) for p in first.points] == [
        (1 << 20, 10e9, 2),
        (1048576000, 90e9, 3),
    ]
    assert (first.ranks, first.direction, first.end) == (16, Direction.BOTH, RunEnd.COMPLETE)
    assert (failed.end, failed.end_reason, failed.points) == (RunEnd.FAILED, "no route", (Point(4, 2.0**20, None),))
    assert (one_way.operation, one_way.direction) == (Operation.POINT_TO_POINT, Direction.FORWARD)
    assert (inside.hosts, inside.nodes, inside.ranks) == (("elm",), 1, 8)
    assert [(refusal.first_line, "never 0" in refusal.remedy) for refusal in found.refusals] == [(7, True)]


def test_a_collective_that_is_not_known_is_refused() -> None:
    """It must not pass for a plain transfer; those of nccl-tests all are known."""
    found = _read("node_a,node_b,collective,busbw_GBps\noak,elm,juggle,3\noak,elm,gather_perf,4\noak,elm,p2p,5\n")
    assert [run.operation for run in _runs(found)] == [Operation.GATHER, Operation.POINT_TO_POINT]
    assert "'juggle'" in found.refusals[0].sentence


def test_latencies_of_the_long_form_are_seconds() -> None:
    """A column of its own beside the bandwidth, or alone."""
    (run,) = _runs(_read("source;destination;size_bytes;latency_us\noak;elm;8;3.5\n"))
    assert run.points[0].time_s == pytest.approx(3.5e-6)
    assert run.points[0].bytes_per_s is None


@given(st.lists(st.lists(st.sampled_from(["oak", "elm", "4", "0", '"', "", "x;y"]), max_size=5), max_size=6))
def test_any_table_is_read_without_an_error(rows: list[list[str]]) -> None:
    """Whatever stands below a header: every figure read is positive."""
    body = "\n".join(",".join(row) for row in rows)
    for header in ("node_GBps,oak,elm\n", "gpu_us,0,1\n", "node_a,node_b,busbw_GBps,latency_us\n"):
        for fact in _read(header + body).facts:
            figures = (
                [value for row in fact.values for value in row]
                if isinstance(fact, MatrixFact)
                else [point.bytes_per_s for run in [fact] if isinstance(run, RunFact) for point in run.points]
            )
            assert all(figure is None or figure > 0 for figure in figures)


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    """And what has no header is refused."""
    assert not _read(text).facts
