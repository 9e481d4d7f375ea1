"""The answers of replans beside what ran before, for whoever shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.running_tables import RunningPlanRow
from app.serialization import load
from app.services import replan_answers, replan_rows, replan_solves
from app.services.errors import NotFound, NotReady
from app.services.replans import Answer
from cluster_models.plan import Plan
from cluster_models.recovery import BatchDecision, JobDecision


@dataclass(frozen=True, slots=True)
class AnswerView:
    """An answer, and by job id the plan that each decided job ran by before (where that is still kept)."""

    decision: BatchDecision
    before: Mapping[str, Plan]


def view_answer(session: Session, *, replan_id: str, answer: Answer) -> AnswerView | None:
    """One of a replan's answers, ``None`` where it is not there (yet); raises ``NotFound``."""
    kept = replan_answers.kept_answer(replan_rows.row_of(session, replan_id), safe=answer is Answer.SAFE)
    if kept is None:
        return None
    decision = load(BatchDecision, kept["decision"])
    return AnswerView(decision, plans_before(session, decision, kept["base"]))


def plans_before(session: Session, decision: BatchDecision, base: Mapping[str, str]) -> dict[str, Plan]:
    """The plans that the decided jobs ran by, by job id; ``base`` has their running plans."""
    wanted = {base[made.job_id]: made.job_id for made in decision.jobs if made.job_id in base}
    query = select(RunningPlanRow.id, RunningPlanRow.plan).where(RunningPlanRow.id.in_(wanted))
    return {wanted[plan_id]: load(Plan, plan) for plan_id, plan in session.execute(query)}


def decided_plan(session: Session, *, replan_id: str, job: str, answer: Answer) -> Plan:
    """The plan by which a job of that name or id is to run.

    Raises ``NotFound`` of the replan, and of a job that is not decided on; ``NotReady`` where there is no such
    answer, or the job stands still.
    """
    kept = replan_answers.kept_answer(replan_rows.row_of(session, replan_id), safe=answer is Answer.SAFE)
    if kept is None:
        raise NotReady(f"The replan {replan_id!r} has no such answer yet; wait for it.")
    made = _job(load(BatchDecision, kept["decision"]), job)
    if made.plan is None:
        raise NotReady(f"The job {made.job_name!r} is to stand still ({made.action}): there is no plan to run by.")
    return made.plan


def covers(session: Session, *, replan_id: str) -> tuple[str, ...]:
    """The jobs that a replan was solved with, by name; empty until its window has ended."""
    found = replan_solves.get_request(session, replan_id=replan_id)
    return () if found is None else tuple(job["name"] for job in found.jobs)


def _job(decision: BatchDecision, job: str) -> JobDecision:
    for made in decision.jobs:
        if job in (made.job_name, made.job_id):
            return made
    raise NotFound("job in this replan", job)
