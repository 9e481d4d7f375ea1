"""How often parts of a cluster fail and how long they are out, measured from its own reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import scipy
from sqlalchemy.orm import Session

from app.services.clusters import clusters
from app.services.decisions import replan_settings
from app.services.health import health_events
from app.services.health.health_events import KEPT_FOR
from cluster_models.health.events import EntityKind
from cluster_models.health.outages import Outage, outages_of

IN_NODES: Final = frozenset({EntityKind.NODE, EntityKind.GPU, EntityKind.NIC})
"""Parts of nodes, whose outages are failures of a node."""
CONFIDENCE: Final = 0.9
_MOST_NODES: Final = 10
_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class KindReliability:
    """Outages of one kind of part; times in seconds, ``None`` where nothing failed, or nothing came back yet."""

    kind: EntityKind
    outages: int
    repaired: int
    between_s: float | None
    repair_s: float | None


@dataclass(frozen=True, slots=True)
class Reliability:
    """Failures on a cluster from ``since`` until now.

    ``failures_per_node_day`` counts outages of nodes and of their GPUs and cards; low and high are the exact
    interval of a Poisson rate in which the true one lies with ``CONFIDENCE`` (Garwood 1936).  ``worst``: the nodes
    that failed most often, with how often.
    """

    since: datetime
    node_days: float
    failures: int
    failures_per_node_day: float
    failures_per_node_day_low: float
    failures_per_node_day_high: float
    kinds: tuple[KindReliability, ...]
    worst: tuple[tuple[str, int], ...]


def measure_reliability(session: Session, *, reference: str, now: datetime | None = None) -> Reliability:
    """Failures in a cluster's reports, since it was stored here or for as long as reports are kept.

    Raises ``NotFound``.  Only reported failures count: a cluster that nobody watches looks well.
    """
    now = now or datetime.now(UTC)
    stored = clusters.get_cluster(session, reference=reference)
    settings = replan_settings.settings_of(session, cluster_id=stored.id)
    events = health_events.read_known(session, cluster_id=stored.id)
    since = max(stored.created_at, now - KEPT_FOR)
    found = [each for each in outages_of(events, hysteresis_s=settings.hysteresis_s) if since <= each.began <= now]
    span_s = max((now - since).total_seconds(), 1.0)
    node_days = len(stored.cluster.nodes) * span_s / _DAY_S
    of_nodes = [each for each in found if each.entity.kind in IN_NODES]
    low, high = poisson_interval(len(of_nodes))
    counts = Counter(each.entity.node for each in of_nodes)
    return Reliability(
        since=since,
        node_days=node_days,
        failures=len(of_nodes),
        failures_per_node_day=len(of_nodes) / node_days,
        failures_per_node_day_low=low / node_days,
        failures_per_node_day_high=high / node_days,
        kinds=tuple(_kind(kind, found, span_s) for kind in EntityKind),
        worst=tuple(sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:_MOST_NODES]),
    )


def poisson_interval(count: int) -> tuple[float, float]:
    """Means between which a Poisson variable that came out as ``count`` lies with ``CONFIDENCE`` (Garwood 1936)."""
    tail = (1 - CONFIDENCE) / 2
    low = float(scipy.special.gammaincinv(count, tail)) if count else 0.0
    return low, float(scipy.special.gammaincinv(count + 1, 1 - tail))


def _kind(kind: EntityKind, found: Sequence[Outage], span_s: float) -> KindReliability:
    outages = [each for each in found if each.entity.kind is kind]
    repairs = [(each.ended - each.began).total_seconds() for each in outages if each.ended is not None]
    return KindReliability(
        kind=kind,
        outages=len(outages),
        repaired=len(repairs),
        between_s=span_s / len(outages) if outages else None,
        repair_s=sum(repairs) / len(repairs) if repairs else None,
    )
