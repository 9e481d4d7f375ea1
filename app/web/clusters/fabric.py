"""Links of a stored cluster as pages need them, worked out once for each version."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Final

from sqlalchemy.orm import Session

from app.presentation.sentences import sentences
from app.services.clusters import snapshots
from app.services.clusters.clusters import StoredCluster
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.links.model import LinkModel, effective_links
from cluster_models.links.slow_links import Rates, SlowLink, rates_of, slow_links
from cluster_models.links.suspicions import SLOW_LINKS, suspicions

_KEPT: Final = 4
"""Clusters kept: one of 1,024 nodes takes about 60 MB."""


@dataclass(frozen=True, slots=True, eq=False)
class Fabric:
    """A cluster at one version: its snapshot, the model of its links, the slow ones, and doubts but for these."""

    snapshot: ClusterSnapshot
    links: LinkModel
    rates: Rates
    slow: tuple[SlowLink, ...]
    suspicions: tuple[str, ...]


def fabric_of(session: Session, stored: StoredCluster) -> Fabric:
    """The links of ``stored`` at its version; a version never changes."""
    key = (stored.id, stored.version)
    with _LOCK:
        if key in _FABRICS:
            _FABRICS.move_to_end(key)
            return _FABRICS[key]
    fabric = fabric_of_snapshot(snapshots.current_snapshot(session, stored=stored))
    with _LOCK:
        _FABRICS[key] = fabric
        while len(_FABRICS) > _KEPT:
            _FABRICS.popitem(last=False)
    return fabric


def fabric_of_snapshot(snapshot: ClusterSnapshot) -> Fabric:
    """The links of a snapshot."""
    links = effective_links(snapshot)
    rates = rates_of(links.tables)
    slow = slow_links(snapshot.cluster, rates)
    doubts = sentences(doubt for doubt in suspicions(snapshot, links.tables) if doubt.code != SLOW_LINKS)
    return Fabric(snapshot, links, rates, slow, doubts)


_FABRICS: OrderedDict[tuple[str, int], Fabric] = OrderedDict()
_LOCK: Final = Lock()
