"""Documents that mirror a frozen value of the domain: both directions follow from the fields.

A field holds the attribute of its own name, unless ``Holds`` says another, and its unit where that is not SI.
Answers are written only: they may leave attributes out, and hold what is computed or given beside.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict

from app.documents.reading import Document

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Holds:
    """Metadata of a field: the attribute that it holds, and the size of its unit in that of the attribute.

    In answers the attribute may be one of an attribute (``event.state``), and ``empty_is_null`` writes an empty
    text or 0 as null.
    """

    attribute: str
    unit: float | None = None
    empty_is_null: bool = False


@dataclass(frozen=True, slots=True)
class Computed:
    """Metadata of an answer's field: its content as a function of the whole value."""

    function: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Given:
    """Metadata of an answer's field that the value does not have: whoever makes the answer gives it."""


class ValueAnswer(BaseModel, Generic[Value]):
    """An answer about a ``Value``; fields that are answers or documents of values are nested values."""

    model_config = ConfigDict(defer_build=True)  # half a second of the start of every process otherwise

    @classmethod
    def from_value(cls, value: Value, **given: Any) -> Self:
        """The answer about ``value``, with the fields ``given`` in place of the value's own."""
        own = {part.field: part.written(part.of(value)) for part in parts(cls) if part.field not in given}
        return cls(**own, **given)


class ValueDocument(Document, ValueAnswer[Value], Generic[Value]):
    """A document with a field for each attribute of ``Value``, a frozen dataclass.

    Fields of properties are written and not read; fields of value documents are nested values.
    """

    def attributes(self) -> dict[str, Any]:
        """The attributes that the fields hold, by name, in the form and unit of the value."""
        held = (part for part in parts(type(self)) if not part.is_derived)
        return {part.attribute: part.read(getattr(self, part.field)) for part in held}

    def to_value(self) -> Value:
        """The value; raises what the value's own checks raise."""
        return typing.cast("Value", value_type(type(self))(**self.attributes()))


@dataclass(frozen=True, slots=True)
class Part:
    """One field of a document, and the attribute that it holds; ``nested``: the document of that attribute."""

    field: str
    attribute: str
    of: Callable[[Any], Any]
    unit: float | None
    empty_is_null: bool
    nested: type[ValueAnswer[Any]] | None
    is_derived: bool

    def written(self, value: Any) -> Any:
        """The attribute in the form and unit of the document."""
        if isinstance(value, (tuple, frozenset)):
            return [self.written(each) for each in (value if isinstance(value, tuple) else sorted(value))]
        if isinstance(value, dict):
            return {name: self.written(each) for name, each in value.items()}
        if value is None or (self.empty_is_null and not value):
            return None
        if self.nested is not None:
            return value if isinstance(value, self.nested) else self.nested.from_value(value)
        return value if self.unit is None else value / self.unit

    def read(self, value: Any) -> Any:
        """The field in the form and unit of the value."""
        if isinstance(value, list):
            return tuple(map(self.read, value))
        if isinstance(value, dict):
            return {name: self.read(each) for name, each in value.items()}
        if isinstance(value, ValueDocument):
            return value.to_value()
        return value if self.unit is None or value is None else value * self.unit


@cache
def parts(document: type[ValueAnswer[Any]]) -> tuple[Part, ...]:
    """The fields of ``document`` but those given beside its value.

    Raises ``TypeError`` where a field holds no attribute of the value, and where a document that does not say how
    it is read lacks one.
    """
    value = value_type(document)
    attributes = {each.name for each in dataclasses.fields(value)}
    found, unknown = [], []
    for name, field in document.model_fields.items():
        if Given() in field.metadata:
            continue
        computed = next((each.function for each in field.metadata if isinstance(each, Computed)), None)
        holds = next((each for each in field.metadata if isinstance(each, Holds)), Holds(name))
        of, first = computed or attrgetter(holds.attribute), holds.attribute.partition(".")[0]
        if computed is None and first not in attributes and not hasattr(value, first):
            unknown.append(holds.attribute)
        nested, is_derived = _nested(field.annotation), bool(computed) or holds.attribute not in attributes
        found.append(Part(name, holds.attribute, of, holds.unit, holds.empty_is_null, nested, is_derived))
    reads_all = getattr(document, "to_value", None) is ValueDocument.to_value
    lacking = attributes - {part.attribute for part in found if not part.is_derived} if reads_all else set()
    if lacking or unknown:
        raise TypeError(f"{document.__name__} lacks {sorted(lacking)} and has unknown {unknown}")
    return tuple(found)


def value_type(document: type[ValueAnswer[Any]]) -> type[Any]:
    """The dataclass that ``document`` mirrors."""
    for base in document.__mro__:
        metadata: Mapping[str, Any] = getattr(base, "__pydantic_generic_metadata__", {})
        if metadata.get("origin") in (ValueAnswer, ValueDocument) and isinstance(metadata["args"][0], type):
            return typing.cast("type[Any]", metadata["args"][0])
    raise TypeError(f"{document.__name__} does not say whose document it is")


def _nested(annotation: object) -> type[ValueAnswer[Any]] | None:
    if isinstance(annotation, type) and issubclass(annotation, ValueAnswer):
        return annotation
    inner = (_nested(each) for each in typing.get_args(annotation))
    return next((each for each in inner if each is not None), None)
