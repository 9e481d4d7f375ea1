"""Decisions about serving deployments after failures, in words and figures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from app.presentation.figures import plural, spans
from app.presentation.recovery import Step, data_size, duration_range
from app.presentation.serving_tables import node_words
from cluster_models.jobs.serving import (
    ConsideredServing,
    ServedLoad,
    ServingAction,
    ServingDecision,
)
from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.refusal import NoServingReason

SERVING_ACTIONS: Final = {
    ServingAction.CARRY_ON: "serves on with the replicas that live",
    ServingAction.START_REPLICAS: "serves on; replicas start in place of the lost ones",
    ServingAction.REPLAN: "is planned anew",
    ServingAction.STOP: "serves nothing any more",
}
_OTHERS: Final = {
    ServingAction.CARRY_ON: "Start nothing",
    ServingAction.START_REPLICAS: "Start other replicas",
    ServingAction.REPLAN: "Plan all of it anew",
    ServingAction.STOP: "Stop it",
}
_REFUSED: Final = {
    NoServingReason.NO_GPUS: "no GPU is free",
    NoServingReason.MEMORY: "no worker fits into what is left",
    NoServingReason.LOAD: "what is left does not keep up within the limits",
}

_NO_MATTER: Final = 1e-3
"""Share of the worth up to which the same action on other GPUs is not worth a word."""


@dataclass(frozen=True, slots=True)
class ServingRow:
    """One model of one deployment: requests a second before, meanwhile and afterwards."""

    name: str
    action: str
    gpus: str
    before: str
    during: str
    after: str
    back: str


def serving_rows(made: ServingDecision, before: ServingPlan | None) -> Iterator[ServingRow]:
    """A row for each model; ``before`` is the plan that it served by, ``None`` where it is not kept any more."""
    known = before or made.plan
    held = str(len(made.held))
    gpus = held if before is None or before.gpus == len(made.held) else f"{before.gpus} \N{RIGHTWARDS ARROW} {held}"
    for load in made.loads:
        model = f" {known.models[load.model].architecture.name}" if known and len(made.loads) > 1 else ""
        yield ServingRow(
            name=made.job_name + model,
            action=SERVING_ACTIONS[made.action],
            gpus=gpus,
            before=_rate(load.before_per_s),
            during=_rate(load.during_per_s),
            after=_rate(load.after_per_s),
            back=duration_range(made.start) if made.started else "\N{EN DASH}",
        )


def serving_steps(made: ServingDecision) -> Iterator[Step]:
    """Steps that carry the decision out, in order."""
    name = made.job_name
    if not made.is_to_be_done:
        return
    if made.action is ServingAction.STOP:
        yield Step(f"Send no request to {name}: none of its groups can answer.")
        return
    if made.lost:
        yield Step(f"Take {_replicas(made.lost)} of {name} out of the balancer.")
    if made.stopped:
        yield Step(f"Let {_replicas(made.stopped)} of {name} finish what they answer, then stop them.")
    if made.started and made.plan is not None:
        fresh = [each for each in made.plan.replicas if each.number in made.started]
        nodes = list(dict.fromkeys(place.node for each in fresh for place in each.places))
        size = data_size(made.weight_bytes)
        yield Step(
            f"Start {_replicas(made.started)} of the new plan of {name} on {node_words(nodes)}: they read {size} "
            f"of weights and answer in {duration_range(made.start)}.",
            made.job_id,
        )
    yield Step(f"Give the balancer the shares of the new plan of {name}.")


def serving_reasons(made: ServingDecision, before: ServingPlan | None) -> Iterator[str]:
    """Why it is this: what is answered, and what the other actions would have been worth."""
    yield from answered(made, before)
    for other, loss in other_servings(made):
        yield f"{other}? {loss}"


def answered(made: ServingDecision, before: ServingPlan | None) -> Iterator[str]:
    """Share of requests that each model answers afterwards, a sentence each."""
    is_carried = made.plan is not None and before is not None and made.plan.goal == before.goal
    for load in made.loads:
        yield _answered(load, is_carried=is_carried)


def other_servings(made: ServingDecision) -> Iterator[tuple[str, str]]:
    """The other actions, each with what speaks against it."""
    for other in made.considered:
        if other.action is not made.action or _share_lost(other, made) > _NO_MATTER:
            yield _OTHERS[other.action], _loss(other, made)


def _answered(load: ServedLoad, *, is_carried: bool) -> str:
    share = load.after_per_s / load.before_per_s if load.before_per_s else 0.0
    words = f"{_rate(load.after_per_s)} requests a second are answered, {100 * share:.0f} % of those before"
    is_less = math.isfinite(load.asked_per_s) and load.after_per_s < load.asked_per_s * 0.999
    if is_less and is_carried:
        words += "; with as many in flight each takes longer"
    elif is_less:
        words += f"; {_rate(load.asked_per_s)} are asked for: turn the others away, or limits are missed"
    return f"{words}."


def _loss(other: ConsideredServing, made: ServingDecision) -> str:
    if other.value_flop is None:
        return f"{_REFUSED.get(other.refused or NoServingReason.LOAD, 'nothing meets the limits')}.".capitalize()
    lost = _share_lost(other, made)
    gpus = plural(other.gpus, "GPU")
    return f"Worth {100 * lost:.1f} % less over the horizon, on {gpus}."


def _share_lost(other: ConsideredServing, made: ServingDecision) -> float:
    """Share of the worth that another action would lose."""
    return 1.0 - (other.value_flop or 0.0) / made.value_flop if made.value_flop > 0 else 0.0


def _replicas(numbers: tuple[int, ...]) -> str:
    return f"replica {numbers[0]}" if len(numbers) == 1 else f"replicas {spans(numbers)}"


def _rate(requests_per_s: float) -> str:
    return f"{requests_per_s:,.3g}"
