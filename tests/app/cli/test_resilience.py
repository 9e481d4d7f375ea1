"""``meshwright resilience``: what a plan survives, as a sentence and as the service's answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import main
from tests.app.failure_files import CLUSTER, PLAN, write_files


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)


def judged(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, object]:
    """The effective training time of the plan with these options, as JSON."""
    assert main(["resilience", PLAN, *options, "--json"]) == 0
    training: dict[str, object] = json.loads(capsys.readouterr().out)["effective_training"]
    return training


def test_the_view_says_what_is_lost_and_what_helps(capsys: pytest.CaptureFixture[str]) -> None:
    """Sharded over two replicas on one node each stage: a lost node takes state, and memory helps."""
    assert main(["resilience", PLAN, "--cluster", CLUSTER]) == 0
    out, err = capsys.readouterr()
    words = " ".join(out.split())
    assert err == ""
    assert "of the time makes lasting progress" in words
    assert "No node may be lost" in words
    assert "To survive one more node, the cheapest first" in words
    assert "checkpoints in memory" in words
    assert "recovery: memory_checkpoint: true" in words


def test_without_a_cluster_only_prices_are_missing(capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes are failure domains that every plan knows; links are not in it."""
    assert main(["resilience", PLAN]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "No node may be lost" in words
    assert "Prices need the links: give --cluster FILE." in words


def test_rate_and_interval_enter_as_they_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    """1,000 failures of 1,000 nodes a day are one a node; 5 s are ten steps of half a second."""
    found = judged(capsys, "--rate", "1000", "--checkpoint-every", "5s")
    assert found["failures_per_day"] == pytest.approx(2.0)
    assert found["interval_s"] == pytest.approx(5.0)
    assert judged(capsys, "--checkpoint-every", "10steps")["interval_s"] == pytest.approx(5.0)


def test_more_failures_never_leave_more_time(capsys: pytest.CaptureFixture[str]) -> None:
    """The ratio falls with the rate, and is the cost of writing alone where nothing fails."""
    ratios = [judged(capsys, "--rate", str(rate), "--checkpoint-write", "0s")["ratio"] for rate in (0, 10, 1000)]
    assert ratios[0] == pytest.approx(1.0)
    assert ratios == sorted(ratios, key=lambda ratio: float(str(ratio)), reverse=True)


def test_the_planner_is_asked_for_a_plan_that_survives_more(capsys: pytest.CaptureFixture[str]) -> None:
    """It is among the ways, with what to write into the workload."""
    assert main(["resilience", PLAN, "--cluster", CLUSTER, "--search", "5s", "--json"]) == 0
    ways = {each["kind"]: each for each in json.loads(capsys.readouterr().out)["hardenings"]}
    assert ways["spread"]["count"] == 1
    assert "survive: {node: 1}" in ways["spread"]["means"]["text"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rate", "-1"], "--rate: must be a number of failures (got -1.0)"),
        (["--checkpoint-every", "30"], "--checkpoint-every: is not a duration (got '30')"),
        (["--checkpoint-every", "0steps"], "--checkpoint-every: must be at least one step"),
        (["--label", "rck", "--cluster", CLUSTER], "--label: is not carried by every node of the plan (got 'rck')"),
        (["--search", "5s"], "--search: needs the nodes that a plan may use (got '5s'); give --cluster FILE"),
        (["--cluster", PLAN], "plan.json: "),
        (["--recovery", CLUSTER], "cluster.yaml: "),
    ],
)
def test_bad_input_is_told_with_its_option(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Code 2, and nothing on standard output."""
    assert main(["resilience", PLAN, *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


def test_a_file_that_is_no_plan_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """One line says where plans come from."""
    assert main(["resilience", CLUSTER]) == 2
    err = capsys.readouterr().err
    assert "cluster.yaml: plan: is not a plan" in err
    assert len(err.splitlines()) == 1
