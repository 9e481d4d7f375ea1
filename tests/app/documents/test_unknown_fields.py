"""Answers to an unknown field, wherever in a document it stands."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Discriminator, Tag, TypeAdapter, ValidationError

from app.documents.reading import CHOICE, Document, problems_of_validation


class Leaf(Document):
    """The innermost."""

    colour: int = 0


class Other(Document):
    """Fields that may stand in its place."""

    weight: int = 0


class Tree(Document):
    """One field of each shape."""

    leaf: Leaf | None = None
    leaves: list[Leaf] | None = None
    named: dict[str, Leaf] | None = None
    pair: tuple[Other, Leaf] | None = None
    either: Leaf | Annotated[Other, "of no meaning"] | int = 0
    deep: dict[str, list[Leaf | None]] | None = None


ONE, MANY = f"{CHOICE}one", f"{CHOICE}many"
Trees = Annotated[
    Annotated[Tree, Tag(ONE)] | Annotated[list[Tree], Tag(MANY)],
    Discriminator(lambda value: MANY if isinstance(value, list) else ONE),
]


def remedies(value: Any) -> list[str]:
    """The remedies of everything that is wrong with ``value``."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Trees).validate_python(value)
    found = problems_of_validation(caught.value.errors(include_url=False), kind=Trees)
    return [each.remedy for each in found if each.problem == "unknown field"]


@pytest.mark.parametrize(
    "tree",
    [
        {"leaf": {"zzz": 1}},
        {"leaves": [{}, {"zzz": 1}]},
        {"named": {"leaf": {"zzz": 1}}},
        {"named": {"colour": {"zzz": 1}}},
        {"pair": [{}, {"zzz": 1}]},
        {"deep": {"leaves": [None, {"zzz": 1}]}},
    ],
)
@pytest.mark.parametrize("in_list", [False, True])
def test_the_fields_of_the_place_are_listed(tree: Any, in_list: bool) -> None:
    """They are fields of the model at that place and of no other, through lists, mappings and unions."""
    assert remedies([{}, tree] if in_list else tree) == ["known are colour"]


def test_each_choice_lists_its_own_fields() -> None:
    """Where several models may stand, each says what it would take."""
    assert remedies({"either": {"zzz": 1}}) == ["known are colour", "known are weight"]


def test_the_nearest_field_comes_first() -> None:
    """A slip is answered with one name, not with all."""
    assert remedies({"leafs": []}) == ["did you mean 'leaf'?"]
    assert remedies({"named": {"a": {"color": 1}}}) == ["did you mean 'colour'?"]
