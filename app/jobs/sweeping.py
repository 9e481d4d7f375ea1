"""Answers one failure of a sweep: without a search, so in this process."""

from __future__ import annotations

from functools import partial

from app.db.sweep_tables import SweepRow
from app.jobs.context import JobContext
from app.jobs.patience import for_owner, patiently
from app.services.decisions import sweep_answers


def job_id_of(sweep_id: str, number: int) -> str:
    """Id of the job that answers one failure."""
    return f"{sweep_id}-{number}"


def attempt(context: JobContext, *, sweep_id: str, number: int) -> str:
    """Answer one failure and store the answer; returns the outcome as a word the engine stores."""
    own, job_id = for_owner(context, SweepRow, sweep_id), job_id_of(sweep_id, number)
    context.solving.add(job_id)
    try:
        return sweep_answers.work_out(partial(patiently, own), sweep_id=sweep_id, number=number)
    finally:
        context.solving.discard(job_id)
