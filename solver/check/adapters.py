"""Parameters of low-rank adapters, counted apart from the planner's."""

from __future__ import annotations

from cluster_models.model.architecture import Architecture
from cluster_models.training.adapters import Adapters


def adapter_parameters(model: Architecture, layer: int, adapters: Adapters) -> tuple[float, float]:
    """Least and most parameters of a layer's adapters: r rows as wide as the input, r columns as the output.

    The least where queries, keys and values share one adapter, and gate and up projection another.
    """
    kind, h = model.layer_pattern[layer], model.hidden
    own, names = model.of_mixer(kind.mixer), {str(module) for module in adapters.modules}
    key, value = own.head_widths
    least = most = 0
    if "linear_qkv" in names:
        width = own.heads * key + own.gate_width + own.kv_heads * (key + value)
        least, most = least + h + width, most + 3 * h + width
    if "linear_proj" in names:
        least, most = least + own.heads * value + h, most + own.heads * value + h
    inner = model.mlp_hidden if str(kind.mlp) == "dense" else 0
    if kind.sparse and model.experts is not None:
        inner = model.experts.shared_hidden
    if inner and "linear_fc1" in names:
        first = model.mlp_matrices - 1
        least, most = least + h + first * inner, most + first * (h + inner)
    if inner and "linear_fc2" in names:
        least, most = least + h + inner, most + h + inner
    return float(adapters.rank * least), float(adapters.rank * most)
