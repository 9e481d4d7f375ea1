"""Models: those of the catalogue, and those that users store under a name."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.insert import insert_if_absent
from app.db.tables import ModelRow
from app.documents.model import model_document
from app.serialization import jsonable, load
from app.services.errors import NameTaken, NotFound
from app.services.field_paths import errors_under
from app.services.pagination import Page, in_order
from app.services.rows import delete_where
from cluster_models.model.architecture import Architecture
from cluster_models.model.catalogue import catalogue_model, catalogue_models


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model that a user stored."""

    name: str
    architecture: Architecture
    created_at: datetime


def create_model(session: Session, *, name: str, model: object) -> ModelRecord:
    """Store a model, given in any spelling of a model document, under a name that is free."""
    with errors_under("model"):
        architecture = replace(model_document(model, what="model").to_architecture(), name=name)
    if name.lower() in catalogue_models():
        raise NameTaken("model", name, "it is in the catalogue")
    record = ModelRecord(name, architecture, datetime.now(UTC))
    inserted = insert_if_absent(
        session,
        ModelRow,
        id=uuid.uuid4().hex,
        name=name,
        document=jsonable(architecture),
        created_at=record.created_at,
    )
    if not inserted:
        raise NameTaken("model", name, "delete it first, or use another name")
    return record


def list_models(session: Session, *, limit: int, cursor: str | None = None) -> Page[ModelRecord]:
    """Stored models by name."""
    query = select(ModelRow)
    return in_order(session, query, ModelRow.name, _record, limit, cursor)


def get_model(session: Session, *, name: str) -> Architecture:
    """The stored or catalogue model of that name; raises ``NotFound``."""
    row = session.scalar(select(ModelRow).where(ModelRow.name == name))
    if row is not None:
        return _record(row).architecture
    if (known := catalogue_models().get(name.strip().lower())) is not None:
        return known
    raise NotFound("model", name)


def resolve_model(session: Session, *, model: str | Mapping[str, Any]) -> Architecture:
    """The model that a request means: a stored or catalogue name, or a model in full.

    Raises ``InvalidModel`` with the closest catalogue names where there is none.
    """
    if not isinstance(model, str):
        return model_document(model, what="model").to_architecture()
    row = session.scalar(select(ModelRow).where(ModelRow.name == model))
    return _record(row).architecture if row is not None else catalogue_model(model)


def delete_model(session: Session, *, name: str) -> None:
    """Forget a stored model; plans keep their copy."""
    delete_where(session, ModelRow, ModelRow.name == name, "stored model", name)


def _record(row: ModelRow) -> ModelRecord:
    return ModelRecord(row.name, load(Architecture, row.document), row.created_at)
