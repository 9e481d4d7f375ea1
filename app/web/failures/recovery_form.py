"""The form of a job: its weight, how it keeps its state, and what may be done with it after a failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from app.db.status import PlanKind
from app.documents.reading import problems_of, read_document
from app.documents.running_jobs import JobPatch, RecoveryDocument
from app.documents.serving_policy import ServingPolicyDocument
from app.web.forms import FormProblem, Typed, number, sentence_of
from cluster_models.errors import InvalidInput
from cluster_models.jobs.running import RecoveryPolicy
from cluster_models.jobs.serving import ServingPolicy

_LONGEST: Final = 200
FIELDS: Final = (
    (
        "checkpoint_interval_steps",
        "Steps between checkpoints",
        "What is lost at worst when no live copy of the state is left.",
    ),
    (
        "storage_interval_steps",
        "Steps between checkpoints on storage",
        "Empty: every checkpoint goes there. With checkpoints in memory those on storage may be rarer.",
    ),
    ("storage_gbytes_per_s", "Storage, GB/s", "How fast all ranks together read a checkpoint back."),
    (
        "optimizer_instances",
        "Copies of the optimizer state",
        "1 unless the framework keeps more among the data parallel ranks.",
    ),
    (
        "restart_low_s",
        "A restart takes at least, s",
        "From the order to the first step, without reading state.",
    ),
    ("restart_high_s", "and at most, s", "Compilation and slow nodes included."),
    (
        "transfer_price_gpu_hours_per_tb",
        "Price of a terabyte moved, GPU-hours",
        "Work that moving it over network cards or from storage must be worth, beside the time it takes.",
    ),
    (
        "least_gain_share",
        "Least gain of stopping it, share of its work",
        "0.02: while it runs on all that it holds, a change must gain 2 % over the horizon.",
    ),
    ("least_gpus", "GPUs at least", "With fewer it is paused instead."),
    ("most_gpus", "GPUs at most", "Empty: as many as it runs on or wants."),
    (
        "move_price_s",
        "Price of moving a rank, s",
        "Seconds of its own work that each rank moved for other jobs must be worth.",
    ),
)
"""Numbers of the policy: name, label, hint."""
MAY: Final = (
    ("may_reshape", "take another shape (other degrees of parallelism)"),
    ("may_change_batch", "shrink its global batch with its replicas"),
    ("may_reroute", "let other replicas take over work (the framework must be able to)"),
    ("hands_over_state", "restart in process, ranks giving live state to others (the framework must be able to)"),
    ("survives_lost_card", "go on over other network cards when one fails (stock NCCL ends the job)"),
    ("may_move", "be moved for the good of other jobs"),
    ("memory_checkpoint", "be restored from checkpoints in the memory of other nodes (it keeps them there)"),
)
SERVING_FIELDS: Final = (
    (
        "storage_gbytes_per_s",
        "Storage, GB/s",
        "How fast all replicas that start together read their weights.",
    ),
    ("start_low_s", "A replica answers after at least, s", "From the order, without reading weights."),
    ("start_high_s", "and at most, s", "Compilation, graphs and slow nodes included."),
    (
        "least_gain_share",
        "Least gain of stopping replicas that live, share of the worth",
        "0.02: stopping them must gain 2 % of what the answers over the horizon are worth.",
    ),
)
SERVING_MAY: Final = (("may_replan", "have replicas that live stopped for better ones"),)


@dataclass(frozen=True, slots=True)
class PolicyForm:
    """Form of the policy of training jobs or of deployments: the field of a job's document that it fills."""

    field: str
    fields: tuple[tuple[str, str, str], ...]
    may: tuple[tuple[str, str], ...]

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of its numbers."""
        return tuple(name for name, _, _ in self.fields)

    @property
    def boxes(self) -> tuple[str, ...]:
        """Names of its boxes."""
        return tuple(name for name, _ in self.may)

    @property
    def labels(self) -> dict[str, str]:
        """Words before each field."""
        return {"weight": "Weight"} | {name: label for name, label, _ in self.fields}


TRAINING: Final = PolicyForm("recovery", FIELDS, MAY)
SERVING: Final = PolicyForm("replica_start", SERVING_FIELDS, SERVING_MAY)
Policy = RecoveryPolicy | ServingPolicy


def form_of(kind: PlanKind) -> PolicyForm:
    """The form for jobs of that kind."""
    return TRAINING if kind is PlanKind.TRAINING else SERVING


def filled(form: PolicyForm, *, name: str = "", weight: float = 1.0, policy: Policy | None = None) -> Typed:
    """The form as it stands for a job, or with the defaults of a new one."""
    if form is SERVING:
        start = policy if isinstance(policy, ServingPolicy) else ServingPolicy()
        kept = ServingPolicyDocument.from_value(start).model_dump()
    else:
        recovery = policy if isinstance(policy, RecoveryPolicy) else RecoveryPolicy()
        kept = RecoveryDocument.from_value(recovery).model_dump()
    numbers = {field: "" if kept[field] is None else f"{kept[field]:.12g}" for field in form.numbers}
    boxes = tuple(box for box in form.boxes if kept[box])
    return {"name": name, "weight": f"{weight:.12g}", **numbers, "may": boxes}


def name_of(values: Typed, found: list[FormProblem]) -> str:
    """The name; what is wrong with it is added to ``found``."""
    name = str(values["name"])
    if not name or len(name) > _LONGEST or "/" in name or not name.isprintable():
        problem = "must be one line of at most 200 letters without a slash" if name else "is missing"
        found.append(FormProblem("name", "Name", problem))
    return name


@dataclass(frozen=True, slots=True)
class JobWorth:
    """Weight and policy that a form asks for; the policy that is not of the job's kind is ``None``."""

    weight: float = 1.0
    recovery: RecoveryPolicy | None = None
    replica_start: ServingPolicy | None = None


def worth_of(
    form: PolicyForm, values: Typed, found: list[FormProblem], kept: RecoveryPolicy | None = None
) -> JobWorth:
    """Weight and policy; what the form does not ask for as in ``kept``.  Problems are added to ``found``."""
    policy: dict[str, Any] = {name: number(values[name]) for name in form.numbers if values[name]}
    policy |= {box: box in values["may"] for box in form.boxes}
    try:
        document = read_document(JobPatch, {"weight": number(values["weight"]), form.field: policy}, what="job")
        assert document.weight is not None, "the form always says it"
        recovery = None if document.recovery is None else document.recovery.to_value()
        start = None if document.replica_start is None else document.replica_start.to_value()
    except InvalidInput as error:
        for each in problems_of(error):
            anchor = each.field.rpartition(".")[2]
            found.append(FormProblem(anchor, form.labels.get(anchor, anchor), sentence_of(each)))
        return JobWorth()
    if recovery is not None and kept is not None:
        recovery = replace(
            recovery,
            steps_since_checkpoint=kept.steps_since_checkpoint,
            steps_since_storage_checkpoint=kept.steps_since_storage_checkpoint,
        )
    return JobWorth(document.weight, recovery, start)


def policy_in_use(form: PolicyForm, found: Sequence[FormProblem]) -> bool:
    """Whether the part of the form about failures has to be open."""
    return any(problem.anchor in form.numbers for problem in found)
