"""Groups of replicas that a plan may be made of, before they are priced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cluster_models.serving.goal import ServedModel, ServingGoal
from cluster_models.serving.hardware import runs_on
from cluster_models.serving.workload import Pool, ServingConfiguration
from solver.serving.planning.islands import Site
from solver.serving.planning.shapes import Shape, shapes_on
from solver.serving.planning.zones import Zone

MOST_ISLANDS: Final = 32
"""Islands of one worker: 256 GPUs of eight a node."""
FITTING_ISLANDS: Final = 2
"""The same of a dense model that one island holds: more would only add ways to cross the network."""


@dataclass(frozen=True, slots=True)
class Group:
    """Replicas that answer requests to one model by themselves, each on islands of one zone.

    Without ``prefill`` one replica does both phases.  ``near``: all its replicas share one island.
    ``cap_watts``: power cap of its GPUs, ``prefill_cap_watts`` of those that only prefill.
    """

    model: int
    zone: int
    decode: Shape
    decode_replicas: int = 1
    prefill: Shape | None = None
    prefill_replicas: int = 0
    near: bool = False
    cap_watts: float | None = None
    prefill_cap_watts: float | None = None

    @property
    def prefill_gpus(self) -> int:
        """GPUs of the replicas that only prefill."""
        return 0 if self.prefill is None else self.prefill.worker.gpus * self.prefill_replicas

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return sum(size * count for size, count in self.slots)

    @property
    def slots(self) -> tuple[tuple[int, int], ...]:
        """GPUs in one island, and how many such parts the group takes; largest first."""
        parts: Counter[int] = Counter()
        for shape, replicas in ((self.decode, self.decode_replicas), (self.prefill, self.prefill_replicas)):
            if shape is not None:
                parts[shape.slot] += shape.islands * replicas
        if self.near:
            return ((sum(size * count for size, count in parts.items()), 1),)
        return tuple(sorted(parts.items(), reverse=True))

    @property
    def configuration(self) -> ServingConfiguration:
        """Its pools."""
        decode = Pool(self.decode.worker, self.decode_replicas)
        return ServingConfiguration(
            decode, None if self.prefill is None else Pool(self.prefill.worker, self.prefill_replicas)
        )


def watts_of(group: Group, zone: Zone) -> float:
    """Power of the group's GPUs, by their boards or caps."""
    return group.prefill_gpus * zone.prefill_watts + (group.gpus - group.prefill_gpus) * zone.watts


def single_groups(
    model: int, served: ServedModel, site: Site, zones: Sequence[Zone], goal: ServingGoal
) -> Iterator[Group]:
    """Groups of one replica for both phases, in every zone that has room for it and GPUs that the engine serves on.

    Replicas inside one island cross no network: only whole zones have them.
    """
    for number, zone in enumerate(zones):
        if not runs_on(served.workload, zone.gpu):
            continue
        sizes = [len(site.islands[island].gpus) for island in zone.islands]
        if zone.is_whole:
            for slot in range(1, max(sizes) + 1):
                yield from _groups(model, (number, zone), served, 1, slot, goal)
        most = _most_islands(served, zone, max(sizes))
        for slot in _slots(sizes):
            room = sum(size >= slot for size in sizes)
            for islands in range(2, min(room, most) + 1):
                yield from _groups(model, (number, zone), served, islands, slot, goal)


def _slots(sizes: Sequence[int]) -> list[int]:
    """GPUs that a worker over several islands takes of each: all, or a power of two that smaller ones have too."""
    whole = {1 << (size.bit_length() - 1) for size in set(sizes)}
    return sorted({max(sizes), min(sizes), *whole})


def _groups(
    model: int, zone: tuple[int, Zone], served: ServedModel, islands: int, slot: int, goal: ServingGoal
) -> Iterator[Group]:
    number, caps = zone[0], {name: getattr(zone[1], name) for name in ("cap_watts", "prefill_cap_watts")}
    for shape in shapes_on(served.architecture, served.workload, islands, slot, goal.pinned):
        yield Group(model, number, shape, **caps)


def _most_islands(served: ServedModel, zone: Zone, gpus: int) -> int:
    architecture, workload = served.architecture, served.workload
    if architecture.experts is not None:
        return MOST_ISLANDS
    needed = architecture.parameters() * workload.weights.element_bytes / (gpus * zone.gpu.memory_bytes)
    return min(MOST_ISLANDS, FITTING_ISLANDS * (1 + int(needed)))
