"""The form of a new plan: what was typed, as the fields of the documents, and problems back at their fields.

Nothing is judged here.  What is typed goes on as numbers where it reads as numbers and as text otherwise; the
documents say what is wrong, and the form shows it beside the field it concerns with everything still in place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.datastructures import FormData, UploadFile

from app.documents.framework import FrameworkDescription, FrameworkSettings, description_text
from app.documents.optimizer_states import OptimizerStatesDocument
from app.documents.reading import FieldProblem, decode, parse_text
from app.documents.serving_words import PROBLEM, REMEDY, serving_words
from app.web.planning.placement_form import (
    FIELDS,
    LABELS,
    placement_anchor,
    placement_data,
    placement_filled,
    survival_data,
    survival_filled,
)
from cluster_models.errors import InvalidInput
from cluster_models.training.workload import DEGREE_NAMES, OPTION_NAMES, TrainingWorkload

Typed = dict[str, Any]
"""Field name to what stands in it: text, or a tuple of texts for a group of boxes."""

_BOXES: Final = ("recompute", "recompute_modules", "sharding", "offload", "context_exchange", "schedule")
_RULED: Final = (*DEGREE_NAMES, *OPTION_NAMES)
UPLOADS: Final = {
    f"{part}_file": f"{part}_text"
    for part in (
        "cluster",
        "model",
        "workload",
        "framework",
        "profile",
        "runs",
        "serving",
        "frameworks",
        "calibration",
        "trace",
    )
}
_WORKLOAD: Final = ("sequence_length", "global_batch_sequences", "max_gpus")
_WORDS: Final = ("precision", "framework", "optimizer", "objective", "link_bandwidth", "choice", "method")
_SETTINGS: Final = tuple(FrameworkSettings.model_fields)
_STATES: Final = tuple(OptimizerStatesDocument.model_fields)
_DOCUMENTS: Final = ("lengths", "adapters")
"""Parts of a workload that are written out, in YAML or JSON."""
_DESCRIPTION: Final = ("framework_file", "framework_text")
_BOX_OF: Final = {
    **dict.fromkeys(("cluster", "snapshot", "nodes", "measurements", "gpu_kinds"), "cluster_text"),
    "model": "model_text",
}
"""The box that a document was pasted into, by how the fields of its problems begin."""
_NAMES: Final = ("avoid_nodes", "pinned_modules")
MORE: Final = (
    *_BOXES,
    *(
        "method",
        "adapters",
        "lengths",
        "optimizer",
        "memory_headroom_percent",
        "objective",
        "link_bandwidth",
        "choice",
    ),
)
"""Fields of the training that most plans leave as they are."""
_OPTIONS: Final = ("time_limit_s", "effort")
ROUTING: Final = ("routing", "routing_text", "routing_weights", "keep_expert_order")
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?|[+-]?\.\d+([eE][+-]?\d+)?", re.ASCII)
_WHOLE: Final = re.compile(r"[+-]?\d+", re.ASCII)
_LONGEST_NUMBER: Final = 40


@dataclass(frozen=True, slots=True)
class FormProblem:
    """One problem at the field ``anchor`` (empty where it concerns the form as a whole)."""

    anchor: str
    where: str
    text: str


def blank(*, time_limit_s: float) -> Typed:
    """Texts of the form before anybody typed."""
    default = TrainingWorkload(sequence_length=1, global_batch=1)
    degrees = {f"{kind}_{name}": "" for kind in ("pinned", "forbidden") for name in _RULED}
    return degrees | {
        "cluster": "",
        "cluster_file": "",
        "cluster_text": "",
        "model": "",
        "model_file": "",
        "model_text": "",
        "calibration": "",
        **dict.fromkeys(ROUTING, ""),
        "sequence_length": "4096",
        "global_batch_sequences": "512",
        **dict.fromkeys(_DOCUMENTS, ""),
        "precision": str(default.precision),
        "framework": default.framework.name,
        **dict.fromkeys(_DESCRIPTION, ""),
        **dict.fromkeys(_SETTINGS, ""),
        "optimizer": str(default.optimizer),
        "method": str(default.method),
        **{name: str(getattr(default.optimizer_states, name)) for name in _STATES},
        "recompute": tuple(map(str, default.recompute)),
        "recompute_modules": tuple(map(str, default.recompute_modules)),
        "pinned_modules": "",
        "sharding": tuple(map(str, default.sharding)),
        "offload": tuple(map(str, default.offload)),
        "context_exchange": tuple(map(str, default.context_exchange)),
        "schedule": tuple(map(str, default.schedule)),
        "memory_headroom_percent": f"{100 * default.memory_headroom:g}",
        "objective": str(default.objective),
        "link_bandwidth": str(default.link_bandwidth),
        "choice": str(default.choice),
        "max_gpus": "",
        "avoid_nodes": "",
        **dict.fromkeys(FIELDS, ""),
        "time_limit_s": f"{time_limit_s:g}",
        "effort": "1",
        "background": "",
    }


def filled(values: Typed, workload: Mapping[str, Any]) -> Typed:
    """The form with the fields of a workload document in place."""
    filled_in = dict(values)
    filled_in["framework_text"] = ""
    if isinstance(described := workload.get("framework"), Mapping):
        description = FrameworkDescription.model_validate(described)
        filled_in["framework_text"] = description_text(description)
        workload = {**workload, "framework": description.like}
    for name in (*_WORKLOAD, *_WORDS):
        if workload.get(name) is not None:
            filled_in[name] = str(workload[name])
    filled_in |= {name: json.dumps(workload[name]) if workload.get(name) else "" for name in _DOCUMENTS}
    filled_in |= {name: str(format_) for name, format_ in workload.get("optimizer_states", {}).items()}
    for name, value in workload.get("framework_settings", {}).items():
        filled_in[name] = "" if value is None else str(value).lower()
    for name in _BOXES:
        if name in workload:
            filled_in[name] = tuple(map(str, workload[name]))
    if "memory_headroom_fraction" in workload:
        filled_in["memory_headroom_percent"] = f"{100 * workload['memory_headroom_fraction']:g}"
    filled_in |= {name: ", ".join(workload.get(name) or ()) for name in _NAMES}
    filled_in |= placement_filled(workload.get("placement", {})) | survival_filled(workload)
    for name, value in workload.get("pinned", {}).items():
        filled_in[f"pinned_{name}"] = str(value)
    for name, numbers in workload.get("forbidden", {}).items():
        filled_in[f"forbidden_{name}"] = ", ".join(map(str, numbers))
    return filled_in


def typed(data: FormData, values: Typed) -> tuple[Typed, tuple[FormProblem, ...]]:
    """Texts sent, over those that stood there; an uploaded file takes the place of its box."""
    sent = dict(values)
    problems: list[FormProblem] = []
    for name in values:
        if isinstance(values[name], tuple):
            sent[name] = tuple(str(value) for value in data.getlist(name))
        elif name not in UPLOADS and isinstance(data.get(name), str):
            sent[name] = str(data[name])
    for name, box in UPLOADS.items():
        upload = data.get(name)
        if name in values and isinstance(upload, UploadFile) and upload.filename:
            try:
                sent[box] = decode(upload.file.read(), what=name)
            except InvalidInput as error:
                problems.append(FormProblem(name, label(name), f"{error.problem}; {error.remedy}"))
    is_training = "sequence_length" in values
    if is_training and (words := serving_words(dict(data), (*values, *UPLOADS))):
        problems.append(FormProblem("", "", f"The form {PROBLEM} ({', '.join(words)}); {REMEDY}"))
    return sent, tuple(problems)


def workload_data(values: Typed) -> dict[str, Any]:
    """The workload document that the form spells; a described framework takes the place of the chosen one."""
    data: dict[str, Any] = {name: number(values[name]) for name in _WORKLOAD if values[name].strip()}
    data |= {name: values[name] for name in _WORDS}
    data |= {name: parse_text(values[name], what=name) for name in _DOCUMENTS if values[name].strip()}
    if values["framework_text"].strip():
        data["framework"] = parse_text(values["framework_text"], what="framework_text")
    data["optimizer_states"] = {name: values[name] for name in _STATES}
    data["framework_settings"] = {name: _yes_no(values[name]) for name in _SETTINGS if values[name]}
    data |= {name: list(values[name]) for name in _BOXES}
    if values["memory_headroom_percent"].strip():
        percent = number(values["memory_headroom_percent"])
        data["memory_headroom_fraction"] = percent if isinstance(percent, str) else percent / 100
    data |= {name: names(values[name]) for name in _NAMES if values[name].strip()}
    data["pinned"] = {name: number(values[f"pinned_{name}"]) for name in _RULED if values[f"pinned_{name}"].strip()}
    data["forbidden"] = {
        name: [number(part) for part in values[f"forbidden_{name}"].split(",") if part.strip()]
        for name in _RULED
        if values[f"forbidden_{name}"].strip()
    }
    if placement := placement_data(values, number):
        data["placement"] = placement
    return data | survival_data(values, number)


def options_data(values: Typed) -> dict[str, Any]:
    """The search options that the form spells; empty fields keep the service's defaults."""
    return {name: number(values[name]) for name in _OPTIONS if values[name].strip()}


def at_fields(problems: Iterable[FieldProblem], *, counts: str = "routing") -> tuple[FormProblem, ...]:
    """Problems of documents at the fields of the form that they concern; ``counts``: where routing came in."""
    return tuple(_at_field(problem, counts) for problem in problems)


def degrees_in_use(values: Typed, found: Sequence[FormProblem]) -> bool:
    """Whether the part of the form about degrees has to be open."""
    return _in_use(values, found, ("pinned_", "forbidden_"))


def more_in_use(values: Typed, found: Sequence[FormProblem]) -> bool:
    """Whether the part of the form about what few people change has to be open."""
    usual = blank(time_limit_s=1)
    changed = any(values[name] != usual[name] for name in MORE)
    return changed or any(each.anchor in MORE for each in found) or settings_in_use(values, found)


def settings_in_use(values: Typed, found: Sequence[FormProblem]) -> bool:
    """Whether the part of the form about the framework's settings has to be open."""
    return _in_use(values, found, _SETTINGS)


def description_in_use(values: Typed, found: Sequence[FormProblem]) -> bool:
    """Whether the part of the form that describes a framework has to be open."""
    return _in_use(values, found, _DESCRIPTION)


def placement_in_use(values: Typed, found: Sequence[FormProblem]) -> bool:
    """Whether the part of the form about neighbours and spares has to be open."""
    return _in_use(values, found, FIELDS)


def routing_in_use(values: Typed, found: Sequence[FormProblem]) -> bool:
    """Whether the part of the form about routing has to be open."""
    return _in_use(values, found, ROUTING)


def _in_use(values: Typed, found: Sequence[FormProblem], starts: tuple[str, ...]) -> bool:
    return any(problem.anchor.startswith(starts) for problem in found) or any(
        values[name] for name in values if name.startswith(starts)
    )


def _at_field(problem: FieldProblem, counts: str) -> FormProblem:
    path = re.sub(r"\[\d+\]", "", problem.field)
    top, _, rest = path.partition(".")
    whole = problem.field.removeprefix("workload.")
    if whole.partition(".")[0] == "placement":
        anchor = placement_anchor(whole.removeprefix("placement."))
        return FormProblem(anchor, label(anchor), str(problem))
    box = "framework_text" if whole.startswith("framework.") else _BOX_OF.get(top)
    if box is not None:
        return FormProblem(box, label(box), str(problem))
    if top in ("routing", "routing_weights"):
        anchor = counts if top == "routing" else top
        place = problem.field.removeprefix(f"{top}.") + ": " if rest else ""
        return FormProblem(anchor, label(anchor), place + sentence_of(problem))
    parts = (rest if top in ("workload", "options") else path).split(".")
    name = "_".join(parts[:2]) if parts[0] in ("pinned", "forbidden") else parts[0]
    name = parts[1] if name in ("framework_settings", "optimizer_states") and len(parts) > 1 else name
    name = {
        "memory_headroom_fraction": "memory_headroom_percent",
        "memory_headroom": "memory_headroom_percent",
    }.get(name, {"global_batch": "global_batch_sequences"}.get(name, name))
    known = name in blank(time_limit_s=1)
    if not known:
        return FormProblem("", "", str(problem))
    return FormProblem(name, label(name), sentence_of(problem))


def sentence_of(problem: FieldProblem) -> str:
    """The problem and what helps, without the field."""
    return "; ".join(filter(None, (problem.problem, problem.remedy)))


def names(text: str) -> list[str]:
    """Names with commas or ends of lines between them."""
    return [name.strip() for name in re.split(r"[,\n]", text) if name.strip()]


def number(text: str) -> Any:
    """The number that ``text`` spells, else ``text`` itself for the documents to refuse."""
    text = text.strip()
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return text
    return int(text) if _WHOLE.fullmatch(text) else float(text)


def _yes_no(text: str) -> Any:
    """The truth value that a list sends, a number, else ``text`` itself: the name of a choice."""
    return {"true": True, "false": False}.get(text, number(text))


def label(name: str) -> str:
    """Name of a field on the page."""
    special = {
        "cluster_text": "Cluster",
        "cluster_file": "Cluster file",
        "model_text": "Model",
        "model_file": "Model file",
        "framework_text": "Own framework",
        "framework_file": "Own framework, file",
        "memory_headroom_percent": "Memory to keep free",
        "global_batch_sequences": "Global batch",
        "lengths": "Lengths of documents",
        "adapters": "Adapters",
        "choice": "Among plans as good",
        "time_limit_s": "Time limit",
        "max_gpus": "GPUs to use at most",
        "sequence_parallel": "Sequence parallelism",
        "gradient_precision": "Gradients",
        "sharding_ranks": "Data ranks that share out optimizer states",
        "master_weight": "Optimizer's copy of the weights",
        "overlap_gradients": "Gradient overlap",
        "overlap_parameters": "Parameter overlap",
        "overlap_tensor": "Tensor overlap",
        "recompute_blocks": "Recomputation of some layers",
        "recompute_modules": "Modules that may run again",
        "pinned_modules": "Modules that run again, exactly",
        "cuda_graphs": "CUDA graphs",
        "float8_scaling": "FP8 scaling",
        "avoid_nodes": "Nodes to avoid",
        "routing": "Routing statistics",
        "routing_text": "Counts",
        "routing_weights": "Weights of workloads",
    }
    return (special | LABELS).get(name, name.replace("_", " ").capitalize())
