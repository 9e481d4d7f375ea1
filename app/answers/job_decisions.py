"""Answers about what becomes of one job after failures."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.answers.addresses import Links, address
from app.documents.configuration import DegreesDocument
from app.documents.plan_parts import RankDocument, SurvivedLossesDocument
from app.documents.remarks import RemarkDocument
from app.documents.values import Computed, Given, Holds, ValueAnswer
from app.exports.contract import refusals
from app.exports.registry import EXPORTS
from app.presentation.decision_reasons import objection, reason_of
from cluster_models.jobs.recovery import (
    ConsideredAction,
    JobDecision,
    Migration,
    MovedRank,
    MovedState,
    RecoveryAction,
    StateKind,
    StateSource,
)
from cluster_models.jobs.serving import ServingDecision
from cluster_models.jobs.times import TimeRange
from cluster_models.training.plan import Plan

GPU_HOURS_DESCRIPTION = "GPU-hours without useful work because of the move"


class TimeRangeAnswer(ValueAnswer[TimeRange]):
    """Estimated seconds."""

    low_s: float = Field(description="At least.", examples=[90.0])
    high_s: float = Field(description="At most.", examples=[240.0])


class MovedStateAnswer(ValueAnswer[MovedState]):
    """State of one kind that a rank gets."""

    kind: StateKind = Field(description="Kind of state.", examples=["optimizer"])
    source: StateSource = Field(description="Where it comes from.", examples=["peer"])
    rank: int | None = Field(description="Rank that gives it; null where it comes from storage.", examples=[712])
    node: Annotated[str | None, Holds("node", empty_is_null=True)] = Field(
        description="Node that gives it; null where it is storage.", examples=["cnode2-009"]
    )
    bytes: float = Field(description="How much.", examples=[3.1e9])


class MovedRankAnswer(ValueAnswer[MovedRank]):
    """A rank on a GPU that did not run that rank's part before."""

    rank: int = Field(description="Its number from now on.", examples=[200])
    old_rank: int | None = Field(
        description="Rank whose part it takes over; null where no old rank had that part.", examples=[200]
    )
    from_node: Annotated[str | None, Holds("from_node", empty_is_null=True)] = Field(
        description="Where that one sat; null where there is none.", examples=["n017"]
    )
    from_gpu: int | None = Field(description="GPU of that node.", examples=[0])
    to_node: str = Field(description="Where it sits now.", examples=["s003"])
    to_gpu: int = Field(description="GPU of that node.", examples=[0])
    state: list[MovedStateAnswer] = Field(description="State that it gets, and from where.")


class MigrationAnswer(ValueAnswer[Migration]):
    """State that moves, over which links, and how long it takes."""

    moved_ranks: Annotated[list[MovedRankAnswer], Holds("moved")] = Field(
        description="Ranks that move; empty where the job is started in place."
    )
    nvlink_bytes: Annotated[float, Holds("bytes.nvlink")] = Field(
        description="Inside a node or an NVLink domain.", examples=[0.0]
    )
    leaf_bytes: Annotated[float, Holds("bytes.leaf")] = Field(
        description="Between nodes of one leaf.", examples=[2.5e10]
    )
    fabric_bytes: Annotated[float, Holds("bytes.fabric")] = Field(
        description="Between leaves, and where leaves are not known.", examples=[0.0]
    )
    storage_bytes: Annotated[float, Holds("bytes.storage")] = Field(
        description="Read from storage.", examples=[1.3e10]
    )
    total_bytes: Annotated[float, Holds("bytes.total")] = Field(description="All together.", examples=[3.8e10])
    recut_bytes: float = Field(
        description="Part for ranks that do not move, because optimizer states are shared out anew.",
        examples=[0.0],
    )
    state_without_copy_bytes: float = Field(
        description="State without a live copy: what forces the fall back to the checkpoint.", examples=[0.0]
    )
    save: TimeRangeAnswer = Field(
        description="Seconds to save a checkpoint before the job is stopped; 0 where none is to be saved."
    )
    transfer: TimeRangeAnswer = Field(description="Seconds of the transfer of state.")
    restart: TimeRangeAnswer = Field(description="Seconds of the restart.")
    warm_up: TimeRangeAnswer = Field(description="Seconds of slower first steps.")
    downtime: TimeRangeAnswer = Field(description="Seconds of all of them and of the steps to repeat.")
    steps_lost: float = Field(description="Steps to repeat since the checkpoint.", examples=[37.0])


class ConsideredActionAnswer(ValueAnswer[ConsideredAction]):
    """An action that lost or could not be taken."""

    action: RecoveryAction = Field(description="Action that was looked at.", examples=["shrink_data_parallel"])
    value_flop: float | None = Field(
        description="Its worth as in the decision; null where it could not be taken.", examples=[3.1e21]
    )
    reason: Annotated[str, Computed(objection)] = Field(
        description="Why not.", examples=["The global batch does not divide by 15."]
    )
    reasons: list[RemarkDocument] = Field(description="The same one by one, as codes and figures.")


def _formats(made: JobDecision) -> list[str]:
    after = made.plan
    if after is None:
        return []
    found = zip(EXPORTS, refusals(EXPORTS.values(), after), strict=True)
    return [name for name, error in found if error is None]


class JobDecisionAnswer(ValueAnswer[JobDecision]):
    """Decision about one job."""

    job: Annotated[str, Holds("job_name")] = Field(description="Its name.", examples=["pretrain-a"])
    job_id: str = Field(description="Its id.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])
    action: RecoveryAction = Field(description="What is done with it.", examples=["swap"])
    reason: Annotated[str, Computed(reason_of)] = Field(
        description="Why, in a sentence.", examples=["The spare lies under the same leaf."]
    )
    causes: list[RemarkDocument] = Field(description="Parts that the job lost.")
    reasons: list[RemarkDocument] = Field(description="What is done, and what speaks for it.")
    degrees_before: Annotated[DegreesDocument | None, Given()] = Field(description="Parallel sizes before.")
    degrees: Annotated[
        DegreesDocument | None, Computed(lambda made: made.plan and made.plan.configuration.degrees)
    ] = Field(description="Parallel sizes afterwards; null where it stands still.")
    gpus_before: Annotated[int, Given()] = Field(description="GPUs before.", examples=[128])
    gpus: Annotated[int, Computed(lambda made: made.plan.configuration.degrees.gpus if made.plan else 0)] = Field(
        description="GPUs afterwards; 0 where it stands still.", examples=[128]
    )
    nodes_left: Annotated[list[str], Given()] = Field(description="Nodes that it leaves.", examples=[["n017"]])
    nodes_joined: Annotated[list[str], Given()] = Field(description="Nodes that it takes.", examples=[["s003"]])
    ranks: Annotated[list[RankDocument], Computed(lambda made: made.plan.placement.ranks if made.plan else ())] = (
        Field(description="Where every rank sits afterwards; empty where it stands still.")
    )
    migration: MigrationAnswer = Field(description="State that moves, and how long it takes.")
    tokens_per_s_before: float = Field(description="Throughput before the failure.", examples=[338000.0])
    tokens_per_s_after: float = Field(description="Throughput afterwards.", examples=[335000.0])
    limited_by: RemarkDocument = Field(description="Limit of its speed afterwards.")
    value_flop: float = Field(
        description="Useful FLOP over the horizon times the job's weight, less what the move costs.",
        examples=[3.2e21],
    )
    lost_gpu_hours_low: Annotated[float, Computed(lambda made: made.lost_gpu_hours[0])] = Field(
        description=f"{GPU_HOURS_DESCRIPTION}, at least.", examples=[11.0]
    )
    lost_gpu_hours_high: Annotated[float, Computed(lambda made: made.lost_gpu_hours[1])] = Field(
        description=f"{GPU_HOURS_DESCRIPTION}, at most.", examples=[26.0]
    )
    survives: list[SurvivedLossesDocument] = Field(description="Losses that it survives afterwards.")
    considered: list[ConsideredActionAnswer] = Field(
        description="Other actions that were looked at, with the reasons against them."
    )
    launch_formats: Annotated[list[str], Computed(_formats)] = Field(
        description="Formats that its new plan can be launched by; empty where it stands still.",
        examples=[["torchrun", "megatron"]],
    )
    links: Annotated[Links, Given()]

    @classmethod
    def make(cls, made: JobDecision, before: Plan | None, place: tuple[str, ...], query: str) -> JobDecisionAnswer:
        """The answer for a decision; ``place`` are the parts of its replan's address (none of a what-if)."""
        hosts_before = set() if before is None else set(before.placement.hosts)
        hosts_after = set() if made.plan is None else set(made.plan.placement.hosts)
        keeps = made.action is RecoveryAction.WAIT
        return cls.from_value(
            made,
            degrees_before=before and DegreesDocument.from_value(before.configuration.degrees),
            gpus_before=0 if before is None else before.configuration.degrees.gpus,
            nodes_left=[] if keeps else sorted(hosts_before - hosts_after),
            nodes_joined=sorted(hosts_after - hosts_before),
            links=decided_links(made, place, query),
        )


def decided_links(made: JobDecision | ServingDecision, place: tuple[str, ...], query: str) -> dict[str, str]:
    """Addresses of the plan that a job is to run by, and of what launches it; ``place`` is that of its replan."""
    if made.plan is None or not place:
        return {}
    parts = (*place, "jobs", made.job_id)
    return {name: f"{address(*parts, name)}{query}" for name in ("plan", "exports")}
