"""Loads, transitions and co-activation of tokens whose selected experts are known one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import Counts
from readers.frame.findings import Finding, note_in
from readers.routing.numbers import Rows, array_of, check_experts
from readers.routing.reading import MOST_EXPERTS, MOST_LAYERS, RoutingSource, unusable

Ids = NDArray[np.int64]
"""(tokens, layers, selections) expert ids; -1 where a token selected none there."""

_MOST_TABLE_CELLS: Final = 2**25
"""Cells of all tables of a kind: 256 MiB."""
_MOST_PAIRS: Final = 2**22
_MOST_SELECTIONS: Final = 64
_MOST_IDS: Final = 2**24
"""Ids of a trace: 128 MiB while they are counted."""
_REMEDY: Final = "send [token][layer][selected experts], -1 where a token selected none"


@dataclass(frozen=True, slots=True)
class TraceCounts:
    """Counts of the experts that tokens selected; the layers that no token reached are left out."""

    rows: Rows
    tokens: float
    transitions: dict[int, Counts]
    coactivation: dict[int, Counts]


def ids_of(source: RoutingSource, place: str, value: Any) -> Ids:
    """(tokens, layers, selections) of lists or an array; shorter lists are filled up with -1.

    Raises ``InvalidInput`` for other shapes and other than whole numbers.
    """
    found = array_of(value)
    if found is None:
        found = _filled(source, place, value)
    if found.ndim == 2:
        found = found[:, :, None]  # one expert for each token
    if found.ndim != 3 or not found.size:
        raise unusable(source, place, found.shape, "must be of (tokens, layers, selected experts)", _REMEDY)
    if found.shape[1] > MOST_LAYERS or found.shape[2] > _MOST_SELECTIONS:
        problem = f"a token has at most {MOST_LAYERS} layers and {_MOST_SELECTIONS} experts in each"
        raise unusable(source, place, found.shape, problem, _REMEDY)
    if found.size > _MOST_IDS:
        most = _MOST_IDS // (found.shape[1] * found.shape[2])
        problem = f"holds {found.size:,} selections, more than {_MOST_IDS:,}"
        raise unusable(source, place, found.shape, problem, f"send {most:,} tokens at most")
    odd = np.argwhere(~np.isfinite(found) | (found != np.floor(found)) | (np.abs(found) >= 2.0**53))
    if len(odd):
        where = "".join(f"[{index}]" for index in odd[0])
        raise unusable(source, place + where, found[tuple(odd[0])], "is not an expert id", _REMEDY)
    return np.maximum(found.astype(np.int64), -1)


def counted(
    source: RoutingSource, place: str, ids: Ids, layers: tuple[int, ...], experts: int | None
) -> TraceCounts:
    """The counts of traced tokens; ``experts`` is how many a layer has, else the largest id says it.

    ``transitions`` count all pairs of an expert of a layer and one of the next layer that was counted.  Raises
    ``InvalidInput`` where no token selected an expert that the model has.
    """
    notices: list[Finding] = []
    ids, size = _within(source, place, ids, experts, notices)
    check_experts(source, place, size)
    reached = (ids >= 0).any(axis=(0, 2))
    if not reached.any():
        raise unusable(source, place, "-1", "no token selected an expert", _REMEDY)
    kept = np.flatnonzero(reached)
    ids = ids[:, kept]
    loads = np.stack([_tally(ids[:, index], size) for index in range(len(kept))])
    transitions: dict[int, Counts] = {}
    coactivation: dict[int, Counts] = {}
    if len(kept) * size * size <= _MOST_TABLE_CELLS:
        transitions = {index: _pairs(ids[:, index], ids[:, index + 1], size) for index in range(len(kept) - 1)}
        transitions = {index: table for index, table in transitions.items() if table.any()}
        if ids.shape[2] > 1:
            coactivation = {index: _together(ids[:, index], size) for index in range(len(kept))}
    else:
        sentence = f"{len(kept)} layers of {size} experts: pairs of experts were not counted"
        notices.append(note_in("pairs-left-out", source.name, place, sentence, "send fewer layers"))
    tokens = float((ids >= 0).any(axis=(1, 2)).sum())
    rows = Rows(tuple(layers[index] for index in kept), loads, tuple(notices))
    return TraceCounts(rows, tokens, transitions, coactivation)


def _within(
    source: RoutingSource, place: str, ids: Ids, experts: int | None, notices: list[Finding]
) -> tuple[Ids, int]:
    """The ids with those that no expert has taken away, and how many experts a layer has."""
    largest = int(ids.max())
    if experts is None:
        if largest >= MOST_EXPERTS:
            problem = f"expert ids go from 0 to {MOST_EXPERTS - 1} at most"
            raise unusable(source, place, largest, problem, "these look like ids of tokens: send expert ids")
        sentence = f"the largest id is {largest}, so {largest + 1} experts were taken in each layer"
        notices.append(note_in("experts-guessed", source.name, place, sentence, "say which model was traced"))
        return ids, largest + 1
    if largest < experts:
        return ids, experts
    outside = ids >= experts
    where = "".join(f"[{index}]" for index in np.argwhere(outside)[0])
    problem = f"{int(outside.sum()):,} of {int((ids >= 0).sum()):,} ids are of no expert: the model has {experts}"
    if 2 * outside.sum() > (ids >= 0).sum():
        raise unusable(source, place + where, int(ids[outside][0]), problem, "send the trace of this model")
    notices.append(note_in("ids-left-out", source.name, place + where, problem, "send the trace of this model"))
    return np.where(outside, -1, ids), experts


def _tally(ids: Ids, size: int) -> Counts:
    chosen = ids[ids >= 0]
    return np.bincount(chosen, minlength=size).astype(np.float64)


def _pairs(first: Ids, second: Ids, size: int) -> Counts:
    """(size, size): how often a token selected the row in ``first`` and the column in ``second``."""
    table = np.zeros(size * size)
    step = max(1, _MOST_PAIRS // (first.shape[1] * second.shape[1]))
    for start in range(0, len(first), step):
        left, right = first[start : start + step, :, None], second[start : start + step, None, :]
        both = (left >= 0) & (right >= 0)
        table += np.bincount((left * size + right)[both], minlength=size * size)
    return table.reshape(size, size)


def _together(ids: Ids, size: int) -> Counts:
    table = _pairs(ids, ids, size)
    np.fill_diagonal(table, 0.0)
    return table


def _filled(source: RoutingSource, place: str, value: Any) -> NDArray[np.float64]:
    """Lists of unequal lengths as an array: tokens without all layers are left out by -1."""
    if not isinstance(value, list) or not value:
        raise unusable(source, place, type(value).__name__, "must be a list of tokens", _REMEDY)
    tokens = [token if isinstance(token, list) else [] for token in value]
    layers = max(len(token) for token in tokens)
    places = [[ids if isinstance(ids, list) else [ids] for ids in token] for token in tokens]
    selections = max((len(ids) for token in places for ids in token), default=0)
    if layers > MOST_LAYERS or selections > _MOST_SELECTIONS or not selections:
        problem = f"a token has at most {MOST_LAYERS} layers and {_MOST_SELECTIONS} experts in each"
        raise unusable(source, place, (len(tokens), layers, selections), problem, _REMEDY)
    found = np.full((len(tokens), layers, selections), -1.0)
    for token, rows in enumerate(places):
        for layer, ids in enumerate(rows):
            for slot, expert in enumerate(ids):
                if expert is None:
                    continue
                if isinstance(expert, bool) or not isinstance(expert, int | float):
                    where = f"{place}[{token}][{layer}][{slot}]"
                    raise unusable(source, where, str(expert)[:60], "is not an expert id", _REMEDY)
                try:
                    found[token, layer, slot] = expert
                except OverflowError as error:
                    where = f"{place}[{token}][{layer}][{slot}]"
                    raise InvalidInput(
                        f"{source.name}: {where}", "999...", "is not an expert id", _REMEDY
                    ) from error
    return found
