"""The form of a placement of experts: what was typed as fields of a request, and problems back at their fields.

Names of workloads may hold anything that prints, so the boxes for weights are numbered, and whose weight it is
stands in a hidden field beside each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from starlette.datastructures import FormData

from app.documents.reading import FieldProblem
from app.web.form import FormProblem, Typed, number

WORST, MEAN = "worst", "mean"
_NUMBERS: Final = (
    "ranks",
    "nodes",
    "slots",
    "redundant_experts",
    "between_nodes_gbit_per_s_per_gpu",
    "inside_node_gbit_per_s_per_gpu",
    "tokens_per_gpu",
    "effort",
)
_NAMES: Final = ("model", "cluster", "gpu_kind")
_ROUTER: Final = ("active", "groups", "active_groups")
_MORE: Final = ("inside_node_gbit_per_s_per_gpu", "gpu_kind", "tokens_per_gpu", *(f"router_{n}" for n in _ROUTER))
LABELS: Final = {
    "ranks": "Expert ranks",
    "nodes": "Nodes",
    "slots": "Slots of a layer",
    "redundant_experts": "Redundant experts",
    "between_nodes_gbit_per_s_per_gpu": "Link speed between nodes",
    "inside_node_gbit_per_s_per_gpu": "Link speed inside a node",
    "tokens_per_gpu": "Tokens of a GPU",
    "effort": "Effort",
    "model": "Model",
    "cluster": "Cluster",
    "gpu_kind": "GPU kind",
    "router_active": "Experts of a token",
    "router_groups": "Groups of experts",
    "router_active_groups": "Groups of a token",
    "planned": "Workloads to plan for",
}


def blank(workloads: Sequence[str]) -> Typed:
    """What stands in the form before anybody typed."""
    boxes = dict.fromkeys((*_NUMBERS, *_NAMES, *(f"router_{name}" for name in _ROUTER)), "")
    weights = dict.fromkeys(workloads, "1")
    return boxes | {"nodes": "1", "effort": "1", "counts": WORST, "planned": tuple(workloads), "weights": weights}


def typed(data: FormData, values: Typed) -> Typed:
    """What was sent over what stood there."""
    found = dict(values)
    for box in (*_NUMBERS, *_NAMES, *(f"router_{name}" for name in _ROUTER), "counts"):
        if isinstance(sent := data.get(box), str):
            found[box] = sent.strip()
    found["planned"] = tuple(text for text in data.getlist("planned") if isinstance(text, str))
    weights = dict(values["weights"])
    for field, told in data.multi_items():
        name = str(told)
        weight = data.get(f"weight-{field.removeprefix('about-')}")
        if field.startswith("about-") and name in weights and isinstance(weight, str):
            weights[name] = weight.strip()
    return found | {"weights": weights}


def request_data(values: Typed, routing: str) -> dict[str, Any]:
    """The request that the form spells; empty fields are left out."""
    fields: dict[str, Any] = {name: number(values[name]) for name in _NUMBERS if values[name]}
    fields |= {name: values[name] for name in _NAMES if values[name]}
    router = {name: number(values[f"router_{name}"]) for name in _ROUTER if values[f"router_{name}"]}
    if router:
        fields["router"] = router
    planned = list(values["planned"])
    if values["counts"] == MEAN:
        fields["workloads"] = {name: number(values["weights"].get(name, "")) for name in planned}
    else:
        fields["workloads"] = planned
    return fields | {"routing": routing}


def at_fields(problems: Iterable[FieldProblem], workloads: Sequence[str]) -> tuple[FormProblem, ...]:
    """Problems of a request at the fields of the form that they concern."""
    return tuple(_at_field(problem, workloads) for problem in problems)


def more_in_use(values: Typed, found: Sequence[FormProblem]) -> bool:
    """Whether the part of the form about router and GPUs has to be open."""
    return any(problem.anchor in _MORE for problem in found) or any(values[name] for name in _MORE)


def _at_field(problem: FieldProblem, workloads: Sequence[str]) -> FormProblem:
    sentence = "; ".join(filter(None, (problem.problem, problem.remedy)))
    weighed = problem.field.removeprefix("workloads.")
    if weighed != problem.field and weighed in workloads:
        return FormProblem(f"weight-{workloads.index(weighed)}", f"Weight of {weighed}", sentence)
    path = re.sub(r"\[\d+\]", "", problem.field).split(".")
    if path[0] == "workloads":
        return FormProblem("planned", LABELS["planned"], sentence)
    name = "_".join(path[:2]) if path[0] == "router" and len(path) > 1 else path[0]
    name = {"router": "router_active"}.get(name, name)
    if name not in LABELS:
        return FormProblem("", "", str(problem))
    return FormProblem(name, LABELS[name], sentence)
