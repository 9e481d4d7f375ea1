"""Counts out of lists, mappings and arrays, layer by layer: what is bad is left out with a notice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import Counts, RoutedWorkload
from readers.frame.findings import Finding, note_in
from readers.routing.reading import MOST_EXPERTS, MOST_LAYERS, MOST_WORKLOADS, RoutingSource, unusable

_MOST_NOTICES: Final = 20
_NUMBER: Final = re.compile(r"\d{1,9}", re.ASCII)
_REMEDY: Final = "counts are numbers from 0 on, one for each expert of the layer"
_SHARES: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Rows:
    """Counts (layers, experts) with the numbers of their layers, all of them usable."""

    layers: tuple[int, ...]
    counts: Counts
    notices: tuple[Finding, ...] = ()


def array_of(value: Any) -> NDArray[Any] | None:
    """The numbers of a list or an array, of whatever shape; ``None`` where it is ragged or no numbers."""
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in "iuf" else None
    if not isinstance(value, list):
        return None
    try:
        found = np.array(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return found if found.dtype.kind in "iuf" else None


def depth_of(value: Any) -> int:
    """Depth of nested lists, judged by the first member of each; the dimensions of an array."""
    depth = 0
    while isinstance(value, list) and value:
        value = next((item for item in value if isinstance(item, list | np.ndarray) and len(item)), value[0])
        depth += 1
    return depth + (value.ndim if isinstance(value, np.ndarray) else 0)


def number_in(key: object) -> int | None:
    """The one number that a key says ("3", 3, "layer_3", "model.layers.3.mlp"); ``None`` of all else."""
    if isinstance(key, int) and not isinstance(key, bool):
        return key if 0 <= key < 10**9 else None
    found = _NUMBER.findall(key) if isinstance(key, str) and len(key) <= 200 else []
    return int(found[0]) if len(found) == 1 else None


def is_rows(value: Any) -> bool:
    """Whether a value may be counts by layer: lists of lists, an array of two dimensions, rows by layer number."""
    if isinstance(value, Mapping):
        return bool(value) and all(number_in(key) is not None and _is_row(row) for key, row in value.items())
    return depth_of(value) == 2


def rows_of(source: RoutingSource, place: str, value: Any, layers: Sequence[int] | None = None) -> Rows:
    """The usable rows of counts by layer: lists, an array, or a mapping from layer numbers.

    Rows of zeros, empty rows and ``null`` are dense layers and left out without a word, though their numbers stay
    theirs.  Rows with a value that is not a count, or of another length than most, are left out with a notice.
    ``layers`` numbers the rows where the file does.  Raises ``InvalidInput`` where no row is left.
    """
    numbered = _numbered(source, place, value, layers)
    experts = _experts_of(source, place, [row for _, _, row in numbered])
    kept: list[tuple[int, Counts]] = []
    notices: list[Finding] = []
    for layer, where, row in numbered:
        found = _row(row, experts)
        if isinstance(found, np.ndarray):
            if found.any():
                kept.append((layer, found))
        else:
            notices.append(note_in("layer-left-out", source.name, f"{where}{found[0]}", found[1], _REMEDY))
    if not kept:
        if notices:
            first = notices[0]
            raise unusable(source, first.place.path, _shown(numbered), first.sentence, first.remedy)
        problem = "holds no count above 0"
        raise unusable(source, place, _shown(numbered), problem, "record while requests are served")
    kept.sort(key=lambda pair: pair[0])
    counts = np.stack([row for _, row in kept])
    notices = shortened(notices)
    if np.allclose(counts.sum(axis=1), 1.0, atol=_SHARES) and (counts != np.floor(counts)).any():
        sentence = "every layer sums to 1: these are shares, so how many tokens were counted is not known"
        notices.append(note_in("shares", source.name, place, sentence, "send counts to weigh workloads by tokens"))
    return Rows(tuple(layer for layer, _ in kept), counts, tuple(notices))


def shortened(notices: Sequence[Finding]) -> list[Finding]:
    """The first notices, and one that says how many more there are."""
    if len(notices) <= _MOST_NOTICES:
        return list(notices)
    last = notices[-1]
    more = f"{len(notices) - _MOST_NOTICES} more places were not taken, up to this one"
    return [*notices[:_MOST_NOTICES], replace(last, sentence=more)]


def summed(source: RoutingSource, place: str, value: Any) -> tuple[Any, int]:
    """Counts of one dimension more than (layers, experts), summed over steps, and how many steps those were.

    Raises ``InvalidInput`` where the steps differ in shape.
    """
    if depth_of(value) < 3:
        return value, 1
    steps = array_of(value)
    if steps is None or steps.ndim != 3:
        if not isinstance(value, list):
            shape = getattr(value, "shape", "")
            raise unusable(source, place, shape, "must be of (steps, layers, experts)", "save the sum of all steps")
        return _summed_lists(source, place, value), len(value)
    return np.asarray(steps.sum(axis=0, dtype=np.float64)), len(steps)


def check_workloads(source: RoutingSource, count: int) -> None:
    """Raise ``InvalidInput`` for more workloads than a file may hold."""
    if count > MOST_WORKLOADS:
        problem = f"holds {count:,} workloads, more than {MOST_WORKLOADS}"
        raise unusable(source, "", count, problem, "send a row for each layer, and those that are planned for")


def workload(
    source: RoutingSource, name: str, rows: Rows, *, tokens: float | None = None, **tables: dict[int, Counts]
) -> RoutedWorkload:
    """The workload of usable rows; ``tables`` are ``transitions`` and ``coactivation``."""
    try:
        return RoutedWorkload(name, rows.layers, rows.counts, tokens=tokens, **tables)
    except InvalidInput as error:
        raise unusable(source, error.field, error.value, error.problem, error.remedy) from error


def whole(value: object, most: int) -> int | None:
    """The whole number from 0 up to ``most`` that a value is, also as 3.0 or "3"; ``None`` of all else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | np.integer):
        return int(value) if 0 <= value <= most else None
    if isinstance(value, str):
        value = float(value) if _NUMBER.fullmatch(value.strip()) else None
    if isinstance(value, float) and value.is_integer() and 0 <= value <= most:
        return int(value)
    return None


def layer_numbers(value: Any) -> tuple[int, ...] | None:
    """The layer numbers that a list says, each once; ``None`` of all else."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list) or not value:
        return None
    found = [whole(item, MOST_LAYERS) for item in value]
    numbers = tuple(item for item in found if item is not None)
    return numbers if len(numbers) == len(set(numbers)) == len(value) else None


def _is_row(row: Any) -> bool:
    if row is None or (isinstance(row, list) and not row):
        return True
    if isinstance(row, Mapping):
        return bool(row) and all(number_in(key) is not None and _is_number(item) for key, item in row.items())
    return depth_of(row) == 1


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _numbered(
    source: RoutingSource, place: str, value: Any, layers: Sequence[int] | None
) -> list[tuple[int, str, Any]]:
    """Layer, place and row of each; raises ``InvalidInput`` for no rows, too many, or other numbers of layers."""
    if isinstance(value, Mapping):
        rows = [(number_in(key), f"{place}[{key}]", row) for key, row in value.items()]
    else:
        items: Iterable[Any] = value if isinstance(value, list | np.ndarray) else ()
        rows = [(index, f"{place}[{index}]", row) for index, row in enumerate(items)]
        if layers is not None and rows:
            if len(layers) != len(rows):
                problem = f"has {len(rows)} rows for {len(layers)} layers"
                raise unusable(source, place, len(rows), problem, "give one row for each layer that was counted")
            rows = [(layers[index], where, row) for index, (_, where, row) in enumerate(rows)]
    if not rows:
        problem = "must be rows of counts, one for each layer"
        raise unusable(source, place, _kind(value), problem, "send counts by layer and expert")
    numbers = [layer for layer, _, _ in rows if layer is not None and layer <= MOST_LAYERS]
    if len(numbers) < len(rows) or len(set(numbers)) < len(numbers):
        shown = [layer for layer, _, _ in rows][:20]
        problem = f"layers must be numbered once each, from 0 to {MOST_LAYERS}"
        raise unusable(source, place, shown, problem, "send [layers][experts], not [experts][layers] or tokens")
    return [(layer, where, row) for layer, where, row in rows if layer is not None]


def _experts_of(source: RoutingSource, place: str, rows: Sequence[Any]) -> int:
    """Number of experts of a layer: as most rows say, or the model."""
    lengths = Counter(length for row in rows if (length := _length(row)))
    if any(isinstance(row, Mapping) for row in rows) and lengths:
        experts = source.experts or max(lengths)  # a mapping leaves out the experts that nothing selected
    else:
        experts = lengths.most_common(1)[0][0] if lengths else 0
    if not experts:
        problem = "must be rows of counts, one for each layer"
        raise unusable(source, place, _kind(rows[0]), problem, _REMEDY)
    check_experts(source, place, experts)
    return experts


def check_experts(source: RoutingSource, place: str, experts: int) -> None:
    """Raise ``InvalidInput`` where a layer has other experts than the model, too many, or one alone."""
    if source.experts is not None and experts != source.experts:
        problem = f"has {experts} experts in a layer, the model has {source.experts}"
        raise unusable(source, place, experts, problem, "send the counts of this model")
    if experts > MOST_EXPERTS:
        problem = f"has {experts:,} columns, more than the {MOST_EXPERTS:,} experts that a layer may have"
        raise unusable(source, place, experts, problem, "send [layers][experts] counts")
    if experts < 2:
        raise unusable(source, place, experts, "has one expert in a layer", "send [layers][experts] counts")


def _length(row: Any) -> int:
    """Number of experts of a row; 0 for anything else."""
    if isinstance(row, Mapping):
        return 1 + max((number for key in row if (number := number_in(key)) is not None), default=-1)
    if isinstance(row, np.ndarray):
        return len(row) if row.ndim else 0
    return len(row) if isinstance(row, list) else 0


def _row(row: Any, experts: int) -> Counts | tuple[str, str]:
    """The counts of one layer; else where in the row the first bad value is, and what is wrong with it."""
    if row is None or (isinstance(row, list) and not row):
        return np.zeros(experts)
    if isinstance(row, Mapping):
        dense: list[Any] = [0] * experts
        for key, item in row.items():
            index = number_in(key)
            if index is None or index >= experts:
                return f"[{key}]", f"there are experts 0 to {experts - 1}"
            dense[index] = item
        row = dense
    if (length := _length(row)) != experts or not isinstance(row, list | np.ndarray):
        return "", f"has {length} counts where the model has {experts}" if length else "is not a list of counts"
    found = array_of(row)
    if found is None or found.ndim != 1:
        index = next((index for index, item in enumerate(row) if not _is_number(item)), 0)
        return f"[{index}]", f"is not a number: {str(row[index])[:40]}"
    counts = found.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(counts) | (counts < 0))
    if len(bad):
        return f"[{bad[0]}]", f"is not a count: {counts[bad[0]]:g}"
    return counts


def _summed_lists(source: RoutingSource, place: str, steps: list[Any]) -> Counts:
    """The sum of steps that do not stack at once, so that the message names the step."""
    total: Counts | None = None
    for index, step in enumerate(steps):
        found = array_of(step)
        if found is None or found.ndim != 2 or (total is not None and found.shape != total.shape):
            problem = "must be counts of the same layers and experts in each step"
            raise unusable(source, f"{place}[{index}]", _kind(step), problem, "leave this step out")
        total = found.astype(np.float64) if total is None else total + found
    if total is None:
        raise unusable(source, place, "[]", "holds no step", "record while requests are served")
    return total


def _shown(numbered: Sequence[tuple[int, str, Any]]) -> str:
    return f"{len(numbered)} rows"


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array of {value.shape}"
    return f"{type(value).__name__} of {len(value)}" if isinstance(value, list | Mapping) else str(value)[:60]
