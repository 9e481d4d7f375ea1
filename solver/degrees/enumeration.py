"""All legal combinations of degrees for a number of equal nodes.

The rules are Megatron-Core's: heads divide by the tensor size and key/value heads share or repeat evenly, the
sequence divides by twice the context size, experts divide by the expert size and their width by the expert tensor
size, which fold over the tensor, context and data ranks of one stage, pipeline schedules want numbers of virtual
stages and of micro-batches that the framework can run (``cluster_models.training.schedules``), layers are shared
out as its launcher can (``cluster_models.training.layer_splits``), and the batch divides by micro-batch times data
size.  Schedules longer than ``MOST_EVENTS`` are left out.  Memory options are not part of the table: where a
candidate does not fit without, ``mix_choice`` chooses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from math import inf, isqrt, prod
from typing import Final, NamedTuple

import numpy as np

from cluster_models.model.architecture import Architecture
from cluster_models.training.context_exchange import exchange_codes
from cluster_models.training.frameworks import Framework
from cluster_models.training.free_settings import first_codes, offered
from cluster_models.training.offload import least_offload, may_offload, must_offload_layers
from cluster_models.training.plan import RankOrder
from cluster_models.training.run_settings import settings_of
from cluster_models.training.schedules import can_run
from cluster_models.training.workload import Sharding, TrainingWorkload
from solver.candidates import (
    ORDER_CODES,
    SCHEDULE_CODES,
    SHARDING_CODES,
    CandidateBatch,
    IntArray,
    joined_batches,
    names_of,
)
from solver.degrees.layout import launchable
from solver.degrees.model_divisions import context_legal, expert_tensor_legal, tensor_legal
from solver.pipeline.schedule import MOST_EVENTS, events_of_chunk

COLUMNS: Final = len(names_of(CandidateBatch))
MOST_SHAPES: Final = 4096
"""Pairs of a pipeline size and a number of micro-batches whose legal shapes are remembered."""
_DATA_FIRST: Final = ORDER_CODES.index(RankOrder.DATA_BEFORE_PIPELINE)
_PIPELINE_FIRST: Final = ORDER_CODES.index(RankOrder.PIPELINE_BEFORE_DATA)


@dataclass(frozen=True, slots=True)
class Grid:
    """Sizes that place GPUs: the grid of cells and their shape."""

    tensor: int
    context: int
    pipeline: int
    data: int

    @property
    def cell(self) -> int:
        """GPUs of one cell."""
        return self.tensor * self.context


def enumerate_candidates(
    architecture: Architecture,
    workload: TrainingWorkload,
    *,
    gpus_per_node: int,
    nodes: int,
    wanted: Callable[[Grid], bool] = lambda _: True,
    wider: Sequence[tuple[int, int]] = (),
    parts: bool = True,
    limit: float = inf,
) -> CandidateBatch:
    """Every legal candidate on up to ``nodes`` nodes with ``gpus_per_node`` GPUs each, of the grids ``wanted``.

    A node may be a unit of nodes that NVLink joins.  ``wider`` has GPUs and number of wider units: candidates that
    fill units of one such size are left out, because there more of their traffic is on NVLink.
    Memory cuts later; of settings that spend memory on time alone the fastest stand for all.
    """
    worlds = worlds_of(workload, gpus_per_node=gpus_per_node, nodes=nodes, parts=parts, limit=limit)
    return Enumeration(architecture, workload, gpus_per_node, tuple(wider)).over(worlds, wanted=wanted)


def worlds_of(
    workload: TrainingWorkload, *, gpus_per_node: int, nodes: int, parts: bool = True, limit: float = inf
) -> list[int]:
    """Numbers of GPUs that plans may use, at most ``limit``, increasing: whole nodes, or ``parts`` of one node."""
    limit = min(workload.max_gpus or inf, limit, gpus_per_node * nodes)
    worlds = [world for world in _divisors(gpus_per_node) if parts and world < gpus_per_node]
    worlds += [count * gpus_per_node for count in range(1, nodes + 1)]
    sizes = [workload.pinned.get(degree) for degree in ("tensor", "context", "data", "pipeline")]
    pinned = prod(size or 1 for size in sizes)
    return [each for each in worlds if each <= limit and (each == pinned if all(sizes) else each % pinned == 0)]


@dataclass(frozen=True, slots=True)
class Enumeration:
    """Legal candidates by world, on nodes or units of ``gpus_per_node`` GPUs; ``wider`` as above.

    ``families``: candidates that differ in their schedule and their several virtual stages alone make a family, for
    which the first of ``families_of`` stands.
    """

    architecture: Architecture
    workload: TrainingWorkload
    gpus_per_node: int
    wider: tuple[tuple[int, int], ...] = ()
    families: bool = False

    def over(self, worlds: Sequence[int], *, wanted: Callable[[Grid], bool] = lambda _: True) -> CandidateBatch:
        """The candidates of all ``worlds``, one after the other."""
        return joined_batches([self.on(world, wanted=wanted) for world in worlds])

    def on(self, world: int, *, wanted: Callable[[Grid], bool] = lambda _: True) -> CandidateBatch:
        """The candidates with ``world`` GPUs, of the grids ``wanted``."""
        architecture, workload, node = self.architecture, self.workload, min(world, self.gpus_per_node)
        shapes = cache(partial(families_of, architecture, workload))
        batches = cache(partial(_batches, workload, shapes, families=self.families))
        tables = [
            _crossed(grid, batches(grid.data, grid.pipeline), choices)
            for grid in _grids(architecture, workload, world, node)
            if wanted(grid) and len(batches(grid.data, grid.pipeline))
            for choices in [_choices(grid, architecture, workload, node, self.wider)]
            if choices
        ]
        rows = np.concatenate(tables) if tables else np.empty((0, COLUMNS), dtype=np.int64)
        return CandidateBatch(*(np.ascontiguousarray(rows[:, column]) for column in range(rows.shape[1])))


def _grids(
    architecture: Architecture, workload: TrainingWorkload, world: int, gpus_per_node: int
) -> Iterator[Grid]:
    for tensor in _allowed(workload, "tensor", _divisors(gpus_per_node)):
        if not tensor_legal(architecture, workload, tensor):
            continue
        for context in _allowed(workload, "context", _divisors(world // tensor)):
            cell = tensor * context
            if (
                world % cell
                or not _even(gpus_per_node, cell)
                or not context_legal(architecture, workload, tensor, context)
            ):
                continue
            for pipeline in _allowed(workload, "pipeline", _divisors(world // cell)):
                data = world // cell // pipeline
                alone = must_offload_layers(workload) or not workload.optimizer.runs_backward
                most = 1 if alone else architecture.layers
                if pipeline <= most and workload.global_batch % data == 0 and _allowed(workload, "data", [data]):
                    yield Grid(tensor, context, pipeline, data)


def _filled_units(grid: Grid, wider: Sequence[tuple[int, int]]) -> list[int]:
    """GPUs of those units of ``wider`` that a grid fills some of, each whole, whatever its expert groups."""
    world = grid.cell * grid.data * grid.pipeline
    return [
        gpus
        for gpus, units in wider
        if world % gpus == 0 and world // gpus <= units and gpus % grid.tensor == 0 and _even(gpus, grid.cell)
    ]


def _even(gpus: int, group: int) -> bool:
    """Whether groups divide units of ``gpus`` evenly or span whole ones."""
    return gpus % group == 0 or group % gpus == 0


def _batches(
    workload: TrainingWorkload,
    shapes_of: Callable[[int, int], Sequence[Sequence[Shape]]],
    data: int,
    pipeline: int,
    *,
    families: bool,
) -> IntArray:
    """(n, 3) virtual pipeline and micro-batch sizes, and codes of schedules.

    ``shapes_of``: families of a pipeline size and a number of micro-batches.
    """
    found = [
        (shape.virtual, micro_batch, shape.schedule)
        for micro_batch in _allowed(workload, "micro_batch", _micro_batches(workload, data))
        for members in shapes_of(pipeline, workload.global_batch // (micro_batch * data))
        for shape in (members[:1] if families else members)
    ]
    return np.array(found, dtype=np.int64).reshape(-1, 3)


def _choices(
    grid: Grid,
    architecture: Architecture,
    workload: TrainingWorkload,
    gpus_per_node: int,
    wider: Sequence[tuple[int, int]],
) -> list[tuple[int, ...]]:
    """Expert and expert tensor size, sharding, rank order, group, least offload, exchange, settings of one grid."""
    taken, offloads = _filled_units(grid, wider), cache(partial(least_offload, workload))
    exchanges = exchange_codes(
        architecture, workload, tensor=grid.tensor, context=grid.context, together=gpus_per_node
    )
    settings = cache(partial(first_codes, offered(architecture, workload)))
    return [
        (expert, cut, sharding, order, group, offload, exchange, chosen)
        for expert, cut in _expert_grids(architecture, workload, grid, gpus_per_node)
        if not any(_even(gpus, expert * cut) and gpus % cut == 0 for gpus in taken)
        for sharding in _shardings(architecture, workload, grid, expert * cut)
        for group in _sharding_groups(grid, workload, sharding, gpus_per_node, expert * cut)
        for offload in offloads(SHARDING_CODES[sharding])
        for order in _orders(grid, architecture, expert * cut, gpus_per_node)
        for exchange in exchanges
        for chosen in settings(expert=expert)
    ]


def _crossed(grid: Grid, batches: IntArray, choices: list[tuple[int, ...]]) -> IntArray:
    """Rows, in the field order of ``CandidateBatch``, of one grid: each of ``batches`` with each of ``choices``.

    In a pipeline without virtual stages nothing runs beside the exchange of experts.
    """
    rows = np.zeros((len(batches), len(choices), COLUMNS), dtype=np.int64)
    rows[:, :, :4] = grid.tensor, grid.pipeline, grid.data, grid.context
    rows[:, :, 4:6] = [choice[:2] for choice in choices]
    rows[:, :, 6:8] = batches[:, None, :2]
    rows[:, :, 9:11] = [choice[2:4] for choice in choices]
    rows[:, :, 11] = batches[:, None, 2]
    rows[:, :, [14, 15, 17, 18]] = [choice[4:] for choice in choices]
    overlaps = np.array([bool(settings_of(choice[-1]).expert_overlap) for choice in choices])
    if grid.pipeline > 1 and overlaps.any():
        rows = rows[(batches[:, :1] > 1) | ~overlaps]
    return rows.reshape(-1, COLUMNS)


class Shape(NamedTuple):
    """Virtual stages of a rank, and the code of their schedule."""

    virtual: int
    schedule: int


def families_of(
    architecture: Architecture, workload: TrainingWorkload, pipeline: int, micro_batches: int
) -> tuple[tuple[Shape, ...], ...]:
    """Legal shapes with so many ``micro_batches`` a pipeline: those without virtual stages, and those with several.

    The first of each does the least work and holds the least memory, except that others may keep fewer activations.
    """
    codes = tuple(
        code
        for code, schedule in enumerate(SCHEDULE_CODES)
        if schedule in workload.schedule and not (workload.adapters and schedule.splits_backward)
    )
    most_events = MOST_EVENTS // (micro_batches * pipeline)
    legal = _shapes(architecture, workload.framework, codes, pipeline, micro_batches, most_events)
    allowed = (
        tuple(shape for shape in members if _allowed(workload, "virtual_pipeline", [shape.virtual]))
        for members in legal
    )
    return tuple(members for members in allowed if members)


@lru_cache(maxsize=MOST_SHAPES)
def _shapes(
    architecture: Architecture,
    framework: Framework,
    codes: tuple[int, ...],
    pipeline: int,
    micro_batches: int,
    most_events: int,
) -> tuple[tuple[Shape, ...], tuple[Shape, ...]]:
    """Shapes that the framework can run with the schedules of ``codes``: without virtual stages, and with several.

    ``most_events`` bounds the chunks of a micro-batch on a rank.
    """
    found: tuple[list[Shape], list[Shape]] = [], []
    for code in codes:
        schedule = SCHEDULE_CODES[code]
        runs = partial(can_run, framework, schedule, pipeline=pipeline, micro_batches=micro_batches)
        most = min(architecture.layers // pipeline, most_events // events_of_chunk(schedule))
        alike = [size for size in (1, 2, 3) if runs(virtual=size)]  # more than two stages are as legal as three
        for size in range(1, most + 1):
            if min(size, 3) in alike and launchable(architecture, framework, pipeline, size):
                found[size > 1].append(Shape(size, code))
    return tuple(found[0]), tuple(found[1])


def _expert_grids(
    architecture: Architecture, workload: TrainingWorkload, grid: Grid, gpus_per_node: int
) -> list[tuple[int, int]]:
    """Expert and expert tensor sizes: for each block of ranks that holds every expert once those that cut least.

    Cutting experts further over as many ranks leaves tokens more to travel and products narrower.  Where no rank
    holds whole experts, though, loads are even: experts as wide as the model are cut in two without expert ranks,
    too.  Why no other pairs are searched, unless a size is pinned: docs/experts_parallel.md.
    """
    stage, experts = grid.cell * grid.data, architecture.experts
    sizes = _allowed(workload, "expert", _divisors(experts.count if experts else 1))
    even = 2 if experts is not None and experts.hidden >= architecture.hidden else 1
    found: dict[tuple[int, bool], tuple[int, int]] = {}
    for cut in _allowed(workload, "expert_tensor", _divisors(gpus_per_node)):
        for size in sizes if expert_tensor_legal(architecture, workload, cut) else ():
            if stage % (size * cut) == 0 and _even(gpus_per_node, size * cut):
                found.setdefault((size * cut, size == 1 and cut == even), (size, cut))
    return list(found.values())


def _shardings(architecture: Architecture, workload: TrainingWorkload, grid: Grid, block: int) -> list[int]:
    """Shardings that differ: a rank that alone holds its parameters shares none, unless it offloads states."""
    alone = {Sharding.GRADIENTS, Sharding.PARAMETERS}  # DeepSpeed's pipeline takes neither
    allowed = [s for s in workload.shardings if s not in alone or grid.pipeline == 1]
    expert_copies = architecture.experts is not None and grid.cell * grid.data > block
    if grid.data * grid.context == 1 and not expert_copies:
        one = [Sharding.NONE] if Sharding.NONE in allowed else allowed[:1]
        allowed = one + [s for s in allowed if s not in one and may_offload(workload, s)]
    return [SHARDING_CODES.index(sharding) for sharding in allowed]


def _sharding_groups(
    grid: Grid, workload: TrainingWorkload, sharding: int, gpus_per_node: int, block: int
) -> list[int]:
    """Ranks of a group that shares parameters or states out: all of them (0), or the most that share a node.

    Fewer in a node hold more and gather no faster; more than a node gather over the network like all of them.
    Every one of both is tried where it is pinned.  As many groups share out states of experts in a ``block``.
    """
    name, ranks = "sharding_ranks", grid.data * grid.context
    pinned = workload.pinned.get(name)
    if not workload.takes_groups(SHARDING_CODES[sharding]):
        return [] if pinned else [0]
    legal = [grid.context * size for size in _divisors(grid.data) if 1 < size < grid.data]
    if SHARDING_CODES[sharding] is Sharding.OPTIMIZER:
        legal = [size for size in legal if grid.tensor * ranks // block % (ranks // size) == 0]
    if pinned is None:
        legal = [size for size in legal if size * grid.tensor <= gpus_per_node < ranks * grid.tensor][-1:]
    return _allowed(workload, name, [0, *legal])


def _orders(grid: Grid, architecture: Architecture, block: int, gpus_per_node: int) -> list[int]:
    """Rank orders that differ on this grid.

    Where the pipeline is not outermost, Megatron-Core wants attention and experts to have the same data size:
    context 1 for a dense model, experts over exactly one cell for a sparse one.
    """
    same = grid.cell >= gpus_per_node or grid.pipeline == 1 or grid.data == 1
    legal = grid.context == 1 if architecture.experts is None else block == grid.cell
    return [_DATA_FIRST] if same or not legal else [_DATA_FIRST, _PIPELINE_FIRST]


def _micro_batches(workload: TrainingWorkload, data: int) -> Sequence[int]:
    if workload.one_a_micro_batch:
        return (1,)
    sizes = _divisors(workload.global_batch // data)
    return [size for size in sizes if size % 2 == 0] if workload.method.is_paired else sizes


def _allowed(workload: TrainingWorkload, degree: str, sizes: Sequence[int]) -> list[int]:
    """``sizes`` under what the workload pins and forbids."""
    pinned, forbidden = workload.pinned.get(degree), workload.forbidden.get(degree, ())
    return [size for size in sizes if size not in forbidden and pinned in {None, size}]


@cache
def _divisors(number: int) -> tuple[int, ...]:
    """Increasing."""
    small = [size for size in range(1, isqrt(number) + 1) if number % size == 0]
    return (*small, *(number // size for size in reversed(small) if size * size != number))
