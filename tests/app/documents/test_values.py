"""Documents that mirror values: each attribute has its field, and both directions undo each other."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.values import Computed, Given, Holds, ValueAnswer, ValueDocument, parts


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


@dataclass(frozen=True, slots=True)
class _Record:
    whole: _Whole
    lengths: dict[str, _Part]
    note: str


class _PartAnswer(ValueAnswer[_Part]):
    length_m: float


class _RecordAnswer(ValueAnswer[_Record]):
    total_km: Annotated[float, Holds("whole.total_m", 1000.0)]
    parts: Annotated[list[_PartAnswer], Computed(lambda record: record.whole.others)]
    lengths: dict[str, _PartAnswer]
    note: Annotated[str | None, Holds("note", empty_is_null=True)]
    name: Annotated[str, Given()]


def test_an_answer_reaches_into_its_value() -> None:
    """It leaves attributes out, computes fields, writes what is empty as null, and takes what is given beside."""
    record = _Record(_Whole(None, (_Part(2000.0),), ()), {"a": _Part(3.0)}, "")
    answer = _RecordAnswer.from_value(record, name="one")
    assert answer.model_dump() == {
        "total_km": 2.0,
        "parts": [{"length_m": 2000.0}],
        "lengths": {"a": {"length_m": 3.0}},
        "note": None,
        "name": "one",
    }


def test_an_answer_of_an_unknown_attribute_is_refused() -> None:
    """The error names it."""

    class Unknown(ValueAnswer[_Part]):
        length_km: float

    with pytest.raises(TypeError, match=r"Unknown lacks \[\] and has unknown \['length_km'\]"):
        parts(Unknown)


def _all(document: type[ValueAnswer[Any]]) -> list[type[ValueAnswer[Any]]]:
    return [document, *(inner for each in document.__subclasses__() for inner in _all(each))]


def test_every_field_has_an_attribute_and_every_attribute_a_field() -> None:
    """A field that is forgotten is an error of the document, not a value that is lost; answers may leave out."""
    importlib.import_module("app.main")
    mirrors = {
        each for each in _all(ValueAnswer) if each.__module__.startswith("app.") and "[" not in each.__name__
    }
    mirrors -= {ValueAnswer, ValueDocument}
    assert len(mirrors) > 60
    assert all(parts(each) for each in mirrors)


def test_a_document_that_lacks_an_attribute_is_refused() -> None:
    """The error names it."""

    class Lacking(ValueDocument[_Whole]):
        rows: list[list[int]]

    with pytest.raises(TypeError, match=r"Lacking lacks \['first', 'others'\]"):
        parts(Lacking)
