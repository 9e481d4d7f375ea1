"""Figures of stored clusters as pages need them, worked out once for each version."""

from __future__ import annotations

from typing import Final

from sqlalchemy.orm import Session

from app.kept import Kept
from app.presentation.cluster import ClusterFigures, cluster_figures
from app.services.clusters import snapshots
from app.services.clusters.clusters import StoredCluster

_FIGURES: Final = Kept[tuple[str, int], ClusterFigures](4)
"""A cluster of 1,024 nodes takes about 70 MB."""


def figures_of(session: Session, stored: StoredCluster) -> ClusterFigures:
    """The figures of ``stored`` at its version; a version never changes."""
    return _FIGURES.get(
        (stored.id, stored.version), lambda: cluster_figures(snapshots.current_snapshot(session, stored=stored))
    )
