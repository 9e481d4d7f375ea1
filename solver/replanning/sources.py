"""Where new ranks get their state from: for every need the nearest place that has it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from cluster_models.units import MIB
from solver.costs.training_state import NOBODY, PlanState
from solver.replanning.overlap import Needs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster_models.links.model import LinkModel
    from solver.candidates import BoolArray, FloatArray, IntArray

MESSAGE_BYTES: Final = 64.0 * MIB
"""Message size at which links are compared: state travels in large buffers."""
_EQUAL: Final = 1 + 1e-9


class Found(IntEnum):
    """Where a need is met, the nearest first."""

    SAME_GPU = 0
    SAME_NODE = 1
    ELSEWHERE = 2
    NOWHERE = 3


@dataclass(frozen=True, slots=True, eq=False)
class Distances:
    """The nodes that matter, and what flows between them take.

    ``names`` (N,) are nodes of the cluster, ``seconds`` (N, N) what a byte takes from one to the other in a flow
    while ``flows`` such flows leave its node; the diagonal is the inside of a node.
    """

    names: tuple[str, ...]
    seconds: FloatArray

    def positions(self, hosts: Sequence[str]) -> IntArray:
        """The position of each host."""
        position = {name: index for index, name in enumerate(self.names)}
        return np.array([position[host] for host in hosts], dtype=np.int64)


def distances_between(hosts: Sequence[str], links: LinkModel, flows: int) -> Distances:
    """The distances between ``hosts``."""
    names = tuple(dict.fromkeys(hosts))
    position = {name: index for index, name in enumerate(links.nodes)}
    rows = np.array([position[name] for name in names], dtype=np.int64)
    seconds = links.kind_s(MESSAGE_BYTES, flows)[links.kinds.kind[np.ix_(rows, rows)]]
    return Distances(names, seconds / MESSAGE_BYTES)


@dataclass(frozen=True, slots=True, eq=False)
class Available:
    """Where the state of old ranks can be read.

    ``sites`` (R, w): nodes of ``Distances``, ``NOBODY`` where there is none (no more).  ``own`` (R',): the old rank
    whose state a new rank's own GPU still has; ``near`` (R', g): those whose state its node has.
    ``node`` (R',) is the node of each new rank.
    """

    sites: IntArray
    own: IntArray
    near: IntArray
    node: IntArray


def available(sites: IntArray, own: IntArray, node: IntArray) -> Available:
    """``sites``, ``own`` and ``node`` as in ``Available``; what each node has follows."""
    rank, column = np.nonzero(sites != NOBODY)
    at = sites[rank, column]
    order = np.argsort(at, kind="stable")
    rank, at = rank[order], at[order]
    nodes = int(max(at.max(initial=0), node.max(initial=0))) + 1
    counts = np.bincount(at, minlength=nodes)
    lists = np.full((nodes, max(1, int(counts.max()))), NOBODY, dtype=np.int64)
    lists[at, np.arange(len(at)) - (np.cumsum(counts) - counts)[at]] = rank
    return Available(sites, own, lists[node], node)


@dataclass(frozen=True, slots=True, eq=False)
class Supplies:
    """How each need (Q,) of a part is met: what is ``found``, the old rank ``giver`` and the node it is read on."""

    needs: Needs
    found: IntArray
    giver: IntArray
    node: IntArray


def supplies(needs: Needs, old: PlanState, held: Available, distances: Distances) -> Supplies:
    """The nearest source of every need of a part.

    The own GPU comes first, then GPUs (or the memory) of the own node, then the fastest link.  Ranks that need the
    same share those that are equally near, so that they do not all ask the same one.
    """
    found = np.full(len(needs.rank), Found.NOWHERE, dtype=np.int64)
    giver = np.full(len(needs.rank), NOBODY, dtype=np.int64)
    own = held.own[needs.rank]
    hit = needs.held_by(old, own)
    found[hit], giver[hit] = Found.SAME_GPU, own[hit]
    for column in range(held.near.shape[1]):
        left = np.flatnonzero(giver == NOBODY)
        if not left.size:
            break
        near = held.near[needs.rank[left], column]
        hits = needs.held_by(old, near, left)
        found[left[hits]], giver[left[hits]] = Found.SAME_NODE, near[hits]
    node = held.node[needs.rank].copy()
    left = np.flatnonzero(giver == NOBODY)
    if left.size and (held.sites != NOBODY).any():
        ranks, nodes = _elsewhere(needs, left, old, held, distances)
        got = ranks != NOBODY
        found[left[got]], giver[left[got]], node[left[got]] = Found.ELSEWHERE, ranks[got], nodes[got]
    node[found == Found.NOWHERE] = NOBODY
    return Supplies(needs, found, giver, node)


def _elsewhere(
    needs: Needs, left: IntArray, old: PlanState, held: Available, distances: Distances
) -> tuple[IntArray, IntArray]:
    """Rank and node that give each need of ``left``."""
    run, atom, taker = needs.run[left], needs.atom[left], held.node[needs.rank[left]]
    stages = needs.runs.old_stages[run]
    holders = needs.holders(old)[atom[:, None], stages]
    holders = np.where(stages[:, :, None] == NOBODY, NOBODY, holders).reshape(len(left), -1)
    sites = np.where(holders[:, :, None] == NOBODY, NOBODY, held.sites[holders])
    width = sites.shape[2]
    sites = sites.reshape(len(left), -1)
    seconds = np.where(sites == NOBODY, np.inf, distances.seconds[sites, taker[:, None]])
    choice = _in_turn(seconds, *_places_in_groups(run * needs.atoms + atom, taker))
    index = np.arange(len(left))
    node = sites[index, choice]
    rank = np.where(node == NOBODY, NOBODY, holders[index, choice // width])
    return rank, node


def _places_in_groups(group: IntArray, taker: IntArray) -> tuple[IntArray, IntArray]:
    """Place of each in its group, in the order of takers, and the size of that group; both (n,)."""
    order = np.lexsort((taker, group))
    _, first, member, count = np.unique(group[order], return_index=True, return_inverse=True, return_counts=True)
    place = np.empty_like(order)
    place[order] = np.arange(len(order)) - first[member]
    size = np.empty_like(order)
    size[order] = count[member]
    return place, size


def _in_turn(seconds: FloatArray, place: IntArray, size: IntArray) -> IntArray:
    """(n,) of each row of ``seconds`` one of its least values; those of a group share them evenly."""
    near = seconds <= seconds.min(axis=1, keepdims=True) * _EQUAL
    wanted = place * near.sum(axis=1) // size + 1
    choice: IntArray = (np.cumsum(near, axis=1) == wanted[:, None]).argmax(axis=1)
    return choice


def kept_atoms(needs: Needs, old: PlanState, alive: BoolArray) -> BoolArray:
    """(K, A) which atoms of which runs some old rank that is ``alive`` (R,) holds."""
    holders = needs.holders(old)
    on_stage = (alive[holders] & (holders != NOBODY)).any(axis=2)
    kept: BoolArray = (needs.runs.old.astype(np.int64) @ on_stage.T.astype(np.int64)) > 0
    return kept
