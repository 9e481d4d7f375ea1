"""Requests about decisions on failures: settings, supposed losses, the answer that is approved."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from pydantic import Field

from app.documents.health_events import LossDocument
from app.documents.long_lists import long_list
from app.documents.reading import LONGEST_S, Count, Document, Flag, NotNegative, Positive, Prose, Text
from app.documents.values import ValueDocument
from app.events.reading import ReportedEvent
from app.services.decisions.replan_settings import (
    LEAST_WINDOW_S,
    MOST_TIME_LIMIT_S,
    MOST_WINDOW_S,
    ReplanSettings,
)
from app.services.decisions.replan_steps import LONGEST_ACTOR
from app.services.decisions.replans import Answer
from app.services.decisions.sweeps import SupposedFailure
from app.services.field_paths import errors_under
from cluster_models.cluster.topology import MOST_NODES
from cluster_models.errors import InvalidInput
from cluster_models.jobs.recovery import RecoveryAction

ActorName = Annotated[str, Field(max_length=LONGEST_ACTOR)]
MOST_LOSSES: Final = 10_000
MOST_FAILURES: Final = 2_048
_DEFAULT: Final = ReplanSettings()


class ReplanSettingsDocument(ValueDocument[ReplanSettings]):
    """How failures on one cluster are handled."""

    window_s: Annotated[Positive, Field(ge=LEAST_WINDOW_S, le=MOST_WINDOW_S)] = Field(
        _DEFAULT.window_s, description="Reports within so many seconds are decided on together.", examples=[60.0]
    )
    horizon_s: Annotated[Positive, Field(le=LONGEST_S)] = Field(
        _DEFAULT.horizon_s, description="Seconds over which work is weighed against moves.", examples=[21600.0]
    )
    back_after_s: Annotated[Positive, Field(le=LONGEST_S)] = Field(
        _DEFAULT.back_after_s, description="Seconds until lost parts are expected back.", examples=[21600.0]
    )
    node_back_after_s: Annotated[Positive, Field(le=LONGEST_S)] | None = Field(
        None, description="The same of a whole node; absent = back_after_s.", examples=[14400.0]
    )
    gpu_back_after_s: Annotated[Positive, Field(le=LONGEST_S)] | None = Field(
        None, description="The same of one GPU (a reset, or a visit); absent = back_after_s.", examples=[900.0]
    )
    nic_back_after_s: Annotated[Positive, Field(le=LONGEST_S)] | None = Field(
        None, description="The same of a network card; absent = back_after_s.", examples=[7200.0]
    )
    switch_back_after_s: Annotated[Positive, Field(le=LONGEST_S)] | None = Field(
        None, description="The same of a switch; absent = back_after_s.", examples=[3600.0]
    )
    hysteresis_s: Annotated[NotNegative, Field(le=LONGEST_S)] = Field(
        _DEFAULT.hysteresis_s, description="Seconds a recovery must last to be believed.", examples=[600.0]
    )
    drain_lead_s: Annotated[NotNegative, Field(le=LONGEST_S)] = Field(
        _DEFAULT.drain_lead_s,
        description="Seconds before a part has to be left (leave_by of its report) at which it is decided on.",
        examples=[3600.0],
    )
    quarantine_after: Count = Field(
        _DEFAULT.quarantine_after,
        description="After so many failures within 30 days a node is to be kept out.",
        examples=[3],
    )
    auto_approve: Flag = Field(
        _DEFAULT.auto_approve,
        description="Whether a decision takes its GPUs without anybody's approval.",
        examples=[False],
    )
    auto_actions: list[RecoveryAction] = Field(
        [],
        max_length=len(RecoveryAction),
        description="Actions that may be approved without anybody; none named means any.",
        examples=[["swap", "restart_in_place"]],
    )
    auto_most_jobs: Count | None = Field(
        None, description="Most jobs that act in a decision approved without anybody.", examples=[2]
    )
    auto_most_nodes: Count | None = Field(
        None, description="Most nodes that change hands in a decision approved without anybody.", examples=[4]
    )
    auto_most_gap: Annotated[NotNegative, Field(le=1)] | None = Field(
        None, description="Largest gap of a decision approved without anybody.", examples=[0.05]
    )
    storm_share: Annotated[NotNegative, Field(le=1)] = Field(
        _DEFAULT.storm_share,
        description="Share of the cluster's nodes (and three at least) on which one source must report trouble "
        "within storm_within_s for nothing to be approved without anybody.",
        examples=[0.25],
    )
    storm_within_s: Annotated[Positive, Field(le=LONGEST_S)] = Field(
        _DEFAULT.storm_within_s, description="Seconds in which such reports are counted.", examples=[300.0]
    )
    signed_only: Flag = Field(
        _DEFAULT.signed_only,
        description="Whether reports are refused that no stored source signed.",
        examples=[False],
    )
    gpu_budget: Count | None = Field(
        None, description="Most GPUs of all jobs together; absent = no limit.", examples=[512]
    )
    all_free_nodes: Flag = Field(
        _DEFAULT.all_free_nodes,
        description="Whether every free node serves as a spare, not only those listed.",
        examples=[False],
    )
    spare_worth_share: Annotated[NotNegative, Field(le=1)] = Field(
        _DEFAULT.spare_worth_share,
        description="Share of what one of its GPUs does over the horizon, as planned, that a spare GPU must be "
        "worth to the job that takes it: spares kept are a reserve for what fails next.",
        examples=[0.01],
    )
    time_limit_s: Annotated[Positive, Field(le=MOST_TIME_LIMIT_S)] = Field(
        _DEFAULT.time_limit_s, description="Seconds after which a decision must be there.", examples=[15.0]
    )
    effort: Annotated[Count, Field(le=100)] = Field(
        _DEFAULT.effort, description="Scales the work budgets of a decision.", examples=[1]
    )


class SpareNodesDocument(Document):
    """The nodes that are kept for jobs that lose one."""

    nodes: Annotated[list[Text], Field(max_length=MOST_NODES), long_list(MOST_NODES)] = Field(
        description="Names of nodes, in place of all that were spares before.", examples=[["cnode2-016"]]
    )


class ReplanRequestDocument(Document):
    """A decision that is wanted now, whatever was reported."""

    reason: Text = Field("It was asked for.", description="For people.", examples=["A job was added."])


class WhatIfDocument(Document):
    """Losses that are supposed, on top of what was reported."""

    losses: Annotated[list[LossDocument], Field(max_length=MOST_LOSSES, min_length=1), long_list(MOST_LOSSES)] = (
        Field(description="Parts of the cluster and what becomes of each.")
    )

    def to_losses(self, now: datetime) -> tuple[ReportedEvent, ...]:
        """The losses, before names are looked up; raises ``InvalidInput``."""
        made = []
        for index, each in enumerate(self.losses):
            with errors_under(f"losses[{index}]"):
                made.append(each.to_reported(now, source_id=str(index)))
        return tuple(made)


class SupposedFailureDocument(WhatIfDocument):
    """Parts that fail together."""

    name: Text = Field(description="Name of the failure, for the report.", examples=["leaf-3"])


class SweepDocument(Document):
    """Failures that are supposed one after the other, each on top of what was reported."""

    each: Text | None = Field(
        None,
        description="Each place of this label fails with all its nodes: node, nvlink_domain or a node label such "
        "as leaf, rack or zone. Absent where failures are listed.",
        examples=["node"],
    )
    failures: Annotated[list[SupposedFailureDocument], Field(max_length=MOST_FAILURES)] = Field(
        default_factory=list, description="Failures; absent where each place of a label fails.", examples=[[]]
    )

    def to_failures(self, now: datetime) -> tuple[SupposedFailure, ...]:
        """The failures that are listed, before names are looked up; raises ``InvalidInput``."""
        if (self.each is None) == (not self.failures):
            problem = "is missing" if self.each is None else "contradicts failures"
            raise InvalidInput("each", self.each, problem, "give either a label, or a list of failures")
        losses = sum(len(failure.losses) for failure in self.failures)
        if losses > MOST_LOSSES:
            raise InvalidInput("failures", losses, "are too many losses", f"give {MOST_LOSSES} in all at most")
        made = []
        for index, failure in enumerate(self.failures):
            with errors_under(f"failures[{index}]"):
                made.append(SupposedFailure(failure.name, failure.to_losses(now)))
        return tuple(made)


class StepDocument(Document):
    """Actor of a step with a replan."""

    actor: ActorName = Field(
        "",
        description="Who takes this step, for the record; a header of a trusted proxy overrules it "
        "(MESHWRIGHT_ACTOR_HEADER).",
        examples=["j.doe"],
    )


class ApprovalDocument(StepDocument):
    """Choice of the answer of a replan that is approved."""

    answer: Answer = Field(
        Answer.DECISION,
        description="decision: what the solver found (the safe answer where it found none). safe: the answer that "
        "was there within a second.",
        examples=["decision"],
    )


class FailureDocument(StepDocument):
    """Why a replan could not be carried out."""

    problem: Prose = Field(
        min_length=1, description="The problem, for people.", examples=["A spare did not come up."]
    )


class CancellationDocument(StepDocument):
    """Why a replan is called off."""

    problem: Prose = Field("It was called off.", min_length=1, description="Why.", examples=["A false alarm."])
