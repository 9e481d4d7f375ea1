"""The certificate in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.presentation.figures import count, percent, seconds
from app.presentation.proof import unpriced
from cluster_models.plan import Certificate, StopReason
from cluster_models.workload import Objective

_ENDED: Final = {
    StopReason.PROVEN: "every other candidate was ruled out",
    StopReason.TIME_LIMIT: "time limit",
    StopReason.WORK_LIMIT: "effort used up",
    StopReason.CANCELLED: "cancelled",
    StopReason.NO_SEARCH: "nothing was searched",
}
_MEANS: Final = {
    Objective.STEP_TIME: "step time",
    Objective.GPU_TIME: "step time times GPUs",
    Objective.COST: "cost of a step",
}
_TOO_SMALL_TO_SAY: Final = 5e-5


@dataclass(frozen=True, slots=True)
class Proof:
    """``verdict`` in one sentence, then the figures it rests on."""

    verdict: str
    explanation: str
    figures: tuple[tuple[str, str], ...]
    proven: bool


def proof(certificate: Certificate, objective: Objective, given_up: float = 0.0) -> Proof:
    """What the certificate says to somebody who never heard of a duality gap.

    ``given_up``: by what share the plan is worse than the best found, of which the certificate speaks.
    """
    searched = certificate.stopped_by is not StopReason.NO_SEARCH
    whose = "the best found, its" if given_up else "this plan's"
    figures = [(f"{whose} {_MEANS[objective]}", objective_value(certificate.objective, objective))]
    if given_up:
        own = objective_value(certificate.objective * (1 + given_up), objective)
        figures.append((f"this plan's {_MEANS[objective]}", own))
    if searched:
        figures += [
            ("no plan can beat", objective_value(certificate.bound, objective)),
            ("gap between the two", percent(certificate.gap, places=2)),
            ("candidates in the search space", count(certificate.candidates_total)),
            ("ruled out because they do not fit in memory", count(certificate.candidates_infeasible)),
            ("ruled out because even their bound is worse", count(certificate.candidates_pruned)),
            ("placed on the real nodes", count(certificate.candidates_placed)),
        ]
        if left := unpriced(certificate):
            figures.append(("not looked at in the time", count(left)))
    return Proof(
        verdict=_verdict(certificate, given_up, searched=searched),
        explanation=certificate.explanation,
        figures=(*figures, ("end of the search", _ENDED[certificate.stopped_by]), ("solver", certificate.solver)),
        proven=certificate.stopped_by is StopReason.PROVEN,
    )


def objective_value(value: float, objective: Objective) -> str:
    """A value of the objective with its unit."""
    if objective is Objective.COST:
        return f"{value:,.4f} USD per step"
    if objective is Objective.GPU_TIME:
        return f"{value:,.2f} GPU-seconds per step"
    return seconds(value)


def _verdict(certificate: Certificate, given_up: float, *, searched: bool) -> str:
    if not searched:
        return "A prediction, not a search: other configurations may be better."
    if given_up:
        return (
            f"This plan is {percent(given_up, places=2)} worse than the best found, which no plan of the space "
            f"beats by more than {percent(certificate.gap, places=2)}."
        )
    if certificate.gap <= _TOO_SMALL_TO_SAY:
        return "Proven optimal: no plan in the search space is better than this one."
    return (
        f"No plan in the search space can be more than {percent(certificate.gap, places=2)} better than this one."
    )
