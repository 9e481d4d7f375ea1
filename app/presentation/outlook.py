"""The outlook of a problem in words."""

from __future__ import annotations

from dataclasses import dataclass

from app.presentation.configuration import settings_line
from app.presentation.figures import count, plural, seconds
from app.presentation.refusal import reason_of
from app.presentation.sentences.rendering import sentences
from cluster_models.training.plan import NoPlan
from solver.outlook import Outlook


@dataclass(frozen=True, slots=True)
class OutlookWords:
    """Whether it fits, the answer in a sentence, the figures behind it, and what would help where nothing fits."""

    fits: bool
    sentence: str
    figures: tuple[tuple[str, str], ...] = ()
    remedies: tuple[str, ...] = ()


def outlook_words(found: Outlook | NoPlan) -> OutlookWords:
    """The words of an outlook."""
    if isinstance(found, NoPlan):
        return OutlookWords(fits=False, sentence=reason_of(found), remedies=sentences(found.remedies))
    listed = f"{count(found.configurations)} configurations" + " looked at" * (not found.is_complete)
    figures = [("too large for memory", f"{count(found.too_large)} of {listed}")]
    if found.ruled_out:
        figures.append(("against placement rules", count(found.ruled_out)))
    if found.least_gpus is not None:
        figures.append(("fits on", f"{plural(found.least_gpus, 'GPU')} and more"))
    if found.first is None:
        return OutlookWords(True, "It fits; how fast, the search will tell.", tuple(figures))
    degrees = found.first.configuration.degrees
    figures.append(("first plan", f"{degrees}, {settings_line(found.first.configuration)}"))
    sentence = (
        f"It fits: about {seconds(found.first.step_s)} a step, {count(found.first.tokens_per_s)} tokens/s on "
        f"{plural(degrees.gpus, 'GPU')}, before any search (estimated)."
    )
    return OutlookWords(True, sentence, tuple(figures))
