"""Reports in our own words: one, a list, or ``{"events": [...]}``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, model_validator

from app.documents.moments import Moment
from app.documents.reading import Document, Line, Number, Text, read_document
from app.events.payloads import BODY, ReportCollector, digest, json_value, listed
from app.events.reading import Adapter, Reported
from cluster_models.errors import InvalidInput
from cluster_models.health.events import UNSTATED, EntityKind, HealthState

PartName = Annotated[Line, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
"""GPUs have numbers, other parts names."""


class PlainReport(Document):
    """One report; ``id`` tells it from others of its sender, ``occurred_at`` is when it came where left out.

    ``leave_by``: until when what drains still works.  ``device``: serial number or UUID of the hardware.
    """

    kind: EntityKind = EntityKind.NODE
    node: Line = ""
    part: PartName = ""
    state: HealthState
    occurred_at: Moment | None = None
    id: Text | None = None
    text: Line = ""
    code: Annotated[Line, Field(max_length=200)] = ""
    compute_slowdown: Annotated[Number, Field(ge=1)] | None = None
    bandwidth_share: Annotated[Number, Field(gt=0, le=1)] | None = None
    leave_by: Moment | None = None
    device: Annotated[Line, Field(max_length=200)] = ""

    @model_validator(mode="after")
    def _names_a_part(self) -> PlainReport:
        if self.kind is EntityKind.SWITCH and self.node:
            raise ValueError("a switch has no node: name it by part alone, like leaf:leaf-3")
        if self.kind is EntityKind.NODE and self.part:
            raise ValueError("a node has no part: leave it out, or say which kind of part it is")
        if self.leave_by is not None and self.state is not HealthState.DRAINING:
            raise ValueError(f"leave_by conflicts with the state {self.state}: only what drains is to be left")
        return self


def read_plain(body: bytes, now: datetime) -> Reported:
    """The reports of a body; raises ``InvalidInput`` where it holds none."""
    value = json_value(body)
    if isinstance(value, Mapping) and "events" in value:
        path, entries = "events", listed(value["events"], path="events")
    elif isinstance(value, Mapping):
        return _only(value, now)
    else:
        path, entries = "", listed(value, path=BODY)
    if not entries:
        raise InvalidInput(path or BODY, "[]", "holds no report", "give at least one")
    taken = ReportCollector(now)
    for index, each in enumerate(entries):
        with taken.entry(f"{path}[{index}]"):
            take_plain(read_document(PlainReport, each, what=f"{path}[{index}]"), taken)
    return taken.done()


def _only(value: Mapping[str, object], now: datetime) -> Reported:
    taken = ReportCollector(now)
    take_plain(read_document(PlainReport, value, what=BODY), taken)
    return taken.done()


def take_plain(report: PlainReport, taken: ReportCollector) -> None:
    """Take one report; without an id, what it says and when is its id.  Raises ``InvalidInput``."""
    at = report.occurred_at
    said = digest(report.model_dump_json(exclude={"occurred_at"}), (at or taken.now).isoformat())
    taken.add(
        report.state,
        report.node,
        kind=report.kind,
        part=report.part,
        at=at,
        source_id=report.id or said,
        text=report.text,
        code=report.code,
        compute_slowdown=report.compute_slowdown or UNSTATED,
        bandwidth_share=report.bandwidth_share or UNSTATED,
        leave_by=report.leave_by,
        device=report.device,
    )


PLAIN: Final = Adapter(
    "plain",
    "our own words",
    read_plain,
    '{"events": [{"node": "n3", "state": "failed", "occurred_at": "2026-03-01T12:00:05Z", "id": "ticket-4711",'
    ' "text": "no power"},\n'
    '            {"kind": "gpu", "node": "n4", "part": 6, "state": "degraded", "compute_slowdown": 1.2}]}',
)
