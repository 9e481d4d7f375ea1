"""The certificate in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.presentation.figures import count, percent, plural, seconds
from app.presentation.sentences import sentence, sentences
from cluster_models.training.plan import Certificate, StopReason
from cluster_models.training.workload import Objective

_ENDED: Final = {
    StopReason.PROVEN: "every other candidate was ruled out",
    StopReason.TIME_LIMIT: "time limit",
    StopReason.WORK_LIMIT: "effort used up",
    StopReason.CANCELLED: "stopped",
    StopReason.NO_SEARCH: "nothing was searched",
}
_MEANS: Final = {
    Objective.STEP_TIME: "step time",
    Objective.GPU_TIME: "step time times GPUs",
    Objective.COST: "cost of a step",
    Objective.ENERGY: "energy of a step",
}
_HINTS: Final = {
    StopReason.TIME_LIMIT: "A longer time limit may narrow the gap.",
    StopReason.WORK_LIMIT: "A larger effort may narrow the gap.",
}
_ENDINGS: Final = {
    StopReason.PROVEN: "Every other candidate and placement is ruled out to within {} of the best.",
    StopReason.WORK_LIMIT: "The search used up its effort; what is left may be up to {} better.",
    StopReason.TIME_LIMIT: "The time limit ended the search; what is left may be up to {} better.",
    StopReason.CANCELLED: "The search was stopped; what is left may be up to {} better.",
}
_COVERAGE: Final = (
    "The proof covers all legal combinations of degrees, micro-batches, virtual stages, recomputation, "
    "sharding and rank order, and all orders of hosts, under the cost model."
)
_MODEL_ERROR: Final = "It says nothing about the error of the cost model itself."
TOO_SMALL_TO_SAY: Final = 5e-5
"""Gap up to which a plan is called optimal."""


@dataclass(frozen=True, slots=True)
class Proof:
    """``verdict`` in one sentence, then what it rests on; ``hint``: how to narrow the gap.

    ``candidates`` and ``hint`` are empty where nothing was searched, or nothing would help.
    """

    verdict: str
    explanation: str
    candidates: str
    hint: str
    figures: tuple[tuple[str, str], ...]
    proven: bool


def proof(certificate: Certificate, objective: Objective, given_up: float = 0.0) -> Proof:
    """The certificate for somebody who never heard of a duality gap.

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
        ]
    return Proof(
        verdict=_verdict(certificate, given_up, searched=searched),
        explanation=explanation_of(certificate),
        candidates=_candidates(certificate) if searched else "",
        hint=_HINTS.get(certificate.stopped_by, ""),
        figures=(*figures, ("end of the search", _ENDED[certificate.stopped_by]), ("solver", certificate.solver)),
        proven=certificate.stopped_by is StopReason.PROVEN,
    )


def explanation_of(certificate: Certificate) -> str:
    """Reason for which the search ended, and limits of the proof."""
    if certificate.stopped_by is StopReason.NO_SEARCH:
        return sentence(certificate.basis) if certificate.basis else "Nothing was searched."
    ending = _ENDINGS[certificate.stopped_by].format(percent(certificate.gap, places=2))
    limits = f" Its limits: {'; '.join(sentences(certificate.limits))}." if certificate.limits else ""
    return f"{ending}{_late(certificate)} {_COVERAGE}{limits} {_MODEL_ERROR}"


def _late(certificate: Certificate) -> str:
    parts = []
    if certificate.unpriced:
        parts.append(f"to price {count(certificate.unpriced)} candidates")
    if certificate.unlisted:
        sizes = f"{count(certificate.unlisted)} numbers of GPUs"
        parts.append(f"to list those on {sizes}, which the counts leave out")
    if not parts:
        return ""
    return f" There was no time {' and '.join(parts)}: only that none of them beats the bound is known."


def _candidates(certificate: Certificate) -> str:
    """Outcome for the candidates; of those that there was no time to look at only the bound is known."""
    ends = (
        f"{count(certificate.candidates_infeasible)} do not fit the memory",
        f"{count(certificate.candidates_pruned)} are ruled out by their bound",
        f"{count(certificate.candidates_placed)} were placed on the real nodes",
    )
    looked_at = certificate.candidates_infeasible + certificate.candidates_pruned + certificate.candidates_placed
    left = certificate.candidates_total - looked_at
    late = (f"for {count(left)} there was no time",) if left else ()
    return f"{plural(certificate.candidates_total, 'candidate')}: {', '.join((*ends, *late))}."


def objective_value(value: float, objective: Objective) -> str:
    """A value of the objective with its unit."""
    if objective is Objective.COST:
        return f"{value:,.4f} USD per step"
    if objective is Objective.GPU_TIME:
        return f"{value:,.2f} GPU-seconds per step"
    if objective is Objective.ENERGY:
        return f"{value / 1000:,.4g} kJ per step"
    return seconds(value)


def _verdict(certificate: Certificate, given_up: float, *, searched: bool) -> str:
    if not searched:
        return "A prediction, not a search: other configurations may be better."
    if given_up:
        return (
            f"This plan is {percent(given_up, places=2)} worse than the best found, which no plan of the space "
            f"beats by more than {percent(certificate.gap, places=2)}."
        )
    if certificate.gap <= TOO_SMALL_TO_SAY:
        return "Proven optimal: no plan in the search space is better than this one."
    return (
        f"No plan in the search space can be more than {percent(certificate.gap, places=2)} better than this one."
    )
