"""The options of ``meshwright import`` that answer questions, as the answers of a report."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, Final

from app.cli.clusters.import_files import Given
from app.documents.reading import close_name, problems_of, read_document
from app.imports.answers import AnswersDocument
from app.imports.dry_run import Report
from app.imports.unused_answers import PRODUCT
from cluster_models.errors import InvalidInput
from readers.proposal.values import Answers

_OF_FILES: Final = {"host": "hosts", "ranks": "ranks", "nodes": "nodes"}
"""First word of a key that goes on with a file -> field of the answers."""
_OF_ALL: Final = ("gpu_kind", "node_kind", "measured_at")
_FOLDER: Final = "{folder}"


def read_answers(*, hosts: Sequence[str], settings: Sequence[str], given: Given) -> Answers:
    """The answers of ``--host FILE=NODE`` and ``--set KEY=VALUE``; raises ``InvalidInput`` naming the option."""
    content: dict[str, Any] = {"hosts": _hosts(hosts, given), "ranks": {}, "nodes": {}, "chosen": {}}
    for text in settings:
        _set(content, text, given)
    try:
        return read_document(AnswersDocument, content, what="answers").to_answers()
    except InvalidInput as error:
        first = problems_of(error)[0]
        field, point, key = first.field.removeprefix("answers.").partition(".")
        word = {"hosts": "host:", "ranks": "ranks:", "nodes": "nodes:", "chosen": ""}.get(field, f"{field}{point}")
        raise InvalidInput(f"--set {word}{key}", first.value, first.problem, first.remedy) from error


def _hosts(options: Sequence[str], given: Given) -> dict[str, str]:
    """File -> node; a file that is named goes before a pattern that fits it."""
    named: dict[str, str] = {}
    fitting: dict[str, str] = {}
    for text in options:
        file, value = _halves(text, "--host", "FILE=NODE", from_end=True)
        option = f"--host {file}"
        if "*" in file and file not in given.paths:
            for name in given.names_like(file, option="--host"):
                _put(fitting, name, _host(name, value, given), option)
        else:
            name = given.name_of(file, option="--host")
            _put(named, name, _host(name, value, given), option)
    return {**fitting, **named}


def _host(file: str, value: str, given: Given) -> str:
    """The node that a file is from, by the folder it lies in where the value says so."""
    return value.replace(_FOLDER, given.folder_of(file, option="--host")) if _FOLDER in value else value


def _set(content: dict[str, Any], text: str, given: Given) -> None:
    word = text.partition(":")[0]
    key, value = _halves(text, "--set", "KEY=VALUE", from_end=word in _OF_FILES or text.startswith(PRODUCT))
    option = f"--set {key}"
    if word in _OF_FILES and ":" in key:
        place = key.partition(":")[2]
        file, colon, line = (place, "", "") if word == "host" else place.rpartition(":")
        if word != "host" and not line.isdigit():
            raise InvalidInput(option, value, "names no line of a file", "write FILE:LINE as the question does")
        place = given.name_of(file, option=option) + colon + line
        answer: Any = value.split(",") if word == "nodes" else value
        if word == "ranks":
            answer = int(value) if value.isascii() and value.isdigit() and len(value) < 10 else value
        _put(content[_OF_FILES[word]], place, answer, option)
    elif key in _OF_ALL:
        _put(content, key, value, option)
    else:
        _put(content["chosen"], key, value, option)


def _halves(text: str, option: str, form: str, *, from_end: bool) -> tuple[str, str]:
    key, equals, value = text.rpartition("=") if from_end else text.partition("=")
    if not (key.strip() and equals and value.strip()):
        raise InvalidInput(option, text, f"is not {form}", "the questions of the report show how to write it")
    return key.strip(), value.strip()


def _put(into: dict[str, Any], key: str, value: Any, option: str) -> None:
    if key in into and into[key] != value:
        raise InvalidInput(option, value, "is answered twice", "give one answer")
    into[key] = value


def accepted_keys(accepted: Iterable[str], report: Report, given: Given) -> frozenset[str]:
    """The doubts that ``--accept`` names, by their keys or all of a code; raises ``InvalidInput`` of others."""
    doubts = {doubt.key: doubt.code for doubt in report.proposal.doubts}
    found: set[str] = set()
    for text in accepted:
        keys = {key for key, code in doubts.items() if code == text} or {_key(text, doubts, given)}
        if not keys <= set(doubts):
            known = list(doubts) if ":" in text else list(dict.fromkeys(doubts.values()))
            remedy = close_name(text, known) or "there are none"
            raise InvalidInput("--accept", text, "is not a doubt of these files", remedy)
        found |= keys
    return frozenset(found)


def _key(text: str, doubts: Container[str], given: Given) -> str:
    """The key of a doubt with the file's name as reports write it."""
    if text in doubts or text.count(":") < 2:
        return text
    file, line, code = text.rsplit(":", 2)
    return f"{given.name_of(file, option='--accept')}:{line}:{code}"


def check_answers(report: Report) -> None:
    """Raise ``InvalidInput`` of an answer that nothing asks for: it is a slip of the pen."""
    for one in report.unused_answers:
        if one.part == "accepted":  # each was a doubt before the others were accepted
            continue
        problem = one.problem
        if one.part == "hosts":
            raise InvalidInput("--host", one.key, problem.problem, problem.remedy)
        word = {"ranks": "ranks:", "nodes": "nodes:", "chosen": ""}.get(one.part, one.part)
        raise InvalidInput(f"--set {word}{one.key}", problem.value, problem.problem, problem.remedy)
