"""The part that forms about experts share: model, router, GPUs and links."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.orm import Session

from app.documents.reading import FieldProblem
from app.services.clusters import clusters
from app.services.pagination import MAX_LIMIT
from app.services.planning import models
from app.web.forms import FormProblem, Typed, number
from app.web.planning.choices import NOT_SAID, Options
from cluster_models.cluster.catalogue import gpu_kinds
from cluster_models.model.catalogue import catalogue_models

_NUMBERS: Final = ("between_nodes_gbit_per_s_per_gpu", "inside_node_gbit_per_s_per_gpu", "tokens_per_gpu")
_NAMES: Final = ("model", "cluster", "gpu_kind")
_ROUTER: Final = ("active", "groups", "active_groups")
FIELDS: Final = (*_NUMBERS, *_NAMES, *(f"router_{name}" for name in _ROUTER))
_MORE: Final = frozenset(FIELDS) - {"model", "cluster", "between_nodes_gbit_per_s_per_gpu"}
LABELS: Final = {
    "between_nodes_gbit_per_s_per_gpu": "Link speed between nodes",
    "inside_node_gbit_per_s_per_gpu": "Link speed inside a node",
    "tokens_per_gpu": "Tokens of a GPU",
    "model": "Model",
    "cluster": "Cluster",
    "gpu_kind": "GPU kind",
    "router_active": "Experts of a token",
    "router_groups": "Groups of experts",
    "router_active_groups": "Groups of a token",
}


@dataclass(frozen=True, slots=True)
class LinkChoices:
    """The offers of the lists."""

    models: Options
    clusters: Options
    kinds: Options


def link_choices(session: Session, *, experts: int | None = None) -> LinkChoices:
    """Stored clusters, GPU kinds, and models whose layers have ``experts``, or any experts."""
    stored = {each.name: each.architecture for each in models.list_models(session, limit=MAX_LIMIT).items}
    fitting = [
        name
        for name, model in {**stored, **catalogue_models()}.items()
        if model.experts is not None and experts in {None, model.experts.count}
    ]
    known = [each.name for each in clusters.list_clusters(session, limit=MAX_LIMIT).items]
    return LinkChoices(*((NOT_SAID, *((name, name) for name in names)) for names in (fitting, known, gpu_kinds())))


def link_data(values: Typed) -> dict[str, Any]:
    """The fields of a request that this part spells; empty ones are left out."""
    fields: dict[str, Any] = {name: number(values[name]) for name in _NUMBERS if values[name]}
    fields |= {name: values[name] for name in _NAMES if values[name]}
    router = {name: number(values[f"router_{name}"]) for name in _ROUTER if values[f"router_{name}"]}
    return fields | ({"router": router} if router else {})


def more_in_use(values: Typed, found: Sequence[FormProblem]) -> bool:
    """Whether the part about router and GPUs has to be open."""
    return any(problem.anchor in _MORE for problem in found) or any(values[name] for name in _MORE)


def field_name(problem: FieldProblem) -> str:
    """The field of a form that a problem of a request concerns, without positions in lists."""
    path = re.sub(r"\[[^\]]*\]", "", problem.field).split(".")
    name = "_".join(path[:2]) if path[0] == "router" and len(path) > 1 else path[0]
    return {"router": "router_active"}.get(name, name)
