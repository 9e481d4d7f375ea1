"""Answers about decisions on failures."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field

from app.answers.addresses import Links, Moment, addresses
from app.answers.events import QuarantineAnswer
from app.answers.job_decisions import JobDecisionAnswer
from app.answers.plans import FailureAnswer
from app.answers.serving_decisions import ServingDecisionAnswer
from app.db.status import ReplanStatus, ReplanStep
from app.documents.remarks import RemarkDocument
from app.documents.values import Computed, Given, Holds, ValueAnswer
from app.presentation.decision_reasons import reason_of
from app.presentation.replans import decision_explanation, explanation
from app.services.decisions.replan_answers import DecisionSummary, JobSummary, ServingSummary
from app.services.decisions.replan_steps import StepRecord
from app.services.decisions.replan_views import AnswerView
from app.services.decisions.replans import Answer, ReplanRecord
from cluster_models.jobs.recovery import BatchDecision, RecoveryAction
from cluster_models.jobs.serving import ServingAction
from cluster_models.training.plan import StopReason


class ReplanProgressAnswer(BaseModel):
    """How far a decision is."""

    elapsed_s: float = Field(description="Seconds since it was begun.", examples=[1.4])
    phase: str = Field(description="What is done.", examples=["options"])
    jobs: int = Field(description="Jobs that are decided on.", examples=[4])
    options: int = Field(description="Options found so far.", examples=[31])
    objective: float | None = Field(description="Value of the best choice so far, in FLOP.", examples=[3.2e21])
    bound: float | None = Field(description="Worth that no choice can beat.", examples=[3.3e21])
    gap: float | None = Field(description="Distance between the two, as a fraction.", examples=[0.03])


class JobSummaryAnswer(ValueAnswer[JobSummary]):
    """One job's part of a decision, without plan and moves."""

    job: str = Field(description="Its name.", examples=["pretrain-a"])
    job_id: str = Field(description="Its id.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])
    action: RecoveryAction = Field(description="What is done with it.", examples=["swap"])
    degrees: str = Field(
        description="Parallel sizes afterwards; empty where it stands still.", examples=["tp8 dp4"]
    )
    moved_ranks: int = Field(description="Ranks that move.", examples=[8])
    moved_bytes: float = Field(description="Bytes that move.", examples=[3.8e10])
    downtime_low_s: float = Field(description="Seconds without a step, at least.", examples=[95.0])
    downtime_high_s: float = Field(description="Seconds without a step, at most.", examples=[260.0])
    tokens_per_s_before: float = Field(description="Throughput before the failure.", examples=[338000.0])
    tokens_per_s_after: float = Field(description="Throughput afterwards.", examples=[335000.0])
    lost_gpu_hours_low: float = Field(description="GPU-hours without useful work, at least.", examples=[11.0])
    lost_gpu_hours_high: float = Field(description="GPU-hours without useful work, at most.", examples=[26.0])
    reason: Annotated[str, Computed(reason_of)] = Field(
        description="Why, in a sentence.", examples=["The spare lies under the same leaf."]
    )
    causes: list[RemarkDocument] = Field(description="Parts that the job lost.")
    reasons: list[RemarkDocument] = Field(description="What is done, and what speaks for it.")


class ServingSummaryAnswer(ValueAnswer[ServingSummary]):
    """One deployment's part of a decision, without its plan."""

    job: str = Field(description="Its name.", examples=["chat"])
    job_id: str = Field(description="Its id.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])
    action: ServingAction = Field(description="What is done with it.", examples=["start_replicas"])
    gpus: int = Field(description="GPUs that it holds afterwards.", examples=[16])
    lost: int = Field(description="Replicas that lost a GPU.", examples=[1])
    started: int = Field(description="Replicas that start.", examples=[1])
    start_low_s: float = Field(description="Seconds until they answer, at least.", examples=[45.0])
    start_high_s: float = Field(description="Seconds until they answer, at most.", examples=[195.0])
    requests_per_s_before: float = Field(description="Requests answered before the failure.", examples=[6.0])
    requests_per_s_after: float = Field(description="Requests answered afterwards.", examples=[6.0])


def _summary_explanation(summary: DecisionSummary) -> str:
    jobs = [(made.job, made.action) for made in summary.jobs]
    return explanation(summary, jobs, [(made.job, made.action) for made in summary.serving])


class DecisionSummaryAnswer(ValueAnswer[DecisionSummary]):
    """A decision without plans and moves."""

    jobs: list[JobSummaryAnswer] = Field(description="Decision for each job.")
    serving: list[ServingSummaryAnswer] = Field(description="Decision for each serving deployment.")
    untouched: int = Field(description="Jobs that run on as they are.", examples=[3])
    spares_used: list[str] = Field(description="Spare nodes that it takes.", examples=[["s003"]])
    spares_left: list[str] = Field(description="Spare nodes that stay free.", examples=[["s004"]])
    quarantine: list[str] = Field(description="Nodes that should stay out.", examples=[["n017"]])
    objective: float = Field(description="Sum of the jobs' values, in FLOP.", examples=[3.2e21])
    objective_if_waiting: float = Field(description="The same if every touched job stood still.", examples=[9e20])
    gap: float = Field(description="(bound - objective) / bound.", examples=[0.0])
    stopped_by: StopReason = Field(description="Reason why the search ended.", examples=["proven"])
    fallback: bool = Field(description="Whether it is the safe answer.", examples=[False])
    explanation: Annotated[str, Computed(_summary_explanation)] = Field(
        description="In words.", examples=["Both jobs get a spare."]
    )


class UntouchedAnswer(BaseModel):
    """A job that runs on as it is."""

    job: str = Field(description="Its name.", examples=["pretrain-b"])
    job_id: str = Field(description="Its id.", examples=["1b9d6bcdbbfd4b2d9b5dab8dfbbd4bed"])


class DecisionAnswer(ValueAnswer[BatchDecision]):
    """One decision for all jobs that failures touched."""

    jobs: Annotated[list[JobDecisionAnswer], Given()] = Field(description="Decision for each job.")
    serving: Annotated[list[ServingDecisionAnswer], Given()] = Field(
        description="Decision for each serving deployment."
    )
    untouched: Annotated[list[UntouchedAnswer], Given()] = Field(description="Jobs that run on as they are.")
    spares_before: list[str] = Field(description="Spare nodes that were free.", examples=[["s003", "s004"]])
    spares_used: list[str] = Field(description="Spare nodes that it takes.", examples=[["s003"]])
    spares_left: list[str] = Field(description="Spare nodes that stay free.", examples=[["s004"]])
    quarantine: list[QuarantineAnswer] = Field(description="Nodes that should stay out until they are repaired.")
    horizon_s: float = Field(description="Seconds over which work was weighed against moves.", examples=[21600.0])
    objective: float = Field(description="Sum of the jobs' values, in FLOP.", examples=[3.2e21])
    objective_if_waiting: float = Field(
        description="The same if every touched job stood still for the horizon, or until its parts are back.",
        examples=[9e20],
    )
    bound: float = Field(
        description="Worth that no decision of the same options can beat, in FLOP.", examples=[3.2e21]
    )
    gap: float = Field(description="(bound - objective) / bound.", examples=[0.0])
    stopped_by: StopReason = Field(description="Reason why the search ended.", examples=["proven"])
    fallback: bool = Field(description="Whether it is the safe answer.", examples=[False])
    solver: str = Field(description="Solver and its version.", examples=["cbc 2.10.3"])
    snapshot: Annotated[str, Holds("snapshot_id")] = Field(
        description="Id of the cluster's snapshot after the failures.", examples=["7f6d1c+8a0b"]
    )
    explanation: Annotated[str, Computed(decision_explanation)] = Field(
        description="In words.", examples=["Both jobs get a spare."]
    )

    @classmethod
    def make(cls, view: AnswerView, place: tuple[str, ...] = (), query: str = "", **beside: Any) -> Self:
        """The answer for a decision; ``place`` are the parts of its replan's address (none of a what-if)."""
        decision = view.decision
        return cls.from_value(
            decision,
            jobs=[
                JobDecisionAnswer.make(made, view.before.get(made.job_id), place, query) for made in decision.jobs
            ],
            serving=[ServingDecisionAnswer.make(made, place, query) for made in decision.serving],
            untouched=[
                UntouchedAnswer(job=view.untouched.get(job_id, job_id), job_id=job_id)
                for job_id in decision.untouched
            ],
            **beside,
        )


class WhatIfAnswer(DecisionAnswer):
    """The decision that supposed losses would get at once."""

    unprepared: Annotated[list[str], Given()] = Field(
        description="Names of jobs that shrink or pause here because nothing is prepared for the loss of one of "
        "their nodes yet; that takes some minutes after a job is registered, and may find another shape.",
        examples=[[]],
    )

    @classmethod
    def of(cls, view: AnswerView) -> WhatIfAnswer:
        """The answer to a what-if."""
        return cls.make(view, unprepared=list(view.unprepared))


class StepAnswer(ValueAnswer[StepRecord]):
    """A step that was taken with a decision."""

    step: ReplanStep = Field(description="What was done.", examples=["approved"])
    actor: Annotated[str, Holds("actor.name")] = Field(
        description="Who did it; empty where nobody said.", examples=["j.doe"]
    )
    verified: Annotated[bool, Holds("actor.verified")] = Field(
        description="Whether a trusted proxy named the actor, or it is this service; else the request said so.",
        examples=[False],
    )
    job: str | None = Field(description="Name of the job that it is about; null of a step of all.", examples=[None])
    taken_at: Moment


def replan_links(replan_id: str) -> dict[str, str]:
    """Addresses of what belongs to a replan."""
    return addresses("replans", replan_id, parts=("events", "approve", "start", "complete", "fail", "cancel"))


def _progress(record: ReplanRecord) -> ReplanProgressAnswer | None:
    if not record.progress:
        return None
    return ReplanProgressAnswer(**{name: record.progress.get(name) for name in ReplanProgressAnswer.model_fields})


class ReplanSummary(ValueAnswer[ReplanRecord]):
    """A decision on failures, without its answers."""

    id: str = Field(description="Its id.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])
    cluster: Annotated[str, Holds("cluster_name")] = Field(
        description="Name of the cluster.", examples=["h100-17-nodes"]
    )
    status: ReplanStatus = Field(
        description="collecting, solving, proposed, approved and applying change; applied, cancelled, failed and "
        "superseded stay.",
        examples=["proposed"],
    )
    reason: str = Field(description="Why it was opened.", examples=["node n017 failed: touches pretrain-a."])
    window_ends_at: Moment
    events: Annotated[list[str], Holds("event_ids")] = Field(
        description="Ids of the reports that it decides on.", examples=[["1b9d6bcdbbfd4b2d9b5dab8dfbbd4bed"]]
    )
    snapshot: Annotated[str | None, Holds("snapshot_id")] = Field(
        description="Id of the cluster's snapshot after the failures; null while reports may still join.",
        examples=["7f6d1c+8a0b"],
    )
    has_safe_answer: bool = Field(description="Whether the safe answer is there.", examples=[True])
    has_decision: bool = Field(description="Whether the solver's answer is there.", examples=[True])
    chosen: Answer | None = Field(description="Which of the two was approved; null before.", examples=["decision"])
    summary: DecisionSummaryAnswer | None = Field(
        description="Summary of the solver's answer, before there is one of the safe answer."
    )
    progress: Annotated[ReplanProgressAnswer | None, Computed(_progress)] = Field(
        description="The newest progress; null before the first."
    )
    error: FailureAnswer | None = Field(
        description="Why it failed or was called off, or why only the safe answer is there; null otherwise."
    )
    superseded_by: str | None = Field(description="Id of the replan that took over.", examples=[None])
    objections: list[str] = Field(
        description="Reasons against approving it unseen; where there is one, nothing approves it by itself.",
        examples=[[]],
    )
    causes_recovered: bool = Field(
        description="Whether nobody approved it and all that opened it is reported as well again: look before "
        "approving, or ask for a new decision.",
        examples=[False],
    )
    steps: list[StepAnswer] = Field(description="What was done with it, and by whom, the first first.")
    remaining: list[str] = Field(
        description="Jobs that are still to be carried out as approved, by name; empty before the approval and "
        "once it has ended.",
        examples=[["pretrain-a"]],
    )
    created_at: Moment
    solving_at: datetime | None = Field(description="When its window ended, in UTC.", examples=[None])
    proposed_at: datetime | None = Field(description="When it was proposed, in UTC.", examples=[None])
    approved_at: datetime | None = Field(description="When it was approved, in UTC.", examples=[None])
    finished_at: datetime | None = Field(description="When it ended, in UTC.", examples=[None])
    attempts: int = Field(description="How often a solve was started.", examples=[1])
    rescues: int = Field(description="How often it was taken over from a worker that vanished.", examples=[0])
    links: Annotated[Links, Computed(lambda record: replan_links(record.id))]


class ReplanAnswer(ReplanSummary):
    """A decision on failures, with its answers."""

    safe_answer: Annotated[DecisionAnswer | None, Given()] = Field(
        description="What was prepared in advance or made without a search; null where it is not there."
    )
    decision: Annotated[DecisionAnswer | None, Given()] = Field(
        description="Answer of the solver; null where it is not there."
    )

    @classmethod
    def make(cls, record: ReplanRecord, safe: AnswerView | None, decision: AnswerView | None) -> ReplanAnswer:
        """The answer for a stored replan with its answers."""
        place = ("replans", record.id)
        return cls.from_value(
            record,
            safe_answer=safe and DecisionAnswer.make(safe, place, "?answer=safe"),
            decision=decision and DecisionAnswer.make(decision, place),
        )


class ReplanAccepted(BaseModel):
    """A decision is on its way."""

    id: str = Field(description="Id of the replan.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])
    status: ReplanStatus = Field(description="Where it is.", examples=["collecting"])
    links: Links


class ReplanEvent(ValueAnswer[ReplanRecord]):
    """One event of a replan's stream."""

    status: ReplanStatus = Field(description="Where the replan is.", examples=["solving"])
    has_safe_answer: bool = Field(description="Whether the safe answer is there.", examples=[True])
    has_decision: bool = Field(description="Whether the solver's answer is there.", examples=[False])
    progress: Annotated[ReplanProgressAnswer | None, Computed(_progress)] = Field(
        description="The newest progress."
    )
    error: FailureAnswer | None = Field(description="The failure of the search.")
    remaining: list[str] = Field(description="Jobs that are still to be carried out as approved.", examples=[[]])
