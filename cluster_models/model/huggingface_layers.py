"""Layers of a Hugging Face ``config.json`` that are windowed or have experts."""

from __future__ import annotations

from typing import Final

from cluster_models.errors import InvalidModel
from cluster_models.model.experts import Experts
from cluster_models.model.huggingface_keys import Config, ExpertKeys, WindowKeys
from cluster_models.model.huggingface_values import count, flag, layer_types, optional_count
from cluster_models.model.layer_kinds import Mixer, Mlp

_LAYER_TYPES: Final = {
    "full_attention": Mixer.FULL,
    "sliding_attention": Mixer.WINDOW,
    "chunked_attention": Mixer.WINDOW,
    "indexed_attention": Mixer.FULL,
}
"""Entries of ``layer_types`` of plain attention."""
_MLP_TYPES: Final = {"dense": Mlp.DENSE, "sparse": Mlp.EXPERTS}
"""Entries of ``mlp_layer_types``."""


def read_window(config: Config, keys: WindowKeys | None, layers: int) -> tuple[int | None, int, tuple[Mixer, ...]]:
    """Span and period of windowed attention, ``(None, 1)`` where every layer attends fully.

    Where windowed and full attention alternate in no regular period, each layer's mixer, else none.
    """
    listed = config.get("layer_types") is not None
    mixers = [_LAYER_TYPES[kind] for kind in layer_types(config, layers, _LAYER_TYPES)] if listed else []
    if keys is None or (keys.switch is not None and not flag(config, keys.switch)):
        if Mixer.WINDOW in mixers:
            raise InvalidModel("model.layer_types", config["layer_types"], "has windowed layers but no window")
        return None, 1, ()
    span = optional_count(config, keys.key)
    mixers = mixers or _mixers_by_rule(config, keys, layers)
    if span is None or Mixer.WINDOW not in mixers:
        return None, 1, ()
    if Mixer.FULL not in mixers:
        return span, 1, ()
    period = mixers.index(Mixer.FULL) + 1
    if mixers == [_windowed((layer + 1) % period != 0) for layer in range(layers)]:
        return span, period, ()
    return span, 1, tuple(mixers)


def _windowed(windowed: bool) -> Mixer:
    return Mixer.WINDOW if windowed else Mixer.FULL


def _mixers_by_rule(config: Config, keys: WindowKeys, layers: int) -> list[Mixer]:
    """The mixer of each layer by list, first layer or period."""
    listed = config.get(keys.pattern_key) if keys.pattern_key else None
    if listed:
        if not isinstance(listed, list) or len(listed) != layers or any(one not in (0, 1) for one in listed):
            raise InvalidModel(f"model.{keys.pattern_key}", listed, f"must list 0 or 1 for {layers} layers")
        return [_windowed(one == 1) for one in listed]
    if keys.first_layer_key:
        first = count(config, keys.first_layer_key, least=0, default=layers)
        return [_windowed(layer >= first) for layer in range(layers)]
    period = _period(config, keys)
    return [_windowed(period == 1 or (layer + 1) % period != 0) for layer in range(layers)]


def _period(config: Config, keys: WindowKeys) -> int:
    """Layers of a period; ``sliding_window_pattern`` may also spell one, as LLLG (EXAONE)."""
    stated = config.get(keys.period_key) if keys.period_key else None
    if isinstance(stated, str) and stated:
        return len(stated)
    return count(config, keys.period_key, default=keys.period) if keys.period_key else keys.period


def read_experts(config: Config, keys: ExpertKeys, layers: int, told: tuple[Mlp, ...] = ()) -> _ReadExperts:
    """The experts, and each layer's MLP where dense and sparse ones alternate in no regular period.

    ``told``: the MLP of each layer, from where the file tells it otherwise.
    """
    if (config.get(keys.count) or None) is None:
        return None, tuple(mlp if mlp is not Mlp.EXPERTS else Mlp.DENSE for mlp in told)
    mlps = list(told) or _mlps(config, keys, layers)
    if Mlp.EXPERTS not in mlps:
        return None, told
    first = mlps.index(Mlp.EXPERTS)
    sparse = [mlp is Mlp.EXPERTS for mlp in mlps]
    period = sparse.index(True, first + 1) - first if sum(sparse) > 1 else max(1, layers - first)
    regular = not told and sparse[first:] == [layer % period == 0 for layer in range(layers - first)]
    hidden = count(config, keys.hidden)
    experts = Experts(
        count=count(config, keys.count),
        active=count(config, keys.active),
        hidden=hidden,
        shared_hidden=(shared := _shared(config, keys, hidden)),
        dense_layers=first if regular else 0,
        layer_period=period if regular else 1,
        shared_gate=keys.shared_gate and shared > 0,
        router_bias=keys.router_bias,
        router_groups=count(config, keys.groups, default=1) if keys.groups else 1,
        active_groups=count(config, keys.active_groups, default=1) if keys.active_groups else 1,
        latent=count(config, keys.latent_key, least=0, default=0) if keys.latent_key else 0,
    )
    return experts, () if regular else tuple(mlps)


_ReadExperts = tuple[Experts | None, tuple[Mlp, ...]]


def _shared(config: Config, keys: ExpertKeys, hidden: int) -> int:
    """Width of all shared experts."""
    if keys.one_shared:
        return hidden
    if keys.shared_hidden:
        return count(config, keys.shared_hidden, least=0)
    if not keys.shared_count:
        return 0
    each = count(config, keys.shared_each_key, least=0, default=hidden) if keys.shared_each_key else hidden
    return each * count(config, keys.shared_count, least=0, default=0)


def _mlps(config: Config, keys: ExpertKeys, layers: int) -> list[Mlp]:
    """The MLP of each layer, by the list ``mlp_layer_types`` or the family's rule."""
    if config.get("mlp_layer_types") is not None:
        return [_MLP_TYPES[kind] for kind in layer_types(config, layers, _MLP_TYPES, "mlp_layer_types")]
    first = count(config, keys.first_key, least=0, default=keys.first) if keys.first_key else keys.first or 0
    every = count(config, keys.frequency_key, default=1) if keys.frequency_key else 1
    step = count(config, keys.step_key, default=1) if keys.step_key else 1
    dense = _layer_numbers(config, keys.dense_list_key) or ()
    listed = _layer_numbers(config, keys.sparse_list_key)
    if listed is not None:
        return [Mlp.EXPERTS if layer in listed else Mlp.DENSE for layer in range(layers)]
    return [
        Mlp.EXPERTS
        if layer >= first and layer % every == 0 and (layer + 1) % step == 0 and layer not in dense
        else Mlp.DENSE
        for layer in range(layers)
    ]


def _layer_numbers(config: Config, key: str | None) -> frozenset[int] | None:
    """The layers (from 0) listed under ``key``, ``None`` where there is no list."""
    listed = config.get(key) if key else None
    if listed is None:
        return None
    if not isinstance(listed, list) or any(type(one) is not int for one in listed):
        raise InvalidModel(f"model.{key}", listed, "must be a list of layer numbers")
    return frozenset(listed)


_ATTENTION: Final = {
    "full_attention": Mixer.FULL,
    "attention": Mixer.FULL,
    "sliding_attention": Mixer.WINDOW,
}


def mixers_of(
    config: Config, layers: int, others: dict[str, Mixer], *, key: str = "layer_types", period: int = 0
) -> tuple[Mixer, ...]:
    """The mixer of each layer by the list under ``key``, or without it attention every ``period`` layers.

    Raises ``InvalidModel`` for a kind of layer that is neither attention nor one of ``others``.
    """
    if config.get(key) is not None:
        return tuple((_ATTENTION | others)[kind] for kind in layer_types(config, layers, _ATTENTION | others, key))
    if not period:
        raise InvalidModel(f"model.{key}", None, f"must list the kind of each of the {layers} layers")
    other = next(iter(others.values()))
    return tuple(Mixer.FULL if (layer + 1) % period == 0 else other for layer in range(layers))
