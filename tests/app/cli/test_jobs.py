"""``meshwright jobs``: jobs of a stored cluster, and its spares."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import main
from tests.app.failure_files import CLUSTER, NAME, PLAN, write_files


@pytest.fixture(autouse=True)
def _stored(tmp_path: Path, kept_database: None, capsys: pytest.CaptureFixture[str]) -> None:
    """A database with the small cluster in it."""
    write_files(tmp_path)
    assert main(["cluster", "import", CLUSTER]) == 0
    capsys.readouterr()


def test_a_job_holds_its_gpus_until_it_is_removed(capsys: pytest.CaptureFixture[str]) -> None:
    """Added, listed, shown and forgotten; its GPUs are nobody else's meanwhile."""
    assert main(["jobs", "add", NAME, "small", "--plan", PLAN, "--weight", "2"]) == 0
    assert "it holds 8 GPUs" in capsys.readouterr().out
    assert main(["jobs", "list", NAME]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "small running tiny-4 tp2 pp2 dp2 8 32,768 2" in words
    assert main(["jobs", "add", NAME, "other", "--plan", PLAN]) == 2
    assert "8 GPUs are held by other jobs" in capsys.readouterr().err
    assert main(["jobs", "show", NAME, "small"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "nodes in rank order: b, a" in words
    assert "applied" in words
    assert main(["jobs", "remove", NAME, "small"]) == 0
    assert "8 GPUs of two-and-a-spare free" in capsys.readouterr().out
    assert main(["jobs", "list", NAME]) == 0
    assert "No jobs" in capsys.readouterr().out


def test_a_proposed_job_holds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Two may propose the same GPUs."""
    for name in ("one", "two"):
        assert main(["jobs", "add", NAME, name, "--plan", PLAN, "--proposed", "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert (answer["standing"], answer["gpus_held"]) == ("idle", 0)


def test_json_is_the_answer_of_the_service(capsys: pytest.CaptureFixture[str]) -> None:
    """A list of jobs, each with the plan it runs by."""
    main(["jobs", "add", NAME, "small", "--plan", PLAN])
    capsys.readouterr()
    assert main(["jobs", "list", NAME, "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)
    assert (job["name"], job["running_plan"]["status"]) == ("small", "applied")


def test_spares_are_listed_and_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that jobs hold are told apart."""
    main(["jobs", "add", NAME, "small", "--plan", PLAN])
    assert main(["jobs", "spares", NAME, "c", "a"]) == 0
    capsys.readouterr()
    assert main(["jobs", "spares", NAME]) == 0
    assert (
        "2 spares on two-and-a-spare; free: c; not free (held by jobs, failed, or to be kept out): a"
        in capsys.readouterr().out
    )
    assert main(["jobs", "spares", NAME, "d"]) == 2
    assert "is not a node of the cluster (got 'd')" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "nowhere", "small", "--plan", PLAN], "CLUSTER: is not a stored cluster (got 'nowhere')"),
        (["add", NAME, "small", "--plan", CLUSTER], "cluster.yaml: plan: is not a plan"),
        (["add", NAME, "small", "--plan", "0123456789abcdef"], "There is no plan '0123456789abcdef'"),
        (["add", NAME, "small", "--plan", PLAN, "--weight", "0"], "weight: must be positive (got 0.0)"),
        (["show", NAME, "small"], "There is no job 'small'"),
        (["remove", NAME, "small"], "There is no job 'small'"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Code 2 and what is wrong; nothing on standard output."""
    assert main(["jobs", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert words in err
