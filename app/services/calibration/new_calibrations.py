"""A calibration as a request or a form asks for it: finished, or to be fitted."""

from __future__ import annotations

from collections.abc import Sequence

from app.documents.calibration import CalibrationDocument
from app.documents.framework import FrameworkDescription
from app.documents.hardware_profile import HardwareProfileDocument
from app.services.calibration.fitting_process import fit_in_process
from app.services.field_paths import errors_under
from cluster_models.errors import InvalidInput


def document_of(
    *,
    name: str | None,
    calibration: CalibrationDocument | None,
    profile: HardwareProfileDocument | None,
    gpu: str | None,
    runs_csv: str | None,
    frameworks: Sequence[FrameworkDescription],
    serving_csv: str | None = None,
) -> CalibrationDocument:
    """The finished document under ``name``; raises ``InvalidInput`` with all that is wrong."""
    if frameworks and runs_csv is None:
        names = [each.name for each in frameworks]
        raise InvalidInput("frameworks", names, "are those of runs", "give runs, or leave them out")
    if calibration is not None:
        if any(each is not None for each in (profile, runs_csv, serving_csv)):
            raise InvalidInput(
                "calibration",
                calibration.name,
                "is given beside what one is to be fitted to",
                "give one of the two",
            )
        with errors_under("calibration"):
            calibration.to_fitted()
        return calibration if name is None else calibration.model_copy(update={"name": name})
    if name is None:
        raise InvalidInput("name", None, "is missing", "say what to call the calibration")
    if profile is None and runs_csv is None and serving_csv is None:
        what = "neither a calibration nor a profile nor runs nor points of serving are given"
        raise InvalidInput("calibration", None, what, "give one of them")
    return fit_in_process(
        name=name, profile=profile, gpu=gpu, runs_csv=runs_csv, frameworks=frameworks, serving_csv=serving_csv
    )
