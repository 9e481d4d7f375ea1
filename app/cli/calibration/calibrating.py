"""``meshwright calibrate`` and ``meshwright profiler``: fit own measurements, and hand out the script."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.cli.clusters.stored import store_calibration
from app.cli.endings import complain
from app.cli.files import (
    check_writable,
    naming,
    read_described,
    read_hardware_profile,
    read_text,
    write_text,
)
from app.cli.terminal import bullets, console, section
from app.documents.calibration import CalibrationDocument
from app.documents.serving_points import ServingPoints, read_serving_points
from app.documents.training_runs import MeasuredRuns, read_training_runs
from app.presentation.calibration import (
    ParameterLine,
    error_lines,
    finding_lines,
    not_told_lines,
    outcome_lines,
    parameter_lines,
    serving_lines,
)
from app.profiler.script import script_text
from app.services.calibration.calibrating import Measured, calibrate
from cluster_models.errors import InvalidInput
from cluster_models.training.frameworks import Framework

_FIGURES: Final = ("before", "now", "90 % interval")


@dataclass(frozen=True, slots=True)
class MeasuredFiles:
    """The files of what was measured, as named on the command line, and the GPU kind of the profile."""

    runs: str | None
    frameworks: Sequence[str]
    profile: str | None
    gpu: str | None
    serving: str | None = None

    def read(self) -> Measured:
        """Contents of the files; raises ``InvalidInput``."""
        if self.runs is None and self.profile is None and self.serving is None:
            remedy = "give --runs, --profile or --serving"
            raise InvalidInput("--runs", None, "neither runs nor a profile nor points of serving are given", remedy)
        if self.runs is None and self.frameworks:
            raise InvalidInput("--framework-file", self.frameworks[0], "is that of runs", "give --runs as well")
        profile = None if self.profile is None else read_hardware_profile(self.profile)
        runs = None if self.runs is None else _read_runs(self.runs, read_described(self.frameworks))
        return Measured(profile, self.gpu, runs, None if self.serving is None else _read_points(self.serving))


def run_calibrate(
    files: MeasuredFiles,
    *,
    name: str | None,
    output: Path | None,
    as_json: bool,
    store: bool,
    database_url: str | None,
) -> None:
    """Fit what was measured; print, write and store the calibration."""
    check_writable(output)
    name = name or (output.stem if output is not None else "own")
    measured = files.read()
    if measured.runs is not None and sys.stderr.isatty():
        complain(f"meshwright: fitting {len(measured.runs.runs)} runs, about a tenth of a second each ...")
    with naming(files.profile or files.runs or files.serving or ""):
        document = calibrate(measured, name=name, now=datetime.now(UTC))
    text = document.model_dump_json(indent=2) + "\n"
    if as_json:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        console().print(calibration_view(document))
    if output is not None:
        write_text(output, text)
    if store:
        store_calibration(document, database_url=database_url)


def run_profiler() -> None:
    """Print the script that measures a GPU node."""
    sys.stdout.write(script_text())
    sys.stdout.flush()


def calibration_view(document: CalibrationDocument) -> RenderableType:
    """A calibration on the terminal."""
    fit = document.fit
    parts: list[RenderableType] = [Text(f"{document.to_fitted().source}: {document.source}", style="bold")]
    if outcome := outcome_lines(document):
        parts.append(section("Outcome", bullets(outcome)))
    parts.append(section("Parameters", _table(parameter_lines(document))))
    if served := serving_lines(document):
        parts.append(section("Serving", bullets(served)))
    if fit is not None:
        parts.append(section("Mean error", bullets(error_lines(fit))))
        if fit.not_told:
            parts.append(section("Not told by these measurements, kept as they were", bullets(not_told_lines(fit))))
        if findings := finding_lines(fit):
            parts.append(section("Worth knowing", bullets(findings)))
    return Group(*parts)


def _table(lines: Iterable[ParameterLine]) -> Table:
    table = Table(box=None, pad_edge=False)
    for head in ("of", "parameter", "before", "now", "90 % interval", "told by"):
        table.add_column(head, justify="right" if head in _FIGURES else "left", overflow="fold")
    for line in lines:
        table.add_row(line.owner, line.parameter, line.before, line.value, line.interval, line.told_by)
    return table


def _read_points(path: str) -> ServingPoints:
    text = read_text(path)
    with naming(path):
        return read_serving_points(text)


def _read_runs(path: str, described: Mapping[str, Framework]) -> MeasuredRuns:
    text = read_text(path)
    with naming(path):
        return read_training_runs(text, described=described)
