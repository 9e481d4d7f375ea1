"""Tables and lists of failures that sweeps over pairs of nodes leave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.imports.summaries import summary
from readers.formats.nccl.sweeps import FORMATS
from readers.frame.facts import Operation, RunEnd, RunFact
from readers.frame.reading import Contents
from tests.readers.real_files import real, source_of, understood

TABLE, FAILURES = FORMATS
HEADER = "file,test,N,G,nodes,minBytes,maxBytes,avg_bus_bw_GBs,peak_busbw_GBs\n"


def _runs(found: Contents) -> list[RunFact]:
    return [fact for fact in found.facts if isinstance(fact, RunFact)]


def _read_row(row: str) -> Contents:
    return understood(TABLE, source_of(HEADER + row))


def test_a_real_table_of_pairs() -> None:
    """17 nodes: 810 tests, the pair 001-004 at 9.30 GB/s and unstable."""
    found = understood(TABLE, real("topology/nccl_tests/pairwise_h100_17node_summary.csv"))
    runs = _runs(found)
    assert len(runs) == 810
    slow = runs[2]
    assert (slow.hosts, slow.ranks, slow.operation) == (("cnode2-001", "cnode2-004"), 2, Operation.ALL_TO_ALL)
    assert slow.points[0].bytes_per_s == pytest.approx(9.30e9)
    assert slow.points[0].line == 4
    assert not found.refusals
    assert [doubt.code for doubt in found.doubts] == ["size-assumed"] + ["unstable"] * 44


def test_runs_over_many_nodes_are_not_called_runs_between_pairs() -> None:
    """Each row ran over four nodes at once."""
    row = "a.log,{}_perf,4,8,a-[1-4],33554432,8589934592,30,40\n"
    found = understood(TABLE, source_of(HEADER + row.format("alltoall") + row.format("all_gather")))
    assert summary(found.facts) == "2 runs of all_gather and alltoall over up to 4 nodes at once, up to 40.00 GB/s"


def test_a_real_table_of_ten_nodes() -> None:
    """20 rows, each over all ten nodes."""
    found = understood(TABLE, real("topology/nccl_tests/multinode_h100_N10_summary.csv"))
    runs = _runs(found)
    assert [len(run.hosts) for run in runs] == [10] * 20
    assert (runs[-1].operation, runs[-1].ranks) == (Operation.SEND_RECV, 80)
    assert runs[-1].points[0].bytes_per_s == pytest.approx(15.26e9)


def test_a_real_list_of_failures() -> None:
    """34 tests of 18 pairs failed, as its head says."""
    found = understood(FAILURES, real("topology/nccl_tests/pairwise_h100_failures_list.txt"))
    runs = _runs(found)
    assert len(runs) == 34
    assert len({run.hosts for run in runs}) == 18
    assert {run.end for run in runs} == {RunEnd.FAILED}
    assert (runs[0].hosts, runs[0].ranks_per_node) == (("cnode2-005", "cnode2-016"), 1)
    assert not found.refusals
    assert not found.doubts


def test_a_row_with_compressed_names() -> None:
    """Quotes hold the commas of the brackets."""
    found = _read_row('x.log,sendrecv_perf,2,4,"fig[07,12]",1048576,1073741824,9.5,10.5\n')
    (run,) = _runs(found)
    assert (run.hosts, run.ranks, run.ranks_per_node) == (("fig07", "fig12"), 8, 4)
    assert run.points[0].bytes_per_s == pytest.approx(10.5e9)
    assert run.points[0].message_bytes == 1073741824
    assert [doubt.code for doubt in found.doubts] == ["size-assumed"]


def test_a_row_without_a_peak_is_a_failed_test() -> None:
    """Empty is unknown."""
    (run,) = _runs(_read_row('x.log,sendrecv_perf,2,4,"fig[07,12]",1048576,1073741824,,\n'))
    assert (run.end, run.points) == (RunEnd.FAILED, ())


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("x.log,sendrecv_perf,2,4,fig[07-08],1,2,0,0", "never 0"),
        ("x.log,sendrecv_perf,3,4,fig[07-08],1,2,1,1", "2 nodes are named, N says 3"),
        ("x.log,walk_perf,2,4,fig[07-08],1,2,1,1", "not a program"),
        ("x.log,sendrecv_perf,2,4,fig[07-,1,2,1,1", "cannot be read"),
        ("x.log,sendrecv_perf,2,x,fig[07-08],1,2,1,1", "whole numbers"),
        ("x.log,sendrecv_perf,2,4", "4 cells"),
    ],
)
def test_a_row_that_says_nothing_is_refused(row: str, reason: str) -> None:
    """With its reason and its line."""
    found = _read_row(row)
    assert not found.facts
    assert reason in found.refusals[0].sentence
    assert found.refusals[0].first_line == 2


def test_a_list_that_lacks_tests_says_so() -> None:
    """Its head counts them."""
    text = "FAILURE SUMMARY\n  - FAIL:                  2\n  - a.log: alltoall_perf (N=2, G=8, nodes=fig[1-2])\n"
    found = understood(FAILURES, source_of(text))
    assert [run.hosts for run in _runs(found)] == [("fig1", "fig2")]
    assert [doubt.code for doubt in found.doubts] == ["partial"]


@given(
    st.lists(st.sampled_from(["9", "1e308", "fig[1-2]", "sendrecv_perf", '"', ",", "", "-1", "nan"]), max_size=12)
)
def test_any_row_is_read_without_an_error(cells: list[str]) -> None:
    """A row is a fact or a refusal."""
    found = _read_row(",".join(cells))
    assert found.facts or found.refusals


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    """And whatever has lines and no facts is refused."""
    for form in FORMATS:
        found = understood(form, source_of(text))
        assert not found.facts
