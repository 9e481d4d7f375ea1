"""Documents that mirror values: each attribute has its field, and both directions undo each other."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import app.documents
from app.documents.values import Holds, ValueDocument, parts


@dataclass(frozen=True, slots=True)
class _Part:
    length_m: float


@dataclass(frozen=True, slots=True)
class _Whole:
    first: _Part | None
    others: tuple[_Part, ...]
    rows: tuple[tuple[int, ...], ...]

    @property
    def total_m(self) -> float:
        return sum(each.length_m for each in self.others)


class _PartDocument(ValueDocument[_Part]):
    length_km: Annotated[float, Holds("length_m", 1000.0)]


class _WholeDocument(ValueDocument[_Whole]):
    first: _PartDocument | None = None
    others: list[_PartDocument]
    rows: list[list[int]]
    total_km: Annotated[float, Holds("total_m", 1000.0)]


_LENGTHS = st.builds(_Part, st.integers(0, 1000).map(float))


@given(st.builds(_Whole, st.none() | _LENGTHS, st.lists(_LENGTHS).map(tuple), st.just(((1, 2), (3,)))))
def test_reading_undoes_writing(whole: _Whole) -> None:
    """Nested values, tuples and units come back; a property is written only."""
    document = _WholeDocument.from_value(whole)
    assert document.total_km == pytest.approx(whole.total_m / 1000)
    assert _WholeDocument.model_validate_json(document.model_dump_json()).to_value() == whole


def _all(document: type[ValueDocument[Any]]) -> list[type[ValueDocument[Any]]]:
    return [document, *(inner for each in document.__subclasses__() for inner in _all(each))]


def test_every_attribute_of_a_value_has_a_field() -> None:
    """A field that is forgotten is an error of the document, not a value that is lost."""
    for module in pkgutil.iter_modules(app.documents.__path__, "app.documents."):
        importlib.import_module(module.name)
    mirrors = [
        each for each in _all(ValueDocument) if each.__module__.startswith("app.") and "[" not in each.__name__
    ]
    mirrors = [each for each in mirrors if each is not ValueDocument and "to_value" not in vars(each)]
    assert len(mirrors) > 20
    assert all(parts(each) for each in mirrors)


def test_a_document_that_lacks_an_attribute_is_refused() -> None:
    """The error names it."""

    class Lacking(ValueDocument[_Whole]):
        rows: list[list[int]]

    with pytest.raises(TypeError, match=r"Lacking lacks \['first', 'others'\]"):
        parts(Lacking)
