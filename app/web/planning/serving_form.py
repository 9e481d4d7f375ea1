"""The form of a new serving plan: what was typed, as the request's documents, and problems back at their fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from app.documents.reading import Document, FieldProblem, parse_text, read_document
from app.documents.serving import ServingWorkloadDocument
from app.services.field_paths import errors_under
from app.services.planning.requests import OptionsDocument, ServedModelRequest, ServingPlanRequest
from app.web.document_form import DocumentForm
from app.web.forms import FormProblem, Typed, sentence_of
from app.web.planning.choices import TURNS, Options
from app.web.planning.form import options_data
from app.web.planning.plan_request import asked_cluster, asked_model, background, read_parts
from cluster_models.serving.engines import serving_engines
from cluster_models.serving.goal import PINNABLE, ServingMode, ServingObjective
from cluster_models.serving.workload import CacheFormat, WeightFormat

WORKLOAD: Final = DocumentForm(
    ServingWorkloadDocument, keys={"pinned": PINNABLE}, parts=("speculation", "adapters"), without=("kind",)
)
PINS: Final = tuple(name for name in WORKLOAD.inputs if name.startswith("pinned."))
LABELS: Final = {
    "cluster": "Stored cluster",
    "cluster_file": "Cluster file",
    "cluster_text": "Cluster",
    "model": "Model of the catalogue",
    "model_file": "Model file",
    "model_text": "Model",
    "workload_file": "Workload file",
    "workload_text": "Workload",
    "others_text": "More models",
    "calibration": "Calibration",
    "time_limit_s": "Time limit, seconds",
    "effort": "Effort",
    "background": "Place in the queue",
    "trace_file": "Trace file",
    "routing_file": "File with counts",
    "input_tokens": "Prompt, tokens",
    "output_tokens": "Answer, tokens",
    "classes": "Classes of requests",
    "trace": "Trace of arrivals",
    "concurrency": "Requests in flight",
    "requests_per_s": "Requests a second",
    "weights": "Weights",
    "attention_weights": "Attention weights",
    "kv_cache": "Keys and values",
    "engine": "Engine",
    "speculation.draft_tokens": "Tokens drafted a step",
    "speculation.accepted_tokens": "Drafted tokens that stay",
    "time_to_first_token_ms": "Time to first token at most, ms",
    "time_per_output_token_ms": "Time per output token at most, ms",
    "end_to_end_ms": "Time to last token at most, ms",
    "memory_fraction": "Memory that the engine takes",
    "prefix_share": "Share of a prompt in the cache already",
    "limit_percentile": "Share of requests that limits hold for",
    "prefill_imbalance": "Busiest expert rank over the mean, prefill",
    "decode_imbalance": "Busiest expert rank over the mean, decoding",
    "adapters.count": "Low-rank adapters",
    "adapters.rank": "Rank of an adapter",
    "adapters.resident": "Adapters on the GPUs at a time",
    "routing": "Counts of the router",
    "objective": "Objective",
    "modes": "Phases",
    "max_gpus": "GPUs to use at most",
    "max_power_watts": "Power at most, W",
    "gpu_power_cap_watts": "Power cap of each GPU, W",
    "choose_power_caps": "Power caps",
    "avoid_nodes": "Nodes to avoid",
    "pinned.tensor": "Tensor",
    "pinned.pipeline": "Pipeline",
    "pinned.attention_data": "Attention data",
    "pinned.expert": "Expert",
    "objective_weight": "Weight of its answers beside other models'",
}
assert LABELS.keys() >= WORKLOAD.inputs.keys(), "every field of a workload has a label"
_BOX_OF: Final = {
    **dict.fromkeys(("cluster", "snapshot", "nodes", "measurements"), "cluster_text"),
    "model": "model_text",
    "others": "others_text",
}
"""The box that a document was pasted into, by how the fields of its problems begin."""
_DOCUMENTS: Final = ("classes", "trace", "routing")
"""Fields with places of their own inside, which their problems have to name."""
_FORMATS: Final = tuple((each.value, each.value) for each in WeightFormat)
CHOICES: Final[Mapping[str, Options]] = {
    "weights": _FORMATS,
    "attention_weights": (("", "as the weights"), *_FORMATS),
    "kv_cache": (("", "as the engine does"), *((each.value, each.value) for each in CacheFormat)),
    "engine": tuple((each.name, each.title) for each in reversed(list(serving_engines().values()))),
    "modes": (
        (ServingMode.AGGREGATED.value, "one replica does both phases"),
        (ServingMode.SPLIT.value, "prefill apart from decode"),
    ),
    "background": TURNS,
    "choose_power_caps": (("false", "none but the one given"), ("true", "85, 70, 60 % or none, as is best")),
    "objective": (
        ("", "fewest GPUs within the limits, or most tokens where there are none"),
        (ServingObjective.THROUGHPUT.value, "most tokens a second for this load"),
        (ServingObjective.GOODPUT.value, "most tokens a second at whatever load the limits allow"),
        (ServingObjective.GPUS.value, "fewest GPUs for this load"),
        (ServingObjective.COST.value, "least price for this load"),
        (ServingObjective.POWER.value, "least power for this load"),
        (ServingObjective.ENERGY.value, "least energy for this rate of requests"),
    ),
}


def blank_serving(*, time_limit_s: float) -> Typed:
    """Texts of the form before anybody typed."""
    usual = ServingWorkloadDocument(kind="serving").model_dump(mode="json")
    options = {"time_limit_s": f"{time_limit_s:g}", "effort": "1"}
    return dict.fromkeys(LABELS, "") | WORKLOAD.blank() | WORKLOAD.texts(usual) | options


def filled_serving(values: Typed, workload: Mapping[str, Any]) -> Typed:
    """The form with the fields of a workload document in place."""
    return values | WORKLOAD.texts(workload)


def serving_request(values: Typed) -> ServingPlanRequest:
    """The request that the form spells; raises ``InvalidDocument`` with the problems of all parts."""
    return ServingPlanRequest(**read_parts(values, _PARTS))


def workload_data(values: Typed) -> dict[str, Any]:
    """The workload document that the fields of the form spell."""
    return {"kind": "serving", **WORKLOAD.data(values)}


def at_serving_fields(problems: Iterable[FieldProblem], values: Typed) -> tuple[FormProblem, ...]:
    """Problems of documents at the fields of the form that they concern."""
    return tuple(_at_field(problem, values) for problem in problems)


def _at_field(problem: FieldProblem, values: Typed) -> FormProblem:
    top, _, rest = problem.field.partition(".")
    box = _BOX_OF.get(re.sub(r"\[\d+\]", "", top), "")
    if not box and top != "options" and values["workload_text"].strip():
        box = "workload_text"
    if box:
        return FormProblem(box, LABELS[box], str(problem))
    path = rest if top in {"workload", "options"} else problem.field
    anchor = path if path in LABELS else WORKLOAD.input_of(path, values)
    inside = anchor in _DOCUMENTS or not anchor
    return FormProblem(anchor, LABELS.get(anchor, ""), str(problem) if inside else sentence_of(problem))


def _workload(values: Typed) -> ServingWorkloadDocument:
    text = values["workload_text"]
    data = parse_text(text, what="workload") if text.strip() else workload_data(values)
    return read_document(ServingWorkloadDocument, data, what="workload")


class _Others(Document):
    """Further models alone, so that a problem with one names its place."""

    others: list[ServedModelRequest]


def _others(values: Typed) -> list[ServedModelRequest]:
    if not values["others_text"].strip():
        return []
    data = parse_text(values["others_text"], what="others")
    listed = data if isinstance(data, list) else [data]
    return read_document(_Others, {"others": listed}, what="others").others


def _options(values: Typed) -> OptionsDocument:
    with errors_under("options"):
        return read_document(OptionsDocument, options_data(values), what="options")


_PARTS: Final[dict[str, Callable[[Typed], object]]] = {
    "cluster": asked_cluster,
    "model": asked_model,
    "workload": _workload,
    "others": _others,
    "options": _options,
    "background": background,
    "calibration": lambda values: values["calibration"] or None,
}
