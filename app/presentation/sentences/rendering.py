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


def sentence(remark: Remark) -> str:
    """The sentence of ``remark``."""
    words = SENTENCES[remark.code]
    return FORMATTER.format(words, **remark.figures) if isinstance(words, str) else words(**remark.figures)


def has_words(remark: Remark) -> bool:
    """Whether there is a sentence for the code and figures of ``remark``, which may be those of another version."""
    try:
        sentence(remark)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return False
    return True


def sentences(remarks: Iterable[Remark]) -> tuple[str, ...]:
    """A sentence for each remark."""
    return tuple(map(sentence, remarks))
