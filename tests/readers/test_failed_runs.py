"""Tests that died: what they measured before stays, that they failed is stored, small figures do not grow."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import main
from app.cli.clusters.cluster_text import cluster_text
from app.imports.report import answer_of
from cluster_models.cluster.measurements import SampleStatus
from readers.proposal.values import Answers, Proposal
from tests.readers.nccl_logs import log
from tests.readers.uploads import report_of
from tests.remarks import codes

SMALL = tuple(1 << power for power in range(13, 19))
WHOLE = tuple(1 << power for power in range(13, 31))
NICS = Answers(chosen={"*.nics": "8 x 400 infiniband"}, node_kind="DGX H100/H200", gpu_kind="H100-SXM5-80GB")
DIED = "n2: Test NCCL failure alltoall.cu:120 'remote process exited or there was a network error / '\n"


def died(hosts: list[str], gpus: int = 8) -> str:
    """A log whose test ended at 512 KiB with an error."""
    return (
        log(hosts, gpus, sizes=SMALL, with_end=False).replace(f"maxBytes {SMALL[-1]}", "maxBytes 8589934592") + DIED
    )


def failed_sizes(proposal: Proposal) -> list[float]:
    return [one.sample.message_bytes for one in proposal.samples if one.sample.status is SampleStatus.FAILED]


def test_a_run_that_died_in_the_middle_is_stored_as_failed_beside_its_rows() -> None:
    """At the size that it did not reach any more."""
    proposal = report_of({"a.log": died(["n1", "n2"])}).proposal
    assert failed_sizes(proposal) == [2.0 * SMALL[-1]]
    assert len(proposal.samples) == len(SMALL) + 1


def test_a_test_that_died_once_and_then_went_through_is_no_failure() -> None:
    files = {"a.log": died(["n1", "n2"]), "b.log": log(["n1", "n2"], 8, sizes=WHOLE)}
    assert failed_sizes(report_of(files).proposal) == []


def test_failed_rows_of_a_table_keep_their_size() -> None:
    """Beside rows that went well, and alone."""
    table = (
        "node_a,node_b,gpus_per_node,collective,size_bytes,busbw_gbs,status\n"
        "n1,n2,8,alltoall,268435456,41.5,ok\nn1,n2,8,alltoall,1073741824,,timeout\n"
        "n1,n3,8,alltoall,1073741824,,timeout\n"
    )
    assert failed_sizes(report_of({"t.csv": table}).proposal) == [2.0**30, 2.0**30]


def test_failures_are_counted_apart_from_measurements() -> None:
    """In the headline's figures and among the changes."""
    report = report_of({"a.log": log(["n1", "n2"], 8, sizes=WHOLE[-2:]), "b.log": died(["n1", "n3"])})
    answer = answer_of(report)
    assert (answer.sample_count, answer.failed_count) == (2 + len(SMALL) + 1, 1)
    assert "1 failed test is new." in answer.changes
    assert f"{2 + len(SMALL)} measurements are new." in answer.changes


def test_a_pair_whose_test_died_is_shown_as_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Among the pairs that were not measured, and by what looks wrong."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    report = report_of(
        {
            "a.log": log(["n1", "n2"], 8, sizes=WHOLE),
            "b.log": died(["n1", "n3"]),
            "c.log": log(["n2", "n3"], 8, sizes=WHOLE),
        },
        NICS,
    )
    assert "only_small_messages" in codes(report.suspicions)
    assert report.cluster is not None
    document = report.cluster.model_copy(update={"samples": report.measurements.samples})
    Path("site.yaml").write_text(cluster_text(document))
    assert main(["cluster", "show", "site.yaml"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "1 pair is estimated from its class: n1 \N{EN DASH} n3" in shown
    assert "On 1 of 3 node pairs only small messages were measured" in shown
