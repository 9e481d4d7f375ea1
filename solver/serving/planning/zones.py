"""Zones: sets of islands within which groups of replicas are priced alike, and classes of equal islands.

A zone is priced by the slowest of its members: whatever islands of it a group gets, it is at least as fast as
priced.  *Optimistic* zones are priced by the fastest instead: no placement beats them, which gives the bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cluster_models.cluster.gpus import GpuKind
from solver.serving.cluster_links import MESSAGE_BYTES
from solver.serving.loads import FloatArray, WorkerLinks
from solver.serving.planning.islands import Island, Site

INSIDE_STEP: Final = 1.05
"""Islands whose own links differ by less are of one speed."""
MOST_CUT: Final = 16
"""GPUs of an island up to which equal ones are cut after patterns; larger ones are each a class."""
MOST_TIERS: Final = 6
"""Thresholds of link time at which a zone is cut into clusters of near islands."""


@dataclass(frozen=True, slots=True)
class Zone:
    """Islands (by number) of one GPU kind at one price; ``gpu`` as slow as they are.

    ``crossing_s[m]``: seconds of a large message between the islands of a worker on m of them, all GPUs sending.
    ``cap_watts``: power cap of the GPUs, ``prefill_cap_watts`` of those that only prefill.
    ``speed``: number of the zone of all islands as fast or faster; whole zones come first, at their own numbers.
    """

    gpu: GpuKind
    islands: tuple[int, ...]
    domain_bytes_per_s: float
    crossing_s: tuple[float, ...]
    crossing_latency_s: float
    single_s: float
    speed: int
    is_whole: bool
    cap_watts: float | None = None
    prefill_cap_watts: float | None = None

    def links(self, members: int, domain_gpus: int) -> WorkerLinks:
        """Links of a worker over ``members`` islands of ``domain_gpus`` each."""
        crossing = self.crossing_s[min(members, len(self.crossing_s) - 1)]
        return WorkerLinks(
            domain_gpus=domain_gpus,
            domain_bytes_per_s=self.domain_bytes_per_s,
            cross_bytes_per_s=MESSAGE_BYTES / crossing,
            cross_latency_s=self.crossing_latency_s,
        )

    @property
    def watts(self) -> float:
        """Power of a GPU: its board's, or the cap."""
        return self.cap_watts or self.gpu.power_watts

    @property
    def prefill_watts(self) -> float:
        """Power of a GPU that only prefills."""
        return self.prefill_cap_watts or self.gpu.power_watts

    @property
    def transfer_bytes_per_s(self) -> float:
        """Bandwidth of one cache between islands."""
        return MESSAGE_BYTES / self.single_s


@dataclass(frozen=True, slots=True)
class IslandClass:
    """Equal islands (by number) of ``gpus`` each, that belong to the same ``zones`` (by number)."""

    gpus: int
    islands: tuple[int, ...]
    zones: tuple[int, ...]


def slowed(gpu: GpuKind, slowdown: float) -> GpuKind:
    """The kind with compute and memory ``slowdown`` times slower."""
    if slowdown == 1.0:
        return gpu
    peaks = {precision: flops / slowdown for precision, flops in gpu.peak_flops.items()}
    return replace(gpu, peak_flops=peaks, memory_bytes_per_s=gpu.memory_bytes_per_s / slowdown)


def zones_of(site: Site, *, optimistic: bool, splits: bool = False) -> tuple[Zone, ...]:
    """Zones of each kind, speed and power cap: whole ones, and after them their clusters unless ``optimistic``.

    ``splits``: zones of another cap for prefill, too; only split groups are in them.
    """
    found: list[list[Zone]] = []
    for kind, slowdown, inside in dict.fromkeys(_speed(island) for island in site.islands):
        members = [
            index
            for index, island in enumerate(site.islands)
            if island.gpu_kind == kind and island.slowdown <= slowdown and _bucket(island) <= inside
        ]
        alike = [index for index in members if _speed(site.islands[index]) == (kind, slowdown, inside)]
        own = [site.islands[index].inside for index in alike]
        gpu = slowed(site.snapshot.cluster.gpu_kinds[kind], slowdown)
        paces = site.bytes_per_s(kind) / (min(own) if optimistic else max(own))
        if optimistic:
            zones = [_best_zone(site, gpu, members, paces)]
        else:
            sets = [tuple(members), *_clusters(site, members)]
            zones = [_zone(site, gpu, each, paces, is_whole=each is sets[0]) for each in sets]
        found += (
            [replace(zone, cap_watts=cap, prefill_cap_watts=other) for zone in zones]
            for cap in site.caps[kind]
            for other in site.caps[kind]
            if splits or other == cap
        )
    numbered = [replace(zone, speed=speed) for speed, zones in enumerate(found) for zone in zones]
    return tuple(sorted(numbered, key=lambda zone: not zone.is_whole))


def classes_of(islands: Sequence[Island], zones: Sequence[Zone]) -> tuple[IslandClass, ...]:
    """Islands that no zone tells apart, together; those of more than ``MOST_CUT`` GPUs by themselves."""
    alike: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    member = [set(zone.islands) for zone in zones]
    for index, island in enumerate(islands):
        own = tuple(z for z, each in enumerate(member) if index in each)
        alike.setdefault((len(island.gpus), own), []).append(index)
    return tuple(
        IslandClass(gpus, part, own)
        for (gpus, own), members in alike.items()
        for part in ([(each,) for each in members] if gpus > MOST_CUT else [tuple(members)])
    )


def _bucket(island: Island) -> int:
    return round(math.log(island.inside) / math.log(INSIDE_STEP))


def _speed(island: Island) -> tuple[str, float, int]:
    return island.gpu_kind, island.slowdown, _bucket(island)


def _zone(site: Site, gpu: GpuKind, members: tuple[int, ...], paces: float, *, is_whole: bool) -> Zone:
    rows = np.array(members)
    pairs = np.ix_(rows, rows)
    far = ~np.eye(len(rows), dtype=bool)

    def slowest(times: FloatArray, alone: float) -> float:
        return float(times[pairs][far].max()) if len(rows) > 1 else alone

    alone = MESSAGE_BYTES / paces
    crossing = slowest(site.crossing_s, alone)
    return Zone(
        gpu,
        members,
        paces,
        (crossing,),
        slowest(site.latency_s, 0.0),
        slowest(site.single_s, alone),
        speed=0,
        is_whole=is_whole,
    )


def _best_zone(site: Site, gpu: GpuKind, members: Sequence[int], paces: float) -> Zone:
    """The zone as if every worker had the best links there are for its number of islands.

    The slowest pair among m islands is no faster than the (m-1)-th best link of the best connected island.
    """
    rows = np.array(members)
    alone = MESSAGE_BYTES / paces
    if len(rows) == 1:
        return Zone(gpu, tuple(members), paces, (alone,), 0.0, alone, speed=0, is_whole=True)
    pairs = np.ix_(rows, rows)
    far = np.where(np.eye(len(rows), dtype=bool), np.inf, site.crossing_s[pairs])
    ranked = np.sort(far, axis=1)[:, :-1].min(axis=0)
    return Zone(
        gpu,
        tuple(members),
        paces,
        (float(ranked[0]), float(ranked[0]), *(float(each) for each in ranked)),
        float(np.where(np.isinf(far), np.inf, site.latency_s[pairs]).min()),
        float(np.where(np.isinf(far), np.inf, site.single_s[pairs]).min()),
        speed=0,
        is_whole=True,
    )


def _clusters(site: Site, members: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Sets of islands near each other: complete linkage on link times, cut at a few thresholds."""
    if len(members) < 3:
        return
    # Imported late: they take half a second, and a service starts without them.
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    rows = np.array(members)
    times = site.crossing_s[np.ix_(rows, rows)].copy()
    np.fill_diagonal(times, 0.0)
    tree = linkage(squareform(times, checks=False), method="complete")
    heights = tree[:, 2]
    if heights[0] * INSIDE_STEP > heights[-1]:
        return
    seen = {tuple(members)}
    for threshold in np.unique(np.quantile(heights, np.linspace(0.0, 1.0, MOST_TIERS), method="lower")):
        labels = fcluster(tree, threshold, criterion="distance")
        for label in np.unique(labels):
            cluster = tuple(rows[labels == label].tolist())
            if len(cluster) > 1 and cluster not in seen:
                seen.add(cluster)
                yield cluster
