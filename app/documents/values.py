"""Documents that mirror a frozen value of the domain: both directions follow from the fields.

A field holds the attribute of its own name, unless ``Holds`` says another, and its unit where that is not SI.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, Self, TypeVar

from app.documents.reading import Document

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Holds:
    """Metadata of a field: the attribute that it holds, and the size of its unit in that of the attribute."""

    attribute: str
    unit: float | None = None


class ValueDocument(Document, Generic[Value]):
    """A document with a field for each attribute of ``Value``, a frozen dataclass.

    Fields of properties are written and not read; fields of value documents are nested values.
    """

    @classmethod
    def from_value(cls, value: Value) -> Self:
        """The document of ``value``."""
        return cls(**{part.field: part.written(getattr(value, part.attribute)) for part in parts(cls)})

    def to_value(self) -> Value:
        """The value; raises what the value's own checks raise."""
        document = type(self)
        given = {
            part.attribute: part.read(getattr(self, part.field)) for part in parts(document) if not part.is_derived
        }
        return typing.cast("Value", value_type(document)(**given))


@dataclass(frozen=True, slots=True)
class Part:
    """One field of a document, and the attribute that it holds; ``nested``: the document of that attribute."""

    field: str
    attribute: str
    unit: float | None
    nested: type[ValueDocument[Any]] | None
    is_derived: bool

    def written(self, value: Any) -> Any:
        """The attribute in the form and unit of the document."""
        if isinstance(value, tuple):
            return [self.written(each) for each in value]
        if value is None:
            return None
        if self.nested is not None:
            return self.nested.from_value(value)
        return value if self.unit is None else value / self.unit

    def read(self, value: Any) -> Any:
        """The field in the form and unit of the value."""
        if isinstance(value, list):
            return tuple(map(self.read, value))
        if isinstance(value, ValueDocument):
            return value.to_value()
        return value if self.unit is None or value is None else value * self.unit


@cache
def parts(document: type[ValueDocument[Any]]) -> tuple[Part, ...]:
    """The fields of ``document``; raises ``TypeError`` where they and the attributes of its value differ."""
    attributes = {each.name: each for each in dataclasses.fields(value_type(document))}
    found = []
    for name, field in document.model_fields.items():
        holds = next((each for each in field.metadata if isinstance(each, Holds)), Holds(name))
        nested = _nested(field.annotation)
        found.append(Part(name, holds.attribute, holds.unit, nested, is_derived=holds.attribute not in attributes))
    lacking = attributes.keys() - {part.attribute for part in found}
    unknown = [part.attribute for part in found if not hasattr(value_type(document), part.attribute)]
    if lacking or unknown:
        raise TypeError(f"{document.__name__} lacks {sorted(lacking)} and has unknown {unknown}")
    return tuple(found)


def value_type(document: type[ValueDocument[Any]]) -> type[Any]:
    """The dataclass that ``document`` mirrors."""
    for base in document.__mro__:
        metadata: Mapping[str, Any] = getattr(base, "__pydantic_generic_metadata__", {})
        if metadata.get("origin") is ValueDocument:
            return typing.cast("type[Any]", metadata["args"][0])
    raise TypeError(f"{document.__name__} does not say whose document it is")


def _nested(annotation: object) -> type[ValueDocument[Any]] | None:
    if isinstance(annotation, type) and issubclass(annotation, ValueDocument):
        return annotation
    inner = (_nested(each) for each in typing.get_args(annotation))
    return next((each for each in inner if each is not None), None)
