"""Shapes of the models that measured serving rows name, near ones where attention has none in the catalogue."""

from __future__ import annotations

from typing import Final

from benchmarks.rows import Assumed, Skipped
from cluster_models.model.architecture import Architecture
from cluster_models.model.catalogue import catalogue_model
from cluster_models.model.experts import Experts
from cluster_models.model.mixers import LatentAttention

_NAMES: Final = (
    ("deepseek-v4", ""),
    ("deepseek", "deepseek-v3"),
    ("kimi-k2", "kimi-k2"),
    ("minimax-m2", "minimax-m2"),
    ("gpt-oss-120b", "gpt-oss-120b"),
    ("gpt-oss-20b", "gpt-oss-20b"),
    ("llama-4-scout", "llama-4-scout"),
    ("llama-4-maverick", "llama-4-maverick"),
    ("llama2-70b", "llama-2-70b"),
    ("llama3.1-405b", "llama-3.1-405b"),
    ("llama-3.1-405b", "llama-3.1-405b"),
    ("llama-3.1-8b", "llama-3.1-8b"),
    ("llama3.1-8b", "llama-3.1-8b"),
    ("llama-3.1-70b", "llama-3.1-70b"),
    ("llama-3.3-70b", "llama-3.1-70b"),
    ("mixtral-8x7b", "mixtral-8x7b"),
    ("qwen3-32b", "qwen3-32b"),
    ("qwen3-235b", "qwen3-235b-a22b"),
    ("qwen3-30b", "qwen3-30b-a3b"),
    ("bloom-176b", "bloom-176b"),
)
_SPARSE_ATTENTION: Final = Architecture(
    name="glm-5",
    layers=78,
    hidden=6144,
    heads=64,
    kv_heads=64,
    head_size=256,
    mlp_hidden=12288,
    vocabulary=154880,
    gated_mlp=True,
    tied_embeddings=False,
    sliding_window=2048,
    latent_attention=LatentAttention(2048, 512, 64, 192, 256),
    experts=Experts(count=256, active=8, hidden=2048, shared_hidden=2048, dense_layers=3, router_bias=True),
    source="config.json of zai-org/GLM-5; sparse attention of the 2,048 best tokens taken as a window of as many",
)
_LINEAR_ATTENTION: Final = Architecture(
    name="qwen3.5-397b-a17b",
    layers=60,
    hidden=4096,
    heads=32,
    kv_heads=2,
    head_size=256,
    mlp_hidden=0,
    vocabulary=248320,
    gated_mlp=True,
    tied_embeddings=False,
    sliding_window=2048,
    window_period=4,
    experts=Experts(count=512, active=10, hidden=1024, shared_hidden=1024),
    source="config.json of Qwen/Qwen3.5-397B-A17B; a linear layer's state (4 MiB) taken as a cache of 2,048 tokens",
)


def model_shape(name: str, assumed: Assumed) -> Architecture:
    """The shape of the model that a row names; raises ``Skipped`` where it is not known."""
    plain = name.lower()
    for near, what in ((_SPARSE_ATTENTION, "sparse"), (_LINEAR_ATTENTION, "linear")):
        if plain.startswith(near.name):
            return assumed.take("attention", near, f"{what} attention taken as a window") and near
    for start, model in _NAMES:
        if plain.startswith(start):
            if not model:
                break
            return catalogue_model(model)
    raise Skipped("model shape unknown")
