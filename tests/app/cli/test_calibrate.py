"""``meshwright calibrate`` and ``meshwright profiler``, and what a calibration does to plans."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from app.cli import main
from app.documents.training_runs import read_training_runs
from app.profiler.script import script_text
from cluster_models.units import GIB
from solver.run_memory import predict_counted_memory
from tests.app.calibration_bodies import FRAMEWORK, GPU, calibration_document, profile_body, runs_csv

CONFIGURATION = "degrees: {tensor: 4, data: 2}\nrecompute: full\n"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibration fitted to runs of a GPU whose products are slow, as a file."""
    folder = tmp_path_factory.mktemp("fitted")
    (folder / "runs.csv").write_text(runs_csv(sustained_share=0.5))
    assert main(["calibrate", "--runs", str(folder / "runs.csv"), "--output", str(folder / "ours.json")]) == 0
    return folder / "ours.json"


def predicted(files: list[str], capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """The prediction for one configuration, as JSON."""
    Path("configuration.yaml").write_text(CONFIGURATION)
    assert main(["predict", *files, "--configuration", "configuration.yaml", "--json", *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_runs_of_a_slower_gpu_slow_the_prediction(
    fitted: Path, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The round trip: steps measured on a GPU at half its rate make plans about as slow where hosts keep up."""
    Path("workload.yaml").write_text("sequence_length: 4096\nglobal_batch_sequences: 8\n")
    shipped = predicted(files, capsys)
    own = predicted(files, capsys, "--calibration", str(fitted))
    truth = Path("truth.json")
    truth.write_text(calibration_document(sustained_share=0.5).model_dump_json())
    true = predicted(files, capsys, "--calibration", str(truth))
    times = {name: plan["time"]["step_time_s"] for name, plan in (("own", own), ("true", true), ("as", shipped))}
    assert times["own"] == pytest.approx(times["true"], rel=0.05)
    assert times["own"] > 1.2 * times["as"]
    assert own["provenance"]["calibration"].startswith("ours ")
    assert shipped["provenance"]["calibration"] == ""


def test_each_run_is_kept_with_how_far_it_is_off(fitted: Path) -> None:
    """Before the fit, after it, and by a fit without its group; the mean is the one that is printed."""
    fit = json.loads(fitted.read_text())["fit"]
    assert len(fit["steps"]) == fit["runs"] > 0
    for name, figure in (("before", "error_before_fraction"), ("after", "error_after_fraction")):
        assert fmean(abs(1 / each[name] - 1) for each in fit["steps"]) == pytest.approx(fit[figure])
    assert all(each["held_out"] for each in fit["steps"])


def test_measured_peaks_tell_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a column of peaks the runtime's memory is fitted, too, and the peaks are compared."""
    monkeypatch.chdir(tmp_path)
    text = runs_csv()
    truth = calibration_document(runtime_bytes=9e9).to_fitted()
    counted = [predict_counted_memory(run, truth) / GIB for run in read_training_runs(text).runs]
    lines, peaks = text.splitlines(), ["mem_gib_per_gpu", *(f"{peak:.3f}" for peak in counted)]
    Path("runs.csv").write_text("".join(f"{line},{peak}\n" for line, peak in zip(lines, peaks, strict=True)))
    assert main(["calibrate", "--runs", "runs.csv", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["gpus"][GPU]["runtime_bytes"]["value"] == pytest.approx(9e9, rel=0.25)
    fit = document["fit"]
    assert fit["memory_error_after_fraction"] < 0.5 * fit["memory_error_before_fraction"]


def test_the_file_says_how_well_it_fits(fitted: Path) -> None:
    """Errors before and after, what was told with its interval, and what was not."""
    document = json.loads(fitted.read_text())
    fit = document["fit"]
    assert fit["runs"] == 5
    assert fit["error_after_fraction"] < 0.07 < 0.5 * fit["error_before_fraction"]
    tables = [*document["gpus"].values(), *document["frameworks"].values()]
    assert set(document["gpus"]) <= {GPU}
    assert set(document["frameworks"]) <= {FRAMEWORK}
    assert tables
    for each in (value for table in tables for value in table.values()):
        assert each["low"] <= each["value"] <= each["high"]
        assert each["told_by"] == "runs"
    assert f"{FRAMEWORK} expert_imbalance" in fit["not_told"]


def test_a_profile_alone_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table names parameters of the GPU with their intervals; the errors shrink."""
    monkeypatch.chdir(tmp_path)
    Path("profile.json").write_text(json.dumps(profile_body()))
    assert main(["calibrate", "--profile", "profile.json", "--name", "h100-here"]) == 0
    out = capsys.readouterr().out
    assert "h100-here" in out
    assert "sustained_share" in out
    assert "90 % interval" in out
    assert "kernels: " in out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "--runs: neither runs nor a profile nor points of serving are given"),
        (["--runs", "no.csv"], "no.csv"),
        (["--runs", "bad.csv"], "bad.csv: line 2, column iter_time_s: is not a number (got 'soon')"),
        (["--profile", "cpu.json"], "cpu.json: profile.device.type: was taken on a CPU"),
        (["--profile", "odd.json"], "odd.json: profile.device.name: unknown GPU kind (got 'Abacus 9')"),
        (["--profile", "odd.json", "--gpu", "H1000"], "odd.json: gpu: unknown GPU kind (got 'H1000')"),
        (["--runs", "bad.csv", "--output", "nowhere/x.json"], "--output: cannot be written"),
    ],
)
def test_bad_input_ends_with_code_2_and_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    sentence: str,
) -> None:
    """The line names file, place and remedy; nothing is printed or written."""
    monkeypatch.chdir(tmp_path)
    head, first, *_ = runs_csv().splitlines()
    cells = first.split(",")
    cells[head.split(",").index("iter_time_s")] = "soon"
    Path("bad.csv").write_text(f"{head}\n{','.join(cells)}\n")
    Path("cpu.json").write_text(json.dumps(profile_body(kind="cpu")))
    Path("odd.json").write_text(json.dumps(profile_body(device="Abacus 9")))
    assert main(["calibrate", *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert sentence in line


def test_a_calibration_that_is_none_is_refused(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown parameters are named with the file, before any search."""
    document = calibration_document().model_dump(mode="json")
    document["gpus"][GPU]["sustain_share"] = document["gpus"][GPU].pop("sustained_share")
    Path("odd.json").write_text(json.dumps(document))
    assert main(["plan", *files, "--calibration", "odd.json"]) == 2
    assert f"odd.json: gpus.{GPU}.sustain_share: unknown parameter" in capsys.readouterr().err


def test_store_keeps_it_for_the_service(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A stored calibration is in the database under its name; a second one of that name is refused."""
    url = f"sqlite:///{tmp_path / 'kept.sqlite'}"
    (tmp_path / "profile.json").write_text(json.dumps(profile_body()))
    command = ["calibrate", "--profile", str(tmp_path / "profile.json"), "--name", "kept", "--store"]
    assert main([*command, "--database-url", url]) == 0
    assert "kept: stored" in capsys.readouterr().out
    assert main([*command, "--database-url", url]) == 2
    assert "exists already" in capsys.readouterr().err


def test_the_profiler_prints_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints the file that is shipped."""
    assert main(["profiler"]) == 0
    assert capsys.readouterr().out == script_text()


def test_what_no_fit_explains_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step in milliseconds, a run that cannot have fitted and a copied line are named, the others are not."""
    monkeypatch.chdir(tmp_path)
    head, *lines = runs_csv().splitlines()
    cells = lines[1].split(",")
    cells[8] = str(1000.0 * float(cells[8]))
    large = lines[0].replace("r11", "large").replace("llama-3-8b", "llama-3.1-405b").split(",")
    large[8] = "300.0"
    copied = [lines[-1], lines[-1]]
    Path("runs.csv").write_text("\n".join([head, ",".join(cells), *lines[2:-1], *copied, ",".join(large)]) + "\n")
    assert main(["calibrate", "--runs", "runs.csv", "--json"]) == 0
    fit = json.loads(capsys.readouterr().out)["fit"]
    (too_large,) = (each for each in fit["warnings"] if "fitted their GPU" in each)
    unexplained = {each["run"]: each["measured_over_predicted"] for each in fit["outliers"]}
    assert unexplained["r21"] > 100
    assert "r41" not in unexplained
    assert ("large" in too_large, "r41" in too_large) == (True, False)
    assert any("several lines: r44 (2 lines)" in each for each in fit["warnings"])


def test_a_table_in_another_unit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Milliseconds throughout, and shares of the memory for GiB."""
    monkeypatch.chdir(tmp_path)
    head, *lines = runs_csv().splitlines()
    rows = [line.split(",") for line in lines]
    slow = [",".join([*cells[:8], str(1000.0 * float(cells[8])), *cells[9:]]) for cells in rows]
    Path("ms.csv").write_text("\n".join([head, *slow]) + "\n")
    Path("shares.csv").write_text("\n".join([f"{head},mem_gib_per_gpu", *(f"{line},0.6" for line in lines)]))
    for name, said in (("ms", "iter_time_s: is 1,000 times what"), ("shares", "mem_gib_per_gpu: is 0.0")):
        assert main(["calibrate", "--runs", f"{name}.csv"]) == 2
        assert said in capsys.readouterr().err


def test_a_profile_faster_than_the_data_sheet_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Times in another unit, or of another GPU, cannot be those of the GPU kind."""
    monkeypatch.chdir(tmp_path)
    Path("profile.json").write_text(json.dumps(profile_body(share=5.0)))
    assert main(["calibrate", "--profile", "profile.json"]) == 2
    said = capsys.readouterr().err
    assert "profile.json: profile.matmuls[0].median_s: would be" in said
    assert "give seconds" in said
