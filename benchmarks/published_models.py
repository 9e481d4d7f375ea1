"""The model of a row of a table of measured steps: its columns, completed by the usual shape of its family."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import gcd
from typing import Final

from benchmarks.rows import Assumed, Row, Skipped, text, whole
from cluster_models.model.architecture import Architecture
from cluster_models.model.experts import MOST_LAYERS, Experts
from cluster_models.model.mixers import LatentAttention


@dataclass(frozen=True, slots=True)
class Family:
    """Facts that models of one name share, from the config.json of their authors on Hugging Face.

    ``head_size`` 0: hidden width over heads.  ``positions``: a learned position table.  ``prediction``: layers of
    multi-token prediction that NVIDIA's recipes train.  ``biased``: biases in MLPs and experts.
    ``router_groups``, ``active_groups``: as in ``Experts``.
    """

    gated: bool = True
    vocabulary: int = 0
    head_size: int = 0
    tied: bool = False
    positions: bool = False
    window: int | None = None
    window_period: int = 1
    chunked: bool = False
    latent: LatentAttention | None = None
    prediction: int = 0
    biased: bool = False
    router_groups: int = 1
    active_groups: int = 1


MLA: Final = LatentAttention(
    query_rank=1536, key_value_rank=512, rope_head_size=64, nope_head_size=128, value_head_size=128
)
"""DeepSeek-V2 and V3 (arXiv 2405.04434 section 3.1, 2412.19437 section 4.2); Kimi K2 keeps these figures."""
MLA_WITHOUT_QUERY: Final = LatentAttention(
    query_rank=0, key_value_rank=512, rope_head_size=64, nope_head_size=128, value_head_size=128
)
"""DeepSeek-V2-Lite, whose queries are not compressed; Moonlight is built on it."""

FAMILIES: Final = (
    ("llama4", Family(vocabulary=202048, head_size=128, window=8192, window_period=4, chunked=True)),
    ("llama3", Family(vocabulary=128256)),
    ("llama", Family(vocabulary=32000)),
    ("codellama", Family(vocabulary=32016)),
    ("mixtral", Family(vocabulary=32000)),
    ("mistral", Family(vocabulary=32768, head_size=128)),
    ("qwen3", Family(vocabulary=151936, head_size=128)),
    ("qwen", Family(vocabulary=151936)),
    ("deepseekv2lite", Family(vocabulary=102400, latent=MLA_WITHOUT_QUERY)),
    ("moonlight", Family(vocabulary=163840, latent=MLA_WITHOUT_QUERY)),
    ("deepseekv2", Family(vocabulary=102400, latent=MLA)),
    ("deepseekv3", Family(vocabulary=129280, latent=MLA, prediction=1, router_groups=8, active_groups=4)),
    ("deepseekr1", Family(vocabulary=129280, latent=MLA)),
    ("deepseek", Family(vocabulary=102400)),
    ("kimi", Family(vocabulary=163840, latent=MLA)),
    ("gptoss", Family(vocabulary=201088, head_size=64, biased=True, window=128, window_period=2)),
    ("gptneox", Family(gated=False, vocabulary=50432)),
    ("gptj", Family(gated=False, vocabulary=50400)),
    ("gptneo", Family(gated=False, vocabulary=50257, tied=True, positions=True)),
    ("gemma2", Family(vocabulary=256000, head_size=256, tied=True, window=4096, window_period=2)),
    ("gemma3", Family(vocabulary=262144, tied=True, window=1024, window_period=6)),
    ("gemma", Family(vocabulary=256000, head_size=256, tied=True)),
    ("internlm", Family(vocabulary=103168)),
    ("baichuan", Family(vocabulary=64000)),
    ("glm", Family(vocabulary=151552, head_size=128)),
    ("olmo", Family(vocabulary=50304)),
    ("grok", Family(vocabulary=131072, head_size=128)),
    ("dbrx", Family(vocabulary=100352)),
    ("phi", Family(vocabulary=32064)),
    ("yi", Family(vocabulary=64000)),
    ("nemotron", Family(gated=False, vocabulary=256000)),
    ("falcon", Family(gated=False, vocabulary=65024, tied=True)),
    ("mpt", Family(gated=False, vocabulary=50368, tied=True)),
    ("bloom", Family(gated=False, vocabulary=250880, tied=True)),
    ("opt", Family(gated=False, vocabulary=50272, tied=True, positions=True)),
)
"""By the start of the model's name without dashes, dots and underscores; the first that matches."""
GPT: Final = Family(gated=False, vocabulary=51200, tied=True, positions=True)
"""Everything else without gated MLPs; 51200 is GPT-2's vocabulary as Megatron pads it."""
GATED: Final = Family(vocabulary=51200)
STATED_HEADS: Final = (("chronicles-prequel", 14400, 96),)
"""(part of the source's name, hidden width, heads) where its tables leave heads out and its launch lines do not."""
SHAPES: Final = {
    "kempner-moe": {
        "layers": "24", "hidden": "2048", "heads": "16", "kv_heads": "4", "vocab": "128256",
        "moe_ffn_hidden": "7168", "topk": "2", "gated_mlp": "1",
    },
}  # fmt: skip
"""Columns that only a launch script states (KempnerForge's ``moe_ep_bench.sh``), by the start of the name."""
MOST_HIDDEN: Final = 10**6
USUAL_ACTIVE: Final = 2
"""Experts a token goes to in the models that made the layer common (GShard, Mixtral)."""


def family_of(name: str, *, gated: bool) -> Family:
    """The family that ``name`` belongs to."""
    plain = "".join(letter for letter in name.casefold() if letter.isalnum())
    return next((family for start, family in FAMILIES if plain.startswith(start)), GATED if gated else GPT)


GPT2_VOCABULARY: Final = 50257
GPT2_TOKENS: Final = re.compile(r"eth-easl/sailor")
"""Sources whose runs read ``gpt2-vocab.json`` whatever the model: Sailor's ae_scripts (run_opt.slurm)."""


def read_architecture(row: Row, sequence: int, assumed: Assumed) -> Architecture:
    """The model of ``row``, trained on sequences of ``sequence`` tokens; raises ``Skipped``."""
    shape = next((shape for start, shape in SHAPES.items() if text(row, "model_name").startswith(start)), {})
    row = {**row, **{name: cell for name, cell in shape.items() if not text(row, name)}}
    layers, hidden = whole(row, "layers"), whole(row, "hidden")
    if not layers or not hidden:
        raise Skipped("layers or hidden width not stated")
    if layers > MOST_LAYERS or hidden > MOST_HIDDEN:
        raise Skipped("model larger than any")
    name = text(row, "model_name")
    sparse = bool(whole(row, "experts"))
    family = family_of(name, gated=sparse or text(row, "gated_mlp") == "1")
    gated = text(row, "gated_mlp") == "1" if text(row, "gated_mlp") else assumed.take("gated MLP", family.gated)
    heads = whole(row, "heads") or _stated_heads(row, hidden)
    heads = heads or assumed.take("attention heads", _usual_heads(hidden, whole(row, "tp") or 1), "128 wide")
    latent = family.latent
    head_size = family.head_size or max(hidden // heads, 1)
    if latent is not None:
        head_size = latent.rope_head_size + latent.nope_head_size
    experts = _experts(row, layers, family, assumed)
    mlp_hidden = whole(row, "ffn_hidden") or 0
    if not mlp_hidden and (experts is None or experts.dense_layers or experts.layer_period > 1):
        mlp_hidden = assumed.take("MLP width", _usual_mlp(hidden, gated=gated))
    return Architecture(
        name=name or "unnamed",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=whole(row, "kv_heads") or assumed.take("key and value heads", heads, "one for each query head"),
        head_size=head_size,
        mlp_hidden=mlp_hidden,
        vocabulary=_vocabulary(row, family, assumed),
        gated_mlp=gated,
        tied_embeddings=(family.tied and experts is None) or "tied embeddings" in text(row, "notes"),
        learned_positions=sequence if family.positions and experts is None else 0,
        sliding_window=family.window,
        window_period=family.window_period,
        chunked_window=family.chunked,
        latent_attention=latent,
        experts=experts,
        mlp_bias=family.biased,
        prediction_layers=family.prediction if _predicts(row) else 0,
    )


def _predicts(row: Row) -> bool:
    """Whether a model with multi-token prediction was trained with it, as Megatron-Bridge's TFLOP per token say."""
    source = text(row, "source").casefold()
    return bool(re.search(r"bridge|nemo|dgxc", source)) and not re.search(
        r"automodel|w/o mtp", f"{source} {text(row, 'notes').casefold()}"
    )


def _experts(row: Row, layers: int, family: Family, assumed: Assumed) -> Experts | None:
    count = whole(row, "experts")
    if not count:
        return None
    width = whole(row, "moe_ffn_hidden") or whole(row, "ffn_hidden")
    if not width:
        raise Skipped("expert width not stated")
    active = whole(row, "topk") or assumed.take("experts per token", min(USUAL_ACTIVE, count))
    sparse = min(whole(row, "moe_layers") or assumed.take("layers with experts", layers), layers)
    alternate = sparse * 2 == layers
    return Experts(
        count=count,
        active=active,
        hidden=width,
        shared_hidden=whole(row, "shared_expert_ffn") or 0,
        dense_layers=1 if alternate else layers - sparse,
        layer_period=2 if alternate else 1,
        router_groups=gcd(family.router_groups, count),
        active_groups=min(family.active_groups, gcd(family.router_groups, count)),
    )


def _vocabulary(row: Row, family: Family, assumed: Assumed) -> int:
    if GPT2_TOKENS.search(text(row, "source")):
        return assumed.take("vocabulary", GPT2_VOCABULARY, "the launch script's; the row has a planner's table")
    return whole(row, "vocab") or assumed.take("vocabulary", family.vocabulary)


def _stated_heads(row: Row, hidden: int) -> int | None:
    """Heads that the row's source states for this width elsewhere in its text."""
    return next(
        (heads for name, width, heads in STATED_HEADS if name in text(row, "source") and width == hidden), None
    )


def _usual_heads(hidden: int, tensor: int) -> int:
    """The divisor of ``hidden`` that splits over ``tensor`` ranks and makes heads closest to 128 wide."""
    whole_heads = (n for n in range(1, hidden + 1) if hidden % n == 0 and n % tensor == 0)
    return min(whole_heads, key=lambda n: abs(hidden / n - 128), default=tensor)


def _usual_mlp(hidden: int, *, gated: bool) -> int:
    """Four times the hidden width, or as many parameters in three matrices (8/3), in whole 256s."""
    return 256 * round(hidden * 8 / 3 / 256) if gated else 4 * hidden
