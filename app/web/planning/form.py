"""The form of a new plan of training: fields of the workload document, and other parts of the request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from starlette.datastructures import FormData, UploadFile

from app.documents.framework import FrameworkDescription, description_text
from app.documents.reading import FieldProblem, decode, parse_text
from app.documents.serving_words import PROBLEM, REMEDY, serving_words
from app.documents.workload import WorkloadDocument
from app.web.document_form import DocumentForm
from app.web.forms import FormProblem, Typed, in_use, number, sent_texts, sentence_of
from app.web.planning.placement_form import FIELDS, placement_anchor, placement_data, placement_filled
from app.web.planning.placement_form import LABELS as _PLACEMENT
from cluster_models.errors import InvalidInput
from cluster_models.training.workload import DEGREE_NAMES, OPTION_NAMES

DEGREES: Final = {
    "tensor": "Tensor (TP)",
    "pipeline": "Pipeline (PP)",
    "data": "Data (DP)",
    "context": "Context (CP)",
    "expert": "Expert (EP)",
    "expert_tensor": "Expert tensor parallel size (ETP)",
    "virtual_pipeline": "Virtual stages (VPP)",
    "micro_batch": "Micro-batch, sequences",
    "recompute_layers": "Layers of each chunk that run again whole (0: all)",
    "sharding_ranks": "Data ranks of a group that shards parameters or states (0: all)",
    "optimizer_offload": "Optimizer states in nodes' memory, percent",
    "offloaded_layers": "Layers whose activations wait in nodes' memory",
    "head_ranks": "Context ranks that exchange heads, in a hierarchical exchange",
}
"""Degrees and options that may be pinned or forbidden, with their labels."""
assert DEGREES.keys() == {*DEGREE_NAMES, *OPTION_NAMES}, "whatever may be pinned has a label"

WORKLOAD: Final = DocumentForm(
    WorkloadDocument,
    keys={"pinned": tuple(DEGREES), "forbidden": tuple(DEGREES)},
    without=("framework", "placement"),
)
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
    )
} | {"trace_file": "trace", "routing_file": "routing"}
"""Files that may be sent, and the boxes whose place they take."""
_BOX_OF: Final = {
    **dict.fromkeys(("cluster", "snapshot", "nodes", "measurements", "gpu_kinds"), "cluster_text"),
    "model": "model_text",
}
"""The box that a document was pasted into, by how the fields of its problems begin."""
_OPTIONS: Final = ("time_limit_s", "effort")
_OTHERS: Final = (
    "cluster",
    "cluster_file",
    "cluster_text",
    "model",
    "model_file",
    "model_text",
    "calibration",
    "framework_file",
    "framework_text",
    "background",
)
_ROUTING: Final = ("routing", "routing_text", "routing_weights", "keep_expert_order")
_PARTS: Final = {
    "more": (
        "method",
        "roles",
        "adapters",
        "lengths",
        "optimizer",
        "recompute",
        "sharding",
        "offload",
        "context_exchange",
        "free_settings",
        "schedule",
        "memory_headroom",
        "objective",
        "link_bandwidth",
        "choice",
    ),
    "settings": ("framework_settings.",),
    "description": ("framework_file", "framework_text"),
    "placement": (*FIELDS, "survive", "memory_checkpoint"),
    "degrees": ("pinned", "forbidden"),
    "routing": _ROUTING,
}
"""Parts of the form that are folded away, by how the names of their fields begin."""
_LABELS: Final = {
    "cluster_text": "Cluster",
    "cluster_file": "Cluster file",
    "model_text": "Model",
    "model_file": "Model file",
    "framework_text": "Own framework as YAML or JSON",
    "framework_file": "Own framework, file",
    "memory_headroom_fraction": "Memory to keep free, share",
    "global_batch_sequences": "Global batch",
    "lengths": "Lengths of documents",
    "method": "Training",
    "choice": "Among plans as good",
    "time_limit_s": "Time limit, seconds",
    "max_gpus": "GPUs to use at most",
    "max_power_watts": "Power at most, W",
    "gpu_power_cap_watts": "Power cap of each GPU, W",
    "choose_power_caps": "Power caps",
    "sequence_parallel": "Sequence parallelism",
    "gradient_precision": "Gradients",
    "framework_settings.sharding_ranks": "Data ranks that share out optimizer states",
    "master_weight": "Optimizer's copy of the weights",
    "overlap_gradients": "Gradient overlap",
    "overlap_parameters": "Parameter overlap",
    "overlap_tensor": "Tensor overlap",
    "recompute": "Recomputation allowed",
    "recompute_modules": "Modules that may run again",
    "pinned_modules": "Modules that run again, exactly",
    "sharding": "Sharding allowed",
    "offload": "In the nodes' memory",
    "context_exchange": "Exchange of context ranks",
    "free_settings": "Left to the planner",
    "schedule": "Pipeline schedules allowed",
    "cuda_graphs": "CUDA graphs",
    "float8_scaling": "FP8 scaling",
    "avoid_nodes": "Nodes to avoid",
    "survive": "Losses to survive",
    "memory_checkpoint": "Checkpoints in memory",
    "routing": "Routing statistics",
    "routing_text": "Counts as JSON",
    "routing_weights": "Weights of workloads",
    "keep_expert_order": "Order of experts",
    "background": "Place in the queue",
    **{f"pinned.{name}": f"{words}: pin to" for name, words in DEGREES.items()},
    **{f"forbidden.{name}": f"{words}: never" for name, words in DEGREES.items()},
    **_PLACEMENT,
}


def blank(*, time_limit_s: float) -> Typed:
    """Texts of the form before anybody typed."""
    usual = WorkloadDocument(sequence_length=4096, global_batch_sequences=512).model_dump(mode="json")
    return {
        **dict.fromkeys((*_OTHERS, *_ROUTING, *FIELDS), ""),
        **WORKLOAD.blank(),
        **WORKLOAD.texts(usual),
        "framework": usual["framework"],
        "time_limit_s": f"{time_limit_s:g}",
        "effort": "1",
    }


def filled(values: Typed, workload: Mapping[str, Any]) -> Typed:
    """The form with the fields of a workload document in place."""
    framework, described = workload.get("framework", values["framework"]), ""
    if isinstance(framework, Mapping):
        description = FrameworkDescription.model_validate(framework)
        framework, described = description.like, description_text(description)
    framework_texts = {"framework": framework, "framework_text": described}
    return values | WORKLOAD.texts(workload) | framework_texts | placement_filled(workload.get("placement", {}))


def typed(data: FormData, values: Typed) -> tuple[Typed, tuple[FormProblem, ...]]:
    """Texts sent, over those that stood there; an uploaded file takes the place of its box."""
    sent = sent_texts(data, values)
    problems: list[FormProblem] = []
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
    data = WORKLOAD.data(values) | {"framework": values["framework"]}
    if values["framework_text"].strip():
        data["framework"] = parse_text(values["framework_text"], what="framework_text")
    placement = placement_data(values)
    return data | ({"placement": placement} if placement else {})


def options_data(values: Typed) -> dict[str, Any]:
    """The search options that the form spells; empty fields keep the service's defaults."""
    return {name: number(values[name]) for name in _OPTIONS if values[name].strip()}


def at_fields(problems: Iterable[FieldProblem], *, counts: str = "routing") -> tuple[FormProblem, ...]:
    """Problems of documents at the fields of the form that they concern; ``counts``: where routing came in."""
    usual = blank(time_limit_s=1)
    return tuple(_at_field(problem, counts, usual) for problem in problems)


def open_parts(values: Typed, problems: Sequence[FormProblem]) -> frozenset[str]:
    """Parts of the form that differ from an empty one or have a problem, so that nobody has to look for it."""
    usual = blank(time_limit_s=1)
    changed = {name: value for name, value in values.items() if value != usual.get(name, "")}
    return frozenset(part for part, starts in _PARTS.items() if in_use(changed, problems, starts))


def _at_field(problem: FieldProblem, counts: str, usual: Typed) -> FormProblem:
    path = problem.field.removeprefix("workload.").removeprefix("options.")
    top, _, rest = re.sub(r"\[\d+\]", "", path).partition(".")
    if top == "placement":
        anchor = placement_anchor(path.removeprefix("placement."))
    elif top == "framework" and rest:
        anchor = "framework_text"
    else:
        anchor = _BOX_OF.get(top, "")
    if anchor:
        return FormProblem(anchor, label(anchor), str(problem))
    if top in ("routing", "routing_weights"):
        anchor = counts if top == "routing" else top
        place = problem.field.removeprefix(f"{top}.") + ": " if rest else ""
        return FormProblem(anchor, label(anchor), place + sentence_of(problem))
    anchor = WORKLOAD.input_of(path, usual) or (top if top in usual else "")
    if not anchor:
        return FormProblem("", "", str(problem))
    return FormProblem(anchor, label(anchor), sentence_of(problem))


def label(name: str) -> str:
    """Name of a field on the page."""
    last = name.rpartition(".")[2]
    return _LABELS.get(name) or _LABELS.get(last) or last.replace("_", " ").capitalize()
