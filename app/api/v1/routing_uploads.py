"""Routing statistics as they come over HTTP: files in a form or in JSON, or counts in JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from app.api.v1.import_uploads import (
    FileBody,
    Received,
    UploadDescription,
    files_of,
    flag_of,
    inlined,
    json_of,
    parts_of,
)
from app.documents.reading import Document, Flag, Text, read_document
from app.documents.routing import RoutedWorkloadDocument, RoutingDocument, Rows
from app.imports.sources import SentFile
from app.routing.reading import RoutingRead, read_all
from app.services.experts.routing import without_pairs
from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import RoutedWorkload
from readers.frame.findings import Finding
from readers.routing.reading import MOST_EXPERTS

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class RoutingFields(Document):
    """Fields of an upload besides its files."""

    name: Text | None = Field(
        None, pattern=NAME, description="Name to place with; PUT has it in its address.", examples=["deepseek-r1"]
    )
    experts: int | None = Field(
        None,
        strict=True,
        ge=1,
        le=MOST_EXPERTS,
        description="Experts of a layer, for traces that may lack some; files of other models are refused.",
        examples=[256],
    )
    pairs: Flag = Field(
        True, description="Whether to keep transitions and co-activation, where files have them.", examples=[True]
    )
    add: Flag = Field(
        False,
        description="With PUT: whether stored workloads of other names stay; if not, all are replaced.",
        examples=[False],
    )


class RoutingBody(RoutingFields):
    """An upload as JSON: files, or counts."""

    files: list[FileBody] = Field(default_factory=list, description="Files of counts, archives included.")
    workloads: list[RoutedWorkloadDocument] | None = Field(None, min_length=1, description="Counts by workload.")
    logical_count: Rows | None = Field(None, description="Counts of one workload.", examples=[[[120, 80]]])


@dataclass(frozen=True, slots=True)
class RoutingUpload:
    """Content of an upload, read."""

    name: str | None
    add: bool
    workloads: tuple[RoutedWorkload, ...]
    notices: tuple[Finding, ...]


def routing_upload_of(found: Received) -> RoutingUpload:
    """Upload as sent; raises ``InvalidInput``.  May take seconds: not to be called on the event loop."""
    if found.form is None:
        body = read_document(RoutingBody, json_of(found.body), what="document")
        return _of_body(body)
    texts, files = parts_of(found.form)
    fields = read_document(RoutingFields, _typed(texts), what="form")
    return _upload(fields, _read(files, fields.experts))


def _of_body(body: RoutingBody) -> RoutingUpload:
    in_full = body.workloads is not None or body.logical_count is not None
    if in_full and body.files:
        raise InvalidInput("files", len(body.files), "come beside counts in full", "send the one or the other")
    if not in_full:
        return _upload(body, _read(files_of(body.files), body.experts))
    counts = read_document(
        RoutingDocument, {"workloads": body.workloads, "logical_count": body.logical_count}, what="document"
    )
    return _upload(body, RoutingRead(counts.to_workloads(), (), ()))


def _upload(fields: RoutingFields, found: RoutingRead) -> RoutingUpload:
    workloads = found.workloads if fields.pairs else without_pairs(found.workloads)
    return RoutingUpload(fields.name, fields.add, workloads, found.notices)


def _read(files: tuple[SentFile, ...], experts: int | None) -> RoutingRead:
    if not files:
        raise InvalidInput("files", [], "there are none", "send at least one: curl -F files=@FILE")
    found = read_all(files, experts=experts)
    if not found.workloads:
        problem = "says where experts lie, not how often they were selected"
        raise InvalidInput(f"files: {found.maps[0].name}", "a map", problem, "send the counts too")
    return found


def _typed(texts: dict[str, str]) -> dict[str, Any]:
    """The texts of a form as what they stand for; those that are empty as absent."""
    fields: dict[str, Any] = {name: text for name, text in texts.items() if text}
    for name in ("pairs", "add"):
        if name in fields:
            fields[name] = flag_of(fields[name])
    if str(fields.get("experts", "")).isascii() and str(fields.get("experts", "")).isdigit():
        fields["experts"] = int(fields["experts"][:9])
    return fields


def routing_bodies() -> UploadDescription:
    """The two bodies for the API's description."""
    json_schema = inlined(RoutingBody.model_json_schema())
    form = {name: dict(json_schema["properties"][name]) for name in RoutingFields.model_fields}
    form["files"] = {
        "type": "array",
        "items": {"type": "string", "contentMediaType": "application/octet-stream"},
        "description": "Files of counts, archives included.",
    }
    schema = {"type": "object", "properties": form, "required": ["files"], "title": "RoutingForm"}
    content = {"multipart/form-data": {"schema": schema}, "application/json": {"schema": json_schema}}
    return {"requestBody": {"required": True, "content": content}}
