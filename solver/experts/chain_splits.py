"""The best chain of maps where a layer has few enough ways to split its experts: dynamic programming over all.

Exchanging ranks that are alike (of one node, and whole nodes, of equal speeds) in all layers at once changes
nothing, so that only one split of each class needs a value (docs/experts.md).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts import compiled_chain_splits as kernels
from solver.experts.layout import ExpertLayout
from solver.experts.transitions import inside_worth

MOST_SPLITS: Final = 50_000
MOST_SETS: Final = 4_000
MOST_LOOKUPS: Final = 4e8
"""Labelled splits, sets of experts on a rank, and table look-ups of one pass, up to which chains are solved so."""


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """Every way to split E experts over G ranks, s on each.

    ``sets`` (K, E): which experts each possible content of a rank has; ``ranks`` (P, G): the set on each rank, of
    each labelled split; ``classes`` (P,): the class of each under exchanges of ranks that are alike; ``firsts``
    (Q,): the labelled split that stands for each class.  ``node_sets`` and ``nodes`` (P, N): the same for nodes,
    empty where staying in the node is worth nothing; ``inside``: what it is worth beside staying on the rank.
    """

    sets: FloatArray
    ranks: IntArray
    classes: IntArray
    firsts: IntArray
    node_sets: FloatArray
    nodes: IntArray
    inside: float

    def slowest(self, shares: FloatArray, layout: ExpertLayout) -> FloatArray:
        """(Q,) maximum over mean rank load of each class, for the shares (E,) of a layer."""
        loads = (self.sets @ shares)[self.ranks[self.firsts]] / layout.relative_speeds()
        return np.asarray(loads.max(axis=1) * (layout.ranks / shares.sum()))

    def masses(self, table: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Worth of the transitions ``table`` (E, E) between two sets on one rank, and in one node."""
        on_rank = (1 - self.inside) * (self.sets @ table @ self.sets.T)
        return on_rank, self.inside * (self.node_sets @ table @ self.node_sets.T)

    def ranks_of(self, contents: IntArray) -> IntArray:
        """(E,) the rank of each expert for the sets (G,) on the ranks."""
        return np.asarray(np.argmax(self.sets[contents], axis=0))


def splits_of(experts: int, layers: int, layout: ExpertLayout, worth: FloatArray) -> Splits | None:
    """Every split of ``experts`` experts, ``None`` where there are too many for a chain of ``layers``."""
    inside = inside_worth(worth, layout)
    width = layout.slots_per_rank * layout.ranks_per_node if inside else 0
    count = math.factorial(experts) // math.factorial(layout.slots_per_rank) ** layout.ranks
    if count > MOST_SPLITS or max(math.comb(experts, size) for size in (layout.slots_per_rank, width)) > MOST_SETS:
        return None
    splits = _labelled(tuple(range(experts)), layout.slots_per_rank)
    ranks, sets = _numbered(splits, layout.slots_per_rank, experts)
    alike = layout if inside else replace(layout, nodes=1)
    _, firsts, classes = np.unique(_canonical(ranks, alike), axis=0, return_index=True, return_inverse=True)
    if layers * count * len(firsts) * (layout.ranks + (layout.nodes if inside else 0)) > MOST_LOOKUPS:
        return None
    nodes, node_sets = np.zeros((count, 0), dtype=np.int64), np.zeros((0, experts))
    if inside:
        joined = [_by_nodes(split, layout.ranks_per_node) for split in splits]
        nodes, node_sets = _numbered(joined, width, experts)
    return Splits(sets, ranks, classes.reshape(-1), firsts, node_sets, nodes, inside)


def best_chain(tables: FloatArray, penalties: FloatArray, splits: Splits) -> IntArray:
    """(L, E) the ranks of the chain with the greatest worth less ``penalties`` (L, Q): there is no better one."""
    value = -penalties[0]
    steps = []
    for table, penalty in zip(tables, penalties[1:], strict=True):
        value, before = kernels.extended(
            value, splits.masses(table), splits.ranks, splits.nodes, splits.classes, splits.firsts
        )
        value = value - penalty
        steps.append(before)
    found = int(np.argmax(value))
    current = splits.ranks[splits.firsts[found]]
    chain = [current]
    for before in reversed(steps):
        # the layer before was chosen for the split that stands for the class: exchange its ranks likewise
        standing = splits.ranks[splits.firsts[found]]
        exchanged = np.argmax(standing[None, :] == current[:, None], axis=1)
        at = int(before[found])
        current = splits.ranks[at][exchanged]
        found = int(splits.classes[at])
        chain.append(current)
    return np.array([splits.ranks_of(contents) for contents in reversed(chain)])


Split = tuple[tuple[int, ...], ...]


def _numbered(splits: list[Split], size: int, experts: int) -> tuple[IntArray, FloatArray]:
    """(P, parts) the number of each part's set of experts, and (K, E) all sets of ``size`` experts."""
    subsets = list(itertools.combinations(range(experts), size))
    number = {subset: index for index, subset in enumerate(subsets)}
    sets = np.zeros((len(subsets), experts))
    np.put_along_axis(sets, np.array(subsets), 1.0, axis=1)
    return np.array([[number[held] for held in split] for split in splits]), sets


def _by_nodes(split: Split, width: int) -> Split:
    """The experts of each node, of ``width`` ranks each."""
    return tuple(
        tuple(sorted(itertools.chain.from_iterable(split[first : first + width])))
        for first in range(0, len(split), width)
    )


def _labelled(experts: tuple[int, ...], size: int) -> list[Split]:
    """Each way to deal ``experts`` to ranks in order, ``size`` to each."""
    if len(experts) == size:
        return [(experts,)]
    return [
        (first, *rest)
        for first in itertools.combinations(experts, size)
        for rest in _labelled(tuple(e for e in experts if e not in first), size)
    ]


def _canonical(contents: IntArray, layout: ExpertLayout) -> IntArray:
    """(P, G) each split with its ranks in the order that all splits of its class share."""
    ordered = contents.copy()
    width = layout.ranks_per_node
    for node in range(layout.nodes):
        own = ordered[:, node * width : (node + 1) * width]
        speeds = np.array(layout.speeds or (1.0,) * layout.ranks)[node * width : (node + 1) * width]
        for speed in np.unique(speeds):
            alike = np.flatnonzero(speeds == speed)
            own[:, alike] = np.sort(own[:, alike], axis=1)
    if layout.nodes == 1 or len({tuple(speeds) for speeds in _by_node(layout)}) > 1:
        return ordered
    blocks = ordered.reshape(len(ordered), layout.nodes, width)
    # sets are told apart by their first number: no two ranks hold the same
    order = np.argsort(blocks[:, :, 0], axis=1)
    return np.take_along_axis(blocks, order[:, :, None], axis=1).reshape(ordered.shape)


def _by_node(layout: ExpertLayout) -> list[tuple[float, ...]]:
    speeds = layout.speeds or (1.0,) * layout.ranks
    width = layout.ranks_per_node
    return [tuple(speeds[start : start + width]) for start in range(0, layout.ranks, width)]
