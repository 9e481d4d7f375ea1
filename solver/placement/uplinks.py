"""Switches whose way up flows share, and what each pair of slots sends through them at a time (docs/links.md).

A transfer between stages carries the activations of every GPU of the cell on a slot.  A hop of a ring, or of a
crossing collective, carries what ``solver.placement.fabric`` takes all GPUs of a slot to send together.  Letters as
in ``solver.placement.problem``.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cluster_models.cluster.topology import Cluster
from cluster_models.training.plan import Degrees
from solver.candidates import FloatArray, IntArray
from solver.compiled import Uplinks
from solver.costs.step_costs import StepCosts
from solver.placement.geometry import Geometry
from solver.placement.problem import NO_SLOT


def compile_uplinks(
    cluster: Cluster, unit_heads: Iterable[int], loads: tuple[FloatArray, FloatArray, FloatArray]
) -> Uplinks:
    """The switches over the units whose first nodes stand at ``unit_heads`` (N,), and what passes them."""
    nodes = [cluster.nodes[position] for position in unit_heads]
    above: list[list[int]] = []
    rates: list[float] = []
    for label, places in cluster.uplinks().items():
        number: dict[str | None, int] = {}
        for place, uplink in places.items():
            number[place] = len(rates)
            rates.append(uplink.bytes_per_s)
        above.append([number.get(node.place(label), -1) for node in nodes])
    return Uplinks(
        np.array(above, dtype=np.int64).reshape(-1, len(nodes)), np.array(rates, dtype=np.float64), *loads
    )


def loads_of(
    degrees: Degrees, costs: StepCosts, shape: Geometry, gpus_per_slot: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Bytes that one pair of slots sends: hops (R, 2, P, q), crossing collectives (X,), rings (2, Y, P)."""
    gpus = min(gpus_per_slot, degrees.gpus)
    cell = degrees.tensor * degrees.context
    hops = np.where(shape.hop_pairs[..., 0] != NO_SLOT, float(costs.transfer_bytes[0]) * min(gpus, cell), 0.0)
    traffics = (costs.context_traffic, costs.expert_traffic, costs.parameter_traffic)
    messages = np.array([float(traffic.message_bytes[0]) for traffic in traffics])
    return hops, messages * _cross_flows(degrees, cell, gpus), _rings(degrees, costs, shape, gpus)


def _cross_flows(degrees: Degrees, cell: int, gpus: int) -> FloatArray:
    """(X,) messages of one pair, over how often the geometry lists it: once for each cell concerned.

    In an all-to-all a slot sends equal parts to all other slots of the expert group.
    """
    block = degrees.expert_block
    others = max(1, block // gpus - 1)
    return np.array([gpus, gpus / others / max(1, block // cell), gpus / degrees.data], dtype=np.float64)


def _rings(degrees: Degrees, costs: StepCosts, shape: Geometry, gpus: int) -> FloatArray:
    """(2, Y, P) bytes over one hop of the data parallel rings of a stage, from all of its GPUs on the slot.

    Each group passes (n-1)/n of its buffer over every hop (Patarasuk & Yuan 2009), as often as the costs say.
    """
    stage_ranks = degrees.tensor * degrees.context * degrees.data
    on_slot = np.array([_gpus_on_slot(degrees, shape.cell_slots[:, s], gpus) for s in range(degrees.pipeline)])
    kinds = (
        (
            degrees.data * degrees.context,
            shape.ring_members,
            costs.reduce_bytes,
            costs.gather_bytes,
            costs.gather_ranks,
        ),
        (
            max(1, stage_ranks // degrees.expert_block),
            shape.expert_ring_members,
            costs.expert_reduce_bytes,
            costs.expert_gather_bytes,
            costs.expert_gather_ranks,
        ),
    )
    sent = np.zeros((2, 2, degrees.pipeline))
    for kind, (ranks, members, reduced, gathered, gathering) in enumerate(kinds):
        groups = on_slot / np.maximum(1, members) * (ranks - 1) / ranks
        sent[0, kind] = costs.reduce_passes[0] * groups * reduced[0]
        sent[1, kind] = np.where(gathering[0] > members, costs.gather_passes[0] * groups * gathered[0], 0.0)
    return sent


def _gpus_on_slot(degrees: Degrees, cell_slots: IntArray, gpus: int) -> float:
    """GPUs of a stage on each of its slots (R, q), on average."""
    slots = np.unique(cell_slots[cell_slots != NO_SLOT])
    return min(float(gpus), degrees.tensor * degrees.context * degrees.data / len(slots))
