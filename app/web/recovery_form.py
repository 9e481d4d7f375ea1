"""The form of a job: its weight, how it keeps its state, and what may be done with it after a failure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from starlette.datastructures import FormData

from app.web.form import FormProblem, Typed, number
from cluster_models.errors import InvalidInput
from cluster_models.running import InvalidRunningJob, RecoveryPolicy
from cluster_models.units import GBYTE

_LONGEST: Final = 200


@dataclass(frozen=True, slots=True)
class PolicyField:
    """A number of the policy: field of the form, of the policy, the unit it is typed in, words and a hint."""

    name: str
    of: str
    unit: float
    label: str
    hint: str
    is_whole: bool = False
    may_be_empty: bool = False


FIELDS: Final = (
    PolicyField(
        "checkpoint_interval_steps",
        "checkpoint_interval_steps",
        1,
        "Steps between checkpoints",
        "What is lost at worst when no live copy of the state is left.",
        is_whole=True,
    ),
    PolicyField(
        "storage_gbytes_per_s",
        "storage_bytes_per_s",
        GBYTE,
        "Storage, GB/s",
        "How fast all ranks together read a checkpoint back.",
    ),
    PolicyField(
        "optimizer_instances",
        "optimizer_instances",
        1,
        "Copies of the optimizer state",
        "1 unless the framework keeps more among the data parallel ranks.",
        is_whole=True,
    ),
    PolicyField(
        "restart_low_s",
        "restart_low_s",
        1,
        "A restart takes at least, s",
        "From the order to the first step, without reading state.",
    ),
    PolicyField("restart_high_s", "restart_high_s", 1, "and at most, s", "Compilation and slow nodes included."),
    PolicyField(
        "least_gpus",
        "least_gpus",
        1,
        "GPUs at least",
        "With fewer it is paused instead.",
        is_whole=True,
    ),
    PolicyField(
        "most_gpus",
        "most_gpus",
        1,
        "GPUs at most",
        "Empty: as many as it runs on now.",
        is_whole=True,
        may_be_empty=True,
    ),
    PolicyField(
        "move_price_s",
        "move_price_s",
        1,
        "Price of moving a rank, s",
        "Seconds of its work that each rank moved for other jobs must be worth.",
    ),
)
MAY: Final = (
    ("may_reshape", "take another shape (other degrees of parallelism)"),
    ("may_change_batch", "shrink its global batch with its replicas"),
    ("may_reroute", "let other replicas take over work (the framework must be able to)"),
    ("may_move", "be moved for the good of other jobs"),
    ("memory_checkpoint", "be restored from checkpoints in the memory of other nodes (it keeps them there)"),
)
_BOXES: Final = tuple(name for name, _ in MAY)


def filled(*, name: str = "", weight: float = 1.0, policy: RecoveryPolicy | None = None) -> Typed:
    """The form as it stands for a job, or with the defaults of a new one."""
    policy = policy or RecoveryPolicy()
    values: Typed = {"name": name, "weight": f"{weight:g}"}
    for field in FIELDS:
        kept = getattr(policy, field.of)
        values[field.name] = "" if kept is None else f"{kept / field.unit:.12g}"
    return values | {"may": tuple(box for box in _BOXES if getattr(policy, box))}


def typed(data: FormData, values: Typed) -> Typed:
    """What was sent over what stood there."""
    sent = dict(values)
    for name in values:
        if name != "may" and isinstance(text := data.get(name), str):
            sent[name] = text.strip()
    return sent | {"may": tuple(str(box) for box in data.getlist("may"))}


def weight_of(values: Typed, found: list[FormProblem]) -> float:
    """The weight; what is wrong with it is added to ``found``."""
    weight = number(values["weight"])
    if isinstance(weight, str) or not 0 < weight < float("inf"):
        found.append(FormProblem("weight", "Weight", "must be a positive number; 1 is a job like any other"))
        return 1.0
    return float(weight)


def name_of(values: Typed, found: list[FormProblem]) -> str:
    """The name; what is wrong with it is added to ``found``."""
    name = str(values["name"])
    if not name or len(name) > _LONGEST or "/" in name or not name.isprintable():
        problem = "is missing" if not name else "must be one line of at most 200 letters without a slash"
        found.append(FormProblem("name", "Name", problem))
    return name


def policy_of(values: Typed, found: list[FormProblem], kept: RecoveryPolicy | None = None) -> RecoveryPolicy:
    """The policy that the form spells, what it does not ask for as in ``kept``; problems are added to ``found``."""
    policy = replace(kept or RecoveryPolicy(), **{box: box in values["may"] for box in _BOXES})
    given: dict[str, Any] = {}
    for field in FIELDS:
        try:
            value = _read(field, values[field.name])
            given[field.of] = value
            if field.name != "restart_low_s":  # judged with the other end of its range
                replace(RecoveryPolicy(), **_with_its_pair(field.of, given))
        except InvalidInput as error:
            given.pop(field.of, None)
            found.append(FormProblem(field.name, field.label, _sentence(error)))
    return policy if found else replace(policy, **given)


def more_in_use(found: list[FormProblem] | tuple[FormProblem, ...]) -> bool:
    """Whether the part of the form about failures has to be open."""
    return any(problem.anchor in {field.name for field in FIELDS} for problem in found)


def _read(field: PolicyField, text: str) -> float | int | None:
    if not text and field.may_be_empty:
        return None
    value = number(text)
    if isinstance(value, str) or (field.is_whole and not isinstance(value, int)):
        raise InvalidRunningJob(field.of, text, f"must be a {'whole ' if field.is_whole else ''}number")
    return value if field.is_whole else float(value) * field.unit


def _with_its_pair(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """A value with those that it is judged together with."""
    pairs = {"restart_high_s": "restart_low_s", "most_gpus": "least_gpus"}
    other = pairs.get(name)
    return {name: given[name]} | ({other: given[other]} if other in given else {})


def _sentence(error: InvalidInput) -> str:
    words = {"must be at least restart_low_s, and that not negative": "must be at least the lower end, 0 or more"}
    problem = words.get(error.problem, error.problem.replace("least_gpus", "the least"))
    return "; ".join(filter(None, (problem, error.remedy)))
