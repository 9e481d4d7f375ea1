"""Calibrations: fit one to own measurements or store a finished one, and the script that measures a GPU."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field
from sqlalchemy.orm import Session

from app.api.v1.answers import Moment, PageAnswer, address, page_answer
from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import (
    CalibrationPath,
    Cursor,
    ExpectedTag,
    IdempotencyKey,
    Limit,
    ServiceDep,
    content_tag,
    tagged,
)
from app.db.engine import transaction
from app.documents.calibration import MOST_OWNERS, CalibrationDocument
from app.documents.framework import FrameworkDescription
from app.documents.hardware_profile import HardwareProfileDocument
from app.documents.reading import NAME, Document, Text
from app.documents.values import Computed, ValueAnswer
from app.profiler.script import SCRIPT_NAME, script_text
from app.services import idempotency
from app.services.calibration import calibrations
from app.services.calibration.calibrations import CalibrationRecord, StoredCalibration
from app.services.calibration.new_calibrations import document_of
from app.services.preconditions import check_tag

router = APIRouter(tags=["calibrations"], route_class=BodyRoute)
script_router = APIRouter(tags=["calibrations"])


class NewCalibration(Document):
    """A finished calibration, or what one is to be fitted to: a profile, runs, points of serving."""

    name: Text | None = Field(
        None, pattern=NAME, description="Name to plan with; default: the finished one's.", examples=["our-h100"]
    )
    calibration: CalibrationDocument | None = Field(
        None, description="A finished one, as meshwright calibrate writes."
    )
    profile: HardwareProfileDocument | None = Field(None, description="Document that the profiler script wrote.")
    gpu: Text | None = Field(
        None,
        description="GPU kind of the profile, where the driver's name is unknown.",
        examples=["H100-SXM5-80GB"],
    )
    runs: str | None = Field(
        None,
        description="Measured steps as CSV text, one run a line; at most 60 runs.",
        examples=["gpu,framework,num_gpus,..."],
    )
    serving: str | None = Field(
        None,
        description="Measured points of serving as CSV text, one a line.",
        examples=["engine,gpu,model,input_tokens,..."],
    )
    frameworks: list[FrameworkDescription] = Field(
        default_factory=list,
        max_length=MOST_OWNERS,
        description="Frameworks of the runs that are not shipped.",
        examples=[[]],
    )


class CalibrationSummary(ValueAnswer[CalibrationRecord]):
    """A stored calibration without its parameters."""

    name: str = Field(description="Name to plan with.", examples=["our-h100"])
    label: str = Field(
        description="Name and content hash, as plans carry it.", examples=["our-h100 3f2a91c0d4e5b6a7"]
    )
    gpu_kinds: list[str] = Field(description="GPU kinds it has parameters of.", examples=[["H100-SXM5-80GB"]])
    frameworks: list[str] = Field(description="Framework generations.", examples=[["megatron-core-0.12"]])
    engines: list[str] = Field(description="Generations of serving engines.", examples=[["vllm-0.16"]])
    described: list[str] = Field(description="Those of them that it describes.", examples=[[]])
    source: str = Field(description="Runs that it was fitted on.", examples=["12 measured runs in 3 groups"])
    created_at: Moment


class CalibrationAnswer(CalibrationSummary):
    """A stored calibration."""

    calibration: Annotated[CalibrationDocument, Computed(lambda stored: stored.document)] = Field(
        description="Its parameters, and how well they fit."
    )


@router.post("/calibrations", status_code=201)
def create_calibration(
    document: NewCalibration, service: ServiceDep, response: Response, idempotency_key: IdempotencyKey = None
) -> CalibrationAnswer:
    """Fit a calibration, which takes seconds to minutes, or take a finished one, and store it under a free name."""
    keyed = idempotency.keyed("calibration", idempotency_key, document)
    with transaction(service.sessions) as session:
        known = idempotency.made_before(session, keyed, find=partial(_stored, session))
    made = None if known is not None else _document_of(document)
    with transaction(service.sessions) as session:

        def make() -> str:
            fitted = made or _document_of(document)  # the second where it was deleted just now
            return calibrations.create_calibration(session, document=fitted).name

        name = idempotency.once(session, keyed, make=make, find=partial(_stored, session))
        stored = _stored(session, name)
    response.headers["Location"] = address("calibrations", stored.name)
    return CalibrationAnswer.from_value(stored)


def _stored(session: Session, name: str) -> StoredCalibration:
    return calibrations.get_calibration(session, name=name)


def _document_of(document: NewCalibration) -> CalibrationDocument:
    return document_of(
        name=document.name,
        calibration=document.calibration,
        profile=document.profile,
        gpu=document.gpu,
        runs_csv=document.runs,
        frameworks=document.frameworks,
        serving_csv=document.serving,
    )


@router.get("/calibrations")
def list_calibrations(
    request: Request,
    service: ServiceDep,
    gpu_kind: Annotated[
        str | None,
        Query(max_length=200, description="Only calibrations of this GPU kind.", examples=["H100-SXM5-80GB"]),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PageAnswer[CalibrationSummary]:
    """Stored calibrations by name, without their parameters."""
    with service.read_sessions() as session:
        page = calibrations.list_calibrations(session, limit=limit, cursor=cursor, gpu_kind=gpu_kind)
    return page_answer(request, page, CalibrationSummary.from_value)


@router.get("/calibrations/{calibration}")
def get_calibration(calibration: CalibrationPath, service: ServiceDep, response: Response) -> CalibrationAnswer:
    """A stored calibration."""
    with service.read_sessions() as session:
        return tagged(response, CalibrationAnswer.from_value(_stored(session, calibration)))


@router.delete("/calibrations/{calibration}", status_code=204)
def delete_calibration(calibration: CalibrationPath, service: ServiceDep, expected: ExpectedTag) -> None:
    """Forget a calibration; plans keep the parameters they were made with."""
    with transaction(service.sessions) as session:
        before = CalibrationAnswer.from_value(_stored(session, calibration))
        check_tag("calibration", calibration, expected=expected, current=content_tag(before))
        calibrations.delete_calibration(session, name=calibration)


@script_router.get(
    f"/profiler/{SCRIPT_NAME}",
    response_class=Response,
    responses={200: {"description": "The script.", "content": {"text/x-python": {}}}},
)
def get_profiler() -> Response:
    """The script that measures a GPU node: fetch it there and run it; Python and PyTorch are all it needs."""
    headers = {"Content-Disposition": f'attachment; filename="{SCRIPT_NAME}"', "Cache-Control": "no-cache"}
    return Response(script_text(), media_type="text/x-python", headers=headers)
