"""Models and GPU kinds: the catalogues, and models that users store."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import Field
from sqlalchemy.orm import Session

from app.api.v1.answers import PageAnswer, address, page_answer
from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import (
    Cursor,
    ExpectedTag,
    IdempotencyKey,
    Limit,
    ModelPath,
    ServiceDep,
    content_tag,
    tagged,
)
from app.db.engine import transaction
from app.documents.architecture import ArchitectureDocument
from app.documents.gpu_kinds import GpuKindDocument
from app.documents.reading import Document, Text
from app.documents.values import Computed, Given, ValueAnswer
from app.services import idempotency
from app.services.planning import models
from app.services.planning.models import ModelRecord
from app.services.planning.requests import ModelReference
from app.services.preconditions import check_tag
from cluster_models.cluster.catalogue import gpu_kinds
from cluster_models.model.architecture import Architecture
from cluster_models.model.catalogue import catalogue_models

router = APIRouter(tags=["models"], route_class=BodyRoute)


class NewModel(Document):
    """A model to be stored under a name."""

    name: Text = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Name to plan with.", examples=["our-13b"]
    )
    model: ModelReference


class ModelAnswer(ValueAnswer[Architecture]):
    """A model by name."""

    name: Annotated[str, Given()] = Field(description="Name to plan with.", examples=["llama-3-70b"])
    parameters: Annotated[int, Computed(Architecture.parameters)] = Field(
        description="All parameters.", examples=[70553706496]
    )
    active_parameters: Annotated[int, Computed(Architecture.active_parameters)] = Field(
        description="Parameters that one token passes.", examples=[70553706496]
    )
    architecture: Annotated[ArchitectureDocument, Computed(ArchitectureDocument.from_value)] = Field(
        description="Its numbers."
    )


def _answer(record: ModelRecord) -> ModelAnswer:
    return ModelAnswer.from_value(record.architecture, name=record.name)


@router.get("/models")
def list_models(
    request: Request, service: ServiceDep, limit: Limit = 50, cursor: Cursor = None
) -> PageAnswer[ModelAnswer]:
    """Models that users stored, by name; the catalogue has its own address."""
    with service.read_sessions() as session:
        page = models.list_models(session, limit=limit, cursor=cursor)
    return page_answer(request, page, _answer)


@router.post("/models", status_code=201)
def create_model(
    document: NewModel, service: ServiceDep, response: Response, idempotency_key: IdempotencyKey = None
) -> ModelAnswer:
    """Store a model under a name that is free."""
    keyed = idempotency.keyed("model", idempotency_key, document)
    with transaction(service.sessions) as session:
        name = idempotency.once(
            session,
            keyed,
            make=lambda: models.create_model(session, name=document.name, model=document.model).name,
            find=lambda made: models.get_model(session, name=made),
        )
        architecture = models.get_model(session, name=name)
    response.headers["Location"] = address("models", name)
    return ModelAnswer.from_value(architecture, name=name)


@router.get("/models/{model}")
def get_model(model: ModelPath, service: ServiceDep, response: Response) -> ModelAnswer:
    """A stored or catalogue model."""
    with service.read_sessions() as session:
        return tagged(response, _model(session, model))


def _model(session: Session, name: str) -> ModelAnswer:
    return ModelAnswer.from_value(models.get_model(session, name=name), name=name)


@router.delete("/models/{model}", status_code=204)
def delete_model(model: ModelPath, service: ServiceDep, expected: ExpectedTag) -> None:
    """Forget a stored model; plans keep their copy."""
    with transaction(service.sessions) as session:
        check_tag("model", model, expected=expected, current=content_tag(_model(session, model)))
        models.delete_model(session, name=model)


@router.get("/model-catalogue")
def list_model_catalogue() -> list[ModelAnswer]:
    """The models that need no numbers."""
    return [ModelAnswer.from_value(architecture, name=name) for name, architecture in catalogue_models().items()]


@router.get("/gpu-kinds")
def list_gpu_kinds() -> list[GpuKindDocument]:
    """The GPU kinds that need no figures, each with the source of its figures."""
    return [GpuKindDocument.from_value(kind) for kind in gpu_kinds().values()]
