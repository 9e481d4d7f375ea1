"""Where experts should lie: placements, their files for engines, and moves from a running map."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import ServiceDep
from app.documents.reading import Count, Document, close_name
from app.experts.answer import ExpertMapDocument, PlacementAnswer
from app.experts.exporting import FORMATS, archive_of, check_groups, model_layers_of
from app.experts.rebalancing import RebalanceAnswer, RebalanceRequest
from app.experts.request import PlacementRequest
from app.services.experts import expert_placements
from app.services.planning.requests import ModelReference
from cluster_models.errors import InvalidInput

router = APIRouter(tags=["experts"], route_class=BodyRoute)
_ZIP = {"application/zip": {"schema": {"type": "string", "contentMediaType": "application/zip"}}}


class MapFormatAnswer(BaseModel):
    """A format of expert maps."""

    name: str = Field(description="Name to ask for.", examples=["sglang"])
    description: str = Field(description="For people.", examples=["SGLang expert location"])


class ExportRequest(Document):
    """A map that is wanted as files."""

    placement: ExpertMapDocument = Field(description="The map, as a placement answers it.")
    format: str = Field(max_length=100, description="Format of the files.", examples=["sglang"])
    model: ModelReference | None = Field(None, description="The model: SGLang's file has a row for every layer.")
    model_layers: Count | None = Field(
        None, le=2000, description="Instead of a model: its decoder layers, dense ones included.", examples=[61]
    )


@router.post("/expert-placements", responses={200: {"content": _ZIP}}, response_model=PlacementAnswer)
def create_expert_placement(
    document: PlacementRequest,
    service: ServiceDep,
    form: Annotated[
        str | None,
        Query(
            alias="format",
            max_length=100,
            description="Answer with the files of an engine as a ZIP archive instead of JSON.",
            examples=["sglang"],
        ),
    ] = None,
) -> PlacementAnswer | Response:
    """Place experts and their copies in slots, for one workload or a set.  Takes seconds; nothing is stored."""
    if form is not None:
        _check_format(form, "format")
    with service.read_sessions() as session:
        asked = expert_placements.prepare(session, request=document, form=form)
        model = expert_placements.model_of(session, fields=document)
    answer = expert_placements.place(asked)
    if form is None:
        return answer
    slots = answer.placement.to_slots()
    check_groups(form, slots, model, None if document.router is None else document.router.to_rule())
    return _zip(form, archive_of(form, slots, model_layers_of(slots, model, None)))


@router.post("/expert-placements/rebalance")
def rebalance_experts(document: RebalanceRequest, service: ServiceDep) -> RebalanceAnswer:
    """The cheapest moves from the map that runs to one that suits the counts, and whether they pay."""
    with service.read_sessions() as session:
        asked = expert_placements.prepare_rebalancing(session, request=document)
    return expert_placements.find_moves(asked)


@router.post("/expert-placements/export", response_class=Response, responses={200: {"content": _ZIP}})
def export_expert_placement(document: ExportRequest, service: ServiceDep) -> Response:
    """The files of a map, for an engine, as a ZIP archive; each was read back and says the same map."""
    _check_format(document.format, "format")
    with service.read_sessions() as session:
        model = expert_placements.model_of(session, fields=document)
    slots = document.placement.to_slots()
    check_groups(document.format, slots, model)
    return _zip(
        document.format, archive_of(document.format, slots, model_layers_of(slots, model, document.model_layers))
    )


@router.get("/expert-map-formats")
def list_expert_map_formats() -> list[MapFormatAnswer]:
    """The formats of expert maps."""
    return [MapFormatAnswer(name=name, description=form.description) for name, form in FORMATS.items()]


def _check_format(name: str, field: str) -> None:
    if name not in FORMATS:
        raise InvalidInput(field, name, "unknown format", close_name(name, list(FORMATS)))


def _zip(name: str, data: bytes) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="experts-{name}.zip"'}
    return Response(data, media_type="application/zip", headers=headers)
