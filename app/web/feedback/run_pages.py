"""Pages of measured runs: beside their predictions, what they say of drift and slow parts, and recalibration."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.datastructures import FormData

from app.answers.measured_runs import DriftAnswer, MeasuredRunAnswer, RecalibrationAnswer
from app.db.engine import transaction
from app.documents.calibration import CalibrationDocument
from app.documents.reading import parse_text, problems_of, read_document
from app.presentation.calibration import finding_lines, outcome_lines, parameter_lines
from app.presentation.measured_runs import (
    DRIFT_COLUMNS,
    RUN_COLUMNS,
    drift_cells,
    effect_lines,
    run_cells,
    summary,
    suspect_sentence,
)
from app.resources import service_of
from app.services.calibration import calibrations
from app.services.errors import NameTaken, NotReady
from app.services.feedback import drifts, recalibration
from app.services.feedback.drifts import Grouping
from app.services.feedback.measured_runs import RunFilter
from app.web.error_pages import PageRoute
from app.web.feedback.prediction_drawings import prediction_scatter, residual_rows
from app.web.feedback.ratio_drawing import ratio_drawing
from app.web.kept_pages import answer_page
from app.web.origin import sent_form
from app.web.rendering import page
from cluster_models.errors import InvalidInput

NEWEST: Final = 30

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/runs")
def run_list(request: Request, cluster: str = "", framework: str = "") -> Response:
    """Measured runs, how far they are from predictions, and what they point to."""
    return _runs(request, cluster, framework)


@router.post("/runs")
def offer_calibration(request: Request, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """Fit a calibration to the runs that are shown, and say what it would change."""
    cluster, framework = str(data.get("cluster", "")), str(data.get("framework", ""))
    wanted = RunFilter(cluster or None, framework or None)
    try:
        with service_of(request).read_sessions() as session:
            question = recalibration.ask(session, wanted=wanted)
        name = str(data.get("name", "")).strip() or recalibration.default_name(wanted)
        offered = RecalibrationAnswer.make(recalibration.recalibrate(question, name=name))
    except (InvalidInput, NotReady) as error:
        return _runs(request, cluster, framework, problem=str(error))
    document = offered.calibration
    return answer_page(
        request,
        "recalibration.html",
        name=document.name,
        effects=effect_lines(offered),
        findings=() if document.fit is None else (*outcome_lines(document), *finding_lines(document.fit)),
        rows=parameter_lines(document),
        document=document.model_dump_json(by_alias=True),
        back=_address(cluster, framework),
    )


@router.post("/runs/accept")
def accept_calibration(request: Request, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """Keep a calibration that was offered."""
    try:
        told = parse_text(str(data.get("document", "")), what="calibration")
        document = read_document(CalibrationDocument, told, what="calibration")
        with transaction(service_of(request).sessions) as session:
            record = calibrations.create_calibration(session, document=document)
    except NameTaken as error:
        return _runs(request, "", "", problem=str(error))
    except InvalidInput as error:
        return _runs(request, "", "", problem=str(problems_of(error)[0]))
    return RedirectResponse(f"/calibrations/{quote(record.name, safe='')}", 303)


def _runs(request: Request, cluster: str, framework: str, *, problem: str = "") -> Response:
    with service_of(request).read_sessions() as session:
        found = drifts.measure_drifts(session, wanted=RunFilter(cluster or None, framework or None))
    drift = DriftAnswer.from_value(found)
    newest = [MeasuredRunAnswer.from_value(run) for run in found.runs[::-1][:NEWEST]]
    return page(
        request,
        "runs.html",
        status=422 if problem else 200,
        problem=problem,
        summary=summary(drift),
        suspects=[suspect_sentence(each) for each in drift.suspects],
        picture=ratio_drawing(found.runs),
        scatter=prediction_scatter(found.runs),
        residuals=residual_rows(found.runs),
        groups=[drift_cells(each) for each in drift.groups if each.by is not Grouping.NODE],
        nodes=[drift_cells(each) for each in drift.groups if each.by is Grouping.NODE],
        group_columns=DRIFT_COLUMNS,
        runs=[run_cells(each) for each in newest],
        run_columns=RUN_COLUMNS,
        outside=any(each.within_interval is False for each in newest),
        cluster=cluster,
        framework=framework,
    )


def _address(cluster: str, framework: str) -> str:
    return f"/runs?cluster={quote(cluster)}&framework={quote(framework)}"
