"""Files as they come over HTTP: the parts of a form, or a JSON document that carries them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Request
from pydantic import Field
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from app.documents.reading import Document, Flag, Text, read_document
from app.documents.text import parse_json
from app.imports.answers import AnswersDocument
from app.imports.sources import SentFile
from app.services.clusters.imports import ImportRequest
from cluster_models.errors import InvalidInput
from cluster_models.units import MIB

MOST_FILES: Final = 1_000
"""Bound for one upload; archives may hold more."""
_MOST_FIELDS: Final = 20
_MOST_FIELD_BYTES: Final = 8 * MIB
_TOO_LARGE: Final = 413
_FILES: Final = "files"
_WORDS: Final = {
    "true": True,
    "1": True,
    "on": True,
    "yes": True,
    "false": False,
    "0": False,
    "no": False,
    "": False,
}


class ImportFields(Document):
    """Fields of an upload besides its files."""

    cluster: Text = Field(
        description="Name or id of a stored cluster, or the name of a new one.", examples=["h100-17-nodes"]
    )
    answers: AnswersDocument = Field(
        default_factory=AnswersDocument, description="Answers to the questions of the report before."
    )
    store: Flag = Field(
        False, description="Whether to store what the files say; if not, it is only reported.", examples=[False]
    )
    digest: Text | None = Field(
        None, description="That of the report that is to be stored; needed with store.", examples=[None]
    )


class FileBody(Document):
    """One file within JSON: its text, or its bytes in Base64."""

    name: str = Field(min_length=1, description="File name; reports and answers use it.", examples=["topo.txt"])
    text: str | None = Field(None, description="The text.", examples=["# nThread 1 nGpus 1\n"])
    base64: str | None = Field(None, description="The bytes in Base64, of archives and the like.", examples=[None])
    host: Text | None = Field(None, description="The node that the file is from, if it does not say.")

    def to_file(self, path: str) -> SentFile:
        """The file; ``path`` names this entry in errors."""
        if (self.text is None) == (self.base64 is None):
            raise InvalidInput(path, self.name[:100], "needs either text or base64", "give one of the two")
        if self.text is not None:
            return SentFile(self.name, self.text.encode("utf-8", "replace"), self.host)
        try:
            data = base64.b64decode(self.base64 or "", validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidInput(f"{path}.base64", self.name[:100], f"is not Base64: {error}") from error
        return SentFile(self.name, data, self.host)


class ImportBody(ImportFields):
    """An upload as JSON."""

    files: list[FileBody] = Field(description="The files, archives of several included.")


@dataclass(frozen=True, slots=True)
class Received:
    """A body that has arrived and is still to be read: a form or JSON."""

    form: FormData | None
    body: bytes


@dataclass(frozen=True, slots=True)
class Upload:
    """Import that a request asks for."""

    request: ImportRequest
    store: bool
    digest: str | None


async def received(request: Request) -> Received:
    """The body of a request; raises 413 and 415."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().casefold()
    try:
        if kind == "multipart/form-data":
            form = await request.form(
                max_files=MOST_FILES, max_fields=_MOST_FIELDS, max_part_size=_MOST_FIELD_BYTES
            )
            return Received(form, b"")
        if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
            return Received(None, await request.body())
    except HTTPException as error:
        raise _explained(error, request) from error
    detail = f"Send multipart/form-data (curl -F files=@FILE) or application/json, not {kind[:100]!r}."
    raise HTTPException(415, detail)


def _explained(error: HTTPException, request: Request) -> HTTPException:
    """The same error with the limit that was broken."""
    if error.status_code == _TOO_LARGE:
        most = request.app.state.service.settings.max_body_bytes
        return HTTPException(_TOO_LARGE, f"The body has more than the {most} bytes that this service takes.")
    if error.detail.startswith("Too many files"):
        return _too_many(None)
    if error.detail.startswith(("Too many fields", "Part exceeded")):
        detail = (
            f"A form has at most {_MOST_FIELDS} fields of {_MOST_FIELD_BYTES // MIB} MiB besides its files; "
            "send files as files: curl -F files=@FILE."
        )
        return HTTPException(_TOO_LARGE, detail)
    if error.detail.startswith("Invalid multipart"):
        detail = (
            "The form cannot be taken apart: it breaks off, or the name of a file is longer than 4,000 characters."
        )
        return HTTPException(error.status_code, detail)
    return error


def _too_many(count: int | None) -> HTTPException:
    many = "more" if count is None else str(count)
    detail = f"An upload has at most {MOST_FILES} files, and this has {many}; pack them into one .zip or .tar.gz."
    return HTTPException(_TOO_LARGE, detail)


def upload_of(found: Received) -> Upload:
    """Upload as sent; raises ``InvalidInput``.  May take a second: not to be called on the event loop."""
    if found.form is None:
        body = read_document(ImportBody, json_of(found.body), what="document")
        return _upload(body, files_of(body.files))
    fields, files = parts_of(found.form)
    return _upload(read_document(ImportFields, _read_fields(fields), what="form"), files)


def json_of(body: bytes) -> Any:
    """The value of a JSON body; raises ``InvalidInput``, and 413 for too many files."""
    value = parse_json(body, what="document")
    sent = value.get(_FILES) if isinstance(value, Mapping) else None
    if isinstance(sent, list) and len(sent) > MOST_FILES:
        raise _too_many(len(sent))
    return value


def files_of(files: Sequence[FileBody]) -> tuple[SentFile, ...]:
    """The files within a JSON body; raises ``InvalidInput``."""
    return tuple(file.to_file(f"files[{index}]") for index, file in enumerate(files))


def _upload(fields: ImportFields, files: tuple[SentFile, ...]) -> Upload:
    if not files:
        raise InvalidInput(_FILES, [], "there are none", "send at least one: curl -F files=@FILE")
    if fields.store and fields.digest is None:
        remedy = "send the files without store first, look at the report, and send its digest"
        raise InvalidInput("digest", None, "is missing", remedy)
    request = ImportRequest(files, fields.cluster, fields.answers.to_answers())
    return Upload(request, fields.store, fields.digest)


def parts_of(form: FormData) -> tuple[dict[str, str], tuple[SentFile, ...]]:
    """The fields of a form as text, and its files; raises ``InvalidInput``."""
    fields: dict[str, str] = {}
    files: list[SentFile] = []
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            with value.file:
                data = value.file.read()
            if value.filename or data:  # browsers send an empty part where no file was chosen
                files.append(SentFile(value.filename or "unnamed", data))
        elif name == _FILES:
            raise InvalidInput(_FILES, value[:100], "is text, not a file", "with curl: -F files=@FILE")
        elif name in fields:
            raise InvalidInput(name[:100], value[:100], "is given twice", "give each field once")
        else:
            fields[name] = value
    return fields, tuple(files)


def flag_of(word: str) -> bool | str:
    """Value of a word of a form, or the word itself, which is refused where it is read."""
    return _WORDS.get(word.strip().casefold(), word)


def _read_fields(fields: Mapping[str, str]) -> dict[str, Any]:
    """The texts of a form as what they stand for; those that are empty as absent."""
    found: dict[str, Any] = {name: text for name, text in fields.items() if text != "" or name == "cluster"}
    if "answers" in found:
        found["answers"] = parse_json(found["answers"].encode("utf-8", "replace"), what="answers")
    if "store" in found:
        found["store"] = flag_of(found["store"])
    return found


UploadDescription = Annotated[dict[str, Any], "OpenAPI"]


def described() -> UploadDescription:
    """The two bodies for the API's description."""
    json_schema = inlined(ImportBody.model_json_schema())
    form = {name: dict(part) for name, part in json_schema["properties"].items()}
    form["files"] = {
        "type": "array",
        "items": {"type": "string", "contentMediaType": "application/octet-stream"},
        "description": "The files, archives of several included.",
    }
    form["answers"] = {"type": "string", "description": "Answers as a JSON text, as in the JSON body."}
    required = ["cluster", "files"]
    schema = {"type": "object", "properties": form, "required": required, "title": "ImportForm"}
    content = {"multipart/form-data": {"schema": schema}, "application/json": {"schema": json_schema}}
    return {"requestBody": {"required": True, "content": content}}


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with what it refers to in its place: this body is not in the description's components."""
    parts = schema.pop("$defs", {})

    def resolved(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                rest = {key: resolved(part) for key, part in value.items() if key != "$ref"}
                return resolved(parts[value["$ref"].rpartition("/")[2]]) | rest
            return {key: resolved(part) for key, part in value.items()}
        return [resolved(part) for part in value] if isinstance(value, list) else value

    found: dict[str, Any] = resolved(schema)
    return found
