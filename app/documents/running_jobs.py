"""Jobs that run on a cluster, as their owners write them: plan, worth, and what a failure costs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Discriminator, Field, Tag

from app.documents.plan import PlanDocument
from app.documents.reading import CHOICE, LONGEST_S, Count, Document, Flag, NotNegative, Positive, Text, WholeNumber
from app.documents.serving_plan import ServingPlanDocument
from app.documents.serving_policy import SLOWEST_STORAGE_GBYTES_PER_S, ServingPolicyDocument
from app.documents.values import Holds, ValueDocument
from cluster_models.jobs.running import RecoveryPolicy
from cluster_models.units import GBYTE, HOUR, TBYTE

MOST_WEIGHT: Final = 1e9
LEAST_WEIGHT: Final = 1e-9
MOST_INSTANCES: Final = 10_000
_DEFAULT: Final = RecoveryPolicy()
_BY_ID, _IN_FULL, _SERVING = f"{CHOICE}by-id", f"{CHOICE}in-full", f"{CHOICE}serving"

Weight = Annotated[Positive, Field(ge=LEAST_WEIGHT, le=MOST_WEIGHT)]


class RecoveryDocument(ValueDocument[RecoveryPolicy]):
    """How a job keeps its state, what a restart costs it, and what may be done with it after a failure."""

    checkpoint_interval_steps: Count = Field(
        _DEFAULT.checkpoint_interval_steps, description="Steps from one checkpoint to the next.", examples=[100]
    )
    steps_since_checkpoint: WholeNumber | None = Field(
        None, description="Steps done since the last one; absent = half an interval is expected.", examples=[40]
    )
    storage_gbytes_per_s: Annotated[
        Positive, Field(ge=SLOWEST_STORAGE_GBYTES_PER_S, le=1e9), Holds("storage_bytes_per_s", GBYTE)
    ] = Field(
        _DEFAULT.storage_bytes_per_s / GBYTE,
        description="Rate at which all ranks together read a checkpoint back, in 10^9 bytes a second.",
        examples=[25.0],
    )
    optimizer_instances: Annotated[Count, Field(le=MOST_INSTANCES)] = Field(
        _DEFAULT.optimizer_instances,
        description="Copies of every optimizer shard among the data ranks (Megatron's "
        "num-distributed-optimizer-instances).",
        examples=[1],
    )
    memory_checkpoint: Flag = Field(
        _DEFAULT.memory_checkpoint,
        description="Whether each node's newest checkpoint also lies in the host memory of another node.",
        examples=[False],
    )
    hands_over_state: Flag = Field(
        _DEFAULT.hands_over_state,
        description="Whether the framework restarts in process and ranks give what lies on their GPUs to others. "
        "Otherwise a restart is cold: everything is read from a checkpoint, saved first where nothing failed yet.",
        examples=[False],
    )
    storage_interval_steps: Count | None = Field(
        None,
        description="With memory_checkpoint: steps from one checkpoint on storage to the next; absent = as often "
        "as in memory.",
        examples=[500],
    )
    steps_since_storage_checkpoint: WholeNumber | None = Field(
        None,
        description="With memory_checkpoint: steps done since the last checkpoint on storage; absent = expected "
        "from the intervals.",
        examples=[340],
    )
    restart_low_s: Annotated[NotNegative, Field(le=LONGEST_S)] = Field(
        _DEFAULT.restart_low_s,
        description="Least seconds from the order to the first step, without the transfer of state.",
        examples=[90.0],
    )
    restart_high_s: Annotated[NotNegative, Field(le=LONGEST_S)] = Field(
        _DEFAULT.restart_high_s, description="Most seconds of the same.", examples=[240.0]
    )
    transfer_price_gpu_hours_per_tb: Annotated[
        NotNegative, Field(le=LONGEST_S), Holds("transfer_price_gpu_s_per_byte", HOUR / TBYTE)
    ] = Field(
        _DEFAULT.transfer_price_gpu_s_per_byte * TBYTE / HOUR,
        description="Useful work that moving 10^12 bytes over network cards or from storage must be worth, in "
        "hours of one of the job's GPUs, beside the time that the transfer takes.",
        examples=[10.0],
    )
    may_reroute: Flag = Field(
        _DEFAULT.may_reroute,
        description="Whether data ranks of a stage can take over micro-batches of a lost one.",
        examples=[False],
    )
    survives_lost_card: Flag = Field(
        _DEFAULT.survives_lost_card,
        description="Whether its communication goes on over the other network cards of a node when one fails; "
        "stock NCCL ends the job.",
        examples=[False],
    )
    may_change_batch: Flag = Field(
        _DEFAULT.may_change_batch,
        description="Whether the global batch may shrink with the data parallel size.",
        examples=[False],
    )
    may_reshape: Flag = Field(_DEFAULT.may_reshape, description="Whether degrees may change.", examples=[True])
    may_move: Flag = Field(
        _DEFAULT.may_move,
        description="Whether it may be moved for the good of others although no failure touched it.",
        examples=[False],
    )
    move_price_s: Annotated[NotNegative, Field(le=LONGEST_S)] = Field(
        _DEFAULT.move_price_s,
        description="Price of such a move: seconds of the job's own work for each rank that moves.",
        examples=[0.0],
    )
    least_gain_share: Annotated[NotNegative, Field(le=1)] = Field(
        _DEFAULT.least_gain_share,
        description="Where the job still runs on all that it holds: share of its useful work over the horizon, as "
        "planned, that stopping it must gain; what gains less leaves it alone. Where it lost something: share of "
        "the work in another shape that this must gain over what keeps the old one, unless the owner takes the "
        "fastest plan (choice).",
        examples=[0.02],
    )
    least_gpus: Count = Field(_DEFAULT.least_gpus, description="GPUs that it needs at least.", examples=[1])
    most_gpus: Count | None = Field(
        None, description="GPUs that it takes at most; absent = what it ran on or wants.", examples=[64]
    )


def _spelling(value: object) -> str:
    return _BY_ID if isinstance(value, str) else _IN_FULL


PlanReference = Annotated[
    Annotated[Text, Tag(_BY_ID)] | Annotated[PlanDocument, Tag(_IN_FULL)],
    Discriminator(_spelling),
    Field(
        description="Id of a finished plan of this service, or a plan in full as the service answers it.",
        examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"],
    ),
]


def _spelling_of_any(value: object) -> str:
    kind = value.get("result") if isinstance(value, Mapping) else getattr(value, "result", None)
    return _SERVING if kind == "serving_plan" else _spelling(value)


AnyPlanReference = Annotated[
    Annotated[Text, Tag(_BY_ID)]
    | Annotated[PlanDocument, Tag(_IN_FULL)]
    | Annotated[ServingPlanDocument, Tag(_SERVING)],
    Discriminator(_spelling_of_any),
    Field(
        description="Id of a finished plan of this service, of training or of serving, or a plan in full as the "
        "service answers it.",
        examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"],
    ),
]


class JobDocument(Document):
    """A job that runs (or is to run) on a cluster."""

    name: Text = Field(description="Unique on its cluster.", examples=["pretrain-a"])
    plan: AnyPlanReference
    is_running: Flag = Field(
        False,
        description="Whether the job runs by that plan already: its GPUs are the job's at once. Otherwise the plan "
        "is proposed.",
        examples=[True],
    )
    weight: Weight = Field(
        1.0, description="Worth of a FLOP of its useful work against those of other jobs.", examples=[1.0]
    )
    recovery: RecoveryDocument | None = Field(
        None,
        description="For a training job: cost of a failure, and what may be done then; absent = the defaults.",
    )
    replica_start: ServingPolicyDocument | None = Field(
        None,
        description="For a serving deployment: how its replicas start again, and what may be done with those that "
        "live; absent = the defaults.",
    )


class JobPatch(Document):
    """Changes to a job; a field left out stays."""

    weight: Weight | None = Field(
        None, description="Worth of a FLOP of its useful work against those of other jobs.", examples=[2.0]
    )
    recovery: RecoveryDocument | None = Field(
        None, description="Takes the place of the whole policy: fields that are absent are at their defaults."
    )
    replica_start: ServingPolicyDocument | None = Field(None, description="The same of a serving deployment.")


class RunningPlanDocument(Document):
    """A plan that is proposed for a job."""

    plan: AnyPlanReference
