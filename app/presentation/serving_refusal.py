"""Why nothing serves a load within its limits: what binds, what comes nearest, what would help."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from app.presentation.figures import seconds
from app.presentation.plan import Pairs
from app.presentation.serving_plan import serving_provenance
from app.presentation.serving_words import ANSWER, FIRST_TOKEN, TOKEN, configuration_words, statistic_words
from cluster_models.serving.refusal import NearestServing, NoServingPlan, NoServingReason, Remedy, RemedyKind

_REASONS: Final = {
    NoServingReason.NO_GPUS: "no usable GPU is free",
    NoServingReason.MEMORY: "no worker that the cluster has room for holds {0} and one request",
    NoServingReason.FIRST_TOKEN_LIMIT: f"nothing meets the limit on the {FIRST_TOKEN} of {{0}}",
    NoServingReason.TOKEN_LIMIT: f"nothing meets the limit on the {TOKEN} of {{0}}",
    NoServingReason.ANSWER_LIMIT: f"nothing meets the limit on the {ANSWER} of {{0}}",
    NoServingReason.LIMITS_TOGETHER: "each limit of {0} can be met, not all at once",
    NoServingReason.LOAD: "the cluster does not keep up with the load of {0} within the limits",
}


@dataclass(frozen=True, slots=True)
class NothingServes:
    """The refusal in sentences without their ends; ``nearest`` is empty where nothing comes near."""

    reason: str
    nearest: str
    remedies: tuple[str, ...]
    provenance: Pairs


def nothing_serves(answer: NoServingPlan) -> NothingServes:
    """The refusal in words."""
    name = answer.models[answer.model].architecture.name
    nearest = answer.nearest
    shown = (
        ""
        if nearest is None
        else f"nearest is {configuration_words(nearest.configuration)} on {nearest.gpu_kind} with one request in "
        f"flight: {_latency_words(answer, nearest)}, {nearest.requests_per_s:,.3g} requests a second"
    )
    return NothingServes(
        reason=_REASONS[answer.reason].format(name),
        nearest=shown,
        remedies=tuple(map(remedy_words, answer.remedies)),
        provenance=serving_provenance(answer.provenance),
    )


def _latency_words(answer: NoServingPlan, nearest: NearestServing) -> str:
    """The latencies that the limits hold for, named after their statistic where that is a percentile."""
    workload, limited = answer.models[answer.model].workload, nearest.limited_s
    statistic = "" if workload.limit_percentile is None else f" ({statistic_words(workload.limit_percentile)})"
    shown = [(FIRST_TOKEN, limited.first_token_s), (TOKEN, limited.token_s)]
    if workload.end_to_end_s is not None:
        shown.append((ANSWER, limited.answer_s))
    return ", ".join(f"{name} {seconds(value)}{statistic}" for name, value in shown)


def remedy_words(remedy: Remedy) -> str:
    """One change that would help."""
    value = remedy.value or 0.0
    kind, of_class = (f" of {words}{remedy.name}" if remedy.name else "" for words in ("kind ", "class "))
    return {
        RemedyKind.FIRST_TOKEN_LIMIT: f"raise time_to_first_token_ms{of_class} to {_up(1000 * value)}",
        RemedyKind.TOKEN_LIMIT: f"raise time_per_output_token_ms{of_class} to {_up(1000 * value)}",
        RemedyKind.ANSWER_LIMIT: f"raise end_to_end_ms{of_class} to {_up(1000 * value)}",
        RemedyKind.LIMITS: "raise every limit that is missed to what the nearest reaches",
        RemedyKind.MAX_GPUS: f"raise max_gpus to {value:,.0f}",
        RemedyKind.MAX_POWER: f"raise max_power_watts to {math.ceil(value)}",
        RemedyKind.REQUESTS_PER_S: f"lower requests_per_s to {value:.4g}",
        RemedyKind.CONCURRENCY: f"lower concurrency to {value:.4g}",
        RemedyKind.GPUS: f"have {value:,.0f} GPUs{kind}",
        RemedyKind.WEIGHTS: f"serve with weights: {remedy.name}",
        RemedyKind.GPU_KIND: f"serve on {remedy.name}",
        RemedyKind.MODES: "allow both modes, aggregated and split",
        RemedyKind.PINNED: "unpin degrees",
        RemedyKind.MEMORY_FRACTION: f"leave out memory_fraction, which is {value:g} by default",
    }[remedy.kind]


def _up(milliseconds: float) -> str:
    """Three digits, rounded up: a limit that is met."""
    if milliseconds <= 0:
        return "more"
    step = 10.0 ** (math.floor(math.log10(milliseconds)) - 2)
    return f"{math.ceil(milliseconds / step - 1e-9) * step:g}"
