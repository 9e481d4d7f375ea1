"""Which kind each layer of a model is."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from cluster_models.errors import InvalidModel
from cluster_models.model.layer_kinds import LayerKind, Mixer, Mlp

if TYPE_CHECKING:
    from cluster_models.model.architecture import Architecture
    from cluster_models.model.experts import Experts


@lru_cache(maxsize=256)
def layer_pattern(model: Architecture) -> tuple[LayerKind, ...]:
    """The kind of each layer in order."""
    layers = range(model.layers)
    mixers = model.mixers or _attention_pattern(model)
    mlps = model.mlps or tuple(_mlp_by_period(model.experts, layer) for layer in layers)
    return tuple(LayerKind(mixers[layer % len(mixers)], mlps[layer % len(mlps)]) for layer in layers)


def _mlp_by_period(experts: Experts | None, layer: int) -> Mlp:
    if experts is None or layer < experts.dense_layers:
        return Mlp.DENSE
    return Mlp.DENSE if (layer - experts.dense_layers) % experts.layer_period else Mlp.EXPERTS


def _attention_pattern(model: Architecture) -> tuple[Mixer, ...]:
    if model.sliding_window is None:
        return (Mixer.FULL,)
    if model.window_period == 1:
        return (Mixer.WINDOW,)
    return (*[Mixer.WINDOW] * (model.window_period - 1), Mixer.FULL)


@lru_cache(maxsize=256)
def layer_kinds(model: Architecture) -> tuple[LayerKind, ...]:
    """The kinds of layers that the model has, in the order of their first layers."""
    return tuple(dict.fromkeys(model.layer_pattern))


@lru_cache(maxsize=256)
def kind_numbers(model: Architecture) -> tuple[int, ...]:
    """For each layer in order, the index of its kind among ``layer_kinds``."""
    numbers = {kind: number for number, kind in enumerate(model.layer_kinds)}
    return tuple(numbers[kind] for kind in model.layer_pattern)


_BLOCKS: Final = {
    LayerKind(Mixer.STATE_SPACE, Mlp.NONE): "M",
    LayerKind(Mixer.FULL, Mlp.NONE): "*",
    LayerKind(Mixer.NONE, Mlp.DENSE): "-",
    LayerKind(Mixer.NONE, Mlp.EXPERTS): "E",
}


def blocks_of(model: Architecture) -> str | None:
    """One symbol a layer where each is a mixer or an MLP alone, as Nemotron-H's files and Megatron-Core spell them.

    ``None`` where a layer is both, or what has no symbol.
    """
    symbols = [_BLOCKS.get(kind) for kind in model.layer_pattern]
    return None if None in symbols else "".join(symbol for symbol in symbols if symbol)


def check_patterns(model: Architecture) -> None:
    """Raise ``InvalidModel`` where ``mixers`` and ``mlps`` fit neither each other nor the sizes given."""
    for name, pattern in (("mixers", model.mixers), ("mlps", model.mlps)):
        if len(pattern) > model.layers:
            raise InvalidModel(f"model.{name}", list(pattern), f"lists more than the {model.layers} layers")
    if model.mixers and model.window_period > 1:
        raise InvalidModel("model.window_period", model.window_period, "follows from mixers, too", "leave it out")
    if model.mlps and model.experts and (model.experts.dense_layers, model.experts.layer_period) != (0, 1):
        raise InvalidModel("model.mlps", list(model.mlps), "tells which layers have experts, as experts does")
    used = {kind.mixer for kind in model.layer_kinds}
    needed = (
        ("sliding_window", model.sliding_window is not None, {Mixer.WINDOW}),
        ("window_heads", model.window_heads is not None, {Mixer.WINDOW}),
        ("linear_attention", model.linear_attention is not None, {Mixer.LINEAR}),
        ("state_space", model.state_space is not None, {Mixer.STATE_SPACE, Mixer.PARALLEL}),
        ("sparse_attention", model.sparse_attention is not None, {Mixer.FULL}),
        ("short_convolution", model.short_convolution > 0, {Mixer.CONVOLUTION}),
    )
    for name, given, mixers in needed:
        if given and not used & mixers:
            raise InvalidModel(
                f"model.{name}", getattr(model, name), f"is given, but no layer's mixer is {min(mixers)}"
            )
        optional = name in ("window_heads", "sparse_attention")
        if not given and not optional and used & mixers:
            raise InvalidModel(f"model.{name}", None, f"is needed by layers whose mixer is {min(mixers)}")
    if LayerKind(Mixer.NONE, Mlp.NONE) in model.layer_kinds:
        raise InvalidModel("model.mixers", "none", "stands with an MLP of none: such a layer does nothing")
    if Mlp.EXPERTS in model.mlps and model.experts is None:
        raise InvalidModel("model.experts", None, "is needed by layers whose MLP is experts")
