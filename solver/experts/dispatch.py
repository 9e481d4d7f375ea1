"""The time of sparse layers for a map of experts: the slowest rank's compute, dispatch and combination.

A token is sent once to every other node that serves one of its experts, and there over NVLink once to every rank
that does; results come back the same way (DeepEP's normal kernels).  The busiest node, sending or receiving, and
the busiest rank set the pace.  Formulas and their derivation: docs/experts.md, section "The time of a layer".

Letters: L layers, E experts, S slots, G ranks, N nodes, k experts a token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cluster_models.errors import InvalidInput
from cluster_models.model.experts import Experts
from cluster_models.routing.counts import check_selectable
from solver.candidates import FloatArray, IntArray
from solver.experts.compiled_node_time import NodeCase, Reach, crossings, fill_needs, node_state
from solver.experts.compiled_reach import rank_needs, router_weights
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice, rank_loads, slot_parts

_FITTING_ROUNDS = 100
_FEW_RANKS = 2
_DISPATCH_BYTES, _SCALED_TOGETHER = 1.0, 128
_SCALE_BYTES, _COMBINE_BYTES = 4.0, 2.0


@dataclass(frozen=True, slots=True)
class RouterRule:
    """Each token selects ``active`` experts in ``active_groups`` of ``groups`` groups of consecutive experts."""

    active: int
    groups: int = 1
    active_groups: int = 1

    @classmethod
    def of(cls, experts: Experts) -> RouterRule:
        """The rule of a model."""
        return cls(experts.active, experts.router_groups, experts.active_groups)

    def check(self, experts: int) -> None:
        """Raise ``InvalidInput`` unless tokens can select so many of ``experts`` experts."""
        if not 1 <= self.groups <= experts or experts % self.groups:
            raise InvalidInput("router.groups", self.groups, f"must divide the {experts} experts")
        if not 1 <= self.active_groups <= self.groups:
            raise InvalidInput("router.active_groups", self.active_groups, f"must lie in 1..{self.groups}")
        allowed = experts // self.groups * self.active_groups
        if not 1 <= self.active <= allowed:
            problem = f"must lie in 1..{allowed}: {self.active_groups} of {self.groups} groups of {experts} experts"
            raise InvalidInput("router.active", self.active, problem)

    def check_shares(self, shares: FloatArray, layers: Sequence[int], field: str) -> None:
        """Raise ``InvalidInput`` where this router selects in no tokens what was counted, (L, E) of sum 1."""
        groups = self.groups, self.active_groups
        check_selectable(shares, layers, active=self.active, groups=groups, field=field)


@dataclass(frozen=True, slots=True)
class LayerRates:
    """Costs of a layer: ``tokens`` of each rank, seconds of compute, bytes on the wire and rates of links.

    ``selection_s``: seconds that a rank of mean speed computes on one token for one expert.  ``dispatch_bytes`` and
    ``combine_bytes`` of a token on its way to a node or rank, and back.  ``between_bytes_per_s``: what a rank's
    share of its node's NICs carries in one direction; ``inside_bytes_per_s``: its NVLink.  Raises ``InvalidInput``.
    """

    selection_s: float
    dispatch_bytes: float
    combine_bytes: float
    between_bytes_per_s: float
    inside_bytes_per_s: float
    tokens: float = 4096.0

    def __post_init__(self) -> None:
        for name in ("selection_s", "dispatch_bytes", "combine_bytes", "tokens"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidInput(f"rates.{name}", value, "must be a number from 0 on")
        for name in ("between_bytes_per_s", "inside_bytes_per_s"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"rates.{name}", getattr(self, name), "must be above 0")

    @property
    def copy_bytes(self) -> float:
        """Bytes of a token to another node or rank and back."""
        return self.dispatch_bytes + self.combine_bytes


def token_bytes(hidden: int) -> tuple[float, float]:
    """Bytes of a token in dispatch (FP8 with a 4-byte scale per 128 elements) and combination (BF16), as DeepEP."""
    return hidden * (_DISPATCH_BYTES + _SCALE_BYTES / _SCALED_TOGETHER), hidden * _COMBINE_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class LayerTimes:
    """Seconds of each layer (L,) in parts, and the traffic behind them.

    ``compute_s`` of the slowest rank; ``between_s`` of the busiest node, dispatch and combination, and ``inside_s``
    of the busiest rank's NVLink.  ``crossing`` (L,): other nodes that a token needs, mean of all source nodes;
    ``busiest_crossing``: what the busiest node sends or receives, in tokens beside those that start on a node.
    ``traffic`` (N, N): share of the tokens of a node (row) that go to another (column), mean of layers.
    """

    compute_s: FloatArray
    between_s: FloatArray
    inside_s: FloatArray
    crossing: FloatArray
    busiest_crossing: FloatArray
    traffic: FloatArray

    @property
    def total_s(self) -> FloatArray:
        """(L,) one after the other: nothing is hidden."""
        return self.compute_s + self.between_s + self.inside_s


@dataclass(frozen=True, slots=True, eq=False)
class Routing:
    """Model of the router in each layer: shares (L, E) of sum 1, fitted weights (L, E), measured pairs."""

    rule: RouterRule
    shares: FloatArray
    weights: FloatArray
    pairs: Mapping[int, FloatArray]

    def case(
        self,
        layer: int,
        layout: ExpertLayout,
        prices: tuple[float, float, float],
        crossing_mean: float,
        references: tuple[float, float] = (1.0, 0.0),
        aimed: float = 1.0,
    ) -> NodeCase:
        """The problem of one layer as compiled code takes it; ``aimed``: a load beyond which loads cost more."""
        shares = self.shares[layer]
        # a few ranks of each node hold hot copies, and cold ones beside them
        few = min(_FEW_RANKS * layout.nodes, layout.ranks)
        beside = np.sort(shares)[: few * (layout.slots_per_rank - 1)].sum() / few
        return NodeCase(
            shares,
            self.weights[layer],
            self.pairs.get(layer, np.zeros((0, 0))),
            (self.rule.active, self.rule.groups, self.rule.active_groups),
            prices,
            references,
            crossing_mean,
            aimed,
            layout.relative_speeds().reshape(layout.nodes, -1).sum(axis=1),
            layout.ranks_per_node,
            float(beside),
        )


def routing(loads: FloatArray, rule: RouterRule, coactivation: Mapping[int, FloatArray] | None = None) -> Routing:
    """Fit the router's draw to (L, E) ``loads``; ``coactivation`` counts of pairs take its place where measured.

    Raises ``InvalidInput`` where the rule does not fit the experts.
    """
    rule.check(loads.shape[1])
    shares = loads / loads.sum(axis=1, keepdims=True)
    weights = np.array(
        [router_weights(row, rule.active, rule.groups, rule.active_groups, _FITTING_ROUNDS) for row in shares]
    )
    pairs = {}
    for layer, counts in (coactivation or {}).items():
        apart = np.array(counts, dtype=np.float64)
        np.fill_diagonal(apart, 0.0)
        if apart.sum() > 0 and rule.active > 1:
            pairs[layer] = (apart + apart.T) * (rule.active * (rule.active - 1) / (2.0 * apart.sum()))
    return Routing(rule, shares, weights, pairs)


def layer_times(
    slots: IntArray,
    routed: Routing,
    layout: ExpertLayout,
    rates: LayerRates,
    choice: CopyChoice = CopyChoice.NEAREST,
) -> LayerTimes:
    """The time of each layer for (L, S) ``slots`` in an engine that takes copies by ``choice``."""
    return times_by_choice(slots, routed, layout, rates, (choice,))[0]


def times_by_choice(
    slots: IntArray, routed: Routing, layout: ExpertLayout, rates: LayerRates, choices: Sequence[CopyChoice]
) -> list[LayerTimes]:
    """The times of layers for (L, S) ``slots`` under each of several choices of copies."""
    tokens = rates.tokens * layout.ranks
    compute = rates.selection_s * routed.rule.active * tokens
    inside = tokens * rates.copy_bytes / rates.inside_bytes_per_s if layout.ranks_per_node > 1 else 0.0
    between = rates.tokens * rates.copy_bytes / rates.between_bytes_per_s
    crossing, traffic = crossing_by_choice(slots, routed, layout, choices)
    return [
        LayerTimes(
            compute_s=compute * rank_loads(slots, routed.shares, layout, choice).max(axis=1),
            between_s=between * busiest,
            inside_s=inside * _busiest_ranks(slots, routed, layout, choice),
            crossing=mean,
            busiest_crossing=busiest,
            traffic=between_nodes,
        )
        for choice, (busiest, mean), between_nodes in zip(choices, crossing, traffic, strict=True)
    ]


def _busiest_ranks(slots: IntArray, routed: Routing, layout: ExpertLayout, choice: CopyChoice) -> FloatArray:
    """(L,) how likely a token needs the busiest rank."""
    parts = slot_parts(slots, routed.shares.shape[1], layout, choice)
    rule = (routed.rule.active, routed.rule.groups, routed.rule.active_groups)
    reached = np.zeros((len(slots), layout.ranks))
    for layer, row in enumerate(slots):
        by_rank = np.ascontiguousarray(row.reshape(layout.ranks, -1))
        rank_needs(routed.weights[layer], by_rank, parts[layer].reshape(layout.ranks, -1), rule, reached[layer])
    return np.asarray(reached.max(axis=1))


def needs_of(routed: Routing, layer: int, served: FloatArray) -> FloatArray:
    """(N,) how likely a token of a layer needs each node; ``served`` (E, 1, N) is a node's share of an expert."""
    experts, _, nodes = served.shape
    by_node = np.zeros((3, 1, nodes))
    case = routed.case(layer, ExpertLayout(1, 1, experts), (0.0, 1.0, 0.0), 0.0)
    fill_needs(case, Reach(served, np.zeros_like(served), *by_node), False)
    return np.asarray(by_node[0, 0])


def crossing_by_choice(
    slots: IntArray, routed: Routing, layout: ExpertLayout, choices: Sequence[CopyChoice]
) -> tuple[FloatArray, FloatArray]:
    """Other nodes that tokens need: (choices, 2, L) of the busiest node and the mean, (choices, N, N) traffic.

    The busiest node, sending or receiving, in tokens beside those that start on a node.
    """
    found = np.zeros((len(choices), 2, len(slots)))
    traffic = np.zeros((len(choices), layout.nodes, layout.nodes))
    if layout.nodes > 1:
        for layer, row in enumerate(slots):
            state = node_state(np.ascontiguousarray(row.reshape(layout.nodes, -1)), routed.shares.shape[1])
            case = routed.case(layer, layout, (0.0, 1.0, 0.0), 0.0)
            for number, choice in enumerate(choices):
                reach = state.near if choice is CopyChoice.NEAREST else state.even
                fill_needs(case, reach, False)
                found[number, :, layer] = crossings(reach.needs)
                traffic[number] += reach.needs / len(slots)
        traffic *= 1.0 - np.eye(layout.nodes)
    return found, traffic
