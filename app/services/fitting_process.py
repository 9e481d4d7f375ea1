"""Fits a calibration in a process of its own, so that a fit slows no other request and can be stopped.

The process reads one JSON object on standard input and writes one on standard output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from app.documents.calibration import CalibrationDocument
from app.documents.framework import FrameworkDescription, described_frameworks
from app.documents.hardware_profile import HardwareProfileDocument
from app.documents.reading import FieldProblem, InvalidDocument, problems_of
from app.documents.training_runs import MeasuredRuns, read_training_runs
from app.services.calibrating import Measured, calibrate
from app.services.errors import NotReady
from cluster_models.errors import InvalidInput, MeshwrightError

MOST_RUNS_SERVED: Final = 60
"""A fit takes a fifth of a second a run; more are for the command line, which nobody waits for."""
LIMIT_S: Final = 300.0
_ONE_AT_A_TIME = threading.Lock()


class FitFailed(MeshwrightError):
    """The fitting process ended without an answer."""


def fit_in_process(
    *,
    name: str,
    profile: HardwareProfileDocument | None,
    gpu: str | None,
    runs_csv: str | None,
    frameworks: Sequence[FrameworkDescription] = (),
) -> CalibrationDocument:
    """The calibration; raises ``InvalidInput``, or ``NotReady`` while another one is fitted."""
    if runs_csv is not None:
        _check_size(read_training_runs(runs_csv, described=described_frameworks(frameworks)))
    request = {
        "name": name,
        "profile": None if profile is None else profile.model_dump(mode="json", by_alias=True),
        "gpu": gpu,
        "runs": runs_csv,
        "frameworks": [each.model_dump(mode="json") for each in frameworks],
    }
    if not _ONE_AT_A_TIME.acquire(blocking=False):
        raise NotReady("Another calibration is being fitted; try again in a minute, or use meshwright calibrate.")
    try:
        done = subprocess.run(  # noqa: S603 - our own module
            [sys.executable, "-m", __name__],
            input=json.dumps(request).encode(),
            capture_output=True,
            check=False,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise InvalidInput(
            "runs", "", f"could not be fitted within {LIMIT_S:g} s", "fit them with meshwright calibrate"
        ) from error
    finally:
        _ONE_AT_A_TIME.release()
    try:
        answer = json.loads(done.stdout)
    except ValueError as error:
        raise FitFailed(f"The fit ended with code {done.returncode}.") from error
    if "problems" in answer:
        raise InvalidDocument([FieldProblem(**problem) for problem in answer["problems"]])
    return CalibrationDocument.model_validate(answer["calibration"])


def _check_size(measured: MeasuredRuns) -> None:
    if len(measured.runs) > MOST_RUNS_SERVED:
        raise InvalidInput(
            "runs",
            len(measured.runs),
            f"are more than the {MOST_RUNS_SERVED} that the service fits",
            "fit them with meshwright calibrate and send the calibration",
        )


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    profile, runs = request["profile"], request["runs"]
    try:
        described = described_frameworks([FrameworkDescription(**each) for each in request["frameworks"]])
        measured = Measured(
            profile=None if profile is None else HardwareProfileDocument.model_validate(profile),
            gpu=request["gpu"],
            runs=None if runs is None else read_training_runs(runs, described=described),
        )
        document = calibrate(measured, name=request["name"], now=datetime.now(UTC))
    except InvalidInput as error:
        found = problems_of(error)
        return {
            "problems": [
                {"field": p.field, "value": str(p.value), "problem": p.problem, "remedy": p.remedy} for p in found
            ]
        }
    return {"calibration": document.model_dump(mode="json", by_alias=True)}


def _end_with(parent: int) -> None:
    """End this process when the one that started it has gone: nobody would read the answer."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    sys.stdout.write(json.dumps(_answer(json.load(sys.stdin))))
