"""Options of a command that are fields of a document: meaning, type and default stand at the field alone."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from app.documents.reading import Document

UNITS: Final = {"_gbit_per_s_per_gpu": "GBIT_PER_S", "_bytes": "BYTES", "_ms": "MS"}
"""Units at the end of a field's name, and the word for such a number on the command line."""


def with_fields(document: type[Document], flags: Mapping[str, str]) -> Callable[[Callable[..., None]], Any]:
    """A decorator that gives a command an option for each field in ``flags``, by the name there.

    The command takes those that were typed, or whose default is a number, as ``fields``; the document checks them.
    """

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**values: Any) -> None:
            typed = {name: values.pop(name) for name in flags}
            command(**values, fields={name: value for name, value in typed.items() if value is not None})

        signature = inspect.signature(command, eval_str=True)
        own = [each for name, each in signature.parameters.items() if name != "fields"]
        derived = [_parameter(name, flag, document.model_fields[name]) for name, flag in flags.items()]
        run.__signature__ = signature.replace(parameters=[*derived, *own])  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in (*derived, *own)}
        return run

    return wrap


def _parameter(name: str, flag: str, field: FieldInfo) -> inspect.Parameter:
    """The option of a field; whether a value is allowed is for the document to say."""
    base, choices = _type_of(field.annotation)
    unit = next((word for end, word in UNITS.items() if name.endswith(end)), None)
    number = field.default if isinstance(field.default, int | float) else None
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if field.is_required() else number,
        annotation=Annotated[
            base if field.is_required() or number is not None else base | None,
            typer.Option(flag, metavar="|".join(choices) or unit, help=field.description),
        ],
    )


def _type_of(annotation: Any) -> tuple[type, tuple[str, ...]]:
    """The plain type behind an annotation, and the words that are allowed where it is a choice."""
    if get_origin(annotation) is Annotated:
        return _type_of(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return str, get_args(annotation)
    if isinstance(annotation, type):
        return annotation, ()
    return _type_of(next(each for each in get_args(annotation) if each is not type(None)))
