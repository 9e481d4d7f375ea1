"""mpiGraph: two tables, from row to column, in units of 2^20 bytes."""

from __future__ import annotations

import pytest

from cluster_models.cluster.measurements import Direction
from readers.formats.mpi.mpigraph import FORMAT
from readers.frame.facts import Quantity
from tests.readers.real_files import matrices, source_of, understood


def rate(source: int, destination: int) -> float:
    return 20000 + 100 * source + destination + 0.125


def table(kind: str, labels: list[str]) -> str:
    """Both tables of one truth: what a rank sends to another, that one receives from it."""
    lines = [f"{kind}\t" + "".join(f"{label}\t" for label in labels)]
    for i, label in enumerate(labels):
        cells = [0.0 if i == j else (rate(i, j) if kind == "Send" else rate(j, i) - 50) for j in range(len(labels))]
        way = "to" if kind == "Send" else "from"
        lines.append(f"{label} {way}\t" + "".join(f"{cell:.3f}\t" for cell in cells))
    return "\n".join(lines)


def whole(labels: list[str]) -> str:
    settings = f"MsgSize\t1048576\nTimes\t100\nWindow\t50\nProcs\t{len(labels)}\n"
    steps = "".join(f"{i} of {len(labels)} ({100 * i / len(labels):.1f}%)\n" for i in range(1, len(labels)))
    return (
        f"START mpiGraph v1.5\n{settings}\n{steps}Gathering results\n\nSend max\t20301.1\nSend avg\t20100.2\n\n"
        f"{table('Send', labels)}\n\nRecv max\t20251.1\nRecv avg\t20050.2\n\n"
        f"{table('Recv', labels)}\nEND mpiGraph\n"
    )


def test_both_tables_are_from_row_to_column() -> None:
    labels = [f"node{i}:{i}" for i in range(5)]
    found = understood(FORMAT, source_of(whole(labels)))
    send, receive = matrices(found)
    assert send.rows == send.columns == receive.rows == tuple(f"node{i}" for i in range(5))
    assert send.values[1][4] == pytest.approx(rate(1, 4) * 2**20)
    assert receive.values[1][4] == pytest.approx((rate(1, 4) - 50) * 2**20)
    assert send.values[2][2] is None
    assert (send.between, send.tool, send.message_bytes) == ("nodes", "mpiGraph 1.5", 1048576)
    assert (send.ranks_per_node, send.hosts, send.direction) == (1, {}, Direction.FORWARD)
    assert {fact.quantity for fact in (send, receive)} == {Quantity.BANDWIDTH}
    assert whole(labels).splitlines()[send.lines[3] - 1].startswith("node3:3 to")
    assert [doubt.code for doubt in found.doubts] == ["shift-order"]
    assert found.refusals == ()


def test_several_ranks_on_a_host_keep_their_labels() -> None:
    send = matrices(understood(FORMAT, source_of(whole(["a:0", "a:1", "b:2"]))))[0]
    assert send.rows == ("a:0", "a:1", "b:2")
    assert send.hosts == {"a:0": "a", "a:1": "a", "b:2": "b"}
    assert send.ranks_per_node is None


def test_a_table_that_was_cut_keeps_its_rows() -> None:
    text = whole(["a:0", "b:1", "c:2"])
    found = understood(FORMAT, source_of(text[: text.index("c:2 to")]))
    (send,) = matrices(found)
    assert (send.rows, send.columns, send.cut) == (("a", "b"), ("a", "b", "c"), True)
    assert {doubt.code for doubt in found.doubts} == {"cut", "shift-order"}


def test_rows_that_do_not_fit_are_refused() -> None:
    text = whole(["a:0", "b:1", "c:2"]).replace("b:1 to\t", "b:1 to\tx\t")
    found = understood(FORMAT, source_of(text))
    assert matrices(found)[0].rows == ("a", "c")
    assert "b:1" in found.refusals[0].sentence


@pytest.mark.parametrize(
    "text", ["START mpiGraph v1.5\nMsgSize\t1024\n", "Send\ta:0\ta:0\t\n", "Send\ta:0\tb:1\t\n"]
)
def test_output_without_rows_is_refused(text: str) -> None:
    found = understood(FORMAT, source_of(text))
    assert found.facts == ()
    assert found.refusals
