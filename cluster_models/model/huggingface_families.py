"""Every Hugging Face ``model_type`` that can be read, and those known that cannot, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from cluster_models.model.huggingface_dense import DENSE
from cluster_models.model.huggingface_hybrids import HYBRIDS
from cluster_models.model.huggingface_sparse import SPARSE
from cluster_models.model.huggingface_states import STATES

FAMILIES: Final = DENSE + SPARSE + HYBRIDS + STATES
"""Every family that can be read."""

UNREADABLE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "deepseek_v4": "attention over compressed blocks of tokens and hyper-connections between layers",
        "gemma3n": "embeddings of each layer and layers that share keys and values",
        "gemma3n_text": "embeddings of each layer and layers that share keys and values",
        "longcat_flash": "two attentions and a shortcut of experts in every layer",
        "recurrent_gemma": "gated linear recurrences",
        "rwkv": "recurrences without attention",
        "rwkv7": "recurrences without attention",
        "xlstm": "recurrences without attention",
        "zamba2": "attention blocks that several layers share",
        "zamba": "attention blocks that several layers share",
    }
)
"""Model types that are known and cannot be told as an ``Architecture``: what theirs has that it lacks."""
