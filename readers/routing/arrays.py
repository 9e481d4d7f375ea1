"""Counts without the form of any one tool: EPLB's ``weight`` (layers, experts), named arrays, own documents.

A file is one workload: rows of counts alone, or under one of the usual names, with ``layers``, ``tokens``,
``transitions`` and ``coactivation`` beside them where known; or several: rows of counts, or such objects, by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import Counts, RoutedWorkload
from readers.frame.findings import Finding, note_in
from readers.frame.trees import mapping
from readers.routing import physical_maps
from readers.routing.numbers import (
    Rows,
    array_of,
    check_workloads,
    depth_of,
    is_rows,
    layer_numbers,
    number_in,
    rows_of,
    summed,
    workload,
)
from readers.routing.reading import RoutingContents, RoutingFormat, RoutingSource

KEYS: Final = (
    "loads",
    "counts",
    "weight",
    "weights",
    "load",
    "expert_load",
    "expert_loads",
    "expert_load_pass",
    "expert_load_window",
    "expert_counts",
    "expert_count",
    "tokens_per_expert",
    "token_counts",
)
_LAYERS: Final = ("layers", "layer_ids", "layers_counted")
_TABLES: Final = ("transitions", "coactivation")
_OF_EPLB: Final = ("log2phy", "logcnt", "logical_to_all_physical_map", "num_replicas")
_BESIDE: Final = frozenset({*_LAYERS, *_TABLES, *physical_maps.KEYS, *_OF_EPLB, "tokens"})
"""Keys that are not a workload by themselves."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A workload's name, the place of its object in the file, the object, and the key of its counts there."""

    name: str
    place: str
    tree: Mapping[Any, Any]
    key: Any


def _fits(source: RoutingSource) -> bool:
    return any(True for _ in _parts(source.tree))


def _is_counts(value: Any) -> bool:
    return is_rows(value) or depth_of(value) == 3


def _parts(tree: Any) -> Iterator[_Part]:
    """Candidates for one workload each."""
    if _is_counts(tree):
        yield _Part("", "", {"": tree}, "")
    elif (key := _key(tree)) is not None:
        yield _Part(str(tree.get("name") or ""), "", tree, key)
    else:
        named = tree.get("workloads", tree) if isinstance(tree, Mapping) else tree
        if isinstance(named, list):
            named = {f"[{index}]": part for index, part in enumerate(named) if isinstance(part, Mapping)}
        for name, part in mapping(named).items():
            if (key := _key(part)) is not None:
                yield _Part(str(part.get("name") or name), str(name), part, key)
            elif name not in _BESIDE and _is_counts(part):
                yield _Part(str(name), "", named, name)


def _key(part: Any) -> str | None:
    if not isinstance(part, Mapping):
        return None
    return next((key for key in KEYS if key in part and _is_counts(part[key])), None)


def _read(source: RoutingSource) -> RoutingContents:
    workloads: list[RoutedWorkload] = []
    notices: list[Finding] = []
    errors: list[InvalidInput] = []
    parts = list(_parts(source.tree))
    check_workloads(source, len(parts))
    for part in parts:
        stem = f"{source.stem}:{part.name}" if len(parts) > 1 and part.name else source.stem
        try:
            workloads.append(_one(source, stem, part, notices))
        except InvalidInput as error:
            errors.append(error)
            where = error.field.removeprefix(f"{source.name}: ")
            notices.append(note_in("workload-left-out", source.name, where, error.problem, error.remedy))
    if not workloads:
        raise errors[0]
    return RoutingContents(tuple(workloads), notices=tuple(notices))


def _one(source: RoutingSource, stem: str, given: _Part, notices: list[Finding]) -> RoutedWorkload:
    place, part, key = given.place, given.tree, given.key
    where = ".".join(str(step) for step in (place, key) if step != "")
    value, steps = summed(source, where, part[key])
    if steps > 1:
        notices.append(note_in("steps-summed", source.name, where, f"counts of {steps} steps were summed"))
    stated = next((found for name in _LAYERS if (found := layer_numbers(part.get(name))) is not None), None)
    rows = rows_of(source, where, value, stated)
    notices.extend(rows.notices)
    tables = {
        name: _tables(source, f"{place}.{name}".lstrip("."), part.get(name), rows, notices) for name in _TABLES
    }
    tokens = part.get("tokens")
    known = isinstance(tokens, int | float) and not isinstance(tokens, bool) and 0 < tokens < float("inf")
    return workload(source, stem, rows, tokens=float(tokens) if known and tokens else None, **tables)


def _tables(source: RoutingSource, place: str, value: Any, rows: Rows, notices: list[Finding]) -> dict[int, Counts]:
    """Tables of experts by the number of a layer's row, those between or in the rows that are left."""
    if value is None:
        return {}
    given = value.items() if isinstance(value, Mapping) else enumerate(value if depth_of(value) == 3 else ())
    last = len(rows.layers) - (1 if place.endswith("transitions") else 0)
    experts = rows.counts.shape[1]
    found: dict[int, Counts] = {}
    for key, item in given:
        index, table = number_in(key), array_of(item)
        if (
            index is None
            or index >= last
            or table is None
            or table.shape != (experts, experts)
            or not np.isfinite(table).all()
            or (table < 0).any()
        ):
            sentence = f"is not a table of {experts} x {experts} counts of one of {last} rows"
            remedy = "number tables by the rows of counts, from 0; leave out what is not known"
            notices.append(note_in("table-left-out", source.name, f"{place}[{key}]", sentence, remedy))
        else:
            found[index] = table.astype(np.float64)
    return found


FORMAT: Final = RoutingFormat("counts", "counts [layers][experts], one workload or several by name", _fits, _read)
