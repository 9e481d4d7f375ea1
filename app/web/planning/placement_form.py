"""The part of the form about neighbours and spares: fields for the usual rules, a box of YAML for all others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from app.documents.reading import parse_text
from app.web.forms import names, number
from cluster_models.errors import InvalidInput

FIELDS: Final = (
    "spread_over",
    "spread_at_least",
    "keep_pipeline_within",
    "keep_stage_within",
    "spares",
    "spares_per",
    "require_nodes",
    "placement_text",
)
_LISTS: Final = ("spread", "keep_together", "spares", "require_nodes")
_KEPT: Final = {"pipeline": "keep_pipeline_within", "stage": "keep_stage_within"}
_ANCHORS: Final = {
    "spread[0].over": "spread_over",
    "spread[0].at_least": "spread_at_least",
    "keep_together[0].within": "keep_pipeline_within",
    "keep_together[1].within": "keep_stage_within",
    "spares": "spares",
    "spares[0].count": "spares",
    "spares[0].per": "spares_per",
}
LABELS: Final = {
    "spread_over": "Copies in different",
    "spread_at_least": "at least so many",
    "keep_pipeline_within": "Each replica within one",
    "keep_stage_within": "Each stage within one",
    "spares": "Spare nodes",
    "spares_per": "in each",
    "require_nodes": "Nodes to use",
    "placement_text": "More placement rules",
}


def placement_data(values: Mapping[str, Any]) -> dict[str, Any]:
    """The placement part of the workload document.

    Raises ``InvalidInput`` where the box does not hold a mapping.
    """
    typed = {name: str(values[name]).strip() for name in FIELDS}
    rules: dict[str, list[Any]] = {name: [] for name in _LISTS}
    if typed["spread_over"] or typed["spread_at_least"]:
        at_least = {"at_least": number(typed["spread_at_least"])} if typed["spread_at_least"] else {}
        rules["spread"].append({"group": "data", "over": typed["spread_over"], **at_least})
    for group, name in _KEPT.items():
        if typed[name]:
            rules["keep_together"].append({"group": group, "within": typed[name]})
    if typed["spares"] or typed["spares_per"]:
        per = {"per": typed["spares_per"]} if typed["spares_per"] else {}
        rules["spares"].append({"count": number(typed["spares"] or "1"), **per})
    rules["require_nodes"] = names(typed["require_nodes"])
    return _with_box(rules, typed["placement_text"])


def _with_box(rules: dict[str, list[Any]], text: str) -> dict[str, Any]:
    """The rules of the fields before those of the box."""
    found = parse_text(text, what="placement") if text else {}
    if not isinstance(found, Mapping):
        raise InvalidInput("placement", text, "must be a mapping of fields", f"its fields are {', '.join(_LISTS)}")
    joined: dict[str, Any] = {name: value for name, value in rules.items() if value}
    for name, value in found.items():
        joined[name] = [*rules[name], *value] if name in rules and isinstance(value, list) else value
    return joined


def placement_filled(placement: Mapping[str, Any]) -> dict[str, str]:
    """Texts of the fields for a placement document: the first rule of each kind, others in the box."""
    left = {name: list(placement.get(name, ())) for name in _LISTS}
    values = dict.fromkeys(FIELDS, "")
    for rule in [rule for rule in left["spread"] if rule["group"] == "data"][:1]:
        values["spread_over"] = str(rule["over"])
        values["spread_at_least"] = str(rule.get("at_least") or "")
        left["spread"].remove(rule)
    for group, name in _KEPT.items():
        alike = [r for r in left["keep_together"] if r["group"] == group and r.get("at_most", 1) == 1]
        for rule in alike[:1]:
            values[name] = str(rule["within"])
            left["keep_together"].remove(rule)
    for rule in left["spares"][:1]:
        values["spares"], values["spares_per"] = str(rule["count"]), str(rule.get("per") or "")
    left["spares"] = left["spares"][1:]
    values["require_nodes"] = ", ".join(left.pop("require_nodes"))
    if rest := {name: rules for name, rules in left.items() if rules}:
        values["placement_text"] = json.dumps(rest)
    return values


def placement_anchor(path: str) -> str:
    """The field of the form that a path inside the placement part concerns; the box where no field does."""
    if path.startswith("require_nodes"):
        return "require_nodes"
    return _ANCHORS.get(path, "placement_text")
