"""Compiled: the best map of a small layer, by branch and bound over counts of copies and over ranks.

Letters: E experts, S slots, G ranks, s slots of a rank.  ``shares`` (E,) are scaled so that balanced ranks
all carry 1 and lie in descending order; ``speeds`` (G,) have the mean 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solver.candidates import BoolArray, FloatArray, IntArray
from solver.kernels import inner, kernel

_BELOW = 1.0 - 1e-10
"""A map is better where its slowest rank carries less than this share of what the best one's does."""


class _Search(NamedTuple):
    """The best map so far, and scratch.

    ``held`` (G, s) the best map; ``limit`` (1,) the load of its slowest rank; ``left`` (1,) nodes that may still be
    looked at.  Of the copies in descending order: ``expert`` (S,), ``piece`` (S,) their loads, ``after`` (S + 1,)
    what they and all later ones carry, ``place`` (S,) the rank of each.  ``load``, ``filled`` (G,), ``on`` (G, E).
    """

    shares: FloatArray
    speeds: FloatArray
    held: IntArray
    limit: FloatArray
    left: IntArray
    expert: IntArray
    piece: FloatArray
    after: FloatArray
    place: IntArray
    load: FloatArray
    filled: IntArray
    on: BoolArray


@inner
def _heaviest_first(pieces: FloatArray) -> IntArray:
    """(E,) experts by what a copy carries, equal ones as they are; Numba's own sort is compiled for two seconds."""
    order = np.empty(len(pieces), dtype=np.int64)
    for expert in range(len(pieces)):
        at = expert
        while at > 0 and pieces[order[at - 1]] < pieces[expert]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = expert
    return order


@inner
def _sorted_copies(search: _Search, counts: IntArray) -> None:
    """List the copies for (E,) ``counts``, the heaviest first, copies of one expert side by side."""
    pieces = search.shares / counts
    at = 0
    for expert in _heaviest_first(pieces):
        for _ in range(counts[expert]):
            search.expert[at], search.piece[at] = expert, pieces[expert]
            at += 1
    search.after[at] = 0.0
    for index in range(at - 1, -1, -1):
        search.after[index] = search.after[index + 1] + search.piece[index]


@inner
def _fits(search: _Search, index: int, rank: int) -> bool:
    """Whether the copy ``index`` may lie on ``rank`` of a better map that puts earlier copies where they are.

    The rank's further slots take the lightest copy at least.  Empty ranks of one speed are alike: the first counts.
    """
    size = search.held.shape[1]
    expert, filled = search.expert[index], search.filled[rank]
    if filled == size or search.on[rank, expert]:
        return False
    least = search.load[rank] + search.piece[index] + (size - filled - 1) * search.piece[-1]
    if least >= search.limit[0] * _BELOW * search.speeds[rank]:
        return False
    if filled == 0:
        for earlier in range(rank):
            if search.filled[earlier] == 0 and search.speeds[earlier] == search.speeds[rank]:
                return False
    return True


@inner
def _room(search: _Search) -> float:
    """Load that ranks with free slots can take on below the limit."""
    total, size = 0.0, search.held.shape[1]
    for rank in range(len(search.speeds)):
        if search.filled[rank] < size:
            total += search.limit[0] * search.speeds[rank] - search.load[rank]
    return total


@inner
def _put(search: _Search, index: int, rank: int, sign: int) -> None:
    """Put the copy ``index`` on ``rank`` (1), or take it away (-1)."""
    search.load[rank] += sign * search.piece[index]
    search.filled[rank] += sign
    search.on[rank, search.expert[index]] = sign > 0


@inner
def _keep(search: _Search) -> None:
    """Note the map of all copies where they are as the best."""
    loads = np.zeros(len(search.speeds))
    filled = np.zeros(len(search.speeds), dtype=np.int64)
    for index in range(len(search.place)):
        rank = search.place[index]
        search.held[rank, filled[rank]] = search.expert[index]
        filled[rank] += 1
        loads[rank] += search.piece[index]
    search.limit[0] = (loads / search.speeds).max()


@inner
def _pack(search: _Search, least: float) -> None:
    """Look for better maps of the listed copies, one copy after the other, until none is left or no node."""
    search.load[:] = 0.0
    search.filled[:] = 0
    search.on[:] = False
    copies, ranks = len(search.place), len(search.speeds)
    index = 0
    search.place[0] = -1
    while index >= 0 and search.left[0] > 0 and search.limit[0] > least:
        rank = search.place[index]
        if rank >= 0:
            _put(search, index, rank, -1)
        elif index and search.expert[index] == search.expert[index - 1]:
            # copies of one expert are alike: they go to ranks in ascending order
            rank = search.place[index - 1]
        rank += 1
        while rank < ranks and not _fits(search, index, rank):
            rank += 1
        search.left[0] -= 1
        if rank == ranks:
            index -= 1
            continue
        search.place[index] = rank
        _put(search, index, rank, 1)
        if index + 1 == copies:
            _keep(search)
        elif search.after[index + 1] <= _room(search):
            index += 1
            search.place[index] = -1


@inner
def _fewest(search: _Search, expert: int, fastest: float) -> int:
    """Fewest copies of an expert with which each is lighter than the limit of the fastest rank."""
    return max(1, int(np.floor(search.shares[expert] / (search.limit[0] * fastest * _BELOW))) + 1)


@inner
def _most(search: _Search, counts: IntArray, expert: int, fastest: float) -> int:
    """Most copies of an expert for which slots are left beside earlier ``counts`` and the fewest of later ones."""
    free = len(search.place)
    for other in range(len(counts)):
        if other != expert:
            free -= counts[other] if other < expert else _fewest(search, other, fastest)
    return min(free, len(search.speeds))


@kernel
def best_map(shares: FloatArray, held: IntArray, speeds: FloatArray, least: float, nodes: int) -> bool:
    """Replace (G, s) ``held`` by better maps as long as there are any; whether none is left.

    ``least``: no map's slowest rank carries less, which ends the search; ``nodes``: so many partial maps are looked
    at.  Counts of copies are enumerated for the hottest expert first, and each is packed.
    """
    experts, (ranks, size) = len(shares), held.shape
    counts = np.zeros(experts, dtype=np.int64)
    for expert in held.ravel():
        counts[expert] += 1
    slowest, fastest = 0.0, speeds.max()
    for rank in range(ranks):
        load = 0.0
        for expert in held[rank]:
            load += shares[expert] / counts[expert]
        slowest = max(slowest, load / speeds[rank])
    slots = ranks * size
    search = _Search(
        shares,
        speeds,
        held,
        np.array([slowest]),
        np.array([nodes]),
        np.zeros(slots, dtype=np.int64),
        np.zeros(slots),
        np.zeros(slots + 1),
        np.zeros(slots, dtype=np.int64),
        np.zeros(ranks),
        np.zeros(ranks, dtype=np.int64),
        np.zeros((ranks, experts), dtype=np.bool_),
    )
    counts[:] = 0
    at = 0
    while at >= 0 and search.left[0] > 0 and search.limit[0] > least:
        search.left[0] -= 1
        counts[at] = max(counts[at] + 1, _fewest(search, at, fastest))
        most = _most(search, counts, at, fastest)
        if at + 1 == experts:
            # the last expert takes all slots that are left
            if counts[at] <= most and most == slots - counts[:at].sum():
                counts[at] = most
                _sorted_copies(search, counts)
                _pack(search, least)
            counts[at] = 0
            at -= 1
        elif counts[at] > most:
            counts[at] = 0
            at -= 1
        else:
            at += 1
            counts[at] = 0
    return bool(search.left[0] > 0)
