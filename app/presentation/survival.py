"""Losses that a plan survives, in sentences."""

from __future__ import annotations

from typing import Final

from cluster_models.training.failure_domains import FailureDomainLosses
from cluster_models.training.plan import Plan

_NAMED: Final = 5
"""Domains that a sentence names."""


def survival_sentences(plan: Plan) -> tuple[str, ...]:
    """A sentence for each kind of failure domain; nothing for plans made by hand."""
    return tuple(losses_sentence(losses) for losses in plan.survives)


def losses_sentence(losses: FailureDomainLosses) -> str:
    """How many domains of one kind may be lost, and which are the weakest."""
    label, weakest = losses.label.replace("nvlink_domain", "NVLink domain"), " and ".join(losses.weakest[:_NAMED])
    if more := len(losses.weakest[_NAMED:]):
        weakest += f" and {more} more"
    if losses.count == 0:
        alone = "the only one" if losses.domains == 1 else f"of {losses.domains}"
        return f"No {label} may be lost: state on {label} {weakest} ({alone}) has no copy elsewhere."
    plural = "" if losses.count == 1 else "s"
    return (
        f"Any {losses.count} {label}{plural} of {losses.domains} may be lost; "
        f"{weakest} together hold all copies of something."
    )
