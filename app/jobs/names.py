"""Names that the job engine keeps in its database; whoever enqueues and whoever runs must agree on them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

APPLICATION: Final = "meshwright"
APPLICATION_VERSION: Final = "1"
"""Raised only when the order of steps in a workflow changes: other versions' open jobs are not resumed."""
SOLVE_QUEUE: Final = "solve"
"""Solves and what-ifs wait here, which wait for nothing themselves.

A workflow that waits for others would need a queue of its own, or block its children.
"""
SOLVE_WORKFLOW: Final = "solve_plan"


class JobKind(StrEnum):
    """Kind of work of a job; its value names the workflow."""

    SOLVE = SOLVE_WORKFLOW
    DECIDE = "decide_replan"
    """Decide on failures; never behind a solve."""
    PREPARE = "prepare_jobs"
    """Work out in advance what to do when a node is lost; last in line for the processor."""
    DELIVER = "deliver_webhook"
    WHAT_IF = "answer_supposed_failure"
    """Answer one failure of a sweep, in the queue of solves behind all plans."""

    @property
    def queue(self) -> str:
        """Where jobs of this kind wait."""
        return _QUEUES[self]


_QUEUES: Final = {
    JobKind.SOLVE: SOLVE_QUEUE,
    JobKind.DECIDE: "decide",
    JobKind.PREPARE: "prepare",
    JobKind.DELIVER: "webhooks",
    JobKind.WHAT_IF: SOLVE_QUEUE,
}
KIND_OF_QUEUE: Final = {kind.queue: kind for kind in reversed(JobKind)}
"""Each queue once, with the kind of job whose pace it keeps: the first of those that wait there."""
FORMER_QUEUES: Final = ("deliver",)
"""Queues of earlier versions, whose jobs are done to the last."""
