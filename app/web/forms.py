"""Forms of pages: texts as somebody typed them, and problems at their fields.

Nothing is judged here.  Texts go on as numbers where they read as numbers and as text otherwise; the
documents say what is wrong, and a form shows it beside the field it concerns with everything still in place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.datastructures import FormData

from app.documents.reading import FieldProblem

Typed = dict[str, Any]
"""Field name to what stands in it: text, or a tuple of texts for a group of boxes."""

_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?|[+-]?\.\d+([eE][+-]?\d+)?", re.ASCII)
_WHOLE: Final = re.compile(r"[+-]?\d+", re.ASCII)
_LONGEST_NUMBER: Final = 40


@dataclass(frozen=True, slots=True)
class FormProblem:
    """One problem at the field ``anchor`` (empty where it concerns the form as a whole)."""

    anchor: str
    where: str
    text: str


def sent_texts(data: FormData, values: Typed) -> Typed:
    """Texts sent, over those of ``values``; groups of boxes come as tuples."""
    sent = dict(values)
    for name, value in values.items():
        if isinstance(value, tuple):
            sent[name] = tuple(each for each in data.getlist(name) if isinstance(each, str))
        elif isinstance(text := data.get(name), str):
            sent[name] = text
    return sent


def sent_words(data: FormData, values: Typed) -> Typed:
    """As ``sent_texts``, without blanks around what was typed."""
    sent = sent_texts(data, values)
    return {name: value.strip() if isinstance(value, str) else value for name, value in sent.items()}


def in_use(values: Typed, problems: Sequence[FormProblem], starts: str | tuple[str, ...]) -> bool:
    """Whether a field whose name starts so is filled or wrong, so that the part of the form has to be open."""
    return any(problem.anchor.startswith(starts) for problem in problems) or any(
        value for name, value in values.items() if name.startswith(starts)
    )


def sentence_of(problem: FieldProblem) -> str:
    """The problem and what helps, without the field."""
    return "; ".join(filter(None, (problem.problem, problem.remedy)))


def names(text: str) -> list[str]:
    """Names with commas or ends of lines between them."""
    return [name.strip() for name in re.split(r"[,\n]", text) if name.strip()]


def number(text: str) -> Any:
    """The number that ``text`` spells, else ``text`` itself for the documents to refuse."""
    text = text.strip()
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return text
    return int(text) if _WHOLE.fullmatch(text) else float(text)
