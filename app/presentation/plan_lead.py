"""The first screen of a plan in words: what it is for, one sentence, and the few things to know of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.presentation.choice import caution_of, other_warnings
from app.presentation.figures import count, percent, plural, seconds
from app.presentation.proof import TOO_SMALL_TO_SAY
from cluster_models.training.packing import in_words
from cluster_models.training.plan import Plan, StopReason
from cluster_models.training.workload import Objective, TrainingWorkload

MOST_THINGS: Final = 3


def subject(plan: Plan, workload: TrainingWorkload) -> str:
    """Request of the plan: "8,192 tokens x 512 sequences, bf16, 136 GPUs", and mixed documents."""
    documents = f"; {in_words(workload.lengths, workload.sequence_length)}" if workload.lengths else ""
    return (
        f"{count(workload.sequence_length)} tokens x {count(workload.global_batch)} sequences, "
        f"{workload.precision}, {plural(plan.configuration.degrees.gpus, 'GPU')}{documents}"
    )


def lead_sentence(plan: Plan, workload: TrainingWorkload) -> str:
    """Step, throughput and proof in one sentence."""
    figures = (
        f"{seconds(plan.time.step_s)} a step, {count(plan.tokens_per_s)} tokens/s on "
        f"{plural(plan.configuration.degrees.gpus, 'GPU')}"
    )
    certificate = plan.certificate
    if certificate.stopped_by is StopReason.NO_SEARCH:
        return f"{figures}: a prediction, nothing was searched."
    given_up = plan.selection.given_up if plan.selection else 0.0
    gap = 1 - (1 - certificate.gap) / (1 + given_up)
    word = "faster" if workload.objective is Objective.STEP_TIME else "better by the objective"
    if gap <= TOO_SMALL_TO_SAY:
        return f"{figures}; no plan of the search space can be {word}."
    return f"{figures}; no plan of the search space can be more than {percent(gap, places=2)} {word}."


def things_to_know(plan: Plan, crossing: str) -> tuple[str, ...]:
    """The few that matter most: how unlike anything measured the plan is, its first warnings, what crosses."""
    caution, warnings = caution_of(plan), other_warnings(plan)
    return tuple(_first([caution, *warnings[: MOST_THINGS - 1 - bool(caution)], crossing, *warnings]))


def _first(sentences: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(filter(None, sentences)))[:MOST_THINGS]
