"""The integer program that picks groups and the islands they take.

Letters: j groups, l loads of a group, z zones, k classes of islands, q sizes (GPUs in one island), p patterns.

    n[j]        groups of this kind, whole
    a[j,l]      of them, at load l (where requests in flight are given); real
    u[k,z,q]    parts of q GPUs that groups of zone z take in islands of class k, whole
    y[k,p]      islands of class k cut after pattern p, whole
    b[j,l]      1 where one group j runs between loads l and l + 1, where costs are concave in the load

    min  sum_j cost[j] n[j] + sum_jl cost[j,l] a[j,l]
    s.t. sum_l a[j,l] = n[j]                                         a group runs at some load
         sum_jl load[l] a[j,l]  = load of the model                  or  sum_j load[j] n[j] >= load of the model,
                                                                     or  sum_j n[j] >= 1 where none is given
         sum_{j in z} parts[j,q] n[j] = sum_{k in z} u[k,z,q]        every part lies in an island of its zone
         sum_z u[k,z,q] <= sum_p parts[p,q] y[k,p]                   within the pattern of its island
         sum_p y[k,p] <= islands of k
         sum_j gpus[j] n[j] <= max_gpus,  and so for power, and for the cost of a plan that is as good

Islands of more than ``MOST_CUT`` GPUs are cut freely: sum_zq q u[k,z,q] <= GPUs, an island a class.  A real share
of ``a`` says that the mean load of a group lies between two of those priced.  Concave costs are least where all
groups of a model but one run at their most, T, and that one between two neighbouring loads:

    sum_jl b[j,l] <= 1,   a[j,l] <= b[j,l-1] + b[j,l]  (l < T),
    sum_{l<T-1} b[j,l] <= sum_{l<T} a[j,l] <= sum_{l<T} b[j,l]
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.serving.goal import ServingGoal
from solver.candidates import IntArray
from solver.ilp import LinearModel, ModelBuilder
from solver.serving.loads import FloatArray
from solver.serving.planning.groups import Group, watts_of
from solver.serving.planning.zones import MOST_CUT, IslandClass, Zone

GPU_TIE: Final = 1e-7
"""Cost of a GPU beside a maximum, over the largest single term of it: the smallest of equal plans is taken."""
LEAST_LOAD: Final = 1e-5
"""Share of the largest load of a group that groups must take: solvers round less to no group at all."""


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """A group and what it does at loads (L,), in the unit of its model's demand; ``cost`` of one at each."""

    group: Group
    loads: FloatArray
    costs: FloatArray


@dataclass(frozen=True, slots=True)
class Demand:
    """Load of one model; ``is_exact`` where groups share it out, else what they must be able to take at least.

    0: whatever one group takes.  ``is_concave``: costs rise less the higher a group's load.
    """

    load: float
    is_exact: bool
    is_concave: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """Parts of one size that a solution gives a zone in a class of islands."""

    zone: int
    size: int
    island_class: int
    parts: int


@dataclass(frozen=True, slots=True)
class Picked:
    """A solution: groups with their numbers and mean loads, where their parts lie, how islands are cut.

    ``patterns``: class, parts of a pattern, islands.
    """

    counts: tuple[tuple[int, int, float], ...]
    cuts: tuple[Cut, ...]
    patterns: tuple[tuple[int, tuple[int, ...], int], ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Numbers of the rows that a further group would enter: load of each model, parts by zone and size, limits."""

    demands: tuple[int, ...]
    parts: dict[tuple[int, int], int]
    gpus: int | None
    watts: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Duals:
    """Duals of ``Rows``, parts by zone and size (-infinity where no row is); ``tie``: cost of a GPU."""

    demands: FloatArray
    parts: dict[int, FloatArray]
    gpus: float
    watts: float
    tie: float


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The arrays, and which columns and rows mean what; ``served`` is the model of each group."""

    model: LinearModel
    number: IntArray
    served: IntArray
    at_load: tuple[IntArray, ...]
    parts: dict[tuple[int, int, int], int]
    patterns: dict[tuple[int, tuple[int, ...]], int]
    rows: Rows


def build_program(
    offers: Sequence[Offer],
    demands: Sequence[Demand],
    zones: Sequence[Zone],
    classes: Sequence[IslandClass],
    goal: ServingGoal,
    most: tuple[FloatArray, float] | None = None,
    sizes: Collection[tuple[int, int]] = (),
) -> Program:
    """The program of the module's first lines.

    ``most``: what one of each offer costs (J,), and all together; ``sizes`` (zone, GPUs) of parts have rows though
    no offer takes them.
    """
    builder, demand_rows, limits = ModelBuilder(), [], []
    number, at_load = _group_columns(builder, offers, demands, zones, classes)
    for model, demand in enumerate(demands):
        terms = [
            (int(column), float(load))
            for j, offer in enumerate(offers)
            if offer.group.model == model
            for column, load in zip(at_load[j] if demand.is_exact else number[j : j + 1], offer.loads, strict=True)
        ]
        if not demand.load:
            terms = [(column, 1.0) for column, _ in terms]
        upper = demand.load if demand.is_exact else np.inf
        least = 0.0 if demand.is_exact else LEAST_LOAD * max((load for _, load in terms), default=0.0)
        demand_rows.append(builder.add_row(terms, lower=max(demand.load or 1.0, least), upper=upper))
        if demand.is_concave:
            _fill(builder, [at_load[j] for j, offer in enumerate(offers) if offer.group.model == model])
    parts, part_rows = _part_rows(builder, offers, number, classes, sizes)
    patterns = _pattern_rows(builder, parts, classes)
    watts = [watts_of(offer.group, zones[offer.group.zone]) for offer in offers]
    for limit, each in (
        (goal.max_gpus, [float(offer.group.gpus) for offer in offers]),
        (goal.max_power_watts, watts),
    ):
        terms = list(zip(number.tolist(), each, strict=True))
        limits.append(None if limit is None else builder.add_row(terms, upper=limit))
    if most is not None:
        builder.add_row(list(zip(number.tolist(), most[0].tolist(), strict=True)), upper=most[1])
    served = np.array([offer.group.model for offer in offers])
    rows = Rows(tuple(demand_rows), part_rows, *limits)
    return Program(builder.build(), number, served, at_load, parts, patterns, rows)


def duals_of(program: Program, duals: FloatArray, offers: Sequence[Offer]) -> Duals:
    """Duals of the rows of ``program``, among the ``duals`` of all."""
    parts: dict[int, FloatArray] = {}
    rows = program.rows
    most = 1 + max(size for _, size in rows.parts)
    for (zone, size), row in rows.parts.items():
        parts.setdefault(zone, np.full(most, -np.inf))[size] = duals[row]
    gpus, watts = (0.0 if row is None else float(duals[row]) for row in (rows.gpus, rows.watts))
    return Duals(duals[list(rows.demands)], parts, gpus, watts, gpu_tie(offers))


def gpu_tie(offers: Sequence[Offer]) -> float:
    """Cost of one GPU where the objective is a maximum; minima count GPUs already."""
    least = min(float(offer.costs.min()) for offer in offers)
    return -GPU_TIE * least if least < 0 else 0.0


def read(program: Program, offers: Sequence[Offer], values: FloatArray) -> Picked:
    """Replicas and pools that the columns' ``values`` stand for."""
    counts = []
    for j, offer in enumerate(offers):
        if (times := round(values[program.number[j]])) > 0:
            columns = program.at_load[j]
            load = float(values[columns] @ offer.loads) / times if len(columns) else float(offer.loads[-1])
            counts.append((j, times, load))
    return Picked(
        counts=tuple(counts),
        cuts=tuple(
            Cut(zone, size, k, round(values[column]))
            for (k, zone, size), column in program.parts.items()
            if values[column] > 0.5
        ),
        patterns=tuple(
            (k, pattern, round(values[column]))
            for (k, pattern), column in program.patterns.items()
            if values[column] > 0.5
        ),
    )


def _group_columns(
    builder: ModelBuilder,
    offers: Sequence[Offer],
    demands: Sequence[Demand],
    zones: Sequence[Zone],
    classes: Sequence[IslandClass],
) -> tuple[IntArray, tuple[IntArray, ...]]:
    """Columns of n[j] and a[j,l], and the rows between them."""
    gpus = {z: sum(k.gpus * len(k.islands) for k in classes if z in k.zones) for z in range(len(zones))}
    tie = gpu_tie(offers)
    number, at_load = [], []
    for offer in offers:
        exact = demands[offer.group.model].is_exact
        most = gpus[offer.group.zone] // offer.group.gpus
        cost = tie * offer.group.gpus + (0.0 if exact else float(offer.costs[-1]))
        column = builder.add_columns(1, upper=most, cost=cost, integer=True)
        number.append(column)
        if not exact:
            at_load.append(column[:0])
            continue
        own = np.concatenate([builder.add_columns(1, cost=float(cost)) for cost in offer.costs])
        builder.add_row([*((int(each), 1.0) for each in own), (int(column[0]), -1.0)], lower=0.0, upper=0.0)
        at_load.append(own)
    return np.concatenate(number), tuple(at_load)


def _fill(builder: ModelBuilder, at_load: Sequence[IntArray]) -> None:
    """Columns b[j,l] of one model's groups, and their rows."""
    every = []
    for loads in at_load:
        between = builder.add_columns(len(loads) - 1, upper=1, integer=True).tolist()
        every += between
        partly = [(int(column), 1.0) for column in loads[:-1]]
        for load, column in enumerate(partly):
            beside = between[max(0, load - 1) : load + 1]
            builder.add_row([column, *((each, -1.0) for each in beside)], upper=0.0)
        builder.add_row([*partly, *((each, -1.0) for each in between)], upper=0.0)
        builder.add_row([*partly, *((each, -1.0) for each in between[:-1])], lower=0.0)
    builder.add_row([(column, 1.0) for column in every], upper=1.0)


def _part_rows(
    builder: ModelBuilder,
    offers: Sequence[Offer],
    number: IntArray,
    classes: Sequence[IslandClass],
    sizes: Collection[tuple[int, int]],
) -> tuple[dict[tuple[int, int, int], int], dict[tuple[int, int], int]]:
    """Columns u[k,z,q] by (k, z, q), and rows by (z, q) that give every part of a group an island of its zone."""
    wanted: dict[tuple[int, int], list[tuple[int, float]]] = {each: [] for each in sorted(sizes)}
    for column, offer in zip(number, offers, strict=True):
        for size, count in offer.group.slots:
            wanted.setdefault((offer.group.zone, size), []).append((int(column), float(count)))
    parts, rows = {}, {}
    for (zone, size), terms in wanted.items():
        own = []
        for k, island_class in enumerate(classes):
            if zone in island_class.zones and size <= island_class.gpus:
                most = len(island_class.islands) * (island_class.gpus // size)
                parts[k, zone, size] = int(builder.add_columns(1, upper=most, integer=True)[0])
                own.append((parts[k, zone, size], -1.0))
        rows[zone, size] = builder.add_row([*terms, *own], lower=0.0, upper=0.0)
    return parts, rows


def _pattern_rows(
    builder: ModelBuilder, parts: dict[tuple[int, int, int], int], classes: Sequence[IslandClass]
) -> dict[tuple[int, tuple[int, ...]], int]:
    """Columns y[k,p] by (k, p), and the rows that keep parts within patterns and patterns within islands."""
    columns: dict[tuple[int, tuple[int, ...]], int] = {}
    for k, island_class in enumerate(classes):
        own = [(size, column) for (of, _, size), column in parts.items() if of == k]
        if not own:
            continue
        if island_class.gpus > MOST_CUT:
            builder.add_row([(column, float(size)) for size, column in own], upper=island_class.gpus)
            continue
        sizes = sorted({size for size, _ in own}, reverse=True)
        cuts = list(patterns_of(island_class.gpus, sizes))
        added = builder.add_columns(len(cuts), upper=len(island_class.islands), integer=True)
        for size in sizes:
            taken = [(column, 1.0) for other, column in own if other == size]
            given = [(int(each), -float(cut.count(size))) for each, cut in zip(added, cuts, strict=True)]
            builder.add_row([*taken, *given], upper=0.0)
        builder.add_row([(int(each), 1.0) for each in added], upper=len(island_class.islands))
        columns |= {(k, cut): int(each) for each, cut in zip(added, cuts, strict=True)}
    return columns


def patterns_of(gpus: int, sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Ways to cut ``gpus`` into parts of ``sizes`` (decreasing) with no room left for another part."""
    if not sizes or gpus < sizes[-1]:
        yield ()
        return
    for index, size in enumerate(sizes):
        if size <= gpus:
            for rest in patterns_of(gpus - size, sizes[index:]):
                if _is_full(gpus - size - sum(rest), sizes):
                    yield (size, *rest)


def _is_full(left: int, sizes: Sequence[int]) -> bool:
    return left < sizes[-1]
