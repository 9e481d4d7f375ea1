"""Tables of text: columns layer, expert, count, or a matrix with a row for each layer.

A column ``next_expert`` makes the counts those of transitions; a column ``workload`` names several workloads.
SGLang's recorder wrote ``layer_id,expert_id,count`` before it wrote arrays.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import Counts, RoutedWorkload
from readers.frame.findings import Finding, note_in
from readers.frame.numbers import finite
from readers.routing.numbers import Rows, check_workloads, number_in, rows_of, shortened, workload
from readers.routing.reading import (
    MOST_EXPERTS,
    MOST_LAYERS,
    RoutingContents,
    RoutingFormat,
    RoutingSource,
    unusable,
)

_NAMES: Final = {
    "layer": ("layer", "layer_id", "layer_idx", "layer_index", "moe_layer"),
    "expert": ("expert", "expert_id", "expert_idx", "expert_index", "logical_expert"),
    "next": ("next_expert", "next_expert_id", "expert_next", "to_expert"),
    "count": ("count", "counts", "load", "tokens", "token_count", "selections", "frequency"),
    "workload": ("workload", "phase", "domain", "dataset", "name"),
}
_PLACEMENT: Final = frozenset({"node", "gpu", "device", "rank"})
_REMEDY: Final = "give columns layer, expert, count (and workload, next_expert), or a matrix, a row for each layer"
_MOST_TABLE_CELLS: Final = 2**25


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    cells: tuple[str, ...]


def _fits(source: RoutingSource) -> bool:
    if source.tree is not None:
        return False
    head = next(_rows(source.text), None)
    if head is None:
        return False
    columns = _columns(head.cells)
    if {"layer", "expert", "count"} <= columns.keys() or "layer" in columns:
        return True
    return _is_placement(head.cells) or all(finite(cell) is not None for cell in head.cells) or _experts(head.cells)


def _rows(text: str) -> Iterator[_Row]:
    """Rows with some cell; lines with # are comments.  The delimiter is the one that the first row uses."""
    lines = text.split("\n")
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    delimiter = next((mark for mark in (",", ";", "\t") if mark in first), None)
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            cells = line.split() if delimiter is None else _split(line, delimiter)
            yield _Row(number, tuple(map(str.strip, cells)))


def _split(line: str, delimiter: str) -> list[str]:
    if '"' not in line:
        return line.rstrip("\r").split(delimiter)
    try:
        return next(csv.reader([line.rstrip("\r")], delimiter=delimiter), [])
    except csv.Error:
        return line.split(delimiter)


def _columns(head: Sequence[str]) -> dict[str, int]:
    words = [cell.casefold().replace(" ", "_") for cell in head]
    return {
        what: index
        for what, names in _NAMES.items()
        if (index := next((words.index(name) for name in names if name in words), -1)) >= 0
    }


def _is_placement(head: Sequence[str]) -> bool:
    words = {cell.casefold() for cell in head}
    return "expert" in words and bool(words & _PLACEMENT) and "count" not in words


def _experts(head: Sequence[str]) -> bool:
    """Whether a header names experts by number: "expert_0", "e1"; not numbers alone."""
    return len(head) > 1 and all(number_in(cell) is not None and not cell[:1].isdecimal() for cell in head)


def _read(source: RoutingSource) -> RoutingContents:
    rows = list(_rows(source.text))
    head = rows[0].cells
    columns = _columns(head)
    if {"layer", "expert", "count"} <= columns.keys():
        return _of_columns(source, rows[1:], columns)
    if _is_placement(head):
        problem = "says where experts lie, not how often they were selected"
        raise unusable(source, "line 1", ",".join(head), problem, "send counts; a map as physical_to_logical_map")
    return _of_matrix(source, rows, columns.get("layer"))


def _of_columns(source: RoutingSource, rows: Sequence[_Row], columns: Mapping[str, int]) -> RoutingContents:
    entries: dict[str, dict[tuple[int, int, int], float]] = {}
    notices: list[Finding] = []
    for row in rows:
        found = _entry(row, columns, source.experts)
        if isinstance(found, str):
            notices.append(note_in("line-left-out", source.name, f"line {row.line}", found, _REMEDY))
            continue
        name, place, count = found
        table = entries.setdefault(name, {})
        table[place] = table.get(place, 0.0) + count
    check_workloads(source, len(entries))
    workloads = []
    errors: list[InvalidInput] = []
    for name, table in entries.items():
        stem = f"{source.stem}:{name}" if name and len(entries) > 1 else source.stem
        try:
            workloads.append(_counted(source, stem, table, notices))
        except InvalidInput as error:
            errors.append(error)
            notices.append(note_in("workload-left-out", source.name, name, error.problem, error.remedy))
    if not workloads:
        if errors:
            raise errors[0]
        first = notices[0] if notices else note_in("", source.name, "line 2", "there is no row of counts", _REMEDY)
        raise unusable(source, first.place.path, f"{len(rows)} rows", first.sentence, first.remedy)
    return RoutingContents(tuple(workloads), notices=tuple(shortened(notices)))


def _entry(
    row: _Row, columns: Mapping[str, int], experts: int | None
) -> tuple[str, tuple[int, int, int], float] | str:
    """Workload, (layer, expert, next expert or -1) and count of a row; else what is wrong with it."""
    if len(row.cells) <= max(columns.values()):
        return f"has {len(row.cells)} cells, too few"
    place = []
    for what, most in (("layer", MOST_LAYERS), ("expert", (experts or MOST_EXPERTS) - 1)):
        value = _whole(row.cells[columns[what]], most)
        if value is None:
            return f"{what} is not a number from 0 to {most}: {row.cells[columns[what]][:40]}"
        place.append(value)
    following = -1
    if "next" in columns and (cell := row.cells[columns["next"]]):
        value = _whole(cell, (experts or MOST_EXPERTS) - 1)
        if value is None:
            return f"next_expert is not an expert: {cell[:40]}"
        following = value
    count = finite(row.cells[columns["count"]])
    if count is None or count < 0:
        return f"count is not a number from 0 on: {row.cells[columns['count']][:40]}"
    name = row.cells[columns["workload"]] if "workload" in columns else ""
    return name[:100], (place[0], place[1], following), count


@lru_cache(maxsize=2**14)
def _whole(cell: str, most: int) -> int | None:
    value = finite(cell)
    return int(value) if value is not None and value.is_integer() and 0 <= value <= most else None


def _counted(
    source: RoutingSource, name: str, table: Mapping[tuple[int, int, int], float], notices: list[Finding]
) -> RoutedWorkload:
    """The workload of rows; where all of them are transitions, the loads are what they sum to."""
    size = source.experts or 1 + max(max(expert, following) for _, expert, following in table)
    counts: dict[int, Counts] = {}
    pairs: dict[int, Counts] = {}
    for (layer, expert, following), count in table.items():
        if following < 0:
            counts.setdefault(layer, np.zeros(size))[expert] += count
        else:
            if layer not in pairs and (len(pairs) + 1) * size * size > _MOST_TABLE_CELLS:
                problem = f"more than {len(pairs)} tables of {size} x {size} transitions"
                raise unusable(source, "next_expert", layer, problem, "send fewer layers in a file")
            pairs.setdefault(layer, np.zeros((size, size)))[expert, following] += count
    if pairs and not counts:
        counts = _margins(pairs)
        sentence = "loads were summed from the transitions"
        notices.append(note_in("loads-from-transitions", source.name, "next_expert", sentence, "send counts too"))
    rows = rows_of(source, "count", counts)
    notices.extend(rows.notices)
    index = {layer: place for place, layer in enumerate(rows.layers[:-1])}
    for layer in sorted(set(pairs) - set(index)):
        sentence = f"transitions of layer {layer} lead to no layer that has counts"
        notices.append(note_in("transitions-left-out", source.name, "next_expert", sentence, "send its counts"))
    tables = {index[layer]: table for layer, table in pairs.items() if layer in index}
    return workload(source, name, rows, transitions=tables)


def _margins(pairs: Mapping[int, Counts]) -> dict[int, Counts]:
    """Loads of the layers of transitions: what leaves a layer, and what reaches the layer after the last."""
    counts = {layer: np.asarray(table.sum(axis=1)) for layer, table in pairs.items()}
    last = max(pairs)
    counts[last + 1] = np.asarray(pairs[last].sum(axis=0))
    return counts


def _of_matrix(source: RoutingSource, rows: Sequence[_Row], layer_column: int | None) -> RoutingContents:
    """A row for each layer; the header, where there is one, names the column of layer numbers."""
    body = rows if all(finite(cell) is not None for cell in rows[0].cells) else rows[1:]
    table: dict[int, list[float | str]] = {}
    notices: list[Finding] = []
    for index, row in enumerate(body):
        cells = list(row.cells)
        layer: int | None = index
        if layer_column is not None:
            layer = _whole(cells.pop(layer_column), MOST_LAYERS) if layer_column < len(cells) else None
        if layer is None or layer in table:
            sentence = "says no layer of its own"
            notices.append(note_in("line-left-out", source.name, f"line {row.line}", sentence, _REMEDY))
            continue
        numbers = [finite(cell) for cell in cells]
        table[layer] = [cell if value is None else value for cell, value in zip(cells, numbers, strict=True)]
    if not table:
        raise unusable(source, "line 2", f"{len(body)} rows", "there is no row of counts", _REMEDY)
    layers = tuple(table)
    rows_read: Rows = rows_of(source, "matrix", list(table.values()), layers)
    found = workload(source, source.stem, rows_read)
    return RoutingContents((found,), notices=(*shortened(notices), *rows_read.notices))


FORMAT: Final = RoutingFormat("table", "tables with columns layer, expert, count", _fits, _read)
