"""Reads a Hugging Face ``config.json`` (as a plain mapping) into an ``Architecture``.

Names that families use stand in ``huggingface_families``; nothing that the file leaves out is guessed.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from cluster_models.errors import InvalidModel
from cluster_models.model.architecture import Architecture
from cluster_models.model.experts import MOST_LAYERS
from cluster_models.model.huggingface_families import FAMILIES, UNREADABLE
from cluster_models.model.huggingface_keys import Config, Family, Flag, Parts, QueryKeyNorm
from cluster_models.model.huggingface_layers import read_experts, read_window
from cluster_models.model.huggingface_values import count, flag, optional_count
from cluster_models.model.layer_kinds import Mixer
from cluster_models.model.mixers import LatentAttention

Kind = TypeVar("Kind")
_BY_NAME: Final = {name: family for family in FAMILIES for name in (family.model_type, *family.aliases)}
_LATENT_KEYS: Final = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
_GENERIC: Final = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_size": "head_dim",
    "mlp_hidden": "intermediate_size",
    "vocabulary": "vocab_size",
}
"""Fields an architecture cannot do without, and the key most families keep them under."""


def known_model_types() -> tuple[str, ...]:
    """The ``model_type`` values that can be read, sorted."""
    return tuple(sorted(family.model_type for family in FAMILIES))


def architecture_from_config(config: Config, *, name: str | None = None) -> Architecture:
    """The architecture that a ``config.json`` describes.

    The language model of a multimodal file is read from its ``text_config``.  ``num_nextn_predict_layers``
    (multi-token prediction) is recorded in ``prediction_layers`` and is not part of the layers.  Raises
    ``InvalidModel`` for an unknown ``model_type``, missing keys, or values that make no sense.
    """
    text = _language_model(config)
    family = _family(text)
    _require_keys(text, family)
    layers = 0 if family.layers_optional else count(text, family.layers, most=MOST_LAYERS)
    parts = family.parts(text, layers) if family.parts else Parts()
    layers = parts.layers or layers
    hidden, heads = count(text, family.hidden), count(text, family.heads)
    latent = _latent_attention(text) if family.latent_attention else None
    kv_heads = heads if latent or family.kv_heads is None else count(text, family.kv_heads, default=heads)
    head_size = _head_size(text, hidden, heads, latent)
    window, period, mixers = _window(text, family, layers, parts)
    experts, mlps = read_experts(text, family.experts, layers, parts.mlps) if family.experts else (None, parts.mlps)
    norm = _query_key_norm(text, family.query_key_norm)
    return Architecture(
        name=name or _own_name(config, family),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        mlp_hidden=_mlp_hidden(text, family, hidden) if parts.mlp_hidden is None else parts.mlp_hidden,
        vocabulary=count(text, family.vocabulary),
        gated_mlp=family.gated_mlp,
        tied_embeddings=_tied_embeddings(text, family),
        attention_bias=flag(text, family.attention_bias),
        attention_output_bias=flag(text, family.attention_output_bias),
        mlp_bias=flag(text, family.mlp_bias),
        learned_positions=count(text, family.max_sequence) if family.learned_positions else 0,
        sliding_window=window,
        window_period=period,
        chunked_window=window is not None and family.window is not None and family.window.chunked,
        latent_attention=latent,
        experts=experts,
        max_sequence=optional_count(text, family.max_sequence),
        norm_vectors=family.norm_vectors,
        norms_per_block=family.norms_per_block,
        query_key_norm_parameters=_query_key_norm_parameters(norm, heads, kv_heads, head_size),
        attention_sinks=family.attention_sinks,
        prediction_layers=count(text, family.prediction_layers, least=0, default=0),
        source=_source(family),
        mixers=shortest_period(mixers, layers),
        mlps=shortest_period(mlps, layers),
        linear_attention=parts.linear_attention if Mixer.LINEAR in mixers else None,
        state_space=parts.state_space,
        sparse_attention=parts.sparse_attention,
        window_heads=parts.window_heads,
        value_head_size=parts.value_head_size if parts.value_head_size != head_size else 0,
        attention_gate=family.attention_gate,
        short_convolution=parts.short_convolution if Mixer.CONVOLUTION in mixers else 0,
    )


def _source(family: Family) -> str:
    assumed = f"; assumed: {family.assumed}" if family.assumed else ""
    return f"Hugging Face config.json, model_type {family.model_type}{assumed}"


def _window(config: Config, family: Family, layers: int, parts: Parts) -> tuple[int | None, int, tuple[Mixer, ...]]:
    """Span, period and mixers of layers; ``parts`` tell the mixers before ``layer_types`` and the family's rule."""
    if not parts.mixers:
        return read_window(config, family.window, layers)
    if Mixer.WINDOW not in parts.mixers:
        return None, 1, parts.mixers
    key = family.window.key if family.window else "sliding_window"
    return count(config, key, default=optional_count(config, f"{key}_size")), 1, parts.mixers


def shortest_period(pattern: tuple[Kind, ...], layers: int) -> tuple[Kind, ...]:
    """The shortest pattern that makes the same ``layers``, over and over in whole; none where there is none."""
    for length in range(1, len(pattern)):
        if layers % length == 0 and all(
            pattern[layer % len(pattern)] == pattern[layer % length] for layer in range(layers)
        ):
            return pattern[:length]
    return pattern


def _language_model(config: Config) -> Config:
    """The part of the file that describes the language model."""
    if not isinstance(config, Mapping):
        raise InvalidModel("model", config, "must be a JSON object, the content of a config.json")
    text = config.get("text_config")
    if not isinstance(text, Mapping):
        return config
    inherited = {key: config[key] for key in ("model_type", "tie_word_embeddings") if key in config}
    return {**inherited, **text}


def _family(config: Config) -> Family:
    """The row of the table that this file belongs to, by ``model_type``, else by ``architectures``."""
    model_type = config.get("model_type")
    if model_type is not None and not isinstance(model_type, str):
        raise InvalidModel("model.model_type", model_type, "must be a text")
    classes = config.get("architectures")
    named = [model_type] if model_type else classes if isinstance(classes, Sequence) else []
    for name in named:
        if isinstance(name, str) and name in _BY_NAME:
            return _BY_NAME[name]
    found = {field: config[key] for field, key in _GENERIC.items() if config.get(key) is not None}
    known = [UNREADABLE[name] for name in named if name in UNREADABLE]
    if known:
        raise InvalidModel(
            "model.model_type",
            model_type or classes,
            f"has {known[0]}, for which a model document has no words either",
            "plan for a model of about its shape whose layers can be told",
        )
    shown = ", ".join(f"{field} {reprlib.repr(value)}" for field, value in found.items())
    missing = [field for field in (*_GENERIC, "gated_mlp", "tied_embeddings") if field not in found]
    raise InvalidModel(
        "model.model_type",
        model_type or classes,
        "names an architecture that cannot be read; under the usual keys it has "
        f"{shown or 'none of the needed values'}, and it lacks {', '.join(missing)}",
        f"known are {', '.join(known_model_types())}; for any other give the numbers by hand, in a model "
        'document with our own field names: {"name": ..., "layers": ..., "hidden": ..., "heads": ..., '
        '"kv_heads": ..., "head_size": ..., "mlp_hidden": ..., "vocabulary": ..., "gated_mlp": ..., '
        '"tied_embeddings": ...}, with "experts" or "latent_attention" where the model has them',
    )


def _require_keys(config: Config, family: Family) -> None:
    """Every key that is needed and missing, in one error."""
    keys = [family.hidden, family.heads, family.vocabulary]
    keys += [family.layers] * (not family.layers_optional)
    if family.kv_heads and not family.kv_heads_default_to_heads and not family.latent_attention:
        keys.append(family.kv_heads)
    if family.head_size_required:
        keys.append("head_dim")
    if family.mlp_hidden and not (family.mlp_defaults_to_four_hidden or family.mlp_hidden_optional):
        keys.append(family.mlp_hidden)
    if family.learned_positions:
        keys.append(family.max_sequence)
    keys += _LATENT_KEYS * family.latent_attention
    if (experts := family.experts) and not (experts.optional and not config.get(experts.count)):
        needed = (experts.count, experts.active, experts.hidden, experts.shared_hidden)
        keys += [key for key in needed if key]
        listed = config.get("mlp_layer_types") is not None
        keys += [experts.first_key] if experts.first_key and not (listed or experts.first is not None) else []
    missing = [key for key in keys if config.get(key) is None]
    nullable = [family.window.key] if family.window and family.window.required else []
    nullable += ["q_lora_rank"] * family.latent_attention
    missing += [f"{key} (may be null)" for key in nullable if key not in config]
    if missing:
        raise InvalidModel(
            "model",
            sorted(config),
            f"a config.json of model_type {family.model_type} needs {', '.join(missing)}",
            "take the complete config.json of the model, or add the missing keys",
        )


def _own_name(config: Config, family: Family) -> str:
    own = config.get("_name_or_path")
    return own if isinstance(own, str) and own else family.model_type


def _latent_attention(config: Config) -> LatentAttention:
    key_value_rank, rope, nope, value = (count(config, key) for key in _LATENT_KEYS)
    query_rank = count(config, "q_lora_rank", default=0)
    return LatentAttention(query_rank, key_value_rank, rope, nope, value)


def _head_size(config: Config, hidden: int, heads: int, latent: LatentAttention | None) -> int:
    """Width of a query head: stated, or the hidden width shared out equally."""
    if latent is not None:
        return latent.nope_head_size + latent.rope_head_size
    if config.get("head_dim") is not None:
        return count(config, "head_dim")
    if hidden % heads:
        raise InvalidModel(
            "model.head_dim", None, f"hidden width {hidden} is not a multiple of {heads} heads", "state head_dim"
        )
    return hidden // heads


def _mlp_hidden(config: Config, family: Family, hidden: int) -> int:
    if family.mlp_hidden is None or (family.mlp_hidden_optional and config.get(family.mlp_hidden) is None):
        return 0
    return count(config, family.mlp_hidden, default=4 * hidden if family.mlp_defaults_to_four_hidden else None)


def _tied_embeddings(config: Config, family: Family) -> bool:
    """Whether input and output embeddings are one; a family may have a key of its own for it."""
    own = family.tied_embeddings
    default = flag(config, own)
    return flag(config, Flag("tie_word_embeddings", default))


def _query_key_norm(config: Config, norm: QueryKeyNorm | Flag) -> QueryKeyNorm:
    """The family's norm; a flag switches on that of each head."""
    if isinstance(norm, QueryKeyNorm):
        return norm
    return QueryKeyNorm.PER_HEAD if flag(config, norm) else QueryKeyNorm.NONE


def _query_key_norm_parameters(norm: QueryKeyNorm, heads: int, kv_heads: int, head_size: int) -> int:
    return {
        QueryKeyNorm.NONE: 0,
        QueryKeyNorm.PER_HEAD: 2 * head_size,
        QueryKeyNorm.WHOLE: (heads + kv_heads) * head_size,
    }[norm]
