"""Figures of stored clusters as pages need them, worked out once for each version."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

from sqlalchemy.orm import Session

from app.presentation.cluster import ClusterFigures, cluster_figures
from app.services.clusters import snapshots
from app.services.clusters.clusters import StoredCluster

_KEPT: Final = 4
"""Clusters kept: one of 1,024 nodes takes about 70 MB."""


def figures_of(session: Session, stored: StoredCluster) -> ClusterFigures:
    """The figures of ``stored`` at its version; a version never changes."""
    key = (stored.id, stored.version)
    with _LOCK:
        if key in _FIGURES:
            _FIGURES.move_to_end(key)
            return _FIGURES[key]
    figures = cluster_figures(snapshots.current_snapshot(session, stored=stored))
    with _LOCK:
        _FIGURES[key] = figures
        while len(_FIGURES) > _KEPT:
            _FIGURES.popitem(last=False)
    return figures


_FIGURES: OrderedDict[tuple[str, int], ClusterFigures] = OrderedDict()
_LOCK: Final = Lock()
