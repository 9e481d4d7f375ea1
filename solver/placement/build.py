"""From a candidate and its costs to the placement problem it poses on a fabric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cluster_models.training.frameworks import Framework
from cluster_models.training.interleaving import micro_batch_group, runs_all_forwards_first
from cluster_models.training.plan import Degrees
from solver.candidates import ORDER_CODES, BoolArray, CandidateBatch, FloatArray, IntArray
from solver.compiled import Arrays
from solver.costs.step_costs import StepCosts
from solver.costs.traffic import CrossTraffic
from solver.pipeline.schedule import build_schedule
from solver.placement.fabric import Fabric
from solver.placement.geometry import Geometry, geometry
from solver.placement.problem import PlacementProblem, no_rules, no_uplinks


def degrees_of(candidate: CandidateBatch) -> Degrees:
    """The degrees of a batch with one row."""
    return Degrees(
        tensor=int(candidate.tensor[0]),
        pipeline=int(candidate.pipeline[0]),
        data=int(candidate.data[0]),
        context=int(candidate.context[0]),
        expert=int(candidate.expert[0]),
        virtual_pipeline=int(candidate.virtual_pipeline[0]),
        expert_tensor=int(candidate.expert_tensor[0]),
    )


def build_placement(
    candidate: CandidateBatch,
    costs: StepCosts,
    micro_batches: int,
    fabric: Fabric,
    *,
    framework: Framework,
    stage_kinds: Sequence[int] = (),
) -> PlacementProblem:
    """The placement problem of a batch with one row and its costs, under the framework's schedule.

    ``stage_kinds``: the GPU kind of each pipeline rank among those of ``fabric``, needed where it has several.
    """
    degrees = degrees_of(candidate)
    stage_kinds = stage_kinds or (0,) * degrees.pipeline
    shape = geometry(degrees, ORDER_CODES[int(candidate.rank_order[0])], fabric.gpus_per_unit, candidate.runs)
    schedule = build_schedule(
        degrees.pipeline,
        degrees.virtual_pipeline,
        micro_batches,
        order=candidate.runs,
        group=micro_batch_group(framework, degrees.pipeline, micro_batches),
        all_forwards_first=runs_all_forwards_first(framework),
        blocking=framework.blocking_transfers,
    )
    transfer = float(costs.transfer_bytes[0])
    traffics = (costs.context_traffic, costs.expert_traffic, costs.parameter_traffic)
    rings = _rings(candidate, costs, shape, fabric, stage_kinds)
    arrays = Arrays(
        events=schedule.events,
        last=schedule.last,
        duration_s=np.stack([seconds[0] for seconds in costs.durations_s(schedule.order)]),
        local_hop_s=fabric.local_hop_s(transfer),
        slowdown=fabric.slowdown,
        hop_pairs=shape.hop_pairs,
        hop_s=fabric.hop_s(transfer),
        cross_pairs=shape.cross_pairs,
        cross_s=np.stack([_hop_s(fabric, each) for each in traffics]),
        cross_count=np.stack([[count[0] for count, _ in t.by_event(schedule.order)] for t in traffics]),
        cross_hidden_s=np.array([[hidden[0] for _, hidden in t.by_event(schedule.order)] for t in traffics]),
        cell_slots=shape.cell_slots,
        ring_pairs=shape.ring_pairs,
        ring_times=rings.times,
        reduce_s=rings.reduce_s,
        gather_s=rings.gather_s,
        reduce_local_s=rings.reduce_local_s,
        gather_local_s=rings.gather_local_s,
        reduce_hidden_s=costs.reduce_hidden_s[0],
        gather_hidden_s=costs.gather_hidden_s[0],
        optimizer_s=costs.optimizer_s[0] + costs.tail_transfers[0] * fabric.latency_s,
        rules=no_rules(shape.slots, fabric.nodes)._replace(eligible=_eligible(shape, fabric, stage_kinds)),
        uplinks=no_uplinks(shape.hop_pairs, shape.cross_pairs, shape.ring_pairs, fabric.nodes),
    )
    return PlacementProblem(shape.slots, fabric.nodes, schedule, arrays)


def _hop_s(fabric: Fabric, traffic: CrossTraffic) -> FloatArray:
    """(N, N) seconds of a message; forward and backward passes hide as much where a window is in the way."""
    return fabric.windowed_s(float(traffic.message_bytes[0]), traffic.window, float(traffic.forward_hidden_s[0]))


def _eligible(shape: Geometry, fabric: Fabric, stage_kinds: Sequence[int]) -> BoolArray:
    """(K, N) whether a node has the GPU kind of the pipeline ranks on a slot."""
    kind = np.zeros(shape.slots, dtype=np.int64)
    for stage, needed in enumerate(stage_kinds):
        kind[shape.cell_slots[:, stage]] = needed
    return np.asarray(kind[:, None] == fabric.kind[None, :])


class _Rings(NamedTuple):
    """Seconds of data parallel rings, as in ``Arrays``."""

    times: IntArray
    reduce_s: FloatArray
    gather_s: FloatArray
    reduce_local_s: FloatArray
    gather_local_s: FloatArray


def _rings(
    candidate: CandidateBatch, costs: StepCosts, shape: Geometry, fabric: Fabric, stage_kinds: Sequence[int]
) -> _Rings:
    """Seconds of all rings; those of equal payload and shape share their matrices."""
    degrees = degrees_of(candidate)
    stage_ranks = degrees.tensor * degrees.context * degrees.data
    reduce_passes, gather_passes = float(costs.reduce_passes[0]), float(costs.gather_passes[0])
    kinds = (
        (degrees.data * degrees.context, shape.ring_members, shape.ring_nodes),
        (max(1, stage_ranks // degrees.expert_block), shape.expert_ring_members, shape.expert_ring_nodes),
    )
    gathering = int(costs.gather_ranks[0]), int(costs.expert_gather_ranks[0])
    reduced = costs.reduce_bytes[0], costs.expert_reduce_bytes[0]
    gathered = costs.gather_bytes[0], costs.expert_gather_bytes[0]

    def local_s(payload: float, ranks: int, members: int, gpu: int) -> float:
        return fabric.local_ring_s(payload, members, gpu) if payload and ranks > 1 else 0.0

    def crossing_s(payloads: Sequence[float], passes: float) -> FloatArray:
        """(M, N, N) seconds of ``payloads``, one for each of ``matrices``, written once, for they are large."""
        seconds = np.zeros((len(matrices), fabric.nodes, fabric.nodes))
        for own, payload, (_, _, ranks, members, ring_nodes, gpu) in zip(seconds, payloads, matrices, strict=True):
            if payload and ranks > 1 and ring_nodes > 1:
                ring = fabric.ring_s(payload, ranks=ranks, members=members, ring_nodes=ring_nodes, kind=gpu)
                np.multiply(passes, ring, out=own)
        return seconds

    matrices: dict[tuple[float, float, int, int, int, int], int] = {}
    times = np.empty((2, degrees.pipeline), dtype=np.int64)
    reduce_local_s, gather_local_s = np.empty((2, 2, degrees.pipeline))
    for kind, (ranks, members, ring_nodes) in enumerate(kinds):
        for stage in range(degrees.pipeline):
            reduce, gather = float(reduced[kind][stage]), float(gathered[kind][stage])
            together, most, gpu = int(members[stage]), gathering[kind], stage_kinds[stage]
            key = (reduce, gather if most > together else 0.0, ranks, together, int(ring_nodes[stage]), gpu)
            times[kind, stage] = matrices.setdefault(key, len(matrices))
            reduce_local_s[kind, stage] = reduce_passes * local_s(reduce, ranks, together, gpu)
            gather_local_s[kind, stage] = gather_passes * local_s(gather, ranks, min(together, most), gpu)
    return _Rings(
        times,
        crossing_s([reduce for reduce, *_ in matrices], reduce_passes),
        crossing_s([gather for _, gather, *_ in matrices], gather_passes),
        reduce_local_s,
        gather_local_s,
    )
