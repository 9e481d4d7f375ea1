"""Measured transfer times of node pairs as ragged tables, interpolated for all pairs at once.

Shapes: ``L`` measured directed links, ``F`` numbers of flows at most, ``S`` message sizes at most; rows are
padded with infinity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cluster_models.cluster.measurements import Direction, Sample
from cluster_models.links.wire_flows import LARGE_BYTES, WireFlow, wire_flow

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

Pair = tuple[str, str]

DECILE_SAMPLES: Final = 20
"""Most recent samples that a slow decile is taken over."""
ENOUGH_FOR_DECILE: Final = 5
"""Recent samples from which a link's own slow decile counts."""


@dataclass(frozen=True, slots=True)
class Recency:
    """Choice of the samples of one key that count: ``days`` around its newest, at most ``samples`` of them."""

    days: float = 14.0
    samples: int = 5


def recent(samples: Sequence[Sample], recency: Recency) -> list[Sample]:
    """The samples of one key that count.

    Undated samples count as recent as the newest.  Among the recent ones those taken with most pairs active are
    kept: a training run loads the whole fabric.
    """
    dates = [in_utc(sample.measured_at) for sample in samples if sample.measured_at is not None]
    newest = max(dates, default=datetime.min.replace(tzinfo=UTC))

    def taken(sample: Sample) -> datetime:
        return newest if sample.measured_at is None else in_utc(sample.measured_at)

    fresh = [sample for sample in samples if newest - taken(sample) <= timedelta(days=recency.days)]
    most_loaded = max(sample.pairs_active for sample in fresh)
    loaded = [sample for sample in fresh if sample.pairs_active == most_loaded]
    return sorted(loaded, key=taken, reverse=True)[: recency.samples]


def in_utc(moment: datetime) -> datetime:
    """The moment with a zone; one without is taken for UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def directions(sample: Sample) -> tuple[Pair, ...]:
    """The directed pairs that ``sample`` describes."""
    forward = (sample.source, sample.destination)
    if sample.direction is Direction.FORWARD or sample.source == sample.destination:
        return (forward,)
    return (forward, forward[::-1])


def _time_s(members: Sequence[tuple[WireFlow, Sample]], recency: Recency, slow_factor: float | None) -> float:
    """Seconds of one key: the median, or the slow decile where ``slow_factor`` is given."""
    middle = median(flow.time_s for flow in _recent_flows(members, recency))
    if slow_factor is None:
        return middle
    window = replace(recency, samples=max(DECILE_SAMPLES, recency.samples))
    times = [flow.time_s for flow in _recent_flows(members, window)]
    if len(times) < ENOUGH_FOR_DECILE:
        return middle * slow_factor
    return max(middle, float(np.quantile(times, 0.9)))


def _recent_flows(members: Sequence[tuple[WireFlow, Sample]], recency: Recency) -> list[WireFlow]:
    chosen = {id(sample) for sample in recent([sample for _, sample in members], recency)}
    return [flow for flow, sample in members if id(sample) in chosen]


@dataclass(frozen=True, slots=True, eq=False)
class LinkTables:
    """Times of ``L`` directed links: ``flows`` (L, F), ``message_bytes`` and ``time_s`` (L, F, S).

    Numbers of flows and message sizes increase along their axis.
    """

    pairs: tuple[Pair, ...]
    flows: FloatArray
    message_bytes: FloatArray
    time_s: FloatArray

    @property
    def lowest_flows(self) -> FloatArray:
        """Smallest number of flows measured, per link (L,)."""
        return self.flows[:, 0]

    @property
    def highest_flows(self) -> FloatArray:
        """Largest number of flows measured, per link (L,)."""
        highest: FloatArray = np.where(np.isfinite(self.flows), self.flows, 0.0).max(axis=1, initial=0.0)
        return highest

    def too_small(self, message_bytes: float) -> BoolArray:
        """Numbers of flows (L, F) measured with small messages only, where ``message_bytes`` is beyond them."""
        largest = np.where(np.isfinite(self.message_bytes), self.message_bytes, 0.0).max(axis=2, initial=0.0)
        silent: BoolArray = (largest > 0) & (largest < LARGE_BYTES) & (largest < message_bytes)
        return silent

    def longest_s(self, levels: BoolArray) -> FloatArray:
        """The longest time measured on each link (L,) at ``levels`` (L, F) of flows; 0 where it has none."""
        times = np.where(np.isfinite(self.time_s) & levels[:, :, None], self.time_s, 0.0)
        longest: FloatArray = times.max(axis=(1, 2), initial=0.0)
        return longest

    def without(self, levels: BoolArray) -> LinkTables:
        """The same links but for ``levels`` (L, F) of flows; a link may have none left."""
        flows = np.where(levels, np.inf, self.flows)
        order = np.argsort(flows, axis=1, kind="stable")
        sizes = np.where(levels[:, :, None], np.inf, self.message_bytes)
        times = np.where(levels[:, :, None], np.inf, self.time_s)
        return LinkTables(
            self.pairs,
            np.take_along_axis(flows, order, axis=1),
            np.take_along_axis(sizes, order[:, :, None], axis=1),
            np.take_along_axis(times, order[:, :, None], axis=1),
        )

    def at(self, message_bytes: float, flows: float, latency_s: FloatArray) -> FloatArray:
        """Seconds of one flow on each link (L,); ``latency_s`` (L,) is used below the smallest size.

        Log-log between numbers of flows, constant outside the measured ones.  Where more flows were measured
        faster per flow than fewer, the fewer take the better time: dropping a flow cannot hurt the others.
        Infinite for a link without measurements.
        """
        if not self.pairs:
            return np.empty(0)
        times = self._at_levels(message_bytes, latency_s)
        times = np.minimum.accumulate(times[:, ::-1], axis=1)[:, ::-1]
        lower = np.clip((self.flows <= flows).sum(axis=1) - 1, 0, None)
        upper = np.minimum(lower + 1, np.isfinite(self.flows).sum(axis=1) - 1)
        rows = np.arange(len(self.pairs))
        low, high = self.flows[rows, lower], self.flows[rows, upper]
        start, end = times[rows, lower], times[rows, upper]
        with np.errstate(invalid="ignore"):  # a link without any flows left has infinity at both ends
            share = _share(np.log(flows), np.log(low), np.log(high))
            result: FloatArray = start * (end / start) ** share
        return np.where(np.isfinite(start), result, np.inf)

    def _at_levels(self, message_bytes: float, latency_s: FloatArray) -> FloatArray:
        """Seconds of one flow at each measured number of flows (L, F), infinite where padded.

        Log-log between sizes, the last bandwidth above the largest, latency + bandwidth below the smallest.
        """
        sizes, times = self.message_bytes, self.time_s
        count = np.isfinite(sizes).sum(axis=2)
        last = np.maximum(count - 1, 0)
        lower = np.clip((sizes <= message_bytes).sum(axis=2) - 1, 0, None)
        upper = np.minimum(lower + 1, last)
        small, large = _pick(sizes, lower), _pick(sizes, upper)
        start, end = _pick(times, lower), _pick(times, upper)
        with np.errstate(invalid="ignore"):  # padded levels compute infinity over infinity, replaced below
            share = _share(np.log(max(message_bytes, 1e-9)), np.log(small), np.log(large))
            inside = start * (end / start) ** share
            above = end * message_bytes / large
            floor = np.minimum(latency_s[:, None], start)
            below = floor + (start - floor) * message_bytes / small
            times_s = np.where(
                message_bytes < small, below, np.where(message_bytes > _pick(sizes, last), above, inside)
            )
        return np.where(count > 0, times_s, np.inf)


def _pick(values: FloatArray, index: IntArray) -> FloatArray:
    """``values`` (L, F, S) at ``index`` (L, F) of the last axis."""
    return np.take_along_axis(values, index[:, :, None], axis=2)[:, :, 0]


def _share(at: float | np.float64, low: FloatArray, high: FloatArray) -> FloatArray:
    """How far ``at`` lies between ``low`` and ``high``, in [0, 1]; 0 where they coincide."""
    width = np.where(high > low, high - low, 1.0)
    return np.where(high > low, np.clip((at - low) / width, 0.0, 1.0), 0.0)


def link_tables(
    samples: Iterable[Sample], recency: Recency, slow_factors: Mapping[Pair, float] | None = None
) -> LinkTables:
    """The tables of every directed link that has a usable bandwidth sample, ordered by name.

    Times are medians.  With ``slow_factors`` they are slow deciles: of a link's own samples where there are
    enough, else its median times its factor; never faster than the median.  Lower bounds (inexact flows) count
    only where a number of flows of a link has nothing exact.
    """
    measured = [(flow, sample) for sample in samples if (flow := wire_flow(sample)) is not None]
    if not measured:
        return LinkTables((), np.empty((0, 1)), np.empty((0, 1, 1)), np.empty((0, 1, 1)))
    names = sorted({name for _, sample in measured for name in (sample.source, sample.destination)})
    entries = _entries(measured, names)
    new_row, new_level = _begins(entries.pair), _begins(entries.pair, entries.flows)
    first = np.flatnonzero(_begins(entries.pair, entries.flows, entries.size))
    row, level = np.cumsum(new_row)[first] - 1, np.cumsum(new_level)[first] - 1
    column = level - level[_begins(row)][row]
    place = np.arange(len(first)) - np.flatnonzero(_begins(level))[level]
    pairs = [(names[code // len(names)], names[code % len(names)]) for code in entries.pair[new_row].tolist()]
    shape = (len(pairs), int(column.max()) + 1, int(place.max()) + 1)
    flows, sizes, times = (np.full(axes, np.inf) for axes in (shape[:2], shape, shape))
    flows[row, column] = entries.flows[first]
    sizes[row, column, place] = entries.size[first]
    factors = None if slow_factors is None else np.array([slow_factors[pair] for pair in pairs])[row]
    times[row, column, place] = _times(measured, entries, first, recency, factors)
    return LinkTables(tuple(pairs), flows, sizes, times)


@dataclass(frozen=True, slots=True, eq=False)
class _Entries:
    """One entry for each sample and direction, those of a link, a number of flows and a size side by side.

    ``member`` (M,) are indices of samples, in their order; ``pair`` numbers the two names.
    """

    member: IntArray
    pair: IntArray
    flows: IntArray
    size: FloatArray


def _entries(measured: Sequence[tuple[WireFlow, Sample]], names: Sequence[str]) -> _Entries:
    number = {name: index for index, name in enumerate(names)}
    source = np.array([number[sample.source] for _, sample in measured])
    destination = np.array([number[sample.destination] for _, sample in measured])
    flows = np.array([flow.flows for flow, _ in measured])
    exact = np.array([flow.exact for flow, _ in measured])
    size = np.array([flow.message_bytes for flow, _ in measured])
    both = np.array([sample.direction is Direction.BOTH for _, sample in measured]) & (source != destination)
    member = np.concatenate([np.arange(len(measured)), np.flatnonzero(both)])
    pair = np.concatenate([source * len(names) + destination, (destination * len(names) + source)[both]])
    order = np.lexsort((member, size[member], flows[member], pair))
    member, pair = member[order], pair[order]
    begins = _begins(pair, flows[member])
    has_exact = np.logical_or.reduceat(exact[member], np.flatnonzero(begins))[np.cumsum(begins) - 1]
    kept = exact[member] | ~has_exact
    member, pair = member[kept], pair[kept]
    return _Entries(member, pair, flows[member], size[member])


def _begins(*columns: npt.NDArray[Any]) -> BoolArray:
    """Where rows of sorted columns differ from the row before, the first included."""
    begins: BoolArray = np.ones(len(columns[0]), dtype=bool)
    begins[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return begins


def _times(
    measured: Sequence[tuple[WireFlow, Sample]],
    entries: _Entries,
    first: IntArray,
    recency: Recency,
    factors: FloatArray | None,
) -> FloatArray:
    """Seconds of each key, which begins at ``first`` (K,); ``factors`` (K,) are their slow factors."""
    single = np.array([flow.time_s for flow, _ in measured])[entries.member[first]]
    times: FloatArray = single if factors is None else single * factors
    ends = np.append(first[1:], len(entries.member))
    done: dict[tuple[object, ...], float] = {}
    for key in np.flatnonzero(ends - first > 1).tolist():
        members = entries.member[first[key] : ends[key]].tolist()
        factor = None if factors is None else float(factors[key])
        same = (factor, *members)  # as the other direction of the same samples
        if same not in done:
            done[same] = _time_s([measured[member] for member in members], recency, factor)
        times[key] = done[same]
    return times
