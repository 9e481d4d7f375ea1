"""Prices of many groups at once: latencies and rates at every load, by the arrays of ``solver.serving.cases``.

Shapes: W workers (a shape in a zone), G groups, P points (a group at a load), flat over all groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeVar

import numpy as np

from cluster_models.serving.goal import ServedModel
from cluster_models.serving.workload import Pool, ServingConfiguration, Worker
from solver.candidates import BoolArray, IntArray
from solver.serving.arrivals import open_state
from solver.serving.cases import Arrays, ServingCase, arrays_of, crossing_of, imbalance_of, steady_of
from solver.serving.draw import drawn_shares
from solver.serving.loads import FloatArray, Loads
from solver.serving.percentiles import limited_latencies
from solver.serving.planning.groups import Group
from solver.serving.planning.shapes import Shape
from solver.serving.planning.zones import Zone
from solver.serving.rates import Rates, rates_of
from solver.serving.steady_state import Steady

LEVEL_RATIO: Final = 1.15
"""Step between the loads at which a group is priced: rates between two of them are a straight line within 0.3 %."""
BLOCK: Final = 16_384
"""Points priced at once: their arrays stay in the processor's cache."""
HALVINGS: Final = 12
"""Steps of the search for the highest load within the limits: to a four-thousandth."""
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, eq=False)
class WorkerTable:
    """Workers (W,) of one model, each as if it did both phases; ``split_...`` where it does one of them."""

    served: ServedModel
    rows: dict[tuple[int, Shape], int]
    zones: Sequence[Zone]
    arrays: Arrays
    split_arrays: Arrays
    rates: Rates
    split_rates: Rates

    def row(self, zone: int, shape: Shape) -> int:
        """The worker's row; within one island it is priced once for all zones of its speed."""
        return self.rows[self.zones[zone].speed if shape.islands == 1 else zone, shape]

    @property
    def fits(self) -> BoolArray:
        """Workers (W,) that hold their weights and a request."""
        return np.asarray(self.arrays.fits > 0)


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Groups (P,) at loads: requests in flight, rates, mean latencies, and whether the limits are met.

    ``limited_s`` (P, L) are the latencies that limits hold for, in the order of ``ServingWorkload.limits_s``.
    """

    group: IntArray
    concurrency: FloatArray
    requests_per_s: FloatArray
    first_token_s: FloatArray
    token_s: FloatArray
    limited_s: FloatArray
    meets: BoolArray

    def excess(self, limits_s: tuple[float, ...]) -> FloatArray:
        """Factors (P, L) by which limits are missed; below 1 where they are met."""
        return np.asarray(self.limited_s / limits_s)


def take(value: Value, rows: IntArray) -> Value:
    """The dataclass of arrays ``value`` at ``rows``."""
    arrays: dict[str, Any] = {
        field.name: getattr(value, field.name)[rows]
        for field in fields(value)  # type: ignore[arg-type]
    }
    return type(value)(**arrays)


def joined(first: Value, other: Value) -> Value:
    """Two dataclasses of arrays one after the other."""
    arrays: dict[str, Any] = {
        field.name: np.concatenate([getattr(first, field.name), getattr(other, field.name)])
        for field in fields(first)  # type: ignore[arg-type]
    }
    return type(first)(**arrays)


def joined_cases(first: tuple[Arrays, Rates], other: tuple[Arrays, Rates]) -> tuple[Arrays, Rates]:
    """Cases of one model one after the other."""
    columns = (field.name for field in fields(Arrays) if field.name != "kinds")
    arrays = {name: joined(getattr(first[0], name), getattr(other[0], name)) for name in columns}
    return Arrays(**arrays, kinds=first[0].kinds), joined(first[1], other[1])


def worker_table(served: ServedModel, zones: Sequence[Zone], workers: Sequence[tuple[int, Shape]]) -> WorkerTable:
    """The table of ``workers``, each a zone by number and a shape."""
    cases = [_case(served, zones[zone], shape) for zone, shape in workers]
    properties, shifts = [case.properties for case in cases], [case.shifts for case in cases]
    arrays = arrays_of(cases)
    return WorkerTable(
        served=served,
        rows={worker: row for row, worker in enumerate(workers)},
        zones=zones,
        arrays=arrays,
        split_arrays=_split(arrays, served, [shape.worker for _, shape in workers]),
        rates=rates_of(properties, shifts=shifts),
        split_rates=rates_of([{**each, "split": "split"} for each in properties], shifts=shifts),
    )


def _split(arrays: Arrays, served: ServedModel, workers: Sequence[Worker]) -> Arrays:
    """Arrays of workers that do one phase: their expert maps are for it alone."""
    if served.workload.routing is None:
        return arrays

    def alone(loads: Loads, phase: str) -> Loads:
        counted = served.workload, served.architecture
        domains = loads.domain.astype(np.int64).tolist()
        return replace(
            loads,
            imbalance=_column(imbalance_of(served.workload, each, phase, split=True) for each in workers),
            crossing=_column(
                crossing_of(counted, each, domain, phase, split=True)
                for each, domain in zip(workers, domains, strict=True)
            ),
        )

    return replace(arrays, decode=alone(arrays.decode, "decode"), prefill=alone(arrays.prefill, "prefill"))


def _column(values: Iterable[float | None]) -> FloatArray:
    """One entry a worker, NaN for ``None``."""
    return np.array(list(values), dtype=np.float64)


def _case(served: ServedModel, zone: Zone, shape: Shape) -> ServingCase:
    return ServingCase(
        architecture=served.architecture,
        gpu=zone.gpu,
        power_caps_watts=(zone.prefill_cap_watts, zone.cap_watts),
        links=zone.links(shape.islands, shape.slot),
        workload=served.workload,
        configuration=ServingConfiguration(Pool(shape.worker)),
        transfer_bytes_per_s=zone.transfer_bytes_per_s,
        own=served.own,
    )


def cases_of(table: WorkerTable, groups: Sequence[Group]) -> tuple[Arrays, Rates]:
    """Arrays and rates of ``groups`` (G,) of the table's model."""
    decode = np.array([table.row(group.zone, group.decode) for group in groups])
    prefill = np.array([table.row(group.zone, group.prefill or group.decode) for group in groups])
    split = np.array([float(group.prefill is not None) for group in groups])
    workers = np.array([float(group.decode_replicas) for group in groups])
    loads, traffic = take(table.arrays.decode, decode), take(table.arrays.traffic, decode)
    prompts = take(table.arrays.prefill, prefill)
    near = np.array(
        [
            table.zones[group.zone].transfer_bytes_per_s / table.zones[group.zone].domain_bytes_per_s
            if group.near
            else 1.0
            for group in groups
        ]
    )
    rates = take(table.rates, decode)
    if split.any():
        others = take(table.split_rates, decode)
        rates = Rates(
            **{
                field.name: np.where(split > 0, getattr(others, field.name), getattr(rates, field.name))
                for field in fields(Rates)
            }
        )
        alone = table.split_arrays.decode.imbalance[decode], table.split_arrays.prefill.imbalance[prefill]
        loads = replace(loads, imbalance=np.where(split > 0, alone[0], loads.imbalance))
        prompts = replace(prompts, imbalance=np.where(split > 0, alone[1], prompts.imbalance))
    arrays = Arrays(
        decode=loads,
        prefill=prompts,
        traffic=replace(
            traffic,
            decode_workers=workers,
            prefill_workers=np.where(split > 0, [float(group.prefill_replicas) for group in groups], workers),
            split=split,
            transfer_s=traffic.transfer_s * near,
        ),
        decode_memory=take(table.arrays.decode_memory, decode),
        prefill_memory=take(table.arrays.prefill_memory, prefill),
        kinds=table.arrays.kinds,
    )
    return arrays, rates


def take_cases(cases: tuple[Arrays, Rates], rows: IntArray) -> tuple[Arrays, Rates]:
    """Cases at ``rows``."""
    arrays, rates = cases
    columns = (field.name for field in fields(Arrays) if field.name != "kinds")
    taken = Arrays(**{name: take(getattr(arrays, name), rows) for name in columns}, kinds=arrays.kinds)
    return taken, take(rates, rows)


def most_in_flight(cases: tuple[Arrays, Rates]) -> FloatArray:
    """Requests (G,) that each group holds at once."""
    traffic = cases[0].traffic
    return np.asarray(traffic.most_sequences * traffic.decode_workers)


def closed_points(served: ServedModel, cases: tuple[Arrays, Rates], most: FloatArray) -> Points:
    """Points of every group at loads up to ``most`` (G,) in flight, rising by ``LEVEL_RATIO``."""
    counts = 2 + np.ceil(np.log(np.maximum(most, 1.0)) / np.log(LEVEL_RATIO)).astype(np.int64)
    group = np.repeat(np.arange(len(most)), counts)
    step = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
    loads = np.minimum(np.minimum(1.0, most)[group] * LEVEL_RATIO**step, most[group])
    is_new = np.concatenate([[True], (np.diff(loads) > 0) | (np.diff(group) > 0)])
    return closed_at(served, cases, group[is_new], loads[is_new])


def loads_up_to(most: float) -> FloatArray:
    """Loads at which a group of at most ``most`` requests in flight is priced."""
    steps = min(1.0, most) * LEVEL_RATIO ** np.arange(
        2 + math.ceil(math.log(max(most, 1.0)) / math.log(LEVEL_RATIO))
    )
    return np.unique(np.minimum(steps, most))


def closed_at(served: ServedModel, cases: tuple[Arrays, Rates], group: IntArray, concurrency: FloatArray) -> Points:
    """Points of groups (P,) with ``concurrency`` (P,) requests in flight.

    Where a phase is busy all the time, requests wait for it as Little's law says: for what concurrency over rate
    leaves beside decoding.
    """

    def state(arrays: Arrays, rates: Rates, loads: FloatArray) -> Steady:
        traffic = replace(arrays.traffic, concurrency=loads)
        return steady_of(replace(arrays, traffic=traffic), rates)

    points = _points(served, cases, group, concurrency, state)
    late = waiting_s(served, concurrency, points.requests_per_s, points.token_s) - points.first_token_s
    late = np.maximum(late, 0.0)
    later = np.stack([late, np.zeros_like(late), late], axis=1)
    limited = points.limited_s + np.tile(later, points.limited_s.shape[1] // 3)
    found = replace(points, concurrency=concurrency, first_token_s=points.first_token_s + late, limited_s=limited)
    return replace(found, meets=points.meets & (found.excess(served.workload.limits_s) <= 1.0).all(axis=1))


def waiting_s(
    served: ServedModel, concurrency: FloatArray, requests_per_s: FloatArray, token_s: FloatArray
) -> FloatArray:
    """Seconds that a request is in flight without being decoded, by Little's law."""
    return np.asarray(concurrency / requests_per_s - (served.workload.output_tokens - 1) * token_s)


def open_at(
    served: ServedModel, cases: tuple[Arrays, Rates], group: IntArray, requests_per_s: FloatArray
) -> Points:
    """Points of groups (P,) under random arrivals at ``requests_per_s`` (P,)."""

    def state(arrays: Arrays, rates: Rates, loads: FloatArray) -> Steady:
        return open_state(arrays.decode, arrays.prefill, rates, arrays.traffic, loads)

    return _points(served, cases, group, requests_per_s, state)


def drawn_watts_at(
    cases: tuple[Arrays, Rates], groups: Sequence[Group], zones: Sequence[Zone], rows: IntArray, rates: FloatArray
) -> FloatArray:
    """Mean power (P,) that ``groups`` (G,) draw at ``rows`` (P,) of them and ``rates`` (P,) of random arrivals."""
    watts = np.array([zones[group.zone].gpu.power_watts for group in groups])
    own = np.array([[pool.gpus if pool else 0 for pool in _pools(group)] for group in groups])
    found = []
    for start in range(0, len(rows), BLOCK):
        block = slice(start, start + BLOCK)
        arrays, shares = take_cases(cases, rows[block])
        steady = open_state(arrays.decode, arrays.prefill, shares, arrays.traffic, rates[block])
        found.append(np.stack(drawn_shares(arrays, steady), axis=1))
    return np.asarray((np.concatenate(found) * own[rows]).sum(axis=1) * watts[rows])


def _pools(group: Group) -> tuple[Pool | None, Pool]:
    configuration = group.configuration
    return configuration.prefill, configuration.decode


def _points(
    served: ServedModel,
    cases: tuple[Arrays, Rates],
    group: IntArray,
    loads: FloatArray,
    state: Callable[[Arrays, Rates, FloatArray], Steady],
) -> Points:
    parts = []
    for start in range(0, len(group), BLOCK):
        block = slice(start, start + BLOCK)
        arrays, rates = take_cases(cases, group[block])
        steady = state(arrays, rates, loads[block])
        limited = limited_latencies(steady, arrays.kinds, served.workload)
        parts.append((steady.first_token_s, steady.token_s, limited, steady.requests_per_s, steady.queue_s))
    first, token, limited, rate, queue = (np.concatenate(each) for each in zip(*parts, strict=True))
    outputs = served.workload.output_tokens - 1
    found = Points(group, rate * (first + outputs * token), rate, first, token, limited, np.isfinite(queue))
    return replace(found, meets=found.meets & (found.excess(served.workload.limits_s) <= 1.0).all(axis=1))


def highest(points: Points, groups: int) -> IntArray:
    """For each group (G,) its last point before the limits are missed, -1 where the first misses them."""
    starts = np.searchsorted(points.group, np.arange(groups))
    rows = np.arange(len(points.group))
    ends = np.append(starts[1:], len(rows))
    missed = np.minimum.reduceat(np.where(points.meets, len(rows), rows), starts)
    last = np.minimum(missed, ends) - 1
    return np.where(last >= starts, last, -1)


def refined(at: Callable[[IntArray, FloatArray], Points], low: FloatArray, high: FloatArray) -> Points:
    """The highest loads (G,) within the limits, between ``low``, which meets them, and ``high``."""
    rows = np.arange(len(low))
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        meets = at(rows, middle).meets
        low, high = np.where(meets, middle, low), np.where(meets, high, middle)
    return at(rows, low)
