"""Pages of calibrations."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.datastructures import FormData

from app.db.engine import transaction
from app.documents.calibration import FitDocument
from app.documents.reading import FieldProblem, problems_of
from app.presentation.calibration import (
    error_lines,
    finding_lines,
    not_told_lines,
    outcome_lines,
    parameter_lines,
    serving_lines,
)
from app.presentation.figures import plural
from app.presentation.measured_runs import off
from app.resources import service_of
from app.services.calibration import calibrations
from app.services.calibration.new_calibrations import document_of
from app.services.errors import NameTaken, NotReady
from app.web.drawing import Drawing
from app.web.error_pages import PageRoute
from app.web.forms import FormProblem, Typed
from app.web.listing import calibration_line
from app.web.origin import sent_form
from app.web.planning.form import typed
from app.web.planning.plan_request import calibration_parts
from app.web.rendering import page
from app.web.residuals import Residual, residuals_drawing
from cluster_models.cluster.catalogue import gpu_kinds
from cluster_models.errors import InvalidInput

PAGE: Final = 50
_BLANK: Final = {
    "name": "",
    "gpu": "",
    "profile_file": "",
    "profile_text": "",
    "runs_file": "",
    "runs_text": "",
    "serving_file": "",
    "serving_text": "",
    "frameworks_file": "",
    "frameworks_text": "",
    "calibration_file": "",
    "calibration_text": "",
}
_BOXES: Final = (
    ("profile", "profile_text", "Profile"),
    ("gpu", "gpu", "GPU kind"),
    ("runs", "runs_text", "Runs"),
    ("line", "runs_text", "Runs"),
    ("serving", "serving_text", "Points of serving"),
    ("frameworks", "frameworks_text", "Own frameworks"),
    ("calibration", "calibration_text", "Calibration"),
    ("name", "name", "Name"),
)
"""How the fields of problems begin, and where in the form they belong."""

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/calibrations")
def calibration_list(request: Request, cursor: str | None = None) -> Response:
    """All stored calibrations."""
    with service_of(request).read_sessions() as session:
        found = calibrations.list_calibrations(session, limit=PAGE, cursor=cursor)
    return page(
        request,
        "calibrations.html",
        calibrations=[calibration_line(record) for record in found.items],
        next_page=found.next_cursor and f"/calibrations?cursor={found.next_cursor}",
    )


@router.get("/calibrations/new")
def new_calibration(request: Request) -> Response:
    """The empty form."""
    return _form(request, dict(_BLANK), ())


@router.post("/calibrations/new")
def create(request: Request, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """Fit or take over what was sent and store it, or show what is wrong with it."""
    values, found = typed(data, dict(_BLANK))
    if not found:
        try:
            document = document_of(**calibration_parts(values))
            with transaction(service_of(request).sessions) as session:
                record = calibrations.create_calibration(session, document=document)
        except InvalidInput as error:
            found = tuple(_at_box(problem, values) for problem in problems_of(error))
        except NameTaken as error:
            found = (FormProblem("name", "Name", str(error)),)
        except NotReady as error:
            found = (FormProblem("", "", str(error)),)
        else:
            return RedirectResponse(f"/calibrations/{quote(record.name, safe='')}", 303)
    return _form(request, values, found)


@router.get("/calibrations/{name}")
def calibration(request: Request, name: str) -> Response:
    """One calibration: its parameters with their intervals, and how well they fit."""
    with service_of(request).read_sessions() as session:
        stored = calibrations.get_calibration(session, name=name)
    fit = stored.document.fit
    return page(
        request,
        "calibration.html",
        calibration=calibration_line(stored),
        label=stored.label,
        outcome=outcome_lines(stored.document),
        rows=parameter_lines(stored.document),
        residuals=None if fit is None else _residuals(fit),
        errors=(*serving_lines(stored.document), *(() if fit is None else error_lines(fit))),
        warnings=() if fit is None else finding_lines(fit),
        not_told=() if fit is None else not_told_lines(fit),
        collectives=plural(kept, "timing") if (kept := len(stored.document.collectives)) else "",
    )


@router.get("/calibrations/{name}/file")
def calibration_file(request: Request, name: str) -> Response:
    """The calibration as ``meshwright plan --calibration`` reads it."""
    with service_of(request).read_sessions() as session:
        document = calibrations.get_calibration(session, name=name).document
    headers = {"Content-Disposition": f'attachment; filename="{document.name}.json"'}
    return Response(document.model_dump_json(indent=2) + "\n", media_type="application/json", headers=headers)


@router.post("/calibrations/{name}/delete")
def forget(request: Request, name: str) -> Response:
    """Forget a calibration."""
    with transaction(service_of(request).sessions) as session:
        calibrations.delete_calibration(session, name=name)
    return RedirectResponse("/calibrations", 303)


def _residuals(fit: FitDocument) -> Drawing | None:
    """Runs before the fit, after it, and by fits that did not see them; ``None`` without runs."""
    ratios = {
        "before": [(each.run, each.before) for each in fit.steps],
        "after": [(each.run, each.after) for each in fit.steps],
        "by fits without their group": [(each.run, each.held_out) for each in fit.steps if each.held_out],
    }
    rows = [
        (name, [Residual(ratio, f"{run}: {off(ratio)}") for run, ratio in members])
        for name, members in ratios.items()
        if members
    ]
    return residuals_drawing("How far runs are off, before the fit and after", rows) if rows else None


def _at_box(problem: FieldProblem, values: Typed) -> FormProblem:
    if problem.field.startswith("line") and not values["runs_text"].strip():
        return FormProblem("serving_text", "Points of serving", str(problem))
    for start, anchor, label in _BOXES:
        if problem.field == start:  # the label names it already
            return FormProblem(anchor, label, "; ".join(filter(None, (problem.problem, problem.remedy))))
        if problem.field.startswith(start):
            return FormProblem(anchor, label, str(problem))
    return FormProblem("", "", str(problem))


def _form(request: Request, values: Typed, found: tuple[FormProblem, ...]) -> Response:
    kinds = (("", "as the driver names it"), *((name, name) for name in gpu_kinds()))
    return page(
        request, "new_calibration.html", status=422 if found else 200, values=values, found=found, kinds=kinds
    )
