"""Hosts of the ranks of a test, where the log lists only some of them.

Launchers fill one host after the other: with g ranks a host, rank r is on host r // g and uses device r mod g, or
device 0 where each process sees its own GPU only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from readers.frame.facts import Member

_MOST_RANKS: Final = 16
"""GPUs of the largest nodes that are sold; more ranks than that a host are not believed of a list with gaps."""


def ranks_per_host(members: Sequence[Member], ranks: int) -> int | None:
    """Ranks on each host of a test of ``ranks``, of which ``members`` are listed; ``None``: that stays open."""
    fitting = [g for g in range(1, min(ranks, _MOST_RANKS) + 1) if ranks % g == 0 and _fits(members, g)]
    shown = [g for g in fitting if g > 1 and _ends_a_host(members, g, ranks)]
    if len(shown) == 1:
        return shown[0]
    hosts = len({member.host for member in members})
    by_division = ranks // hosts
    return by_division if hosts > 1 and ranks % hosts == 0 and by_division in fitting else None


def _fits(members: Sequence[Member], g: int) -> bool:
    """Whether hosts and devices are those of ``g`` ranks on each host."""
    pairs = {(member.host, member.rank // g) for member in members}
    one_to_one = len(pairs) == len({host for host, _ in pairs}) == len({place for _, place in pairs})
    devices = all(member.gpu == member.rank % g for member in members)
    return one_to_one and (devices or all(member.gpu == 0 for member in members))


def _ends_a_host(members: Sequence[Member], g: int, ranks: int) -> bool:
    """Whether some rank uses the last of ``g`` devices and the next rank, if there is one, is on another host."""
    hosts = {member.rank: member.host for member in members}
    return any(
        member.gpu == g - 1
        and (member.rank == ranks - 1 or (member.rank + 1 in hosts and hosts[member.rank + 1] != member.host))
        for member in members
    )
