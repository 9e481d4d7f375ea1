"""Layers of a Hugging Face ``config.json`` that are windowed or have experts."""

from __future__ import annotations

from typing import Final

from cluster_models.errors import InvalidModel
from cluster_models.model.experts import Experts
from cluster_models.model.huggingface_families import ExpertKeys, WindowKeys
from cluster_models.model.huggingface_values import Config, count, flag, optional_count

_LAYER_TYPES: Final = {"full_attention": False, "sliding_attention": True, "chunked_attention": True}
"""Entries of ``layer_types``, and whether such a layer is windowed."""


def read_window(config: Config, keys: WindowKeys | None, layers: int) -> tuple[int | None, int]:
    """Span and period of windowed attention, ``(None, 1)`` where every layer attends fully."""
    windowed = _layer_types(config, layers)
    if keys is None or (keys.switch is not None and not flag(config, keys.switch)):
        if windowed and any(windowed):
            raise InvalidModel("model.layer_types", config["layer_types"], "has windowed layers but no window")
        return None, 1
    span = optional_count(config, keys.key)
    windowed = windowed or _windowed_by_rule(config, keys, layers)
    if span is None or not any(windowed):
        return None, 1
    if all(windowed):
        return span, 1
    period = windowed.index(False) + 1
    if windowed != [(layer + 1) % period != 0 for layer in range(layers)]:
        stated = (key for key in ("layer_types", keys.pattern_key, keys.first_layer_key) if key)
        raise InvalidModel(
            f"model.{next(key for key in stated if config.get(key) is not None)}",
            windowed,
            "windowed and full attention layers alternate in no regular period",
            "give the numbers by hand with the nearest sliding_window and window_period",
        )
    return span, period


def _layer_types(config: Config, layers: int) -> list[bool]:
    """For each layer whether ``layer_types`` makes it windowed; empty where the file has no such list."""
    kinds = config.get("layer_types")
    if kinds is None:
        return []
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise InvalidModel("model.layer_types", kinds, f"must list {layers} layers, as the model has")
    unknown = sorted({str(kind) for kind in kinds} - set(_LAYER_TYPES))
    if unknown:
        raise InvalidModel(
            "model.layer_types",
            unknown,
            "is a kind of attention that cannot be read",
            f"known are {', '.join(_LAYER_TYPES)}",
        )
    return [_LAYER_TYPES[kind] for kind in kinds]


def _windowed_by_rule(config: Config, keys: WindowKeys, layers: int) -> list[bool]:
    """For each layer whether it is windowed, by list, first layer or period."""
    listed = config.get(keys.pattern_key) if keys.pattern_key else None
    if listed:
        if not isinstance(listed, list) or len(listed) != layers or any(one not in (0, 1) for one in listed):
            raise InvalidModel(f"model.{keys.pattern_key}", listed, f"must list 0 or 1 for {layers} layers")
        return [one == 1 for one in listed]
    if keys.first_layer_key:
        first = count(config, keys.first_layer_key, least=0, default=layers)
        return [layer >= first for layer in range(layers)]
    period = count(config, keys.period_key, default=keys.period) if keys.period_key else keys.period
    return [period == 1 or (layer + 1) % period != 0 for layer in range(layers)]


def read_experts(config: Config, keys: ExpertKeys, layers: int) -> Experts | None:
    """The expert part, ``None`` where no layer has experts."""
    if config.get(keys.count) is None:
        return None
    sparse = _sparse_by_rule(config, keys, layers)
    if not any(sparse):
        return None
    first = sparse.index(True)
    period = sparse.index(True, first + 1) - first if sum(sparse) > 1 else max(1, layers - first)
    if sparse[first:] != [layer % period == 0 for layer in range(layers - first)]:
        raise InvalidModel(
            f"model.{keys.dense_list_key or keys.sparse_list_key}",
            [layer for layer, has in enumerate(sparse) if not has],
            "layers with and without experts alternate in no regular period",
            "give the numbers by hand with experts.dense_layers and experts.layer_period",
        )
    hidden = count(config, keys.hidden)
    shared = hidden if keys.one_shared else 0
    if keys.shared_hidden:
        shared = count(config, keys.shared_hidden, least=0)
    if keys.shared_count:
        shared = hidden * count(config, keys.shared_count, least=0, default=0)
    return Experts(
        count=count(config, keys.count),
        active=count(config, keys.active),
        hidden=hidden,
        shared_hidden=shared,
        dense_layers=first,
        layer_period=period,
        shared_gate=keys.shared_gate and shared > 0,
        router_bias=keys.router_bias,
        router_groups=count(config, keys.groups, default=1) if keys.groups else 1,
        active_groups=count(config, keys.active_groups, default=1) if keys.active_groups else 1,
    )


def _sparse_by_rule(config: Config, keys: ExpertKeys, layers: int) -> list[bool]:
    """For each layer whether it has experts."""
    first = count(config, keys.first_key, least=0) if keys.first_key else 0
    every = count(config, keys.frequency_key, default=1) if keys.frequency_key else 1
    step = count(config, keys.step_key, default=1) if keys.step_key else 1
    dense = _layer_numbers(config, keys.dense_list_key) or ()
    listed = _layer_numbers(config, keys.sparse_list_key)
    if listed is not None:
        return [layer in listed for layer in range(layers)]
    return [
        layer >= first and layer % every == 0 and (layer + 1) % step == 0 and layer not in dense
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
