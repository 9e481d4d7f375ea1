"""The outlook of a problem in words."""

from __future__ import annotations

from dataclasses import dataclass

from app.presentation.configuration import settings_line
from app.presentation.figures import count, plural, seconds
from app.presentation.refusal import reason_of
from app.presentation.sentences.rendering import sentences
from app.presentation.serving_refusal import nothing_serves
from app.presentation.serving_words import configuration_words
from cluster_models.serving.refusal import NoServingPlan
from cluster_models.training.plan import NoPlan
from solver.outlook import Outlook
from solver.serving.outlook import ModelOutlook, ServingOutlook


@dataclass(frozen=True, slots=True)
class OutlookWords:
    """Whether it fits, the answer in a sentence, the figures behind it, and what would help where nothing fits."""

    fits: bool
    sentence: str
    figures: tuple[tuple[str, str], ...] = ()
    remedies: tuple[str, ...] = ()


def outlook_words(found: Outlook | NoPlan | ServingOutlook | NoServingPlan) -> OutlookWords:
    """The words of an outlook."""
    if isinstance(found, ServingOutlook | NoServingPlan):
        return _serving_words(found)
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


def _serving_words(found: ServingOutlook | NoServingPlan) -> OutlookWords:
    if isinstance(found, NoServingPlan):
        nothing = nothing_serves(found)
        shown = (nothing.reason, nothing.nearest) if nothing.nearest else (nothing.reason,)
        return OutlookWords(fits=False, sentence=f"No plan: {'; '.join(shown)}.", remedies=nothing.remedies)
    figures = [figure for model in found.models for figure in _model_figures(model)]
    if not found.is_complete:
        figures.append(("not looked at yet", "further models"))
    needed = sum(model.needed_gpus for model in found.models)
    if not needed:
        rate = found.models[0].output_tokens_per_s / found.models[0].group_gpus
        sentence = f"It fits: about {count(rate)} output tokens/s on a GPU"
    elif needed <= found.gpus:
        sentence = f"It fits: the load takes at least about {count(needed)} of {plural(found.gpus, 'GPU')}"
    else:
        sentence = f"It may not fit: the load takes at least about {count(needed)} GPUs of {count(found.gpus)}"
    return OutlookWords(needed <= found.gpus, f"{sentence}, before any search (estimated).", tuple(figures))


def _model_figures(model: ModelOutlook) -> tuple[tuple[str, str], ...]:
    group = (
        f"{configuration_words(model.configuration)} on {model.gpu_kind}: up to "
        f"{count(model.output_tokens_per_s)} output tokens/s, {seconds(model.first_token_s)} to the first token, "
        f"{seconds(model.token_s)} for each further"
    )
    return (
        (f"{model.name} fits on", f"{plural(model.least_gpus, 'GPU')} and more"),
        ("too large for memory", f"{count(model.too_large)} of {plural(model.shapes, 'worker')}"),
        ("such as", group),
    )
