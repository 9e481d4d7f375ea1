"""``meshwright frameworks``, and frameworks described in files of ``plan``, ``predict`` and ``calibrate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.documents.calibration import CalibrationDocument
from app.documents.framework import FrameworkDescription
from app.documents.reading import parse_text, read_document
from cluster_models.training.frameworks import frameworks
from tests.app.calibration_bodies import FRAMEWORK, runs_csv
from tests.app.command_files import WORKLOAD
from tests.app.framework_bodies import DESCRIBED, FILE, described

CONFIGURATION = "degrees: {tensor: 2, pipeline: 2, data: 2}\nrecompute: full\n"


@pytest.fixture
def ours(files: list[str]) -> list[str]:
    """Options of a small problem whose folder also holds the file of a framework."""
    Path("ours.yaml").write_text(FILE)
    Path("configuration.yaml").write_text(CONFIGURATION)
    return files


def predicted(files: list[str], capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """The prediction for one configuration, as JSON."""
    assert main(["predict", *files, "--configuration", "configuration.yaml", "--json", *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def complaints(capsys: pytest.CaptureFixture[str], *command: str) -> list[str]:
    """The error of a refused command."""
    assert main(list(command)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def test_shipped_generations_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """One line each for people; every fact for programs."""
    assert main(["frameworks"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(frameworks())
    assert main(["frameworks", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in listed] == list(frameworks())
    assert listed[0]["blocking_transfers"] is True


@pytest.mark.parametrize("options", [[], ["--json"], ["--output", "own.yaml"]])
def test_a_generation_is_printed_as_a_file_to_start_from(
    files: list[str], capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    """Read back as it is, printed or written, it does what the generation does, under another name."""
    assert main(["frameworks", "show", FRAMEWORK, *options]) == 0
    text = Path("own.yaml").read_text() if "--output" in options else capsys.readouterr().out
    document = read_document(FrameworkDescription, parse_text(text, what="framework"), what="framework")
    assert document == FrameworkDescription.starting_from(frameworks()[FRAMEWORK])
    assert document.to_framework().like == FRAMEWORK


def test_an_unknown_generation_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, code 2."""
    (line,) = complaints(capsys, "frameworks", "show", "nemo-25.0")
    assert "is not a shipped generation (got 'nemo-25.0'); did you mean 'nemo-25.0" in line


def test_a_plan_of_a_described_framework_says_so(ours: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Its title, what it is like, that nobody measured it; the document holds every fact."""
    command = ["predict", *ours, "--configuration", "configuration.yaml", "--framework-file", "ours.yaml"]
    assert main([*command, "--output", "plan.json"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert f"framework ours (described by its user, like {FRAMEWORK}) precision BF16" in words
    assert f"No measured run of ours was fitted: its parameters are those of {FRAMEWORK}" in words
    workload = json.loads(Path("plan.json").read_text())["workload"]
    assert FrameworkDescription.model_validate(workload["framework"]).to_framework() == described()
    assert None not in workload["framework"].values()


def test_the_file_the_workload_and_the_plan_itself_describe_alike(
    ours: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """By option, with the name in the workload or none; in the workload; and by what the plan recorded."""
    by_option = predicted(ours, capsys, "--framework-file", "ours.yaml")
    workload = Path("workload.yaml")
    workload.write_text(WORKLOAD + "framework: ours\n")
    assert predicted(ours, capsys, "--framework-file", "ours.yaml") == by_option
    workload.write_text(WORKLOAD + f"framework: {json.dumps(DESCRIBED)}\n")
    assert predicted(ours, capsys) == by_option
    workload.write_text(json.dumps(by_option["workload"]))
    assert predicted(ours, capsys) == by_option
    workload.write_text(WORKLOAD)
    assert predicted(ours, capsys)["time"] != by_option["time"]


@pytest.mark.parametrize(
    ("workload", "option", "sentence"),
    [
        (
            "framework: ours\n",
            [],
            "workload.yaml: framework: is not a shipped generation (got 'ours'); describe it in a",
        ),
        (f"framework: {FRAMEWORK}\n", ["ours.yaml"], "--framework-file: is of ours, the workload of another"),
        (
            "framework: {name: a, like: b}\n",
            [],
            "workload.yaml: framework.like: is not a shipped framework generation",
        ),
        ("", ["none.yaml"], "none.yaml"),
        ("", ["odd.yaml"], "odd.yaml: overlap_tensr: unknown field (got True); did you mean 'overlap_tensor'?"),
        ("", ["taken.yaml"], "taken.yaml: framework.name: is the name of a shipped generation"),
    ],
)
def test_what_is_wrong_is_named(
    ours: list[str], capsys: pytest.CaptureFixture[str], workload: str, option: list[str], sentence: str
) -> None:
    """Before any search: file, field, value, remedy."""
    Path("workload.yaml").write_text(WORKLOAD + workload)
    Path("odd.yaml").write_text(f"{FILE}overlap_tensr: true\n")
    Path("taken.yaml").write_text(FILE.replace("name: ours", f"name: {FRAMEWORK}"))
    (line,) = complaints(capsys, "plan", *ours, *(word for file in option for word in ("--framework-file", file)))
    assert sentence in line


def test_a_calibration_of_a_described_framework_knows_its_name(
    ours: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs name it, the calibration describes it, and with it a workload needs the name only."""
    Path("runs.csv").write_text(runs_csv(sustained_share=0.5).replace(FRAMEWORK, "ours"))
    command = ["calibrate", "--runs", "runs.csv", "--framework-file", "ours.yaml", "--output", "own.json"]
    assert main(command) == 0
    capsys.readouterr()
    document = CalibrationDocument.model_validate_json(Path("own.json").read_text())
    assert document.to_fitted().described == {"ours": described()}
    assert set(document.frameworks) <= {"ours"}
    by_file = predicted(ours, capsys, "--framework-file", "ours.yaml", "--calibration", "own.json")
    Path("workload.yaml").write_text(WORKLOAD + "framework: ours\n")
    by_name = predicted(ours, capsys, "--calibration", "own.json")
    assert by_name == by_file
    assert by_name["workload"]["framework"]["logit_bytes"] == DESCRIBED["logit_bytes"]
    uncalibrated = predicted(ours, capsys, "--framework-file", "ours.yaml")
    assert by_name["time"]["step_time_s"] > 1.2 * uncalibrated["time"]["step_time_s"]
    assert by_name["step_interval"]["family"] != uncalibrated["step_interval"]["family"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--runs", "runs.csv"],
            "runs.csv: lines 2-6, column framework: is not a shipped generation (got 'inhouse')",
        ),
        (["--runs", "runs.csv", "--framework-file", "ours.yaml"], "column framework: is not a shipped generation"),
        (
            ["--runs", "good.csv", "--framework-file", "ours.yaml"],
            "frameworks: is the framework of no run (got 'ours'",
        ),
        (
            ["--runs", "good.csv", "--framework-file", "ours.yaml", "--framework-file", "ours.yaml"],
            "described twice",
        ),
        (["--profile", "p.json", "--framework-file", "ours.yaml"], "--framework-file: is that of runs"),
    ],
)
def test_descriptions_and_runs_go_together(
    ours: list[str], capsys: pytest.CaptureFixture[str], options: list[str], sentence: str
) -> None:
    """A name without a description is one problem of all its lines; a description without runs is one, too."""
    Path("good.csv").write_text(runs_csv())
    Path("runs.csv").write_text(runs_csv().replace(FRAMEWORK, "inhouse"))
    (line,) = complaints(capsys, "calibrate", *options)
    assert sentence in line
