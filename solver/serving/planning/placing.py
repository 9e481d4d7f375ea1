"""GPUs for the groups that the program picked: parts of islands, near each other within a group."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from solver.candidates import IntArray
from solver.serving.loads import FloatArray
from solver.serving.planning.groups import Group
from solver.serving.planning.islands import Site
from solver.serving.planning.program import Offer, Picked
from solver.serving.planning.shapes import Shape
from solver.serving.planning.zones import IslandClass


@dataclass(frozen=True, slots=True)
class Part:
    """GPUs ``start`` to ``start + size`` of an island, in its own order."""

    island: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class PlacedReplica:
    """A worker and its parts, in the order of its ranks."""

    shape: Shape
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class PlacedGroup:
    """A group with its GPUs and its load in the unit of its model's demand."""

    group: Group
    load: float
    prefill: tuple[PlacedReplica, ...]
    decode: tuple[PlacedReplica, ...]

    @property
    def replicas(self) -> tuple[PlacedReplica, ...]:
        """All its replicas."""
        return (*self.prefill, *self.decode)


@dataclass(slots=True)
class _Room:
    """Parts that are still free by class and size, and how many of them each zone may take."""

    free: dict[tuple[int, int], list[Part]] = field(default_factory=lambda: defaultdict(list))
    quota: Counter[tuple[int, int, int]] = field(default_factory=Counter)


def place(
    picked: Picked, offers: Sequence[Offer], classes: Sequence[IslandClass], site: Site
) -> tuple[PlacedGroup, ...]:
    """Every group of ``picked`` on parts of its own; groups of most parts choose first."""
    room = _Room()
    for k, island_class in enumerate(classes):
        for part in _cut(k, island_class, picked):
            room.free[k, part.size].append(part)
    for cut in picked.cuts:
        room.quota[cut.island_class, cut.zone, cut.size] = cut.parts
    order = sorted(picked.counts, key=lambda each: -sum(count for _, count in offers[each[0]].group.slots))
    return tuple(_placed(offers[j].group, load, room, site) for j, times, load in order for _ in range(times))


def _cut(k: int, island_class: IslandClass, picked: Picked) -> Iterator[Part]:
    """Parts into which the islands of class ``k`` are cut, large ones first so that they lie aligned."""
    patterns = [pattern for of, pattern, islands in picked.patterns if of == k for _ in range(islands)]
    if not patterns:
        sizes = [cut.size for cut in picked.cuts if cut.island_class == k for _ in range(cut.parts)]
        patterns = [tuple(sorted(sizes, reverse=True))]
    for island, pattern in zip(island_class.islands, patterns, strict=False):
        start = 0
        for size in pattern:
            yield Part(island, start, size)
            start += size


def _placed(group: Group, load: float, room: _Room, site: Site) -> PlacedGroup:
    chosen = {size: _nearest(group.zone, size, count, room, site) for size, count in group.slots}
    if group.near:
        return _inside(group, load, chosen[group.slots[0][0]][0])
    decode = [_replica(group.decode, chosen, site) for _ in range(group.decode_replicas)]
    prefill = [_replica(group.prefill, chosen, site) for _ in range(group.prefill_replicas) if group.prefill]
    return PlacedGroup(group, load, tuple(prefill), tuple(decode))


def _inside(group: Group, load: float, part: Part) -> PlacedGroup:
    """All replicas one after the other in one part, the larger ones first."""
    assert group.prefill is not None  # groups of one replica are not cut further
    start, placed = part.start, {}
    roles = (("decode", group.decode, group.decode_replicas), ("prefill", group.prefill, group.prefill_replicas))
    for name, shape, count in sorted(roles, key=lambda each: -each[1].slot):
        parts = [Part(part.island, start + i * shape.slot, shape.slot) for i in range(count)]
        placed[name] = tuple(PlacedReplica(shape, (each,)) for each in parts)
        start += count * shape.slot
    return PlacedGroup(group, load, placed["prefill"], placed["decode"])


def _nearest(zone: int, size: int, count: int, room: _Room, site: Site) -> list[Part]:
    """``count`` free parts of ``size`` that ``zone`` may take, nearest to each other; they leave ``room``."""
    offered = [
        (k, part)
        for (k, own), parts in room.free.items()
        if own == size and room.quota[k, zone, size] > 0
        for part in parts
    ]
    best: tuple[float, list[tuple[int, Part]]] | None = None
    for _, seed in offered if count > 1 else offered[:1]:
        chosen = _around(seed, offered, count, room, zone, site)
        rows = np.array([part.island for _, part in chosen])
        worst = float(_apart(site, rows, rows).max())
        if best is None or worst < best[0]:
            best = worst, chosen
    assert best is not None  # the program gave every group its parts
    for k, part in best[1]:
        room.free[k, size].remove(part)
        room.quota[k, zone, size] -= 1
    return [part for _, part in best[1]]


def _around(
    seed: Part, offered: Sequence[tuple[int, Part]], count: int, room: _Room, zone: int, site: Site
) -> list[tuple[int, Part]]:
    """The ``count`` parts nearest to ``seed``, no more of a class than the zone may take there."""
    far = _apart(site, np.array([seed.island]), np.array([part.island for _, part in offered]))[0]
    taken: Counter[int] = Counter()
    chosen = []
    for index in np.argsort(far, kind="stable"):
        k, part = offered[index]
        if taken[k] < room.quota[k, zone, part.size]:
            taken[k] += 1
            chosen.append((k, part))
            if len(chosen) == count:
                break
    return chosen


def _apart(site: Site, first: IntArray, other: IntArray) -> FloatArray:
    """Seconds of a large message between islands, nil inside one."""
    times = site.crossing_s[np.ix_(first, other)]
    return np.where(first[:, None] == other[None, :], 0.0, times)


def _replica(shape: Shape, chosen: dict[int, list[Part]], site: Site) -> PlacedReplica:
    """A replica on the first free part of its group and those nearest to it."""
    parts = chosen[shape.slot]
    rows = np.array([part.island for part in parts])
    order = np.argsort(_apart(site, rows[:1], rows)[0], kind="stable")[: shape.islands]
    own = tuple(parts[index] for index in order)
    for part in own:
        parts.remove(part)
    return PlacedReplica(shape, own)
