"""The form of a placement of experts: what was typed as fields of a request, and problems back at their fields.

Names of workloads may hold anything that prints, so the boxes for weights are numbered, and whose weight it is
stands in a hidden field beside each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from starlette.datastructures import FormData

from app.documents.reading import FieldProblem
from app.experts.request import BALANCE, BOTH
from app.web.experts import expert_links
from app.web.experts.expert_links import field_name, link_data
from app.web.forms import FormProblem, Typed, number, sent_words, sentence_of

WORST, MEAN = "worst", "mean"
_NUMBERS: Final = ("ranks", "nodes", "slots", "redundant_experts", "least_locality", "effort")
_BOXES: Final = (*_NUMBERS, "objective", "copy_choice", "counts", *expert_links.FIELDS)
_LABELS: Final = expert_links.LABELS | {
    "ranks": "Expert ranks",
    "nodes": "Nodes",
    "slots": "Slots of a layer",
    "redundant_experts": "Redundant experts",
    "effort": "Effort",
    "objective": "What the map raises",
    "least_locality": "Locality to keep",
    "copy_choice": "Copy that serves a token",
    "planned": "Workloads to plan for",
}


def blank(workloads: Sequence[str]) -> Typed:
    """Texts of the form before anybody typed."""
    boxes = dict.fromkeys(_BOXES, "") | {"nodes": "1", "effort": "1", "counts": WORST}
    boxes |= {"objective": BALANCE, "copy_choice": BOTH}
    return boxes | {"planned": tuple(workloads), "weights": dict.fromkeys(workloads, "1")}


def typed(data: FormData, values: Typed) -> Typed:
    """Texts sent, over those that stood there."""
    weights = dict(values["weights"])
    for field, told in data.multi_items():
        name = str(told)
        weight = data.get(f"weight-{field.removeprefix('about-')}")
        if field.startswith("about-") and name in weights and isinstance(weight, str):
            weights[name] = weight.strip()
    return sent_words(data, values) | {"weights": weights}


def request_data(values: Typed, routing: str) -> dict[str, Any]:
    """The request that the form spells; empty fields are left out."""
    fields: dict[str, Any] = {name: number(values[name]) for name in _NUMBERS if values[name]}
    fields |= {name: values[name] for name in ("objective", "copy_choice")} | link_data(values)
    planned = list(values["planned"])
    if values["counts"] == MEAN:
        fields["workloads"] = {name: number(values["weights"].get(name, "")) for name in planned}
    else:
        fields["workloads"] = planned
    return fields | {"routing": routing}


def at_fields(problems: Iterable[FieldProblem], workloads: Sequence[str]) -> tuple[FormProblem, ...]:
    """Problems of a request at the fields of the form that they concern."""
    return tuple(_at_field(problem, workloads) for problem in problems)


def _at_field(problem: FieldProblem, workloads: Sequence[str]) -> FormProblem:
    weighed = problem.field.removeprefix("workloads.")
    if weighed != problem.field and weighed in workloads:
        return FormProblem(f"weight-{workloads.index(weighed)}", f"Weight of {weighed}", sentence_of(problem))
    name = field_name(problem)
    name = {"workloads": "planned"}.get(name, name)
    if name not in _LABELS:
        return FormProblem("", "", str(problem))
    return FormProblem(name, _LABELS[name], sentence_of(problem))
