"""Fits a calibration beside the web process."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from app.documents.calibration import CalibrationDocument
from app.documents.framework import FrameworkDescription, described_frameworks
from app.documents.hardware_profile import HardwareProfileDocument
from app.documents.serving_points import read_serving_points
from app.documents.training_runs import MeasuredRuns, read_training_runs
from app.services.calibration.calibrating import Measured, calibrate
from app.services.subprocesses import in_subprocess
from cluster_models.errors import InvalidInput

MOST_RUNS_SERVED: Final = 60
"""A fit takes a fifth of a second a run; more are for the command line, which nobody waits for."""
LIMIT_S: Final = 300.0


def fit_in_process(
    *,
    name: str,
    profile: HardwareProfileDocument | None,
    gpu: str | None,
    runs_csv: str | None,
    frameworks: Sequence[FrameworkDescription] = (),
    serving_csv: str | None = None,
) -> CalibrationDocument:
    """The calibration; raises ``InvalidInput``, or ``NotReady`` while others are waited for."""
    described = described_frameworks(frameworks)
    runs = None if runs_csv is None else read_training_runs(runs_csv, described=described)
    if runs is not None:
        _check_size(runs)
    serving = None if serving_csv is None else read_serving_points(serving_csv)
    return fit_measured(Measured(profile=profile, gpu=gpu, runs=runs, serving=serving), name=name)


def fit_measured(measured: Measured, *, name: str) -> CalibrationDocument:
    """The calibration of measurements; raises ``InvalidInput``, or ``NotReady`` while others are waited for."""
    return in_subprocess(_fitted, measured, name, limit_s=LIMIT_S, what="runs", command="meshwright calibrate")


def _fitted(measured: Measured, name: str) -> CalibrationDocument:
    return calibrate(measured, name=name, now=datetime.now(UTC))


def _check_size(measured: MeasuredRuns) -> None:
    if len(measured.runs) > MOST_RUNS_SERVED:
        raise InvalidInput(
            "runs",
            len(measured.runs),
            f"are more than the {MOST_RUNS_SERVED} that the service fits",
            "fit them with meshwright calibrate and send the calibration",
        )
