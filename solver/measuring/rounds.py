"""Pairs that can be measured at once: rounds in which no node takes part twice."""

from __future__ import annotations

from collections.abc import Sequence

Pair = tuple[str, str]


def rounds_of(pairs: Sequence[Pair]) -> tuple[tuple[int, ...], ...]:
    """Rounds of positions in ``pairs``, which is ordered by worth and holds no pair twice.

    All pairs of n nodes take the fewest rounds there can be, n - 1 or, for odd n, n (a round-robin tournament).
    Others go first come, first served, so that the pairs of most worth are measured first: at most 2d - 1 rounds
    where no node has more than d pairs, since each of its two nodes is busy in at most d - 1 earlier ones.
    """
    nodes = sorted({node for pair in pairs for node in pair})
    if len(pairs) > 2 and 2 * len(pairs) == len(nodes) * (len(nodes) - 1):
        return _tournament(pairs, nodes)
    busy: list[set[str]] = []
    rounds: list[list[int]] = []
    first_free: dict[str, int] = {}
    for index, (a, b) in enumerate(pairs):
        at = max(first_free.get(a, 0), first_free.get(b, 0))
        while at < len(busy) and (a in busy[at] or b in busy[at]):
            at += 1
        if at == len(busy):
            busy.append(set())
            rounds.append([])
        busy[at] |= {a, b}
        rounds[at].append(index)
        for node in (a, b):
            free = first_free.get(node, 0)
            while free < len(busy) and node in busy[free]:
                free += 1
            first_free[node] = free
    return tuple(tuple(members) for members in rounds)


def _tournament(pairs: Sequence[Pair], nodes: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The circle method: one node stays, the others move on by one seat each round (Kirkman 1847)."""
    position = {frozenset(pair): index for index, pair in enumerate(pairs)}
    seats: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    rounds = []
    for _ in range(len(seats) - 1):
        facing = zip(seats, reversed(seats), strict=True)
        met = [frozenset((a, b)) for a, b in list(facing)[: len(seats) // 2] if a is not None and b is not None]
        rounds.append(tuple(sorted(position[pair] for pair in met)))
        seats[1:] = [seats[-1], *seats[1:-1]]
    return tuple(sorted(rounds))
