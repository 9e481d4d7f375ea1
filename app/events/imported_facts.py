"""Signs of trouble in files that were imported (kernel logs, health checks), as reports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from app.events.kernel_lines import bus_of
from app.events.payloads import Taken, digest
from app.events.reading import Reported
from cluster_models.errors import InvalidInput
from cluster_models.health_events import UNSTATED, EntityKind, HealthState
from cluster_models.readers.facts import Fact, HealthFact
from cluster_models.topology import NodeState

_STATES: Final[Mapping[NodeState, HealthState]] = {
    NodeState.FAILED: HealthState.FAILED,
    NodeState.DEGRADED: HealthState.DEGRADED,
    NodeState.DRAINING: HealthState.DRAINING,
    NodeState.UNKNOWN: HealthState.SUSPECTED,
}
_XID: Final = re.compile(r"Xid \d{1,4}\b")


def from_facts(facts: Iterable[Fact], now: datetime) -> Reported:
    """The reports that facts about health make; other facts are passed over.

    A time without a zone is not used: the report then counts as of ``now``.
    """
    taken = Taken(now)
    for fact in facts:
        if isinstance(fact, HealthFact) and fact.state in _STATES:
            with taken.entry(f"{fact.origin.file}:{fact.origin.first_line}"):
                _take(fact, taken)
    return taken.done()


def _take(fact: HealthFact, taken: Taken) -> None:
    if fact.host is None:
        problem, remedy = "does not say on which node it is", "name the node that the file is from"
        raise InvalidInput("host", fact.text, problem, remedy)
    kind, part = _entity(fact.entity)
    at = fact.occurred_at
    at = at.astimezone(UTC) if at is not None and at.tzinfo is not None else None
    value, limit = fact.bytes_per_s, fact.threshold_bytes_per_s
    slower = value is not None and limit is not None and 0 < value < limit
    code = found[0] if (found := _XID.match(fact.text)) is not None else ""
    taken.add(
        _STATES[fact.state],
        fact.host,
        kind=kind,
        part=part,
        at=at,
        source_id=digest(fact.host, fact.entity, fact.state, fact.text, str(fact.occurred_at)),
        text=fact.text,
        code=code,
        bandwidth_share=value / limit if slower and value and limit and kind is EntityKind.NIC else UNSTATED,
    )


def _entity(told: str) -> tuple[EntityKind, str]:
    """Kind and part of what a fact is about; what no job names by itself (a switch inside the node) is the node."""
    kind, _, part = told.partition(":")
    if kind == "gpu" and part:
        return EntityKind.GPU, f"PCI:{bus_of(part)}" if ":" in part else part
    return (EntityKind.NIC, part) if kind == "nic" and part else (EntityKind.NODE, "")
