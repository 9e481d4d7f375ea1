"""Random placement problems with every feature, small enough to check against plain Python."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from cluster_models.training.frameworks import DEFAULT_FRAMEWORK
from cluster_models.training.interleaving import micro_batch_group
from solver.compiled import Arrays, Rules, Uplinks
from solver.pipeline.schedule import build_schedule
from solver.placement.problem import NO_SLOT, PlacementProblem, no_rules, no_uplinks


@st.composite
def placement_problems(draw: st.DrawFn, *, shared: bool = True, ruled: bool = True) -> PlacementProblem:
    """Replicas and ranks on up to a dozen nodes; some slots shared, some pairs missing, times on a coarse grid.

    ``shared``: switches may limit the traffic; ``ruled``: rules may forbid assignments.
    """
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    replicas, ranks = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    virtual = draw(st.integers(1, 2)) if ranks > 1 else 1
    micro_batches = draw(st.integers(ranks if virtual > 1 else 1, 9))
    group = micro_batch_group(DEFAULT_FRAMEWORK, ranks, micro_batches)
    width = draw(st.integers(1, 2))
    slots = draw(st.integers(1, replicas * ranks * width))
    nodes = slots + draw(st.integers(0, 4))
    chunks, kinds = ranks * virtual, draw(st.integers(1, 2))

    def times(*shape: int) -> np.ndarray:
        return random.integers(0, 12, shape) / 4.0

    def pairs(*shape: int) -> np.ndarray:
        found = random.integers(0, slots, (*shape, 2))
        found[random.random(shape) < 0.3] = NO_SLOT
        return found

    schedule = build_schedule(ranks, virtual, micro_batches, group=group, blocking=draw(st.booleans()))
    cell_slots = random.integers(0, slots, (replicas, ranks, width))
    hop_pairs, cross_pairs = pairs(replicas, 2, ranks, width), pairs(kinds, replicas, ranks, 2)
    ring_pairs, matrices = pairs(2, ranks, replicas), draw(st.integers(1, 2))
    uplinks = no_uplinks(hop_pairs, cross_pairs, ring_pairs, nodes)
    if shared and draw(st.booleans()):
        uplinks = Uplinks(
            above=np.stack([random.integers(-1, 3, nodes), random.integers(2, 5, nodes)]),
            bytes_per_s=random.integers(1, 5, 5) / 2.0,
            hop_bytes=times(*hop_pairs.shape[:-1]),
            cross_bytes=times(kinds),
            ring_bytes=times(2, 2, ranks),
        )
    rules = no_rules(slots, nodes)
    if ruled and draw(st.booleans()):
        rules = Rules(
            eligible=random.random((slots, nodes)) < 0.8,
            group_slots=random.integers(-1, slots, (2, 3)),
            fewest_places=random.integers(0, 3, 2),
            most_places=random.integers(1, 4, 2),
            places=random.integers(0, nodes, (2, nodes)),
            quota_of=random.integers(-1, 2, (2, nodes)),
            fewest_used=random.integers(0, 3, 2),
            most_used=random.integers(1, 5, 2),
        )
    arrays = Arrays(
        events=schedule.events,
        last=schedule.last,
        duration_s=times(2, chunks) + 0.25,
        local_hop_s=0.5,
        slowdown=1.0 + times(nodes) * draw(st.integers(0, 1)),
        hop_pairs=hop_pairs,
        hop_s=times(nodes, nodes),
        cross_pairs=cross_pairs,
        cross_s=times(kinds, nodes, nodes),
        cross_count=random.integers(0, 3, (kinds, 2, chunks)).astype(np.float64),
        cross_hidden_s=times(kinds, 2),
        cell_slots=cell_slots,
        ring_pairs=ring_pairs,
        ring_times=random.integers(0, matrices, (2, ranks)),
        reduce_s=times(matrices, nodes, nodes),
        gather_s=times(matrices, nodes, nodes),
        reduce_local_s=times(2, ranks),
        gather_local_s=times(2, ranks),
        reduce_hidden_s=times(ranks),
        gather_hidden_s=times(ranks),
        optimizer_s=times(ranks),
        rules=rules,
        uplinks=uplinks,
    )
    return PlacementProblem(slots, nodes, schedule, arrays)
