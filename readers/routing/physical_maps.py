"""Maps of running engines: which expert lies in which slot.

Taken are ``physical_to_logical_map`` (SGLang, and ``phy2log`` of EPLB, which vLLM uses too),
``initial_global_assignments`` (TensorRT-LLM) and ``layer_list`` (vllm-ascend, MindIE), which alone says its ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from readers.frame.trees import items, mapping
from readers.routing.numbers import array_of, layer_numbers, number_in, whole
from readers.routing.reading import (
    MOST_EXPERTS,
    MOST_LAYERS,
    RoutingContents,
    RoutingFormat,
    RoutingSource,
    RunningMap,
    unusable,
)

KEYS: Final = ("physical_to_logical_map", "last_physical_to_logical_map", "phy2log", "physical2logical")
_ASSIGNED: Final = "initial_global_assignments"
_RANKS: Final = ("ranks", "ep_size", "num_ranks", "num_gpus")
_REMEDY: Final = "send one row for each layer: the expert in each slot, slots of a rank side by side"


def fits(source: RoutingSource) -> bool:
    """Whether a file says where experts lie."""
    tree = source.tree
    if not isinstance(tree, Mapping):
        return False
    return any(tree.get(key) is not None for key in (*KEYS, _ASSIGNED)) or (
        "layer_list" in tree and "moe_layer_count" in tree
    )


def read(source: RoutingSource) -> RoutingContents:
    """The one map of a file."""
    tree = source.tree
    if "layer_list" in tree and "moe_layer_count" in tree:
        return RoutingContents(maps=(_of_devices(source, items(tree["layer_list"])),))
    ranks = next((found for key in _RANKS if (found := whole(tree.get(key), 10**6))), None)
    if tree.get(_ASSIGNED) is not None:
        rows = {number_in(layer): row for layer, row in mapping(tree[_ASSIGNED]).items()}
        layers = tuple(sorted(layer for layer in rows if layer is not None and layer <= MOST_LAYERS))
        if not layers or len(layers) < len(rows) or len(rows) < len(mapping(tree[_ASSIGNED])):
            raise unusable(source, _ASSIGNED, list(rows)[:20], "must be rows by layer number", _REMEDY)
        table = table_of(source, _ASSIGNED, [rows[layer] for layer in layers])
    else:
        key = next(key for key in KEYS if tree.get(key) is not None)
        table = table_of(source, key, tree[key])
        layers = layer_numbers(tree.get("layers")) or tuple(range(len(table)))
        if len(layers) != len(table) or list(layers) != sorted(layers):
            problem = f"must number the {len(table)} rows of {key}, increasing"
            raise unusable(source, "layers", list(layers)[:20], problem, _REMEDY)
    if ranks is not None and table.shape[1] % ranks:
        problem = f"{table.shape[1]} slots are not divisible by {ranks} ranks"
        raise unusable(source, "ranks", ranks, problem, "give the expert ranks of the engine")
    return RoutingContents(maps=(RunningMap(source.stem, layers, table, ranks),))


def table_of(source: RoutingSource, place: str, value: Any) -> NDArray[np.int64]:
    """(layers, slots) experts; raises ``InvalidInput`` naming the first slot that holds none."""
    found = array_of(value)
    if found is None or found.ndim != 2 or not found.size:
        lengths = sorted({len(row) for row in value if isinstance(row, list)}) if isinstance(value, list) else []
        shown = f"rows of {lengths[:8]} slots" if lengths else str(type(value).__name__)
        raise unusable(source, place, shown, "must be rows of as many expert numbers", _REMEDY)
    with np.errstate(invalid="ignore"):
        bad = np.argwhere(~((found >= 0) & (found < MOST_EXPERTS) & (found == np.floor(found))))
    if len(bad):
        layer, slot = bad[0]
        raise unusable(source, f"{place}[{layer}][{slot}]", found[layer, slot], "is not an expert", _REMEDY)
    if len(found) > MOST_LAYERS:
        raise unusable(source, place, len(found), f"has more than {MOST_LAYERS} layers", _REMEDY)
    table = found.astype(np.int64)
    table.setflags(write=False)
    return table


def _of_devices(source: RoutingSource, entries: Sequence[Any]) -> RunningMap:
    """The map of ``layer_list``: devices in the order of their ids, each with its experts."""
    rows: dict[int, list[Any]] = {}
    counts: set[int] = set()
    for index, entry in enumerate(entries):
        place = f"layer_list[{index}]"
        layer = whole(mapping(entry).get("layer_id"), MOST_LAYERS)
        devices = [mapping(device) for device in items(mapping(entry).get("device_list"))]
        order = [whole(device.get("device_id"), 10**6) for device in devices]
        known = [device for device in order if device is not None]
        if layer is None or layer in rows or not devices or len(set(known)) < len(devices):
            problem = "must have a layer_id of its own and a device_list with a device_id each"
            raise unusable(source, place, str(entry)[:60], problem, _REMEDY)
        placed = dict(zip(known, devices, strict=True))
        rows[layer] = [expert for device in sorted(placed) for expert in items(placed[device].get("device_expert"))]
        counts.add(len(devices))
    if len(counts) != 1:
        raise unusable(source, "layer_list", sorted(counts), "must have as many devices in each layer", _REMEDY)
    layers = tuple(sorted(rows))
    return RunningMap(
        source.stem, layers, table_of(source, "layer_list", [rows[layer] for layer in layers]), counts.pop()
    )


FORMAT: Final = RoutingFormat("expert-map", "maps of running engines (physical_to_logical_map)", fits, read)
