"""Well-known model architectures by name, from ``data/models.toml``."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from cluster_models.errors import InvalidModel
from cluster_models.model.architecture import Architecture
from cluster_models.model.experts import Experts
from cluster_models.model.layer_kinds import AttentionGate, Mixer, Mlp
from cluster_models.model.mixers import (
    LatentAttention,
    LinearAttention,
    LinearRule,
    SparseAttention,
    StateSpace,
    WindowHeads,
)


@cache
def catalogue_models() -> Mapping[str, Architecture]:
    """Every model of the catalogue by its lower-case name."""
    text = resources.files("cluster_models").joinpath("data/models.toml").read_text(encoding="utf-8")
    return MappingProxyType({name: _architecture(name, row) for name, row in tomllib.loads(text).items()})


def catalogue_model(name: str) -> Architecture:
    """The model called ``name``, upper or lower case; raises ``InvalidModel`` with the closest names."""
    models = catalogue_models()
    model = models.get(name.strip().lower())
    if model is not None:
        return model
    close = difflib.get_close_matches(name.strip().lower(), models, n=3)
    nearest = f"the closest are {', '.join(close)}" if close else f"it has {', '.join(models)}"
    raise InvalidModel(
        "model", name, "is not in the catalogue", f"{nearest}; or give a config.json or a model document"
    )


_NESTED: Final = {
    "experts": Experts,
    "latent_attention": LatentAttention,
    "linear_attention": LinearAttention,
    "sparse_attention": SparseAttention,
    "state_space": StateSpace,
    "window_heads": WindowHeads,
}
"""Fields that are tables of their own."""


def _choices(table: dict[str, Any]) -> dict[str, Any]:
    """The table with its rule of linear attention, where it has one, as a member of ``LinearRule``."""
    return table | {"rule": LinearRule(table["rule"])} if "rule" in table else table


def _architecture(name: str, row: dict[str, Any]) -> Architecture:
    """One table of the file; its keys are the fields of ``Architecture``."""
    for key, kind in _NESTED.items():
        if key in row:
            row[key] = kind(**_choices(row[key]))
    for key, choice in (("mixers", Mixer), ("mlps", Mlp)):
        if key in row:
            row[key] = tuple(map(choice, row[key]))
    row["attention_gate"] = AttentionGate(row.get("attention_gate", AttentionGate.NONE))
    return Architecture(name=name, **row)
