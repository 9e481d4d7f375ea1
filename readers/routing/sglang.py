"""SGLang's expert distribution recorder, its dumps saved as JSON or as arrays.

Modes ``stat`` and ``stat_approx`` write ``logical_count`` (steps, layers, experts), older ones and attachments
their sum (layers, experts).  Modes ``per_pass`` and ``per_token`` write ``records`` of forward passes with counts
or ids of physical slots, and the map from slots to experts (``sglang/srt/eplb/expert_distribution.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cluster_models.routing.counts import RoutedWorkload
from readers.frame.findings import Finding, note_in
from readers.frame.trees import items, mapping
from readers.routing import physical_maps
from readers.routing.counting import Ids, counted, ids_of
from readers.routing.numbers import array_of, layer_numbers, rows_of, shortened, summed, workload
from readers.routing.reading import RoutingContents, RoutingFormat, RoutingSource, unusable
from readers.routing.traces import experts_stated

_MAP: Final = "last_physical_to_logical_map"
_REMEDY: Final = "save the whole dump, with records and last_physical_to_logical_map"
_COUNTS: Final = ("global_physical_count", "logical_count")


def _counts_fit(source: RoutingSource) -> bool:
    return isinstance(source.tree, Mapping) and "logical_count" in source.tree


def _read_counts(source: RoutingSource) -> RoutingContents:
    tree = source.tree
    value, steps = summed(source, "logical_count", tree["logical_count"])
    rows = rows_of(source, "logical_count", value, layer_numbers(tree.get("layers")))
    notices = rows.notices
    if steps > 1:
        sentence = f"counts of {steps} steps were summed"
        notices = (*notices, note_in("steps-summed", source.name, "logical_count", sentence))
    return RoutingContents((workload(source, source.stem, rows),), notices=notices)


def _records_fit(source: RoutingSource) -> bool:
    records = items(mapping(source.tree).get("records"))
    return any("topk_ids_of_layer" in mapping(record) or _count_of(record) is not None for record in records)


def _read_records(source: RoutingSource) -> RoutingContents:
    """One workload, or one of prefill and one of decode: passes that extend no sequence decode."""
    tree = source.tree
    table = physical_maps.table_of(source, _MAP, tree[_MAP]) if tree.get(_MAP) is not None else None
    phases: dict[str, list[tuple[int, Mapping[Any, Any]]]] = {}
    for index, record in enumerate(tree["records"]):
        phases.setdefault(_phase(mapping(record)), []).append((index, mapping(record)))
    workloads: list[RoutedWorkload] = []
    notices: list[Finding] = []
    for phase, records in phases.items():
        named = replace(source, stem=f"{source.stem}:{phase}" if len(phases) > 1 and phase else source.stem)
        found = _of_passes(named, records, table)
        workloads.extend(found.workloads)
        notices.extend(found.notices)
    return RoutingContents(tuple(workloads), notices=tuple(notices))


def _phase(record: Mapping[Any, Any]) -> str:
    if "extend_seq_lens" not in record:
        return ""
    return "prefill" if items(record["extend_seq_lens"]) else "decode"


def _of_passes(
    source: RoutingSource, records: Sequence[tuple[int, Mapping[Any, Any]]], table: NDArray[np.int64] | None
) -> RoutingContents:
    experts = source.experts or experts_stated(source.tree) or (None if table is None else int(table.max()) + 1)
    if any("topk_ids_of_layer" in record for _, record in records):
        blocks = [_logical_ids(source, index, record, table) for index, record in records]
        ids = _joined(source, [block for block in blocks if block is not None])
        traced = counted(source, "records", ids, tuple(range(ids.shape[1])), experts)
        tables = {"transitions": traced.transitions, "coactivation": traced.coactivation}
        found = workload(source, source.stem, traced.rows, tokens=traced.tokens, **tables)
        return RoutingContents((found,), notices=traced.rows.notices)
    notices: list[Finding] = []
    total = _sum_of_passes(source, records, notices)
    place = "records[].global_physical_count"
    if table is None:
        sentence = "the map from slots to experts is missing: each slot was taken for the expert of its number"
        notices.append(note_in("slots-as-experts", source.name, _MAP, sentence, _REMEDY))
        logical = total
    else:
        if table.shape != total.shape:
            problem = f"must have a slot for each count, {total.shape} as {place}"
            raise unusable(source, _MAP, table.shape, problem, _REMEDY)
        logical = np.zeros((len(total), int(table.max()) + 1))
        np.add.at(logical, (np.arange(len(total))[:, None], table), total)
    rows = rows_of(source, place, logical)
    return RoutingContents((workload(source, source.stem, rows),), notices=(*shortened(notices), *rows.notices))


def _sum_of_passes(
    source: RoutingSource, records: Sequence[tuple[int, Mapping[Any, Any]]], notices: list[Finding]
) -> NDArray[np.float64]:
    """(layers, slots) of all passes that can be added; the others get a notice."""
    total: NDArray[np.float64] | None = None
    for index, counts in _each_count(records):
        found = array_of(counts)
        if (
            found is None
            or found.ndim != 2
            or not np.isfinite(found).all()
            or (found < 0).any()
            or (total is not None and found.shape != total.shape)
        ):
            sentence = "is not a table of counts of the same layers and slots as the passes before it"
            notices.append(note_in("pass-left-out", source.name, f"records[{index}]", sentence, _REMEDY))
            continue
        total = found.astype(np.float64) if total is None else total + found
    if total is None:
        problem = "no pass has counts (layers, slots)"
        raise unusable(source, "records", f"{len(records)} records", problem, _REMEDY)
    return total


def _each_count(records: Sequence[tuple[int, Mapping[Any, Any]]]) -> Iterator[tuple[int, Any]]:
    return ((index, _count_of(record)) for index, record in records)


def _count_of(record: Any) -> Any:
    return next((found for key in _COUNTS if (found := mapping(record).get(key)) is not None), None)


def _logical_ids(
    source: RoutingSource, index: int, record: Mapping[Any, Any], table: NDArray[np.int64] | None
) -> Ids | None:
    """(tokens, layers, selections) expert ids of a pass; ``None`` of one without tokens."""
    value = record.get("topk_ids_of_layer")
    place = f"records[{index}].topk_ids_of_layer"
    if value is None or (isinstance(value, list) and not any(value)) or getattr(value, "size", 1) == 0:
        return None
    ids = ids_of(source, place, value).transpose(1, 0, 2)
    if table is None:
        return ids
    if len(table) != ids.shape[1] or ids.max() >= table.shape[1]:
        problem = f"must have a slot for each id: {ids.shape[1]} layers with slots up to {ids.max()}"
        raise unusable(source, _MAP, table.shape, problem, _REMEDY)
    expert = table[np.arange(len(table))[None, :, None], np.maximum(ids, 0)]
    return np.where(ids < 0, -1, expert)


def _joined(source: RoutingSource, blocks: Sequence[Ids]) -> Ids:
    if not blocks or len({block.shape[1:] for block in blocks}) > 1:
        shapes = sorted({block.shape[1:] for block in blocks})
        raise unusable(source, "records", shapes, "must have tokens, of the same layers in each pass", _REMEDY)
    return np.concatenate(blocks)


FORMATS: Final = (
    RoutingFormat("sglang-counts", "SGLang's expert distribution (logical_count)", _counts_fit, _read_counts),
    RoutingFormat("sglang-records", "SGLang's per_pass and per_token records", _records_fit, _read_records),
)
