"""Reports in a payload, about parts of a cluster under whatever names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from app.documents.reading import FieldProblem
from cluster_models.health.events import UNSTATED, EntityKind, HealthEvent, HealthState


@dataclass(frozen=True, slots=True)
class ReportedEvent:
    """A report as told, before its names are looked up.

    ``told`` is the node by whatever name (empty for switches), ``part`` as in ``Entity``, for a link the other node
    as told.  The rest as in ``HealthEvent``.  ``is_sighting``: it says how the part is now, as systems do that are
    asked again and again, and not that it changed: it is news only where it differs from what was last said.
    """

    kind: EntityKind
    told: str
    part: str
    state: HealthState
    occurred_at: datetime
    source_id: str
    text: str = ""
    code: str = ""
    compute_slowdown: float = UNSTATED
    bandwidth_share: float = UNSTATED
    leave_by: datetime | None = None
    device: str = ""
    is_sighting: bool = False


@dataclass(frozen=True, slots=True)
class ToldEvent:
    """A report with its name looked up: ``told_name`` is the source's own, ``known`` whether the cluster has it.

    The entity of an unknown one carries the name as told.
    """

    event: HealthEvent
    told_name: str
    known: bool
    is_sighting: bool = False


@dataclass(frozen=True, slots=True)
class Reported:
    """All reports of one payload; ``unread`` are entries that could not be read while others could."""

    events: tuple[ReportedEvent, ...]
    unread: tuple[FieldProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class Adapter:
    """A monitoring system whose payloads are understood.

    ``read`` takes the body and the moment it came; it raises ``InvalidInput`` where the body is not of this format.
    ``example`` is a payload to try it with.
    """

    name: str
    known_as: str
    read: Callable[[bytes, datetime], Reported]
    example: str
