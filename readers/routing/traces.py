"""Traces of single tokens: which experts each selected in each layer.

Taken are ``{"axes": [..], "experts": [token][layer][selected]}`` in any order of the axes, the same under other
names, and bare arrays of three dimensions whose rows are distinct small whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from readers.frame.findings import Finding, note_in
from readers.routing.counting import Ids, counted, ids_of
from readers.routing.numbers import array_of, depth_of, layer_numbers, whole, workload
from readers.routing.reading import (
    MOST_EXPERTS,
    MOST_LAYERS,
    RoutingContents,
    RoutingFormat,
    RoutingSource,
    unusable,
)

KEYS: Final = (
    "experts",
    "topk_ids",
    "expert_ids",
    "selected_experts",
    "routed_experts",
    "topk_indices",
    "routing",
    "trace",
    "tokens",
)
_EXPERT_COUNTS: Final = ("num_experts", "n_experts", "num_local_experts", "n_routed_experts", "experts_per_layer")
_MOST_SELECTIONS: Final = 32
_LOOKED_AT: Final = 2**20


def experts_stated(tree: Any) -> int | None:
    """Number of experts of a layer, where a file says it."""
    for key in _EXPERT_COUNTS:
        if isinstance(tree, Mapping) and (found := whole(tree.get(key), MOST_EXPERTS)):
            return found
    return None


def looks_traced(value: Any) -> bool:
    """Whether three dimensions are ids rather than counts.

    Ids are distinct in a token's row, few and small.  Counts of steps sum to the same number in each layer, which
    ids would do by chance only.
    """
    found = array_of(value)
    if found is None or found.ndim != 3 or not found.size or found.shape[2] > _MOST_SELECTIONS:
        return False
    if found.shape[1] > MOST_LAYERS:
        return False
    head = found[: max(1, _LOOKED_AT // (found.shape[1] * found.shape[2]))].astype(np.float64)
    if not np.isfinite(head).all() or (head != np.floor(head)).any() or head.max() >= MOST_EXPERTS:
        return False
    if (head < 0).any():
        return True
    ordered = np.sort(head, axis=2)
    if (np.diff(ordered, axis=2) == 0).any():
        return False
    sums = head.sum(axis=2)
    return head.shape[1] == 1 or bool((sums != sums[:, :1]).any())


def _fits(source: RoutingSource) -> bool:
    return _key(source.tree) is not None or looks_traced(source.tree)


def _key(tree: Any) -> str | None:
    if not isinstance(tree, Mapping):
        return None
    return next((key for key in KEYS if key in tree and depth_of(tree[key]) == 3), None)


def _read(source: RoutingSource) -> RoutingContents:
    key = _key(source.tree)
    tree = source.tree if key is not None else {"": source.tree}
    place = key or ""
    ids = ids_of(source, place, tree[place])
    notices: tuple[Finding, ...] = ()
    if isinstance(tree.get("shape"), list) and tree["shape"] != list(ids.shape):
        sentence = f"holds {ids.shape}, the file says {str(tree['shape'])[:60]}: it may have been cut off"
        notices = (note_in("shape-differs", source.name, place, sentence, "send the whole trace"),)
    ids = _turned(source, tree.get("axes"), ids)
    stated = tree.get("layers") if isinstance(tree.get("layers"), list) else tree.get("layers_counted")
    layers = layer_numbers(stated) or tuple(range(ids.shape[1]))
    if len(layers) != ids.shape[1] or list(layers) != sorted(layers):
        problem = f"must number the {ids.shape[1]} layers of the trace, increasing"
        raise unusable(source, "layers", list(layers)[:20], problem, "leave them out to count from 0")
    traced = counted(source, place, ids, layers, source.experts or experts_stated(tree))
    found = workload(
        source,
        source.stem,
        traced.rows,
        tokens=traced.tokens,
        transitions=traced.transitions,
        coactivation=traced.coactivation,
    )
    return RoutingContents((found,), notices=(*notices, *traced.rows.notices))


def _turned(source: RoutingSource, axes: Any, ids: Ids) -> Ids:
    """The ids as (token, layer, selection), by the words of ``axes`` where a file has them."""
    if not isinstance(axes, list) or len(axes) != ids.ndim:
        return ids
    words = [str(axis).casefold() for axis in axes]
    token = [index for index, word in enumerate(words) if word.startswith(("token", "position"))]
    layer = [index for index, word in enumerate(words) if word.startswith("layer")]
    if len(token) != 1 or len(layer) != 1 or token == layer:
        raise unusable(source, "axes", words, "must name one axis token and one layer", "name them so")
    rest = 3 - token[0] - layer[0]
    return ids.transpose(token[0], layer[0], rest)


FORMAT: Final = RoutingFormat("token-trace", "traces of single tokens, [token][layer][experts]", _fits, _read)
