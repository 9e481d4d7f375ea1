"""Validation of documents, and of pydantic's complaints made into sentences an engineer can act on."""

from __future__ import annotations

import difflib
import inspect
import types
import typing
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from app.documents.serving_words import REMEDY, SERVING
from app.documents.text import decode, parse_text
from cluster_models.errors import InvalidInput

__all__ = [
    "Document",
    "FieldProblem",
    "InvalidDocument",
    "close_name",
    "decode",
    "parse_text",
    "problems_of",
    "problems_of_validation",
    "read_document",
]

CHOICE: Final = "choice-"
"""How tags of unions begin: they are not part of the path that a user wrote."""
LONGEST_S: Final = 1e9
"""Seconds; about thirty years: what is longer is a slip of the unit."""
MAX_PROBLEMS: Final = 20
"""Problems reported at once; the rest are counted."""
_MOST_UNKNOWN: Final = 100
"""Unknown fields that are looked at one by one."""


def _plain_text(text: str, *, allowed: str = "") -> str:
    """``text``, unless it could move a terminal's cursor or break a line."""
    if text.isprintable():  # no control character is: the quick way for nearly all
        return text
    if any(unicodedata.category(character) == "Cc" and character not in allowed for character in text):
        raise ValueError("holds a control character")
    return text


def _whole(value: object) -> object:
    """The number as whole where it has no fraction, for JSON has one kind of number: 8.0 is 8."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, Field(strict=True, le=10**12), BeforeValidator(_whole)]
Count = Annotated[Whole, Field(ge=1)]
"""A whole number of things, at least one."""
WholeNumber = Annotated[Whole, Field(ge=0)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_plain_text)]
"""A name: one line, not empty."""
NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""Pattern of names that stand in addresses, tables and commands without quotes."""
Line = Annotated[str, Field(max_length=1000), AfterValidator(_plain_text)]
Prose = Annotated[str, Field(max_length=10_000), AfterValidator(lambda text: _plain_text(text, allowed="\n\t"))]


class Document(BaseModel):
    """Base of everything users write: unknown fields are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _few_unknown_fields(cls, data: object) -> object:
        """Garbage with a million fields gets one answer, not a million."""
        size = len(data) if isinstance(data, dict | Mapping) else 0
        # Asked of the size first: documents are made by the hundred thousand.
        if size > _MOST_UNKNOWN and size > len(cls.model_fields) + _MOST_UNKNOWN:
            known = ", ".join(sorted(cls.model_fields))
            raise ValueError(f"has {size} fields, most of them unknown; known are {known}")
        return data


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One thing that is wrong in a document, in the words of ``InvalidInput``."""

    field: str
    value: object
    problem: str
    remedy: str = ""

    def __str__(self) -> str:
        return str(InvalidInput(self.field, self.value, self.problem, self.remedy))


class InvalidDocument(InvalidInput):
    """A document with one or more problems; as an ``InvalidInput`` it speaks of the first."""

    def __init__(self, problems: Sequence[FieldProblem]) -> None:
        first = problems[0]
        self.problems = _shortened(problems)
        super().__init__(first.field, first.value, first.problem, first.remedy)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.problems,)


def _shortened(problems: Sequence[FieldProblem]) -> tuple[FieldProblem, ...]:
    """Not more problems than anybody reads; one that counts the others may follow them."""
    left = len(problems) - MAX_PROBLEMS
    if left <= 1:
        return tuple(problems)
    return (*problems[:MAX_PROBLEMS], _more(problems[0].field, left))


def _more(field: str, left: int) -> FieldProblem:
    return FieldProblem(field, left, f"{left} more problems are not listed")


def problems_of(error: InvalidInput) -> tuple[FieldProblem, ...]:
    """Every problem that ``error`` reports."""
    if isinstance(error, InvalidDocument):
        return error.problems
    return (FieldProblem(error.field, error.value, error.problem, error.remedy),)


D = TypeVar("D", bound=Document)


def read_document(kind: type[D], data: object, *, what: str) -> D:
    """``data`` as a ``kind``; raises ``InvalidDocument`` with every problem, ``what`` naming the whole."""
    if not isinstance(data, Mapping):
        raise InvalidInput(
            what,
            data,
            f"must be a mapping of fields, not {_type_name(data)}",
            f"its fields are {', '.join(kind.model_fields)}",
        )
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        problems = problems_of_validation(error.errors(include_url=False), kind=kind, what=what)
        raise InvalidDocument(problems) from error


def problems_of_validation(
    errors: Sequence[Mapping[str, Any]], *, kind: Any = None, what: str = "document"
) -> tuple[FieldProblem, ...]:
    """Pydantic's ``errors()`` as our problems.

    ``kind`` is what was validated, a model or a union or list of them: with it, unknown fields are answered with
    those that there are.  ``what`` names the document where a problem concerns it as a whole; other paths start at
    its first field.
    """
    problems = [_problem(error, kind, what) for error in errors[:MAX_PROBLEMS]]
    if (left := len(errors) - MAX_PROBLEMS) > 0:
        problems.append(_more(what, left))
    return tuple(problems)


def close_name(name: str, known: Sequence[str]) -> str:
    """A remedy that names the nearest of ``known``, else lists them."""
    near = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=1, cutoff=0.6)
    if near:
        return f"did you mean {next(k for k in known if k.lower() == near[0])!r}?"
    shown = ", ".join(sorted(known)[:30])
    return f"known are {shown}" if known else ""


def _problem(error: Mapping[str, Any], kind: Any, what: str) -> FieldProblem:
    location: Sequence[str | int] = error["loc"]
    context: Mapping[str, Any] = error.get("ctx") or {}
    value, code = error.get("input"), error["type"]
    field = _path(what, location)
    match code:
        case _ if code == SERVING:
            return FieldProblem(_path(what, (*location, context["field"])), context["shown"], error["msg"], REMEDY)
        case "extra_forbidden":
            siblings = _fields_at(kind, location[:-1])
            return FieldProblem(field, value, "unknown field", close_name(str(location[-1]), siblings))
        case "missing":
            return FieldProblem(field, None, "is missing", "add it")
        case "value_error" | "assertion_error":
            return FieldProblem(field, value, str(context.get("error", error["msg"])))
        case "enum" | "literal_error":
            expected = str(context["expected"]).replace("'", "")
            choices = expected.replace(" or ", ", ").split(", ")
            near = close_name(value, choices) if isinstance(value, str) else ""
            remedy = near if near.startswith("did") else ""
            return FieldProblem(field, value, f"must be one of {', '.join(choices)}", remedy)
    return FieldProblem(field, value, *_plain(code, context, value, str(error["msg"])))


def _plain(code: str, context: Mapping[str, Any], value: object, message: str) -> tuple[str, str]:
    """Problem and remedy for the codes that need no knowledge of the model."""
    table: dict[str, tuple[str, str]] = {
        "greater_than": (f"must be greater than {context.get('gt')}", ""),
        "greater_than_equal": (f"must be at least {context.get('ge')}", ""),
        "less_than": (f"must be less than {context.get('lt')}", ""),
        "less_than_equal": (f"must be at most {context.get('le')}", ""),
        "finite_number": ("must be a finite number", "leave unknown values out"),
        "int_type": (
            f"must be a whole number{'' if type(value) is float else f', not {_type_name(value)}'}",
            "a switch takes 1 or 0" if isinstance(value, bool) else "",
        ),
        "int_from_float": ("must be a whole number", ""),
        "float_type": (f"must be a number, not {_type_name(value)}", ""),
        "string_type": (f"must be text, not {_type_name(value)}", "put it in quotes"),
        "string_too_short": ("must not be empty", ""),
        "string_pattern_mismatch": (
            "is not a name of the kind that belongs there",
            "begin with a letter or digit; after it letters, digits, . _ - only",
        ),
        "string_too_long": (f"is longer than {context.get('max_length')} characters", ""),
        "bool_type": (f"must be true or false, not {_type_name(value)}", ""),
        "list_type": (f"must be a list, not {_type_name(value)}", ""),
        "tuple_type": (f"must be a list, not {_type_name(value)}", ""),
        "dict_type": (f"must be a mapping, not {_type_name(value)}", ""),
        "model_type": (f"must be a mapping of fields, not {_type_name(value)}", ""),
        "model_attributes_type": (f"must be a mapping of fields, not {_type_name(value)}", ""),
        "too_short": (f"has fewer than {context.get('min_length')} entries", "give more")
        if context.get("min_length") != 1
        else ("is empty", "give at least one"),
        "too_long": (f"has more than {context.get('max_length')} entries", ""),
        "timezone_aware": ("is a time without a zone", "write it like 2025-11-15T00:00:00Z"),
        "datetime_from_date_parsing": ("is not a time", "write it like 2025-11-15T00:00:00Z"),
        "datetime_parsing": ("is not a time", "write it like 2025-11-15T00:00:00Z"),
        "datetime_type": ("is not a time", "write it like 2025-11-15T00:00:00Z"),
        "json_invalid": ("is not valid JSON", str(context.get("error", ""))),
    }
    return table.get(code, (message[:1].lower() + message[1:], ""))


def _type_name(value: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true/false", type(None): "nothing"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)


def _path(what: str, location: Sequence[str | int]) -> str:
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not part.startswith(("function-", "lax-or-strict", "constrained-", CHOICE)):
            path += f".{part}" if path else part
    return path or what


def _fields_at(kind: Any, location: Sequence[str | int]) -> list[str]:
    """Field names of the models that ``location`` leads to inside ``kind``; of all where it leaves a choice."""
    places = _choices(kind)
    for part in location:
        inner = [each for place in places for each in _inside(place, part)]
        # What is not a field is the name of a choice that pydantic made, or a step that is not in the annotation.
        places = inner or [place for place in places if _name_of(place) == part] or places
    names = [name for place in places if (model := _model(place)) is not None for name in model.model_fields]
    return list(dict.fromkeys(names))


def _inside(place: Any, part: str | int) -> list[Any]:
    """Choices for the part ``part`` of ``place``: a field of a model, a value of a mapping, an entry of a list."""
    place = _plain_type(place)
    if (model := _model(place)) is not None:
        return _choices(model.model_fields[part].annotation) if part in model.model_fields else []
    origin, arguments = typing.get_origin(place), typing.get_args(place)
    if not isinstance(origin, type) or not arguments:
        return []
    if issubclass(origin, Mapping):
        return _choices(arguments[-1]) if isinstance(part, str) else []
    if not issubclass(origin, Collection) or not isinstance(part, int):
        return []
    is_record = origin is tuple and arguments[-1] is not Ellipsis
    return _choices(arguments[min(part, len(arguments) - 1)] if is_record else arguments[0])


def _choices(annotation: Any) -> list[Any]:
    """The members of a union, of nested ones too; another annotation alone."""
    inner = _plain_type(annotation)
    if typing.get_origin(inner) not in (typing.Union, types.UnionType):
        return [annotation]
    return [each for member in typing.get_args(inner) for each in _choices(member)]


def _plain_type(annotation: Any) -> Any:
    """``annotation`` without what ``Annotated`` adds."""
    while typing.get_origin(annotation) is Annotated:
        annotation = typing.get_args(annotation)[0]
    return annotation


def _name_of(choice: Any) -> str:
    """Pydantic's name for a member of a union in the path of a problem: its tag, or the name of the model."""
    for extra in getattr(choice, "__metadata__", ()):
        if isinstance(extra, Tag):
            return extra.tag
    model = _model(choice)
    return model.__name__ if model is not None else ""


def _model(annotation: Any) -> type[BaseModel] | None:
    """The model that ``annotation`` is."""
    plain = _plain_type(annotation)
    return plain if inspect.isclass(plain) and issubclass(plain, BaseModel) else None
