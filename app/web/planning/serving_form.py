"""The form of a new serving plan: what was typed, as the request's documents, and problems back at their fields."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from app.documents.reading import Document, FieldProblem, parse_text, read_document
from app.documents.serving import ServingWorkloadDocument
from app.services.field_paths import errors_under
from app.services.planning.requests import OptionsDocument, ServedModelRequest, ServingPlanRequest
from app.web.forms import FormProblem, Typed, names, number, sentence_of
from app.web.planning.choices import TURNS, Options
from app.web.planning.form import options_data
from app.web.planning.plan_request import asked_cluster, asked_model, background, read_parts
from cluster_models.serving.engines import DEFAULT_ENGINE, serving_engines
from cluster_models.serving.goal import PINNABLE, ServingMode, ServingObjective
from cluster_models.serving.workload import CacheFormat, WeightFormat

_NUMBERS: Final = {
    "input_tokens": "Prompt, tokens",
    "output_tokens": "Answer, tokens",
    "concurrency": "Requests in flight",
    "requests_per_s": "Requests a second",
    "time_to_first_token_ms": "Time to first token at most, ms",
    "time_per_output_token_ms": "Time per output token at most, ms",
    "end_to_end_ms": "Time to last token at most, ms",
    "limit_percentile": "Share of requests that limits hold for",
    "prefix_share": "Share of a prompt in the cache already",
    "prefill_imbalance": "Busiest expert rank over the mean, prefill",
    "decode_imbalance": "Busiest expert rank over the mean, decoding",
    "memory_fraction": "Memory that the engine takes",
    "max_gpus": "GPUs to use at most",
    "max_power_watts": "Power at most, W",
}
_UNSAID: Final = {"prefix_share": 0.0}
"""Values of documents that an empty field means."""
_WORDS: Final = {
    "weights": "Weights",
    "attention_weights": "Attention weights",
    "kv_cache": "Keys and values",
    "engine": "Engine",
    "objective": "Objective",
}
_DRAFTS: Final = {"draft_tokens": "Tokens drafted a step", "accepted_tokens": "Drafted tokens that stay"}
_PINS: Final = {"tensor": "Tensor", "pipeline": "Pipeline", "attention_data": "Attention data", "expert": "Expert"}
_OTHERS: Final = {
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
    "classes_text": "Classes of requests",
    "trace_file": "Trace file",
    "trace_text": "Trace of arrivals",
    "modes": "Phases",
    "avoid_nodes": "Nodes to avoid",
    "time_limit_s": "Time limit, seconds",
    "effort": "Effort",
    "background": "Place in the queue",
}
LABELS: Final = _OTHERS | _NUMBERS | _WORDS | _DRAFTS | {f"pinned_{name}": _PINS[name] for name in PINNABLE}
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
    "objective": (
        ("", "fewest GPUs within the limits, or most tokens where there are none"),
        (ServingObjective.THROUGHPUT.value, "most tokens a second for this load"),
        (ServingObjective.GOODPUT.value, "most tokens a second at whatever load the limits allow"),
        (ServingObjective.GPUS.value, "fewest GPUs for this load"),
        (ServingObjective.COST.value, "least price for this load"),
        (ServingObjective.POWER.value, "least power for this load"),
    ),
}


def blank_serving(*, time_limit_s: float) -> Typed:
    """Texts of the form before anybody typed."""
    return dict.fromkeys(LABELS, "") | {
        "weights": WeightFormat.BF16.value,
        "engine": DEFAULT_ENGINE.name,
        "modes": tuple(mode.value for mode in ServingMode),
        "time_limit_s": f"{time_limit_s:g}",
        "effort": "1",
    }


def filled_serving(values: Typed, workload: Mapping[str, Any]) -> Typed:
    """The form with the fields of a workload document in place."""
    found = dict(values)
    for name in (*_NUMBERS, *_WORDS):
        if workload.get(name) not in (None, _UNSAID.get(name)):
            found[name] = f"{workload[name]:g}" if isinstance(workload[name], float) else str(workload[name])
    for name, value in (workload.get("speculation") or {}).items():
        found[name] = f"{value:g}"
    for name, value in workload.get("pinned", {}).items():
        found[f"pinned_{name}"] = str(value)
    if "modes" in workload:
        found["modes"] = tuple(map(str, workload["modes"]))
    if workload.get("classes"):
        found["classes_text"] = "\n".join(f"- {json.dumps(each)}" for each in workload["classes"])
    found["trace_text"] = workload.get("trace") or ""
    found["avoid_nodes"] = ", ".join(workload.get("avoid_nodes", ()))
    return found


def serving_request(values: Typed) -> ServingPlanRequest:
    """The request that the form spells; raises ``InvalidDocument`` with the problems of all parts."""
    return ServingPlanRequest(**read_parts(values, _PARTS))


def workload_data(values: Typed) -> dict[str, Any]:
    """The workload document that the fields of the form spell."""
    data: dict[str, Any] = {"kind": "serving", "modes": list(values["modes"])}
    data |= {name: number(values[name]) for name in _NUMBERS if values[name].strip()}
    data |= {name: values[name] for name in _WORDS if values[name]}
    if drafts := {name: number(values[name]) for name in _DRAFTS if values[name].strip()}:
        data["speculation"] = drafts
    if values["classes_text"].strip():
        listed = parse_text(values["classes_text"], what="classes")
        data["classes"] = listed if isinstance(listed, list) else [listed]
    if values["trace_text"].strip():
        data["trace"] = values["trace_text"]
    data["avoid_nodes"] = names(values["avoid_nodes"])
    data["pinned"] = {
        name: number(values[f"pinned_{name}"]) for name in PINNABLE if values[f"pinned_{name}"].strip()
    }
    return data


def at_serving_fields(problems: Iterable[FieldProblem], values: Typed) -> tuple[FormProblem, ...]:
    """Problems of documents at the fields of the form that they concern."""
    return tuple(_at_field(problem, values) for problem in problems)


def _at_field(problem: FieldProblem, values: Typed) -> FormProblem:
    top, _, rest = re.sub(r"\[\d+\]", "", problem.field).partition(".")
    whole = {"nodes": "cluster_text", "cluster": "cluster_text", "snapshot": "cluster_text"}
    whole |= {"measurements": "cluster_text", "model": "model_text", "others": "others_text"}
    anchor = whole.get(top, "")
    if top not in whole:
        in_box = values["workload_text"].strip() and top != "options"
        path = (rest if top in {"workload", "options"} else problem.field).split(".")
        pins = (name for name in PINNABLE if values[f"pinned_{name}"].strip())
        name = "_".join((*path, *pins)[:2]) if path[0] == "pinned" else path[-1]
        box = next((f"{part}_text" for part in ("classes", "trace") if path[0].startswith(part)), "")
        if box and not in_box:
            return FormProblem(box, LABELS[box], str(problem))
        anchor = "workload_text" if in_box else name if name in LABELS else ""
        if anchor == name and anchor:
            return FormProblem(anchor, LABELS[anchor], sentence_of(problem))
    return FormProblem(anchor, LABELS.get(anchor, ""), str(problem))


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
