"""Calibrations that users keep under a name, with the GPU kinds that they are of."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.insert import insert_if_absent
from app.db.tables import CalibrationKindRow, CalibrationRow
from app.documents.calibration import CalibrationDocument
from app.services.errors import NameTaken, NotFound
from app.services.pagination import Page, in_order
from app.services.rows import delete_where, row_where
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.errors import InvalidInput
from cluster_models.training.plan import Plan


@dataclass(frozen=True, slots=True)
class CalibrationRecord:
    """A stored calibration without its parameters; ``label`` is its name and content hash, as plans carry it.

    ``engines`` are those of serving, ``described`` the frameworks that are not shipped and that it describes.
    """

    name: str
    label: str
    gpu_kinds: tuple[str, ...]
    frameworks: tuple[str, ...]
    engines: tuple[str, ...]
    described: tuple[str, ...]
    source: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class StoredCalibration(CalibrationRecord):
    """A stored calibration."""

    document: CalibrationDocument


def create_calibration(session: Session, *, document: CalibrationDocument) -> CalibrationRecord:
    """Store a calibration under its name, which must be free."""
    fitted = document.to_fitted()
    calibration_id, now = uuid.uuid4().hex, datetime.now(UTC)
    values = {
        "label": fitted.source,
        "document": document.model_dump(mode="json", by_alias=True),
        "source": document.source,
        "created_at": now,
    }
    if not insert_if_absent(session, CalibrationRow, id=calibration_id, name=document.name, **values):
        raise NameTaken("calibration", document.name, "delete it first, or use another name")
    kinds = dict.fromkeys((*document.gpus, *(name.rpartition("@")[2] for name in document.serving)))
    session.add_all(CalibrationKindRow(calibration_id=calibration_id, gpu_kind=kind) for kind in kinds)
    session.flush()
    return _record(_row(session, document.name))


def list_calibrations(
    session: Session, *, limit: int, cursor: str | None = None, gpu_kind: str | None = None
) -> Page[CalibrationRecord]:
    """Calibrations by name; with ``gpu_kind`` only those that have parameters of it."""
    query = select(CalibrationRow)
    if gpu_kind is not None:
        of_kind = select(CalibrationKindRow.calibration_id).where(CalibrationKindRow.gpu_kind == gpu_kind)
        query = query.where(CalibrationRow.id.in_(of_kind))
    return in_order(session, query, CalibrationRow.name, _record, limit, cursor)


def get_calibration(session: Session, *, name: str) -> StoredCalibration:
    """The stored calibration of that name; raises ``NotFound``."""
    row = _row(session, name)
    return StoredCalibration(**asdict(_record(row)), document=CalibrationDocument.model_validate(row.document))


def delete_calibration(session: Session, *, name: str) -> None:
    """Forget a calibration; plans keep the parameters they were made with."""
    delete_where(session, CalibrationRow, CalibrationRow.name == name, "calibration", name)


def resolve_calibration(session: Session, *, name: str) -> FittedParameters:
    """The parameters stored under a name; raises ``InvalidInput`` on the field ``calibration``."""
    try:
        return get_calibration(session, name=name).document.to_fitted()
    except NotFound as error:
        remedy = "GET /api/v1/calibrations lists them"
        raise InvalidInput("calibration", name, "there is no stored calibration of this name", remedy) from error


def calibration_of_plan(session: Session, *, plan: Plan) -> FittedParameters | None:
    """The stored parameters that ``plan`` was priced with, ``None`` for the shipped ones.

    Raises ``InvalidInput`` on ``plan.provenance.calibration`` where they are not stored: other parameters would
    price what is done with the plan otherwise than the plan itself.
    """
    label = plan.provenance.calibration
    if not label:
        return None
    row = session.scalar(
        select(CalibrationRow)
        .where(CalibrationRow.label == label)
        .order_by(CalibrationRow.created_at, CalibrationRow.name)
        .limit(1)
    )
    if row is None:
        remedy = "store the calibration (POST /api/v1/calibrations), or plan without it"
        raise InvalidInput("plan.provenance.calibration", label, "is not stored here", remedy)
    return CalibrationDocument.model_validate(row.document).to_fitted()


def _row(session: Session, name: str) -> CalibrationRow:
    return row_where(session, CalibrationRow, CalibrationRow.name == name, "calibration", name)


def _record(row: CalibrationRow) -> CalibrationRecord:
    served = [name.split("@", 1) for name in row.document.get("serving", ())]
    return CalibrationRecord(
        name=row.name,
        label=row.label,
        gpu_kinds=tuple(dict.fromkeys((*row.document["gpus"], *(gpu for _, gpu in served)))),
        frameworks=tuple(row.document["frameworks"]),
        engines=tuple(dict.fromkeys(engine for engine, _ in served)),
        described=tuple(each["name"] for each in row.document.get("descriptions", ())),
        source=row.source,
        created_at=row.created_at,
    )
