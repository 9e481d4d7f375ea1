"""State that every rank of a plan holds: weights, optimizer states and experts, by coordinate.

A model's state is cut along two lines.  *Units* (decoder layers, embedding, head) lie on the pipeline ranks that
their layers are on.  Within a unit, every *part* of the state (weights or optimizer states, of matrices that tensor
ranks cut, of what they repeat, of routed experts) is an axis from 0 to 1, of which each member of a stage holds a
share.  ``docs/replanning.md`` says what lies where on the axis.

Letters: U units, P pipeline ranks, m members of a stage (``tensor`` fastest, then ``context``, then ``data``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import gcd, lcm
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from cluster_models.jobs.recovery import StateKind
from cluster_models.training.adapters import NF4_BYTES, FrozenFormat, adapter_parameters
from cluster_models.training.workload import Sharding
from solver.candidates import SHARDING_CODES
from solver.costs.model_states import WEIGHT_BYTES, state_bytes
from solver.costs.parameters import PREDICTION_NORMS, repeated_mixer, repeated_mlp

if TYPE_CHECKING:
    from cluster_models.jobs.running import RecoveryPolicy
    from cluster_models.model.architecture import Architecture
    from cluster_models.training.expert_slots import ExpertSlots
    from cluster_models.training.plan import Configuration, Degrees, Plan
    from cluster_models.training.workload import TrainingWorkload
    from solver.candidates import BoolArray, CandidateBatch, FloatArray, IntArray

NOBODY: Final = -1
"""Stands for a rank where there is none."""


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Parameters (U,) of every unit, whole: those that tensor ranks cut, those they repeat, and routed experts.

    The layers come first (``layers`` with those of multi-token prediction), then input table, position table,
    output table and last norm.
    """

    layers: int
    cut: FloatArray
    repeated: FloatArray
    routed: FloatArray


class UnitBytes(NamedTuple):
    """Bytes (U,) of every unit, whole, as in ``Units``."""

    cut: FloatArray
    repeated: FloatArray
    routed: FloatArray


@lru_cache(maxsize=64)
def units_of(architecture: Architecture) -> Units:
    """The units of a model; they add up to ``local_parameters`` (``solver.costs.parameters``) of every shape."""
    kinds = [*architecture.layer_pattern]
    kinds += [kinds[-1]] * architecture.prediction_layers
    experts = 0 if architecture.experts is None else architecture.experts.count * architecture.expert_parameters()
    cut, repeated, routed = [], [], []
    for layer, kind in enumerate(kinds):
        whole = architecture.mixer_parameters(kind.mixer) + architecture.mlp_parameters(kind.mlp)
        stays = repeated_mixer(architecture, kind.mixer) + repeated_mlp(architecture, kind.mlp)
        extra = layer >= architecture.layers
        norms = PREDICTION_NORMS * architecture.norm_vectors * architecture.hidden * extra
        cut.append(whole - stays + architecture.prediction_projection_parameters() * extra)
        repeated.append(stays + norms)
        routed.append(experts * kind.sparse)
    vocabulary = architecture.vocabulary * architecture.hidden
    cut += [vocabulary, 0, 0 if architecture.tied_embeddings else vocabulary, 0]
    repeated += [0, architecture.learned_positions * architecture.hidden, 0]
    repeated += [architecture.norm_vectors * architecture.hidden]
    routed += [0] * 4
    tables = [np.array(values, dtype=np.float64) for values in (cut, repeated, routed)]
    return Units(len(kinds), *tables)


def trained_units(architecture: Architecture, workload: TrainingWorkload) -> Units:
    """The parameters of all units that a step changes: every one, or adapters alone, which tensor ranks cut."""
    units = units_of(architecture)
    if workload.adapters is None:
        return units
    fused, own = workload.framework.megatron_core > 0, workload.adapters
    each = np.array([adapter_parameters(architecture, kind, own, fused=fused) for kind in architecture.layer_kinds])
    kinds = [*architecture.kind_numbers, *[architecture.kind_numbers[-1]] * architecture.prediction_layers]
    cut, nothing = np.zeros_like(units.cut), np.zeros_like(units.cut)
    cut[: units.layers] = each[kinds]
    return Units(units.layers, cut, nothing, nothing)


def unit_bytes(
    architecture: Architecture, workload: TrainingWorkload, sharding: Sharding
) -> tuple[UnitBytes, UnitBytes]:
    """Bytes of the weights of every unit, and of what the optimizer keeps of them, as they outlive a step."""
    weight, optimizer = bytes_per_parameter(workload, sharding)
    trained, units = trained_units(architecture, workload), units_of(architecture)
    weights = UnitBytes(*(weight * part for part in (trained.cut, trained.repeated, trained.routed)))
    states = UnitBytes(*(optimizer * part for part in (trained.cut, trained.repeated, trained.routed)))
    if workload.adapters is None:
        return weights, states
    frozen = np.full_like(units.cut, WEIGHT_BYTES.get(workload.precision, 2.0))
    if workload.frozen_weights is FrozenFormat.NF4:
        frozen[: units.layers] = NF4_BYTES
    every = zip(weights, (units.cut, units.repeated, units.routed), strict=True)
    return UnitBytes(*(own + frozen * part for own, part in every)), states


def homes_of(architecture: Architecture, configuration: Configuration) -> BoolArray:
    """(U, P) which pipeline ranks hold a unit.

    That of the last chunk holds a copy of the input table where the output layer is tied to it or prediction layers
    look words up there.
    """
    units, stages = units_of(architecture), configuration.degrees.pipeline
    rank_of_chunk, counts = np.array(configuration.chunks).T
    last = int(rank_of_chunk[-1])
    homes = np.zeros((len(units.cut), stages), dtype=np.bool_)
    homes[np.arange(architecture.layers), np.repeat(rank_of_chunk, counts)] = True
    homes[architecture.layers : units.layers, last] = True
    first, positions, output, norm = range(units.layers, units.layers + 4)
    homes[[first, positions], 0] = True
    homes[[output, norm], last] = True
    if architecture.tied_embeddings or architecture.prediction_layers:
        homes[first, last] = True
    return homes


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """Owners of the parts of an axis: rows (R,) of a member and an interval, in steps of 1 / ``grid``."""

    grid: int
    member: IntArray
    low: IntArray
    high: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class StatePart:
    """One part of the state: the bytes (U,) of its whole axis in each unit, and how the members share it out."""

    kind: StateKind
    unit_bytes: FloatArray
    shares: Shares


@dataclass(frozen=True, eq=False)
class PlanState:
    """The state of a plan.  ``parts`` of two states made together (``states_of``) stand for the same things.

    ``homes`` (U, P).  By rank (R,): its pipeline rank ``stage``, its ``member`` number there, and where it sits:
    ``host`` counts in ``hosts``, ``gpu`` is the number on it.  ``replica_members``: tensor times context ranks.
    """

    parts: tuple[StatePart, ...]
    homes: BoolArray
    hosts: tuple[str, ...]
    members: int
    replica_members: int
    stage: IntArray
    member: IntArray
    host: IntArray
    gpu: IntArray

    @property
    def is_whole(self) -> bool:
        """Whether every member has a rank of its own; a re-routed job runs without some."""
        return len(self.stage) == len(self.homes[0]) * self.members

    @cached_property
    def rank_of(self) -> IntArray:
        """(P, m) the rank that holds the shares of each member of a stage.

        Live replicas took over those of a member that a re-routed job runs without, in turn.
        """
        found = np.full((self.homes.shape[1], self.members), NOBODY, dtype=np.int64)
        found[self.stage, self.member] = np.arange(len(self.stage))
        for stage in () if self.is_whole else found.reshape(len(found), -1, self.replica_members):
            for replicas in stage.T:  # a view: one tensor and context rank of all replicas
                (lost,) = np.nonzero(replicas == NOBODY)
                replicas[lost] = np.resize(replicas[replicas != NOBODY], len(lost))
        return found

    @cached_property
    def members_of(self) -> IntArray:
        """(R, most) the members whose shares each rank holds, its own first, padded with ``NOBODY``."""
        rank = self.rank_of.ravel()
        member = np.tile(np.arange(self.members), len(self.rank_of))
        order = np.lexsort((member, self.member[rank] != member, rank))
        rank, member = rank[order], member[order]
        counts = np.bincount(rank, minlength=len(self.stage))
        found = np.full((len(counts), int(counts.max())), NOBODY, dtype=np.int64)
        found[rank, np.arange(len(rank)) - (np.cumsum(counts) - counts)[rank]] = member
        return found

    @cached_property
    def rank_bytes(self) -> FloatArray:
        """(R,) bytes of state that each rank holds."""
        total = np.zeros(len(self.stage))
        for part in self.parts:
            on_stage = part.unit_bytes @ self.homes
            owner = self.rank_of[:, part.shares.member]
            held = np.stack(np.broadcast_arrays(owner, part.shares.low, part.shares.high)).reshape(3, -1)
            rank, low, high = held if self.is_whole else np.unique(held, axis=1)
            np.add.at(total, rank, on_stage[self.stage[rank]] * (high - low) / part.shares.grid)
        return total

    @property
    def model_bytes(self) -> float:
        """The whole state, each part of it once."""
        return float(sum(part.unit_bytes.sum() for part in self.parts))


def states_of(plans: tuple[Plan, ...], recovery: RecoveryPolicy) -> tuple[PlanState, ...]:
    """The states of plans of one model, with axes that can be compared."""
    slices = lcm(*(plan.configuration.degrees.expert_tensor for plan in plans))
    slots = [plan.expert_slots for plan in plans]
    rows = [None if each is None else each.slots for each in slots]
    alike = all(row == rows[0] for row in rows)
    return tuple(
        _state_of(plan, recovery, slices, None if alike else _SlotOrder(plan.expert_slots)) for plan in plans
    )


@dataclass(frozen=True, slots=True)
class _SlotOrder:
    """Experts are told apart by number because the plans order them differently; without slots as numbered."""

    slots: ExpertSlots | None

    def experts(self, layer: int, count: int) -> IntArray:
        """The expert in each slot of a layer."""
        if self.slots is None or layer not in self.slots.layers or self.slots.count != count:
            return np.arange(count)
        return np.array(self.slots.slots[self.slots.layers.index(layer)])


def bytes_per_parameter(workload: TrainingWorkload, sharding: Sharding) -> tuple[float, float]:
    """Bytes of a weight that is trained, and of what the optimizer keeps of it, as they outlive a step.

    PyTorch FSDP's sharded FP32 weights are the master copy themselves (``solver.costs.memory``).  A reference
    model's weight counts with the trained one's.
    """
    width, kept = WEIGHT_BYTES.get(workload.precision, 2.0), state_bytes(workload)
    reference = width * workload.roles.frozen(workload.method) * (workload.adapters is None)
    trained = workload.roles.trained
    if sharding is Sharding.PARAMETERS and workload.framework.sharded_master:
        return trained * kept.shard + reference, trained * kept.moments
    return trained * width + reference, trained * (kept.moments + kept.master)


def least_rank_bytes(
    architecture: Architecture, workload: TrainingWorkload, batch: CandidateBatch, layers: IntArray
) -> FloatArray:
    """(n,) bytes of state that each rank of a candidate holds at least, where every stage has ``layers`` (n,).

    Only the lightest layers count, and each part of the optimizer states once among the ranks of a stage.
    """
    sharing, members = batch.context * batch.data, batch.context * batch.data * batch.tensor

    def held(part: FloatArray, *, is_shared: bool) -> FloatArray:
        cut, repeated, routed = part[:, :, None]  # (layer kinds, 1) each
        whole = cut / batch.tensor + repeated
        if is_shared:
            return np.asarray(whole / sharing + routed / members)
        return np.asarray(whole + routed / batch.expert_block)

    found = np.zeros(len(batch))
    for code, sharding in enumerate(SHARDING_CODES):
        weights, states = unit_bytes(architecture, workload, sharding)
        every = np.unique(np.stack([*weights, *states])[:, : architecture.layers], axis=1)
        least = held(every[:3], is_shared=sharding is Sharding.PARAMETERS)
        least = least + held(every[3:], is_shared=sharding is not Sharding.NONE)
        found += np.where(batch.sharding == code, least.min(axis=0) * layers, 0.0)
    return found


def instances_of(recovery: RecoveryPolicy, ranks: int) -> int:
    """Copies of every shard among ``ranks`` that share one out: what of the instances asked for divides them."""
    return gcd(recovery.optimizer_instances, ranks)


def _state_of(plan: Plan, recovery: RecoveryPolicy, slices: int, order: _SlotOrder | None) -> PlanState:
    architecture, workload, configuration = plan.architecture, plan.workload, plan.configuration
    assert architecture is not None
    assert workload is not None
    degrees, units = configuration.degrees, units_of(architecture)
    weights, states = unit_bytes(architecture, workload, configuration.sharding)
    cuts = _Cuts(degrees, configuration.sharding_ranks, recovery, slices)
    parts = []
    for kind, nbytes, is_shared in (
        (StateKind.WEIGHTS, weights, configuration.sharding is Sharding.PARAMETERS),
        (StateKind.OPTIMIZER, states, configuration.sharding is not Sharding.NONE),
    ):
        parts.append(StatePart(kind, nbytes.cut, cuts.common(is_cut=True, is_shared=is_shared)))
        parts.append(StatePart(kind, nbytes.repeated, cuts.common(is_cut=False, is_shared=is_shared)))
    if architecture.experts is not None:
        for kind, nbytes, is_shared in (
            (StateKind.EXPERT_WEIGHTS, weights, configuration.sharding is Sharding.PARAMETERS),
            (StateKind.EXPERT_OPTIMIZER, states, configuration.sharding is not Sharding.NONE),
        ):
            shares = cuts.routed(is_shared=is_shared)
            if order is None:
                parts.append(StatePart(kind, nbytes.routed, shares))
                continue
            for layer in np.flatnonzero(units.routed):
                own = np.zeros_like(units.routed)
                own[layer] = nbytes.routed[layer]
                experts = order.experts(int(layer), architecture.experts.count)
                parts.append(StatePart(kind, own, _by_expert(shares, experts, slices)))
    ranks = plan.placement.ranks
    columns = np.array(
        [(place.pipeline, place.tensor, place.context, place.data, place.gpu) for place in ranks], dtype=np.int64
    ).reshape(-1, 5)
    number = {host: index for index, host in enumerate(dict.fromkeys(plan.placement.hosts))}
    return PlanState(
        parts=tuple(parts),
        homes=homes_of(architecture, configuration),
        hosts=tuple(number),
        members=degrees.tensor * degrees.context * degrees.data,
        replica_members=degrees.tensor * degrees.context,
        stage=columns[:, 0],
        member=columns[:, 1] + degrees.tensor * (columns[:, 2] + degrees.context * columns[:, 3]),
        host=np.array([number[place.node] for place in ranks], dtype=np.int64),
        gpu=columns[:, 4],
    )


@dataclass(frozen=True, slots=True)
class _Cuts:
    """How the members of a stage share out axes, in groups of ``sharding_ranks`` data ranks, 0: all.

    ``slices``: steps in which cut experts are told apart.
    """

    degrees: Degrees
    sharding_ranks: int
    recovery: RecoveryPolicy
    slices: int

    def common(self, *, is_cut: bool, is_shared: bool) -> Shares:
        """Shares of what lies outside experts: a slice for each tensor rank if cut, of that a shard each if shared.

        Shards follow the context and data rank (Megatron-Core's group of both, context fastest); with several
        instances consecutive ranks make up one.
        """
        degrees = self.degrees
        sharing = degrees.context * degrees.data
        member = np.arange(degrees.tensor * sharing)
        slices = degrees.tensor if is_cut else 1
        own = self.sharding_ranks or sharing
        shards = own // instances_of(self.recovery, own) if is_shared else 1
        low = (member % degrees.tensor % slices) * shards + (member // degrees.tensor) % shards
        return Shares(slices * shards, member, low, low + 1)

    def routed(self, *, is_shared: bool) -> Shares:
        """Shares of routed experts: the axis runs over slices of experts, then over slots, then over shards."""
        degrees = self.degrees
        block = degrees.expert_block
        member = np.arange(degrees.tensor * degrees.context * degrees.data)
        copies = max(1, len(member) // block)
        own = max(1, degrees.tensor * self.sharding_ranks // block) if self.sharding_ranks else copies
        shards = own // instances_of(self.recovery, own) if is_shared else 1
        per_rank = self.slices // degrees.expert_tensor
        first = (member % degrees.expert_tensor) * per_rank
        place = (member % block // degrees.expert_tensor) * shards + (member // block) % shards
        slices = (first[:, None] + np.arange(per_rank)).ravel()
        low = slices * (degrees.expert * shards) + np.repeat(place, per_rank)
        return Shares(self.slices * degrees.expert * shards, np.repeat(member, per_rank), low, low + 1)


def _by_expert(shares: Shares, experts: IntArray, slices: int) -> Shares:
    """The same shares of an axis on which experts lie by number instead of by slot."""
    count = len(experts)
    grid = lcm(shares.grid, slices * count)
    scale, width = grid // shares.grid, grid // (slices * count)
    low, high = shares.low * scale, shares.high * scale
    first, last = low // width, -(-high // width)
    pieces = last - first
    row = np.repeat(np.arange(len(low)), pieces)
    slot = np.arange(len(row)) - np.repeat(np.cumsum(pieces) - pieces, pieces) + first[row]
    shift = (slot // count * count + experts[slot % count] - slot) * width
    return Shares(
        grid,
        shares.member[row],
        np.maximum(low[row], slot * width) + shift,
        np.minimum(high[row], (slot + 1) * width) + shift,
    )
