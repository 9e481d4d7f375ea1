"""Inputs of a form that are fields of a document: the path of the field is the name of its input.

Texts and values follow from the type of the field, so that a field added to a document is an input of its form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel

from app.documents.reading import parse_text
from app.web.forms import Typed, names, number

_SWITCH: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Input:
    """How a value stands in a form: its text, and the value of a text by its name and the text."""

    text: Callable[[Any], str | tuple[str, ...]]
    value: Callable[[str, Any], Any]
    is_group: bool = False
    """Whether it is a group of boxes, which is sent even where none is ticked."""


_NUMBER: Final = Input(lambda value: f"{value:.12g}", lambda _, text: number(text))
_WORD: Final = Input(str, lambda _, text: text)
_YES_NO: Final = Input(lambda value: str(value).lower(), lambda _, text: _SWITCH.get(text, text))
_BOXES: Final = Input(lambda value: tuple(map(str, value)), lambda _, texts: list(texts), is_group=True)
_NAMES: Final = Input(", ".join, lambda _, text: names(text))
_NUMBERS: Final = Input(
    lambda value: ", ".join(map(str, value)), lambda _, text: [number(part) for part in names(text)]
)
_COUNTS: Final = Input(
    lambda value: ", ".join(f"{name}: {count}" for name, count in value.items()),
    lambda _, text: {name.strip(): number(count) if colon else 1 for name, colon, count in _pairs(text)},
)
_DOCUMENT: Final = Input(json.dumps, lambda name, text: parse_text(text, what=name))
"""Whatever has no simpler input: YAML or JSON."""


class DocumentForm:
    """The inputs for the fields of a document.

    ``keys`` are the inputs of a mapping, by its path; of ``parts``, which may be absent, each field is an input;
    fields of ``without`` have inputs of another kind.
    """

    def __init__(
        self,
        document: type[BaseModel],
        *,
        keys: Mapping[str, Sequence[str]] | None = None,
        parts: Iterable[str] = (),
        without: Iterable[str] = (),
    ) -> None:
        self.inputs: Final = dict(_inputs(document, keys or {}, frozenset(parts), frozenset(without)))

    def blank(self) -> Typed:
        """Inputs without a text, no box ticked."""
        return {name: () if each.is_group else "" for name, each in self.inputs.items()}

    def texts(self, document: Mapping[str, Any]) -> Typed:
        """Texts of the inputs for a document as JSON holds it; fields that it lacks have none."""
        found = ((name, each, _at(document, name)) for name, each in self.inputs.items())
        return {name: each.text(value) for name, each, value in found if value not in (None, {}, "")}

    def data(self, values: Typed) -> dict[str, Any]:
        """The document that the inputs spell; a field of an empty input is left out.

        Raises ``InvalidInput`` where a text is neither YAML nor JSON.
        """
        data: dict[str, Any] = {}
        for name, each in self.inputs.items():
            if each.is_group or values[name].strip():
                *folders, last = name.split(".")
                place = data
                for folder in folders:
                    place = place.setdefault(folder, {})
                place[last] = each.value(name, values[name])
        return data

    def input_of(self, path: str, values: Typed) -> str:
        """The input that a path of the document concerns, a filled one of several; empty where there is none."""
        whole = re.sub(r"\[\d+\]", "", path)
        parts = whole.split(".")
        stems = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        below = [each for each in self.inputs if each.startswith(f"{whole}.")]
        below.sort(key=lambda each: not values[each])
        return next((each for each in (*stems, *below) if each in self.inputs), "")


def _inputs(
    document: type[BaseModel],
    keys: Mapping[str, Sequence[str]],
    parts: frozenset[str],
    without: frozenset[str],
    before: str = "",
) -> Iterator[tuple[str, Input]]:
    for field, info in document.model_fields.items():
        name = before + field
        if name in without:
            continue
        annotation, is_optional = _plain(info.annotation)
        is_part = isinstance(annotation, type) and issubclass(annotation, BaseModel)
        if name in keys:
            of_key = _plain(get_args(annotation)[1])[0]
            yield from ((f"{name}.{key}", _input(of_key, is_optional=False)) for key in keys[name])
        elif is_part and (name in parts or not is_optional):
            yield from _inputs(annotation, keys, parts, without, f"{name}.")
        else:
            yield name, _input(annotation, is_optional=is_optional)


def _input(annotation: Any, *, is_optional: bool) -> Input:
    origin, inner = get_origin(annotation), [_plain(each)[0] for each in get_args(annotation)]
    if origin is list and inner[0] in (int, float):
        return _NUMBERS
    if origin is list and (inner[0] is str or _is_word(inner[0])):
        return _BOXES if _is_word(inner[0]) and not is_optional else _NAMES
    if origin is dict and inner[1] is int:
        return _COUNTS
    if annotation in (int, float):
        return _NUMBER
    if annotation is bool:
        return _YES_NO
    return _WORD if annotation is str or _is_word(annotation) else _DOCUMENT


def _plain(annotation: Any) -> tuple[Any, bool]:
    """The type behind constraints, and whether ``None`` may stand in its place."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    others = [each for each in get_args(annotation) if each is not type(None)]
    if len(others) == 1 and len(get_args(annotation)) > 1 and get_origin(annotation) not in (dict, Literal):
        return _plain(others[0])[0], True
    return annotation, False


def _is_word(annotation: Any) -> bool:
    return get_origin(annotation) is Literal or (isinstance(annotation, type) and issubclass(annotation, StrEnum))


def _at(document: Mapping[str, Any], path: str) -> Any:
    value: Any = document
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _pairs(text: str) -> Iterator[tuple[str, str, str]]:
    return (part.partition(":") for part in names(text))
