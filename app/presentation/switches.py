"""Facts about switches that nodes share, in words."""

from __future__ import annotations

from typing import Final

from app.presentation.figures import gbytes_per_s
from cluster_models.cluster.topology import Cluster
from cluster_models.wording import named

_NAMED: Final = 8


def shared_uplinks(cluster: Cluster) -> str:
    """Every label with its switches, equal ones together; empty where no switch limits anything."""
    return "; ".join(_of_label(label, cluster) for label in cluster.uplinks())


def _of_label(label: str, cluster: Cluster) -> str:
    alike: dict[str, list[str]] = {}
    for place, uplink in cluster.uplinks()[label].items():
        alike.setdefault(f"{gbytes_per_s(uplink.bytes_per_s)} ({uplink.figure})", []).append(place)
    parts = [f"{named(places, _NAMED)}: {rate}" for rate, places in alike.items()]
    return f"{label} {', '.join(parts)}"
