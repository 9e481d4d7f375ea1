"""Events about a part of a cluster, of one kind whatever system reported them.

Monitoring systems name the same failure in their own words; ``app.events`` turns each of them into these values.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from cluster_models.errors import InvalidInput


class EntityKind(StrEnum):
    """Kind of part that an event is about."""

    NODE = "node"
    GPU = "gpu"
    NIC = "nic"
    LINK = "link"
    """The way between two nodes, both directions."""
    SWITCH = "switch"


class HealthState(StrEnum):
    """State of a part."""

    FAILED = "failed"
    DEGRADED = "degraded"
    """It works, slower than it should."""
    DRAINING = "draining"
    """It works and is to be left soon: maintenance, spot removals."""
    SUSPECTED = "suspected"
    """Somebody thinks so; nothing moves for it, and no new rank is placed there."""
    RECOVERED = "recovered"


class InvalidHealthEvent(InvalidInput):
    """An event about the health of a part of a cluster is wrong."""


@dataclass(frozen=True, slots=True, order=True)
class Entity:
    """A part of a cluster.

    ``node`` is the cluster's name of the node (of one end of a link).  ``part``: the number of a GPU as nvidia-smi
    shows it, the name or number of a network card, the other node of a link; of a switch, which has no ``node``,
    ``label:place`` as ``Node.place`` names it (``leaf:zone-a/leaf-3``).
    """

    kind: EntityKind
    node: str = ""
    part: str = ""

    def __post_init__(self) -> None:
        if (self.kind is EntityKind.SWITCH) == bool(self.node):
            problem = "has no node" if self.node else f"a {self.kind} needs its node"
            raise InvalidHealthEvent("entity.node", self.node, problem, "name switches by part alone")
        if (self.kind is EntityKind.NODE) == bool(self.part):
            problem = "a node has no part" if self.part else f"says which {self.kind}"
            raise InvalidHealthEvent("entity.part", self.part, problem, "give the number or name of the part")
        if self.kind is EntityKind.LINK and self.part < self.node:
            first, second = self.part, self.node
            object.__setattr__(self, "node", first)
            object.__setattr__(self, "part", second)

    def __str__(self) -> str:
        separator = "-" if self.kind is EntityKind.LINK else ":"
        return f"{self.kind} {separator.join(name for name in (self.node, self.part) if name)}"


UNSTATED: Final = 0.0


@dataclass(frozen=True, slots=True)
class HealthEvent:
    """One report.  ``occurred_at`` has a time zone; reports may come late, twice, and out of order.

    ``source`` names who told it and ``source_id`` the report in its own naming: two reports alike in both are one.
    ``compute_slowdown`` (1 = healthy) and ``bandwidth_share`` (of what the links of the entity had, in (0, 1]) say
    how degraded it is where that was told, 0 where not.  ``code`` is the source's own name of the finding
    (``Xid 79``).  ``leave_by``: of a part that drains, until when it works; ``None`` where it may go at any moment.
    ``device``: serial number or UUID of the hardware, which it keeps in another node; empty where not told.
    """

    entity: Entity
    state: HealthState
    occurred_at: datetime
    source: str
    source_id: str
    text: str = ""
    code: str = ""
    compute_slowdown: float = UNSTATED
    bandwidth_share: float = UNSTATED
    leave_by: datetime | None = None
    device: str = ""

    def __post_init__(self) -> None:
        if self.occurred_at.tzinfo is None:
            raise InvalidHealthEvent(
                "occurred_at", self.occurred_at.isoformat(), "has no time zone", "end it with Z or an offset"
            )
        if self.leave_by is not None and (self.leave_by.tzinfo is None or self.state is not HealthState.DRAINING):
            problem = (
                "has no time zone" if self.leave_by.tzinfo is None else f"conflicts with the state {self.state}"
            )
            raise InvalidHealthEvent(
                "leave_by", self.leave_by.isoformat(), problem, "only what drains is to be left"
            )
        if self.compute_slowdown != UNSTATED and not 1 <= self.compute_slowdown < float("inf"):
            raise InvalidHealthEvent(
                "compute_slowdown", self.compute_slowdown, "must be at least 1", "1.2 is 20 % slower than healthy"
            )
        if not 0 <= self.bandwidth_share <= 1:
            raise InvalidHealthEvent(
                "bandwidth_share", self.bandwidth_share, "must lie in (0, 1]", "0.5 is half of what the link had"
            )
