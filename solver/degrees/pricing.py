"""Optimistic prices: for thousands of candidates at once, a step time that no placement can beat.

Every link is taken as the best of its kind and every node as healthy.  The others are bounds that hold for the
event graph of the schedule (docs/pipeline.md proves them):

* a rank cannot begin before the first micro-batch has reached it, is busy for all its work, and every rank before
  it must still run one backward after it;
* 1F1B only: rank ``s`` may be at most ``P - s`` micro-batches ahead, so every ``P - s`` micro-batches take at
  least the round trip from ``s`` to the last rank and back;
* a step takes a round trip and the periods after it, and no period is shorter than its cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster_models.training.frameworks import Framework
from cluster_models.training.plan import RankOrder
from cluster_models.training.schedules import PipelineSchedule
from solver.candidates import ORDER_CODES, BoolArray, CandidateBatch, FloatArray, IntArray
from solver.costs.step_costs import StepCosts
from solver.degrees.other_orders import least_ends, round_trips_s, simulated_ends
from solver.pipeline.period import least_step_s
from solver.placement.fabric import Fabric

_PIPELINE_FIRST = ORDER_CODES.index(RankOrder.PIPELINE_BEFORE_DATA)


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """How the groups of each candidate spread over nodes, or over units of nodes that NVLink joins.

    ``hops_cross`` (n, P): whether replica 0's transfer from ``s`` to the next rank round the ring leaves its node;
    ``rings_cross`` (n, P): whether the data parallel ring of rank ``s`` does.  ``ranks`` (n,) is the size of a data
    parallel group and ``members`` (n,) the most of its ranks that can share a node.
    """

    hops_cross: BoolArray
    rings_cross: BoolArray
    members: IntArray
    ranks: IntArray
    expert_members: IntArray
    expert_ranks: IntArray


def spread(batch: CandidateBatch, gpus_per_node: int) -> Spread:
    """The spread of each candidate over nodes of ``gpus_per_node`` GPUs (the ranks of ``geometry.cell_base``)."""
    cell = batch.tensor * batch.context
    stages = int(batch.pipeline[0])
    s = np.arange(stages)
    pipeline_first = (batch.rank_order == _PIPELINE_FIRST)[:, None]
    stage = cell * batch.data
    first = s * np.where(pipeline_first, cell[:, None], stage[:, None])
    replica_stride = np.where(pipeline_first[:, 0], cell * stages, cell)
    last = first + ((batch.data - 1) * replica_stride + cell - 1)[:, None]
    node = first // gpus_per_node
    hops_cross = np.zeros(first.shape, dtype=bool)
    hops_cross[:, :-1] = ((first + cell[:, None] - 1) // gpus_per_node)[:, :-1] < node[:, 1:]
    hops_cross[:, -1] = (cell - 1) // gpus_per_node < node[:, -1]
    used = np.minimum(gpus_per_node, stage * stages)
    per_cell = np.maximum(1, np.minimum(batch.context, used // batch.tensor))
    cells = 1 + (used - 1) // replica_stride
    ranks = batch.data * batch.context
    return Spread(
        hops_cross=hops_cross,
        rings_cross=(node < last // gpus_per_node) & (ranks > 1)[:, None],
        members=np.minimum(per_cell * cells, ranks),
        ranks=ranks,
        expert_members=np.maximum(1, np.minimum(used, stage) // batch.expert_block),
        expert_ranks=np.maximum(1, stage // batch.expert_block),
    )


def optimistic_step_s(
    batch: CandidateBatch,
    costs: StepCosts,
    micro_batches: IntArray,
    fabric: Fabric,
    stage_kind: IntArray,
    *,
    framework: Framework,
    limit_s: FloatArray | float = np.inf,
) -> FloatArray:
    """(n,) seconds that no placement of the candidate can beat; see ``row_groups.bundles`` for what rows share.

    ``stage_kind`` (n, P): the GPU kind of each stage among those of ``fabric``.  Schedules other than 1F1B are
    simulated unless closed bounds already rule a step of ``limit_s`` out.
    """
    ranks, order = int(batch.pipeline[0]), batch.runs
    shape = spread(batch, fabric.gpus_per_unit)
    events = [seconds.copy() for seconds in costs.durations_s(order)]
    for traffic in (costs.context_traffic, costs.expert_traffic, costs.parameter_traffic):
        _add_traffic(traffic.by_event(order), traffic.message_bytes, events, fabric)
    hop = np.zeros((len(batch), ranks))
    if ranks > 1:
        between = fabric.best_s(costs.transfer_bytes)
        inside = fabric.best_inside_s(costs.transfer_bytes)
        hop[:] = np.where(shape.hops_cross, between[:, None], inside[:, None])
        hop[:, -1] *= (batch.virtual_pipeline > 1) & (not order.is_v_shaped)
    reduce, gather = _rings(costs, shape, fabric, stage_kind)
    reduce = np.maximum(0.0, reduce - costs.reduce_hidden_s)
    gather = np.maximum(0.0, gather - costs.gather_hidden_s)
    after = costs.optimizer_s + gather + (costs.tail_transfers * fabric.latency_s)[:, None]

    def step_s(ends: FloatArray, rows: IntArray | slice = np.s_[:]) -> FloatArray:
        return np.asarray((ends + reduce[rows]).max(axis=1) + after[rows].max(axis=1))

    if order is PipelineSchedule.ONE_F_ONE_B:
        ends = np.empty_like(hop)
        for virtual in np.unique(batch.virtual_pipeline):
            own = batch.virtual_pipeline == virtual
            forward, backward = (seconds[own, : virtual * ranks] for seconds in events)
            ends[own] = _rank_ends(forward, backward, hop[own], micro_batches[own])
        return step_s(ends)
    bound_s = step_s(least_ends(order, events, hop, micro_batches))
    near = np.flatnonzero(bound_s < limit_s)
    own = [seconds[near] for seconds in events]
    bound_s[near] = step_s(simulated_ends(order, own, hop[near], micro_batches[near], framework), near)
    return bound_s


def _rank_ends(forward: FloatArray, backward: FloatArray, hop: FloatArray, micro_batches: IntArray) -> FloatArray:
    """(n, P) earliest end of each rank's last backward.

    ``forward`` and ``backward`` are (n, C); ``hop`` (n, P) leads from each rank to the next and back, from the
    last to the first (0 where none does).
    """
    ranks = hop.shape[1]
    busy = (forward + backward).reshape(len(hop), -1, ranks).sum(axis=1) * micro_batches[:, None]
    reach = _before(forward[:, :ranks] + hop)
    drain = _before(backward[:, :ranks] + hop)
    latest = np.maximum.accumulate((reach + busy + drain)[:, ::-1], axis=1)[:, ::-1]
    ends = latest - drain
    if forward.shape[1] == ranks > 1:
        trips = round_trips_s(forward + backward, hop, micro_batches)
        ends[:, 0] = np.maximum(ends[:, 0], (reach + trips + drain).max(axis=1))
    ends[:, 0] = np.maximum(ends[:, 0], least_step_s(forward, backward, hop, micro_batches))
    return np.asarray(ends)


def _before(values: FloatArray) -> FloatArray:
    """(n, P) sum over the ranks before each rank."""
    return values.cumsum(axis=1) - values


def _add_traffic(
    by_event: Sequence[tuple[FloatArray, FloatArray]],
    message_bytes: FloatArray,
    events: Sequence[FloatArray],
    fabric: Fabric,
) -> None:
    """Add to ``events``, the seconds (n, C) of each kind, what of so many messages nothing hides."""
    used = message_bytes > 0
    if not used.any():
        return
    hop = np.zeros(len(used))
    hop[used] = fabric.best_s(message_bytes[used])
    for kind, (count, hidden_s) in enumerate(by_event):
        events[kind][:] += count * np.maximum(0.0, hop - hidden_s)[:, None]


def _rings(costs: StepCosts, shape: Spread, fabric: Fabric, kind: IntArray) -> tuple[FloatArray, FloatArray]:
    """(n, P) seconds of the gradient reduction and the parameter gather on the best links."""
    reduce_passes, gather_passes = costs.reduce_passes[:, None], costs.gather_passes[:, None]
    crossing_expert = shape.rings_cross & (shape.expert_ranks > 1)[:, None]
    reduce = reduce_passes * _ring(costs.reduce_bytes, shape.ranks, shape.members, shape.rings_cross, fabric, kind)
    reduce += reduce_passes * _ring(
        costs.expert_reduce_bytes, shape.expert_ranks, shape.expert_members, crossing_expert, fabric, kind
    )
    most, expert_most = costs.gather_ranks.astype(np.int64), costs.expert_gather_ranks.astype(np.int64)
    members, expert_members = np.minimum(shape.members, most), np.minimum(shape.expert_members, expert_most)
    leaves = (most > members)[:, None]
    gather = _ring(costs.gather_bytes, shape.ranks, members, shape.rings_cross & leaves, fabric, kind)
    leaves = (expert_most > expert_members)[:, None]
    gather += _ring(
        costs.expert_gather_bytes, shape.expert_ranks, expert_members, crossing_expert & leaves, fabric, kind
    )
    return reduce, gather_passes * gather


def _ring(
    payload_bytes: FloatArray,
    ranks: IntArray,
    members: IntArray,
    crosses: BoolArray,
    fabric: Fabric,
    stage_kind: IntArray,
) -> FloatArray:
    """(n, P) seconds of one ring reduce-scatter or all-gather of ``payload_bytes`` (n, P)."""
    wide = np.broadcast_to(members.astype(np.float64)[:, None], payload_bytes.shape)
    seconds = np.empty(payload_bytes.shape)
    for kind in range(len(fabric.kinds)):
        own = stage_kind == kind
        seconds[own] = fabric.local_rings_s(payload_bytes[own], wide[own], kind)
    if crosses.any():
        crossing = (payload_bytes * ((ranks - 1) / ranks)[:, None] / wide)[crosses]
        units = np.broadcast_to(-(-ranks // members)[:, None], crosses.shape)[crosses]
        seconds[crosses] = fabric.joining_s(crossing, units)
    return np.where((ranks > 1)[:, None] & (payload_bytes > 0), seconds, 0.0)
