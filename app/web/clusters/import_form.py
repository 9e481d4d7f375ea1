"""The form around an import's report: answers by number, each with what it is about beside it.

Names of files are in the keys of answers, and a browser changes quotes and line ends in the names of fields.  So
fields are numbered, and what an answer is about stands in a hidden field beside it, as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from starlette.datastructures import FormData, UploadFile

from app.documents.reading import problems_of, read_document
from app.imports.answers import AnswersDocument
from app.imports.sources import SentFile
from app.imports.unused_answers import UnusedAnswer
from app.web.forms import sentence_of
from cluster_models.errors import InvalidInput
from readers.frame import host_lists

PASTED: Final = "pasted.txt"
_BY_KEY: Final = frozenset({"hosts", "ranks", "nodes", "chosen"})
_SINGLE: Final = frozenset({"gpu_kind", "node_kind", "measured_at"})
_WHOLE: Final = re.compile(r"\d{1,12}", re.ASCII)
_MINUTE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class SentAnswers:
    """Answers sent; ``typed`` and ``wrong`` are by what the field is about."""

    answers: AnswersDocument = field(default_factory=AnswersDocument)
    typed: Mapping[str, str] = field(default_factory=dict)
    wrong: Mapping[str, str] = field(default_factory=dict)


def about(part: str, *keys: str) -> str:
    """Subject of a field: a field of the answers' document and the keys in it that get its value."""
    return json.dumps([part, list(keys)])


def sent_answers(data: FormData) -> SentAnswers:
    """The answers in a form; what is wrong with one is said at its field, and the others stand."""
    content: dict[str, Any] = {}
    typed: dict[str, str] = {}
    wrong: dict[str, str] = {}
    for subject, part, keys, text in _fields(data):
        if not text:
            continue
        typed[subject] = text
        try:
            value = _value(part, text)
            said = dict.fromkeys(keys, value) if part in _BY_KEY else value
            read_document(AnswersDocument, {part: said}, what="answers")
        except InvalidInput as error:
            wrong[subject] = sentence_of(problems_of(error)[0])
            continue
        content[part] = {**content.get(part, {}), **said} if part in _BY_KEY else said
    content["accepted"] = sorted({key for text in data.getlist("accepted") if (key := _key(text)) is not None})
    return SentAnswers(read_document(AnswersDocument, content, what="answers"), typed, wrong)


def without(sent: SentAnswers, lost: Sequence[UnusedAnswer]) -> SentAnswers:
    """The answers but for those to what is gone, as of a file that was left out."""
    gone = {(one.part, one.key) for one in lost}
    content = sent.answers.model_dump()
    for part in _BY_KEY:
        content[part] = {key: value for key, value in content[part].items() if (part, key) not in gone}
    content["accepted"] = [key for key in content["accepted"] if ("accepted", key) not in gone]
    return replace(sent, answers=AnswersDocument.model_validate(content))


def sent_files(data: FormData) -> list[SentFile]:
    """Files chosen or dropped, and the box for pasted text."""
    files = uploads(data, "files")
    pasted = data.get("pasted")
    if isinstance(pasted, str) and pasted.strip():
        files.append(SentFile(PASTED, pasted.encode("utf-8", "replace")))
    return files


def uploads(data: FormData, field: str) -> list[SentFile]:
    """Files chosen or dropped in one field."""
    return [
        SentFile(upload.filename, upload.file.read())
        for upload in data.getlist(field)
        if isinstance(upload, UploadFile) and upload.filename
    ]


def numbered(files: Sequence[SentFile]) -> list[SentFile]:
    """Files with names that differ, so that a later one of the same name changes no answer to the first."""
    names: set[str] = set()
    found = []
    for file in files:
        name, count = file.name, 1
        while name in names:
            count += 1
            name = f"{file.name} ({count})"
        names.add(name)
        found.append(SentFile(name, file.data, file.host))
    return found


def key_text(key: str) -> str:
    """A key as the value of a box."""
    return json.dumps(key)


def _fields(data: FormData) -> Iterator[tuple[str, str, list[str], str]]:
    for name, subject in data.multi_items():
        if not name.startswith("about-") or not isinstance(subject, str):
            continue
        number = name.removeprefix("about-")
        try:
            part, keys = json.loads(subject)
        except (ValueError, TypeError, RecursionError):
            continue
        if not isinstance(part, str) or not isinstance(keys, list) or part not in (_BY_KEY if keys else _SINGLE):
            continue
        if not all(isinstance(key, str) for key in keys):
            continue
        texts = (data.get(f"other-{number}"), data.get(f"value-{number}"))
        text = next((text.strip() for text in texts if isinstance(text, str) and text.strip()), "")
        yield subject, part, keys, text


def _value(part: str, text: str) -> Any:
    if part == "ranks" and _WHOLE.fullmatch(text):
        return int(text)
    if part == "nodes":
        try:
            return list(host_lists.expand(re.sub(r"[\s,]+", ",", text)))
        except ValueError as error:
            raise InvalidInput("nodes", text, f"cannot be read: {error}", "write n1,n2 or n[1-4]") from error
    if part == "measured_at" and _MINUTE.fullmatch(text):
        return f"{text}Z"
    return text


def _key(text: object) -> str | None:
    try:
        key = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    return key if isinstance(key, str) and 1 <= len(key) <= 1_000 else None
