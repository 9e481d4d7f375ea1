"""Well-known model architectures by name, from ``data/models.toml``."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from cluster_models.errors import InvalidModel
from cluster_models.model.architecture import Architecture
from cluster_models.model.experts import Experts
from cluster_models.model.mixers import LatentAttention


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


def _architecture(name: str, row: dict[str, Any]) -> Architecture:
    """One table of the file; its keys are the fields of ``Architecture``."""
    if "experts" in row:
        row["experts"] = Experts(**row["experts"])
    if "latent_attention" in row:
        row["latent_attention"] = LatentAttention(**row["latent_attention"])
    return Architecture(name=name, **row)
