"""Groups of a running deployment on the cluster as it is now, as the planner sees groups."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from cluster_models.jobs.serving import gpus_of
from cluster_models.serving.replicas import Phase, Replica, ReplicaGroup
from solver.serving.planning.groups import Group
from solver.serving.planning.islands import Site
from solver.serving.planning.placing import Part, PlacedGroup, PlacedReplica
from solver.serving.planning.shapes import Shape

Gpu = tuple[str, int]


def living_groups(groups: Sequence[ReplicaGroup], lost: Collection[Gpu]) -> tuple[ReplicaGroup, ...]:
    """The groups without the replicas that lost a GPU; a group goes where a phase has none left."""
    found = []
    for group in groups:
        living = tuple(each for each in group.replicas if not any(gpu in lost for gpu in gpus_of(each)))
        phases = {each.phase for each in living}
        if phases == {each.phase for each in group.replicas}:
            found.append(replace(group, replicas=living))
    return tuple(found)


def placed_of(group: ReplicaGroup, site: Site, load: float = 0.0) -> PlacedGroup:
    """The group on the islands of ``site``, which has all its GPUs free; every replica keeps its GPUs."""
    place = {
        gpu: (number, index) for number, island in enumerate(site.islands) for index, gpu in enumerate(island.gpus)
    }
    phases = {
        phase: tuple(_placed(each, place) for each in group.replicas if each.phase is phase) for phase in Phase
    }
    decode = phases[Phase.BOTH] or phases[Phase.DECODE]
    prefill = phases[Phase.PREFILL]
    own = Group(
        model=group.model,
        zone=0,
        decode=decode[0].shape,
        decode_replicas=len(decode),
        prefill=prefill[0].shape if prefill else None,
        prefill_replicas=len(prefill),
        cap_watts=group.replicas[-1].power_cap_watts,
        prefill_cap_watts=group.replicas[0].power_cap_watts,
    )
    return PlacedGroup(own, load, prefill, decode)


def _placed(replica: Replica, place: dict[Gpu, tuple[int, int]]) -> PlacedReplica:
    parts = tuple(_parts([place[gpu] for gpu in gpus_of(replica)]))
    islands = len({part.island for part in parts})
    return PlacedReplica(Shape(replica.worker, islands, replica.worker.gpus // islands), parts)


def _parts(places: Sequence[tuple[int, int]]) -> Iterator[Part]:
    """Runs of neighbouring GPUs of one island, in rank order."""
    start = 0
    for end in range(1, len(places) + 1):
        island, index = places[end - 1]
        if end == len(places) or places[end] != (island, index + 1):
            yield Part(island, places[start][1], end - start)
            start = end
