"""The form of a job: its weight, how it keeps its state, and what may be done with it after a failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from starlette.datastructures import FormData

from app.documents.reading import problems_of, read_document
from app.documents.running_jobs import JobPatch, RecoveryDocument
from app.web.planning.form import FormProblem, Typed, number, sentence_of
from cluster_models.errors import InvalidInput
from cluster_models.jobs.running import RecoveryPolicy

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
_NUMBERS: Final = tuple(name for name, _, _ in FIELDS)
_BOXES: Final = tuple(name for name, _ in MAY)
_LABELS: Final = {"weight": "Weight"} | {name: label for name, label, _ in FIELDS}


def filled(*, name: str = "", weight: float = 1.0, policy: RecoveryPolicy | None = None) -> Typed:
    """The form as it stands for a job, or with the defaults of a new one."""
    kept = RecoveryDocument.from_value(policy or RecoveryPolicy()).model_dump()
    numbers = {field: "" if kept[field] is None else f"{kept[field]:.12g}" for field in _NUMBERS}
    return {"name": name, "weight": f"{weight:.12g}", **numbers, "may": tuple(box for box in _BOXES if kept[box])}


def typed(data: FormData, values: Typed) -> Typed:
    """Texts sent, over those that stood there."""
    sent = dict(values)
    for name in values:
        if name != "may" and isinstance(text := data.get(name), str):
            sent[name] = text.strip()
    return sent | {"may": tuple(str(box) for box in data.getlist("may"))}


def name_of(values: Typed, found: list[FormProblem]) -> str:
    """The name; what is wrong with it is added to ``found``."""
    name = str(values["name"])
    if not name or len(name) > _LONGEST or "/" in name or not name.isprintable():
        problem = "must be one line of at most 200 letters without a slash" if name else "is missing"
        found.append(FormProblem("name", "Name", problem))
    return name


def worth_of(
    values: Typed, found: list[FormProblem], kept: RecoveryPolicy | None = None
) -> tuple[float, RecoveryPolicy]:
    """Weight and policy; what the form does not ask for as in ``kept``.  Problems are added to ``found``."""
    kept = kept or RecoveryPolicy()
    recovery: dict[str, Any] = {name: number(values[name]) for name in _NUMBERS if values[name]}
    recovery |= {box: box in values["may"] for box in _BOXES}
    try:
        document = read_document(JobPatch, {"weight": number(values["weight"]), "recovery": recovery}, what="job")
        assert document.weight is not None, "the form always says it"
        assert document.recovery is not None, "the form always says it"
        policy = document.recovery.to_value()
    except InvalidInput as error:
        for each in problems_of(error):
            anchor = each.field.rpartition(".")[2]
            found.append(FormProblem(anchor, _LABELS.get(anchor, anchor), sentence_of(each)))
        return 1.0, kept
    return document.weight, replace(
        policy,
        steps_since_checkpoint=kept.steps_since_checkpoint,
        steps_since_storage_checkpoint=kept.steps_since_storage_checkpoint,
    )


def policy_in_use(found: Sequence[FormProblem]) -> bool:
    """Whether the part of the form about failures has to be open."""
    return any(problem.anchor in _NUMBERS for problem in found)
