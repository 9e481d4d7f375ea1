"""``meshwright runs``: report, list, drift and recalibrate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import main
from tests.app.failure_files import CLUSTER, NAME, PLAN, write_files
from tests.plans import STEP_S


@pytest.fixture(autouse=True)
def _stored(tmp_path: Path, kept_database: None, capsys: pytest.CaptureFixture[str]) -> None:
    """A database with the small cluster in it."""
    write_files(tmp_path)
    assert main(["cluster", "import", CLUSTER]) == 0
    capsys.readouterr()


def test_a_run_is_reported_from_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Step and memory come out of the log, and the list shows them beside the prediction."""
    lines = [f"iteration {n}/20 | elapsed time per iteration (ms): {1000 * STEP_S * 1.1:.1f} |" for n in range(20)]
    lines.append("[Rank 0] (after 2 iterations) memory (MB) | allocated: 1.0 | max reserved: 40960.0")
    (tmp_path / "train.log").write_text("\n".join(lines))
    assert main(["runs", "report", "--plan", PLAN, "--log", "train.log"]) == 0
    assert "550.0 ms a step, 500.0 ms as predicted (+10.0 %)" in capsys.readouterr().out
    assert main(["runs", "list", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert (run["steps"], run["peak_memory_gib"], run["memory_counter"]) == (15, 40.0, "reserved")
    assert main(["runs", "list"]) == 0
    assert "tp2 pp2 dp2" in capsys.readouterr().out


def test_drift_and_recalibration_say_what_the_runs_tell(capsys: pytest.CaptureFixture[str]) -> None:
    """A third slower, by cluster and node; the calibration is kept only where asked."""
    for number in range(3):
        assert main(["runs", "report", "--plan", PLAN, "--step-time", str(STEP_S * (1.3 + 0.01 * number))]) == 0
    capsys.readouterr()
    assert main(["runs", "drift"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "3 runs reported; no group changed." in words
    assert f"cluster {NAME} 3 +31.0 %" in words
    assert main(["runs", "recalibrate", "--name", "ours"]) == 0
    assert "Not kept" in capsys.readouterr().out
    assert main(["runs", "recalibrate", "--name", "ours", "--store"]) == 0
    assert "plan with it as ours" in capsys.readouterr().out
    assert main(["runs", "recalibrate", "--name", "ours", "--store"]) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--plan", PLAN], "nothing was measured"),
        (["--plan", PLAN, "--step-time", "0.5", "--log", "x"], "beside --step-time"),
        (["--plan", PLAN, "--step-time", "500"], "that the plan predicts"),
        (["--plan", "0123", "--step-time", "0.5"], "There is no plan '0123'"),
        (["--plan", PLAN, "--step-time", "0.5", "--memory", "1", "--memory-counter", "x"], "is not a counter"),
    ],
)
def test_bad_reports_are_one_clear_line(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Code 2 and what is wrong."""
    assert main(["runs", "report", *options]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert words in err
