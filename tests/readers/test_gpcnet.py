"""GPCNeT: isolated tests are read, placeholders and refusals to run are refused."""

from __future__ import annotations

import pytest

from readers.formats.mpi.gpcnet import FORMAT
from readers.frame.facts import Operation, RunFact
from tests.readers.real_files import real, source_of, understood

ROWS = (
    ("RR Two-sided Lat (8 B)", 2.5, 4.5, "usec"),
    ("RR Two-sided BW+Sync (131072 B)", 9000.5, 7500.5, "MiB/s/rank"),
    ("Multiple Allreduce (8 B)", 30.5, 44.5, "usec"),
    ("Multiple Alltoall (4096 B)", 2500.5, 2100.5, "MiB/s/rank"),
)


def output(rows: tuple[tuple[str, float, float, str], ...] = ROWS) -> str:
    rule = "+---------------------------------+--------------+--------------+--------------+"
    lines = [
        "Network Tests v1.3",
        "  Test with 64 MPI ranks (16 nodes)",
        "",
        "+------------------------------------------------------------------------------+",
        "|                            Isolated Network Tests                            |",
        rule,
        "|                            Name |          Avg |          99% |        Units |",
        rule,
    ]
    for name, average, worst, unit in rows:
        lines += [f"| {name:>31} | {average:12.1f} | {worst:12.1f} | {unit:>12} |", rule]
    return "\n".join([*lines, ""])


@pytest.mark.parametrize("file", ["gpcnet_network_test.log", "gpcnet_network_load.log"])
def test_real_files_hold_placeholders(file: str) -> None:
    found = understood(FORMAT, real(f"topology/network_other/{file}"))
    assert found.facts == ()
    (refusal,) = found.refusals
    assert refusal.sentence == "placeholder values (10000.0 in every column)"
    assert "RR Two-sided Lat" in refusal.shown


def test_isolated_tests_are_runs_over_all_nodes() -> None:
    found = understood(FORMAT, source_of(output()))
    facts = [fact for fact in found.facts if isinstance(fact, RunFact)]
    assert [fact.operation for fact in facts] == [
        Operation.POINT_TO_POINT,
        Operation.POINT_TO_POINT,
        Operation.ALL_REDUCE,
        Operation.ALL_TO_ALL,
    ]
    assert {(fact.ranks, fact.nodes, fact.ranks_per_node, fact.hosts) for fact in facts} == {(64, 16, 4, ())}
    assert facts[0].points[0].time_s == pytest.approx(2.5e-6)
    assert facts[1].points[0].bytes_per_s == pytest.approx(9000.5 * 2**20)
    assert facts[1].points[0].message_bytes == 131072
    assert found.refusals == ()


def test_tests_under_congestion_are_not_read() -> None:
    text = output().replace("   Isolated Network Tests   ", " Isolated Congestion Tests  ")
    found = understood(FORMAT, source_of(text))
    assert found.facts == ()
    assert len(found.refusals) == 1


def test_a_run_on_too_few_nodes_is_refused_with_its_sentence() -> None:
    found = understood(FORMAT, source_of("ERROR: this application must be run on at least 10 nodes\n-----\n"))
    assert [refusal.sentence for refusal in found.refusals] == [
        "GPCNeT did not run: this application must be run on at least 10 nodes"
    ]


def test_rows_without_a_size_or_a_unit_are_refused() -> None:
    found = understood(
        FORMAT, source_of(output((*ROWS, ("No size", 1.0, 2.0, "usec"), ("X (8 B)", 1.0, 2.0, "h"))))
    )
    assert (len(found.facts), len(found.refusals)) == (4, 2)
