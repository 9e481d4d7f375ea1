"""Answers about sweeps of supposed failures."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from app.answers.addresses import Links, Moment, addresses
from app.answers.replans import JobSummaryAnswer, ServingSummaryAnswer
from app.documents.values import Computed, Given, Holds, ValueAnswer
from app.presentation.sweeps import sweep_words
from app.services.decisions.sweeps import FailureImpact, SweepRecord, SweepStatus


class SweepSummary(ValueAnswer[SweepRecord]):
    """A sweep and how far it is."""

    id: str = Field(description="Its id.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])
    cluster: Annotated[str, Holds("cluster_name")] = Field(
        description="Name of the cluster.", examples=["h100-17-nodes"]
    )
    each: str | None = Field(
        description="Label whose places fail one after the other; null where failures were listed.",
        examples=["node"],
    )
    status: SweepStatus = Field(description="running changes; finished and cancelled stay.", examples=["finished"])
    failures: int = Field(description="Failures that are asked about.", examples=[17])
    answered: int = Field(description="Those that are done.", examples=[17])
    refused: int = Field(description="Those among them that have no answer.", examples=[0])
    changed: bool = Field(
        description="Whether cluster, jobs, spares, settings or reports changed while it ran, so that its "
        "answers start from different states: ask again.",
        examples=[False],
    )
    explanation: Annotated[str, Computed(sweep_words)] = Field(
        description="In words.", examples=["17 of 17 failures answered, finished."]
    )
    created_at: Moment
    finished_at: datetime | None = Field(description="When it ended, in UTC; null before.", examples=[None])
    links: Annotated[
        Links, Computed(lambda record: addresses("what-if-sweeps", record.id, parts=("answers", "cancel")))
    ]


class FailureImpactAnswer(ValueAnswer[FailureImpact]):
    """Cost of one failure, by the safe answer that would be there at once."""

    number: int = Field(description="Its place in the request.", examples=[4])
    name: str = Field(description="Its name, or the place that fails.", examples=["leaf-3"])
    lost_tokens_per_s: float = Field(
        description="Throughput that training jobs lose; one that runs faster afterwards makes up for no other.",
        examples=[84000.0],
    )
    lost_requests_per_s: float = Field(description="The same of deployments.", examples=[0.0])
    lost_gpu_hours: float = Field(
        description="GPU-hours of training without useful work until all run again, at most.", examples=[26.0]
    )
    must_move: list[str] = Field(
        description="Jobs of which ranks move, and deployments whose replicas start elsewhere.",
        examples=[["pretrain-a"]],
    )
    not_covered: list[str] = Field(
        description="Jobs that stand still, and deployments that answer nothing any more.", examples=[[]]
    )
    spares_used: list[str] = Field(description="Spare nodes that it takes.", examples=[["s003"]])
    jobs: list[JobSummaryAnswer] = Field(description="Training jobs that it touches.")
    serving: list[ServingSummaryAnswer] = Field(description="Deployments that it touches.")
    error: str | None = Field(description="Why there is no answer; null where there is one.", examples=[None])


class SweepAnswer(SweepSummary):
    """A sweep with its answers so far."""

    worst: Annotated[list[FailureImpactAnswer], Given()] = Field(
        description="Answers so far, the worst first: by lost tokens/s, then requests/s, then GPU-hours; "
        "/answers lists all."
    )
