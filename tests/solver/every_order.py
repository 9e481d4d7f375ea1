"""The step of every placement of a small grid at once: plain NumPy over all orders of the nodes.

Nothing of the planner is used: neither its schedule nor its simulation, nor its lists of slot pairs.  A grid has
one node for each cell; the cell of replica ``r`` on pipeline rank ``s`` is slot ``s * replicas + r``.  Letters: N
nodes, C chunks, P pipeline ranks, V levels of switches, W switches, M orders, K slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, permutations

import numpy as np

from solver.candidates import FloatArray, IntArray
from tests.solver.naive_schedule import work_of_rank

AT_ONCE = 8192
"""Orders whose steps are computed together, so that their arrays stay in the cache."""
Flow = tuple[IntArray, IntArray, float]
"""Nodes (M,) that send and receive, and how many bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Switches:
    """``above`` (V, N): the switch over each node, -1 = none; ``bytes_per_s`` (W,) each way.

    ``hop_bytes`` of a transfer, ``reduce_bytes`` and ``gather_bytes`` (P,) over each hop of a ring.
    """

    above: IntArray
    bytes_per_s: FloatArray
    hop_bytes: float
    reduce_bytes: FloatArray
    gather_bytes: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Seconds of a step's parts: ``forward_s`` and ``backward_s`` (C,) on a node without ``slowdown`` (N,).

    ``hop_s`` (N, N) of a transfer, ``reduce_s`` and ``gather_s`` (P, N, N) of a ring whose slowest hop joins two
    nodes, less what is hidden (P,); ``optimizer_s`` (P,).
    """

    replicas: int
    pipeline: int
    virtual: int
    micro_batches: int
    group: int | None
    blocking: bool
    forward_s: FloatArray
    backward_s: FloatArray
    slowdown: FloatArray
    hop_s: FloatArray
    reduce_s: FloatArray
    gather_s: FloatArray
    reduce_hidden_s: FloatArray
    gather_hidden_s: FloatArray
    optimizer_s: FloatArray
    switches: Switches | None = None

    @property
    def slots(self) -> int:
        """Nodes that take part."""
        return self.replicas * self.pipeline

    @property
    def nodes(self) -> int:
        """Nodes to choose from."""
        return len(self.slowdown)


@lru_cache(maxsize=4)
def every_order(nodes: int, slots: int) -> IntArray:
    """(M, K) all ordered choices of nodes."""
    return np.array(list(permutations(range(nodes), slots)), dtype=np.int64).reshape(-1, slots)


def every_step_s(grid: Grid) -> FloatArray:
    """(M,) the step of each of ``every_order``, in seconds."""
    orders = every_order(grid.nodes, grid.slots)
    return np.concatenate([_steps(grid, orders[i : i + AT_ONCE]) for i in range(0, len(orders), AT_ONCE)])


def _steps(grid: Grid, orders: IntArray) -> FloatArray:
    cells = orders.T.reshape(grid.pipeline, grid.replicas, -1)  # node of (s, r) in each order
    delays = {(way, s): _delays(grid, cells, way, s) for way in "FB" for s in range(grid.pipeline)}
    ends = np.full((grid.pipeline, len(orders)), -np.inf)
    for r in range(grid.replicas):
        delay = {hop: seconds[r] for hop, seconds in delays.items()}
        for s, end in enumerate(_last_ends(grid, grid.slowdown[cells[:, r]], delay)):
            np.maximum(ends[s], end, out=ends[s])
    reduced = _rings(grid, cells, grid.reduce_s, None if grid.switches is None else grid.switches.reduce_bytes)
    gathered = _rings(grid, cells, grid.gather_s, None if grid.switches is None else grid.switches.gather_bytes)
    finished = ends + np.maximum(0.0, reduced - grid.reduce_hidden_s[:, None])
    updated = grid.optimizer_s[:, None] + np.maximum(0.0, gathered - grid.gather_hidden_s[:, None])
    step: FloatArray = finished.max(axis=0) + updated.max(axis=0)
    return step


def _delays(grid: Grid, cells: IntArray, way: str, s: int) -> list[FloatArray]:
    """Seconds (M,) of what rank ``s`` of each replica sends one way; all replicas' transfers share the switches."""
    target = (s + (1 if way == "F" else -1)) % grid.pipeline
    goes_round = s == (grid.pipeline - 1 if way == "F" else 0)
    if grid.pipeline == 1 or (goes_round and grid.virtual == 1):
        return [np.zeros(cells.shape[2])] * grid.replicas
    nbytes = grid.switches.hop_bytes if grid.switches else 0.0
    flows = [(cells[s, r], cells[target, r], nbytes) for r in range(grid.replicas)]
    return list(_flow_seconds(grid.switches, flows, [grid.hop_s] * len(flows)))


def _rings(grid: Grid, cells: IntArray, seconds: FloatArray, sent_bytes: FloatArray | None) -> FloatArray:
    """(P, M) seconds of the slowest hop of each rank's ring; the rings of all ranks share the switches."""
    slowest = np.zeros((grid.pipeline, cells.shape[2]))
    if grid.replicas == 1:
        return slowest
    ranks, flows = [], []
    for s in range(grid.pipeline):
        for sender, receiver in pairwise([*cells[s], cells[s][0]]):
            ranks.append(s)
            flows.append((sender, receiver, 0.0 if sent_bytes is None else float(sent_bytes[s])))
    for s, taken in zip(ranks, _flow_seconds(grid.switches, flows, [seconds[s] for s in ranks]), strict=True):
        np.maximum(slowest[s], taken, out=slowest[s])
    return slowest


def _flow_seconds(
    switches: Switches | None, flows: Sequence[Flow], alone_s: Sequence[FloatArray]
) -> Iterator[FloatArray]:
    """Seconds (M,) of flows at the same time: alone, or as long as a switch on the way needs for all of them."""
    alone = [times[sender, receiver] for times, (sender, receiver, _) in zip(alone_s, flows, strict=True)]
    if switches is None:
        yield from alone
        return
    every = np.arange(len(flows[0][0]))
    load = np.zeros((2, len(switches.bytes_per_s) + 1, len(every)))  # the last row is of no switch
    for sender, receiver, nbytes in flows:
        for level in switches.above:
            leaves = level[sender] != level[receiver]
            load[0, level[sender], every] += nbytes * leaves
            load[1, level[receiver], every] += nbytes * leaves
    load[:, -1] = 0.0
    load[:, :-1] /= switches.bytes_per_s[:, None]
    for seconds, (sender, receiver, _) in zip(alone, flows, strict=True):
        worst = seconds
        for level in switches.above:
            leaves = level[sender] != level[receiver]
            passing = np.maximum(load[0, level[sender], every], load[1, level[receiver], every])
            worst = np.maximum(worst, np.where(leaves & (seconds > 0), passing, 0.0))
        yield worst


def _last_ends(grid: Grid, slow: FloatArray, delay: dict[tuple[str, int], FloatArray]) -> list[FloatArray]:
    """Ends (M,) of each rank's last work in one replica whose ranks are ``slow`` (P, M)."""
    ranks = grid.pipeline
    queues = [
        work_of_rank(ranks, grid.virtual, grid.micro_batches, rank, grid.group)[::-1] for rank in range(ranks)
    ]
    clock = [np.zeros(slow.shape[1]) for _ in range(ranks)]
    ready: dict[tuple[str, int, int], FloatArray] = {}  # when what an event gives has arrived where it is needed
    last = ranks * grid.virtual - 1
    while any(queues):
        for rank in range(ranks):
            while queues[rank]:
                kind, chunk, micro = queues[rank][-1]
                needed: tuple[str, int, int] | None = ("F", chunk - 1, micro)
                if kind == "B":
                    needed = ("F", chunk, micro) if chunk == last else ("B", chunk + 1, micro)
                elif chunk == 0:
                    needed = None
                if needed is not None and needed not in ready:
                    break
                start = clock[rank] if needed is None else np.maximum(clock[rank], ready[needed])
                work = (grid.forward_s if kind == "F" else grid.backward_s)[chunk]
                end = start + work * slow[rank]
                stays = chunk == (last if kind == "F" else 0)
                arrives = end if stays else end + delay[kind, rank]
                clock[rank] = arrives if grid.blocking else end
                ready[kind, chunk, micro] = arrives
                queues[rank].pop()
    return clock
