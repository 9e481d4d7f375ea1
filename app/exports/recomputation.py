"""Recomputation in the words of Megatron-Core's ``TransformerConfig``, for arguments and overrides alike."""

from __future__ import annotations

from collections.abc import Sequence

from app.exports.contract import unreadable, unsupported
from app.exports.launch_value import Launch
from cluster_models.errors import InvalidInput
from cluster_models.training.plan import Configuration
from cluster_models.training.recompute import read_recomputation, recomputation_words
from cluster_models.training.workload import Recompute


def recomputation_settings(configuration: Configuration) -> dict[str, str | tuple[str, ...]]:
    """Values of ``recompute_*`` by the rest of the name; empty without recomputation.

    Limited recomputation takes the first layers of each virtual stage (method ``block``).
    """
    if configuration.recompute is Recompute.NONE:
        return {}
    if configuration.recompute is Recompute.SELECTIVE:
        modules = tuple(sorted(configuration.recompute_modules))
        return {"granularity": "selective"} | ({"modules": modules} if modules else {})
    limit = configuration.recompute_layers
    return {"granularity": "full", "method": "block" if limit else "uniform", "num_layers": str(limit or 1)}


def recomputation_said(modules: Sequence[str], granularity: str, method: str, layers: str) -> str:
    """The recomputation of such settings, in the words of ``Configuration.recomputation``."""
    rest = "+".join(modules)
    if granularity == "full" and method == "block":
        rest = layers
    elif granularity == "full" and (method, layers) != ("uniform", "1"):
        raise unreadable("exports.recompute", (method, layers), "is neither each layer nor the first ones")
    try:
        return recomputation_words(*read_recomputation(f"{granularity or Recompute.NONE}:{rest}"))
    except InvalidInput as error:
        raise unreadable("exports.recompute", error.value, error.problem) from error


def refuse_modules(tool: str, launch: Launch) -> None:
    """Refuse what only Megatron-Core has options for: modules by name, and some layers of each stage."""
    words = launch.configuration.recomputation
    if words not in tuple(Recompute):
        raise unsupported(
            tool,
            "recompute",
            words,
            "it recomputes all layers, or a selection of its own",
            "plan with recompute none or full and recompute_layers pinned to 0, or export megatron",
        )
