"""Whether measurements hint at oversubscribed switches, and what one node alone gets out of its switch.

A pair test with one GPU per node cannot load an uplink; with all of them it may.  Derivation: ``docs/links.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

from cluster_models.cluster.topology import Cluster

ALIKE: Final = 0.8
"""Pairs across switches that reach this share of those under one are nearly alike."""
OVERSUBSCRIBED: Final = 0.7
"""With the most flows they must fall below this share of what they reached with fewer."""
Rates = Mapping[tuple[float, float], Mapping[tuple[str, str], float]]
"""Bytes/s of each directed pair of different nodes, by (flows, message bytes)."""


@dataclass(frozen=True, slots=True)
class SharedUplink:
    """Figures of the switches of ``label`` by measurements; rates are those of one flow.

    ``few`` and ``many`` flows per node were measured both inside and across switches; the rates are for many.
    """

    label: str
    few: float
    many: float
    inside_bytes_per_s: float
    across_bytes_per_s: float

    @property
    def node_bytes_per_s(self) -> float:
        """Estimate of what one node sends out of its switch while no other does."""
        return self.many * self.across_bytes_per_s


def shared_uplinks(cluster: Cluster, rates: Rates) -> tuple[SharedUplink, ...]:
    """Labels whose switches look oversubscribed and whose uplinks are not stated."""
    stated = {switch.label for switch in cluster.switches}
    found = (_of_label(cluster, rates, label) for label in ("leaf", "zone") if label not in stated)
    return tuple(one for one in found if one is not None)


def _of_label(cluster: Cluster, rates: Rates, label: str) -> SharedUplink | None:
    place = {node.name: node.place(label) for node in cluster.nodes}
    levels: dict[float, tuple[float, float]] = {}
    for flows, size in sorted(rates):  # the largest message of each number of flows counts
        by_pair = {pair: rate for pair, rate in rates[flows, size].items() if place[pair[0]] and place[pair[1]]}
        inside = [rate for (a, b), rate in by_pair.items() if place[a] == place[b]]
        across = [rate for (a, b), rate in by_pair.items() if place[a] != place[b]]
        if inside and across:
            levels[flows] = median(inside), median(across)
    if len(levels) < 2:
        return None
    many = max(levels)
    share = {flows: across / inside for flows, (inside, across) in levels.items()}
    few = max((flows for flows in levels if flows < many), key=lambda flows: share[flows])
    if share[few] < ALIKE or share[many] > OVERSUBSCRIBED * share[few]:
        return None
    return SharedUplink(label, few, many, *levels[many])
