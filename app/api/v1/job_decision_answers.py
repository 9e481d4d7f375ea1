"""Answers about what becomes of one job after failures."""

from __future__ import annotations

from pydantic import BaseModel, Field

from app.api.v1.answers import Links, address
from app.documents.configuration import DegreesDocument
from app.documents.plan_parts import RankDocument, SurvivedLossesDocument
from app.exports.contract import refusal
from app.exports.registry import EXPORTS
from cluster_models.plan import Plan
from cluster_models.recovery import (
    ConsideredAction,
    JobDecision,
    Migration,
    MovedRank,
    MovedState,
    RecoveryAction,
    StateKind,
    StateSource,
    TimeRange,
)

GPU_HOURS_DESCRIPTION = "GPU-hours without useful work because of the move"


class TimeRangeAnswer(BaseModel):
    """Estimated seconds."""

    low_s: float = Field(description="At least.", examples=[90.0])
    high_s: float = Field(description="At most.", examples=[240.0])

    @classmethod
    def from_range(cls, found: TimeRange) -> TimeRangeAnswer:
        """The answer for a domain value."""
        return cls(low_s=found.low_s, high_s=found.high_s)


class MovedStateAnswer(BaseModel):
    """State of one kind that a rank gets."""

    kind: StateKind = Field(description="What it is.", examples=["optimizer"])
    source: StateSource = Field(description="Where it comes from.", examples=["peer"])
    rank: int | None = Field(description="Rank that gives it; null where it comes from storage.", examples=[712])
    node: str | None = Field(description="Node that gives it; null where it is storage.", examples=["cnode2-009"])
    bytes: float = Field(description="How much.", examples=[3.1e9])

    @classmethod
    def from_state(cls, state: MovedState) -> MovedStateAnswer:
        """The answer for a domain value."""
        return cls(
            kind=state.kind, source=state.source, rank=state.rank, node=state.node or None, bytes=state.bytes
        )


class MovedRankAnswer(BaseModel):
    """A rank on a GPU that did not run that rank's part before."""

    rank: int = Field(description="Its number from now on.", examples=[200])
    old_rank: int | None = Field(
        description="Rank whose part it takes over; null where no old rank had that part.", examples=[200]
    )
    from_node: str | None = Field(description="Where that one sat; null where there is none.", examples=["n017"])
    from_gpu: int | None = Field(description="GPU of that node.", examples=[0])
    to_node: str = Field(description="Where it sits now.", examples=["s003"])
    to_gpu: int = Field(description="GPU of that node.", examples=[0])
    state: list[MovedStateAnswer] = Field(description="What it gets, and from where.")

    @classmethod
    def from_moved(cls, moved: MovedRank) -> MovedRankAnswer:
        """The answer for a domain value."""
        return cls(
            rank=moved.rank,
            old_rank=moved.old_rank,
            from_node=moved.from_node or None,
            from_gpu=moved.from_gpu,
            to_node=moved.to_node,
            to_gpu=moved.to_gpu,
            state=[MovedStateAnswer.from_state(each) for each in moved.state],
        )


class MigrationAnswer(BaseModel):
    """What moves, over which links, and how long it takes."""

    moved_ranks: list[MovedRankAnswer] = Field(
        description="Ranks that move; empty where the job is started in place."
    )
    nvlink_bytes: float = Field(description="Inside a node or an NVLink domain.", examples=[0.0])
    leaf_bytes: float = Field(description="Between nodes of one leaf.", examples=[2.5e10])
    fabric_bytes: float = Field(description="Between leaves, and where leaves are not known.", examples=[0.0])
    storage_bytes: float = Field(description="Read from storage.", examples=[1.3e10])
    total_bytes: float = Field(description="All together.", examples=[3.8e10])
    recut_bytes: float = Field(
        description="Of these, what ranks get that do not move, because optimizer states are shared out anew.",
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

    @classmethod
    def from_migration(cls, migration: Migration) -> MigrationAnswer:
        """The answer for a domain value."""
        return cls(
            moved_ranks=[MovedRankAnswer.from_moved(each) for each in migration.moved],
            nvlink_bytes=migration.bytes.nvlink,
            leaf_bytes=migration.bytes.leaf,
            fabric_bytes=migration.bytes.fabric,
            storage_bytes=migration.bytes.storage,
            total_bytes=migration.bytes.total,
            recut_bytes=migration.recut_bytes,
            state_without_copy_bytes=migration.state_without_copy_bytes,
            save=TimeRangeAnswer.from_range(migration.save),
            transfer=TimeRangeAnswer.from_range(migration.transfer),
            restart=TimeRangeAnswer.from_range(migration.restart),
            warm_up=TimeRangeAnswer.from_range(migration.warm_up),
            downtime=TimeRangeAnswer.from_range(migration.downtime),
            steps_lost=migration.steps_lost,
        )


class ConsideredActionAnswer(BaseModel):
    """An action that lost or could not be taken."""

    action: RecoveryAction = Field(description="What would have been done.", examples=["shrink_data_parallel"])
    value_flop: float | None = Field(
        description="Its worth as in the decision; null where it could not be taken.", examples=[3.1e21]
    )
    reason: str = Field(description="Why not.", examples=["The global batch does not divide by 15."])

    @classmethod
    def from_considered(cls, considered: ConsideredAction) -> ConsideredActionAnswer:
        """The answer for a domain value."""
        return cls.model_validate(considered, from_attributes=True)


class JobDecisionAnswer(BaseModel):
    """What becomes of one job."""

    job: str = Field(description="Its name.", examples=["pretrain-a"])
    job_id: str = Field(description="Its id.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])
    action: RecoveryAction = Field(description="What is done with it.", examples=["swap"])
    reason: str = Field(description="Why, in a sentence.", examples=["The spare lies under the same leaf."])
    degrees_before: DegreesDocument | None = Field(description="Parallel sizes before.")
    degrees: DegreesDocument | None = Field(description="Parallel sizes afterwards; null where it stands still.")
    gpus_before: int = Field(description="GPUs before.", examples=[128])
    gpus: int = Field(description="GPUs afterwards; 0 where it stands still.", examples=[128])
    nodes_left: list[str] = Field(description="Nodes that it leaves.", examples=[["n017"]])
    nodes_joined: list[str] = Field(description="Nodes that it takes.", examples=[["s003"]])
    ranks: list[RankDocument] = Field(description="Where every rank sits afterwards; empty where it stands still.")
    migration: MigrationAnswer = Field(description="What moves, and how long it takes.")
    tokens_per_s_before: float = Field(description="Throughput before the failure.", examples=[338000.0])
    tokens_per_s_after: float = Field(description="Throughput afterwards.", examples=[335000.0])
    limited_by: str = Field(description="What limits it afterwards.", examples=["leaf-3 uplink"])
    value_flop: float = Field(
        description="Useful FLOP over the horizon times the job's weight, less what the move costs.",
        examples=[3.2e21],
    )
    lost_gpu_hours_low: float = Field(description=f"{GPU_HOURS_DESCRIPTION}, at least.", examples=[11.0])
    lost_gpu_hours_high: float = Field(description=f"{GPU_HOURS_DESCRIPTION}, at most.", examples=[26.0])
    survives: list[SurvivedLossesDocument] = Field(description="Losses that it survives afterwards.")
    considered: list[ConsideredActionAnswer] = Field(description="What else was looked at, and why not.")
    launch_formats: list[str] = Field(
        description="Formats that its new plan can be launched by; empty where it stands still.",
        examples=[["torchrun", "megatron"]],
    )
    links: Links

    @classmethod
    def make(cls, made: JobDecision, before: Plan | None, place: tuple[str, ...], query: str) -> JobDecisionAnswer:
        """The answer for a decision; ``place`` are the parts of its replan's address (none of a what-if)."""
        after = made.plan
        hosts_before = set() if before is None else set(before.placement.hosts)
        hosts_after = set() if after is None else set(after.placement.hosts)
        keeps = made.action is RecoveryAction.WAIT
        return cls(
            job=made.job_name,
            job_id=made.job_id,
            action=made.action,
            reason=made.reason,
            degrees_before=before and DegreesDocument.from_value(before.configuration.degrees),
            degrees=after and DegreesDocument.from_value(after.configuration.degrees),
            gpus_before=0 if before is None else before.configuration.degrees.gpus,
            gpus=0 if after is None else after.configuration.degrees.gpus,
            nodes_left=[] if keeps else sorted(hosts_before - hosts_after),
            nodes_joined=sorted(hosts_after - hosts_before),
            ranks=[] if after is None else [RankDocument.from_value(each) for each in after.placement.ranks],
            migration=MigrationAnswer.from_migration(made.migration),
            tokens_per_s_before=made.tokens_per_s_before,
            tokens_per_s_after=made.tokens_per_s_after,
            limited_by=made.limited_by,
            value_flop=made.value_flop,
            lost_gpu_hours_low=made.lost_gpu_hours[0],
            lost_gpu_hours_high=made.lost_gpu_hours[1],
            survives=[SurvivedLossesDocument.from_value(each) for each in made.survives],
            considered=[ConsideredActionAnswer.from_considered(each) for each in made.considered],
            launch_formats=[] if after is None else _formats(after),
            links=_links(made, place, query),
        )


def _formats(plan: Plan) -> list[str]:
    return [export.name for export in EXPORTS.values() if refusal(export, plan) is None]


def _links(made: JobDecision, place: tuple[str, ...], query: str) -> dict[str, str]:
    if made.plan is None or not place:
        return {}
    parts = (*place, "jobs", made.job_id)
    return {name: f"{address(*parts, name)}{query}" for name in ("plan", "exports")}
