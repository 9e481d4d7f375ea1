"""From a remark to its sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from app.presentation.sentences.decisions import DECISIONS
from app.presentation.sentences.formats import FORMATTER, Words
from app.presentation.sentences.links import LINKS
from app.presentation.sentences.plans import PLANS
from app.presentation.sentences.refusals import REFUSALS
from cluster_models.remarks import Remark

SENTENCES: Final[Mapping[str, Words]] = {
    "text": "{text}",
    **LINKS,
    **PLANS,
    **REFUSALS,
    **DECISIONS,
}
"""The sentence of each code.  ``text`` is that of answers from before remarks had codes."""

_RENAMED: Final = {"respects_outside": "is_widened"}
"""Figures by the names that earlier versions stored them under."""
_UNLIKE: Final = (LookupError, TypeError, ValueError, ArithmeticError)
"""Errors where a code or its figures are not those that a sentence takes."""


def sentence(remark: Remark) -> str:
    """The sentence of ``remark``; its code and figures where a version that had other words stored it."""
    try:
        return _sentence(remark)
    except _UNLIKE:
        figures = ", ".join(f"{name} {value}" for name, value in remark.figures.items())
        return f"{remark.code.replace('_', ' ')}: {figures}"


def has_words(remark: Remark) -> bool:
    """Whether there is a sentence for the code and figures of ``remark``, which may be those of another version."""
    try:
        _sentence(remark)
    except _UNLIKE:
        return False
    return True


def sentences(remarks: Iterable[Remark]) -> tuple[str, ...]:
    """A sentence for each remark."""
    return tuple(map(sentence, remarks))


def _sentence(remark: Remark) -> str:
    words = SENTENCES[remark.code]
    figures = {_RENAMED.get(name, name): value for name, value in remark.figures.items()}
    return FORMATTER.format(words, **figures) if isinstance(words, str) else words(**figures)
