"""``meshwright events``, ``conditions`` and ``replans``: from a report to the end of its decision."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import main
from tests.app.failure_files import CLUSTER, NAME, PLAN, POLICY, write_files


@pytest.fixture(autouse=True)
def _stored(tmp_path: Path, kept_database: None, capsys: pytest.CaptureFixture[str]) -> None:
    """A database with the small cluster, a job on a and b, and c as the spare."""
    write_files(tmp_path)
    assert main(["cluster", "import", CLUSTER]) == 0
    assert main(["jobs", "add", NAME, "small", "--plan", PLAN, "--recovery", POLICY]) == 0
    assert main(["jobs", "spares", NAME, "c"]) == 0
    capsys.readouterr()


def report(capsys: pytest.CaptureFixture[str], *options: str) -> str | None:
    """Report something; returns the id of the decision that it opened, if one."""
    assert main(["events", "report", NAME, *options, "--json"]) == 0
    replan: str | None = json.loads(capsys.readouterr().out)["replan"]
    return replan


def test_a_report_opens_a_decision_with_its_safe_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """The safe answer is there when the command returns, and its plan can be written out."""
    assert main(["events", "report", NAME, "--lost", "b"]) == 0
    assert "1 new report. A decision is open:" in capsys.readouterr().out
    assert main(["conditions", NAME]) == 0
    assert "node b failed" in " ".join(capsys.readouterr().out.split())
    assert main(["replans", "show", NAME, "--output", "out"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "Start small with c in place of b" in words
    assert "Safe answer, made without a search" in words
    assert Path("out/small/plan.json").exists()
    assert json.loads(Path("out/decision.json").read_text())["fallback"] is True


def test_a_decision_is_approved_started_and_completed(capsys: pytest.CaptureFixture[str]) -> None:
    """Each step says where it is; afterwards the job runs on the spare."""
    replan = report(capsys, "--lost", "b")
    assert replan is not None
    for command, status in (("approve", "approved"), ("start", "applying"), ("complete", "applied")):
        options = ["--safe"] if command == "approve" else ["--by", "j.doe"]
        assert main(["replans", command, replan[:10], *options]) == 0
        assert f"{replan} on {NAME}: {status}" in capsys.readouterr().out
    assert main(["replans", "show", replan]) == 0
    assert "done by j.doe (not verified)" in " ".join(capsys.readouterr().out.split())
    assert main(["jobs", "show", NAME, "small"]) == 0
    assert "nodes in rank order: c, a" in " ".join(capsys.readouterr().out.split())
    assert main(["replans", "list", NAME, "--status", "applied", "--json"]) == 0
    assert [each["id"] for each in json.loads(capsys.readouterr().out)] == [replan]


@pytest.mark.parametrize(
    ("command", "status", "first"), [("cancel", "cancelled", []), ("fail", "failed", [["approve", "--safe"]])]
)
def test_a_decision_ends_without_being_applied(
    command: str, status: str, first: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason is kept, and the job holds what it held."""
    replan = report(capsys, "--lost", "b")
    assert replan is not None
    for act, *options in first:
        assert main(["replans", act, replan, *options]) == 0
    assert main(["replans", command, replan, "--problem", "It rains in."]) == 0
    assert status in capsys.readouterr().out
    assert main(["replans", "show", replan]) == 0
    assert "It rains in." in capsys.readouterr().out
    assert main(["jobs", "show", NAME, "small"]) == 0
    assert "nodes in rank order: b, a" in " ".join(capsys.readouterr().out.split())


def test_what_touches_no_job_opens_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """A free node fails, and is listed as not well."""
    assert main(["events", "report", NAME, "--degraded", "a-c=0.5", "--lost", "c"]) == 0
    assert "No job is touched" in capsys.readouterr().out
    assert main(["replans", "list"]) == 0
    assert "No decisions." in capsys.readouterr().out
    assert main(["events", "report", NAME, "--recovered", "c"]) == 0
    capsys.readouterr()
    assert main(["conditions", NAME, "--json"]) == 0
    found = {each["entity"]["kind"]: each for each in json.loads(capsys.readouterr().out)["conditions"]}
    assert found["link"]["bandwidth_share"] == 0.5
    assert found["node"]["quiet_until"] is not None


def test_unknown_names_are_kept_and_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A file may name strangers: they are stored, listed and change nothing."""
    (tmp_path / "told.json").write_text(json.dumps({"node": "stranger", "state": "failed"}))
    assert main(["events", "report", NAME, "--events", "told.json"]) == 0
    assert "'stranger' is not part of two-and-a-spare" in capsys.readouterr().err
    assert main(["events", "list", NAME, "--unknown"]) == 0
    assert "unknown name stranger" in " ".join(capsys.readouterr().out.split())
    assert main(["conditions", NAME]) == 0
    assert "is well" in capsys.readouterr().out


def test_what_must_be_left_later_and_how_often_things_fail(capsys: pytest.CaptureFixture[str]) -> None:
    """A retirement in two weeks decides nothing now; outages of the cluster are counted from its reports."""
    assert report(capsys, "--draining", "b", "--leave-within", "14d") is None
    assert main(["conditions", NAME]) == 0
    assert "to be left by" in " ".join(capsys.readouterr().out.split())
    assert main(["events", "report", NAME, "--lost", "c", "--leave-within", "2h"]) == 2
    assert "--leave-within" in capsys.readouterr().err
    report(capsys, "--lost", "c:gpu1")
    assert main(["reliability", NAME]) == 0
    assert "failed most often: c 1" in " ".join(capsys.readouterr().out.split())
    assert main(["reliability", NAME, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["failures"] == 1


def test_one_job_of_a_decision_is_completed(capsys: pytest.CaptureFixture[str]) -> None:
    """By its name; as it is the only one, that ends the decision."""
    replan = report(capsys, "--lost", "b")
    assert replan is not None
    assert main(["replans", "approve", replan, "--safe"]) == 0
    assert "Still to be carried out: small" in capsys.readouterr().out
    assert main(["replans", "complete", replan, "--job", "nobody"]) == 2
    assert "--job" in capsys.readouterr().err
    assert main(["replans", "complete", replan, "--job", "small"]) == 0
    assert f"{replan} on {NAME}: applied" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["events", "report", NAME], "--lost: nothing is reported"),
        (["events", "report", NAME, "--lost", "bb"], "--lost: is not part of the cluster two-and-a-spare"),
        (["events", "report", "nowhere", "--lost", "b"], "CLUSTER: is not a stored cluster (got 'nowhere')"),
        (["conditions", "nowhere"], "CLUSTER: is not a stored cluster (got 'nowhere')"),
        (["replans", "show", NAME], "REPLAN: is a cluster without an open decision"),
        (["replans", "show", "0123456789"], "REPLAN: is neither the id of a decision nor a stored cluster"),
        (["replans", "list", "--status", "propsed"], "--status: is not a status (got 'propsed'); did you mean"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Code 2 and what is wrong; nothing on standard output."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert words in err


def test_what_comes_too_early_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing can be completed that was not approved, nor the solver's answer approved before it is there."""
    replan = report(capsys, "--lost", "b")
    assert replan is not None
    for command in ("complete", "approve"):
        assert main(["replans", command, replan]) == 2
        assert f"The replan '{replan}' is collecting" in capsys.readouterr().err


def test_a_sweep_ranks_failures_in_this_process(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Nodes a and b hold the job and c can take it over; a list of failures comes from a file."""
    assert main(["replans", "sweep", NAME, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["failures"]) == ("finished", 3)
    assert {each["name"] for each in found["worst"][:2]} == {"a", "b"}
    (tmp_path / "both.yaml").write_text("- {name: both, losses: [{node: a}, {node: b}]}")
    assert main(["replans", "sweep", NAME, "--failures", "both.yaml"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "both" in out
    assert "1 of 1 failure answered, finished." in out
    assert main(["replans", "sweep", NAME, "--each", "node", "--failures", "both.yaml"]) == 2
