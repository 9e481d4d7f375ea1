"""How the parts of a cluster are now, folded from reports that come late, twice and out of order.

The newest report of a part by the time it *happened* holds, whenever it came in.  A recovery is believed only when
nothing bad followed it for a while: what flaps stays out until it has been quiet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cluster_models.health.events import Entity, EntityKind, HealthEvent, HealthState
from cluster_models.health.states import SEVERITY
from cluster_models.jobs.recovery import Quarantine

HYSTERESIS_S: Final = 600.0
"""Quiet seconds after a recovery before it is believed."""
DRAIN_LEAD_S: Final = 3600.0
"""Seconds before a part has to be left in which somebody must decide, where nothing is said: a checkpoint, a look
by a person, and a restart."""
REPEATED_FAILURES: Final = 3
"""Failures of one node that make it a repeat offender: 3 of 63 nodes caused more than half of all exclusions in one
published cluster, and boards that failed once make 27 % of failures (docs/replanning.md)."""
REPEATED_WITHIN_S: Final = 30 * 86_400.0
OPERATOR: Final = "operator"
"""The source whose word overrules what others said before it: a person who looked."""
OUT: Final = frozenset({HealthState.FAILED})
"""States of what no longer works."""


@dataclass(frozen=True, slots=True)
class Condition:
    """How one part is.  ``since``: the report that holds; ``failures`` counts times it failed.

    ``quiet_until`` is set while a recovery is not believed yet: the state before it stands until then.
    ``leave_by``: when a part has to be left; long before that it is only suspected, so that nothing new goes there.
    """

    entity: Entity
    state: HealthState
    since: datetime
    failures: int
    compute_slowdown: float = 1.0
    bandwidth_share: float = 1.0
    quiet_until: datetime | None = None
    leave_by: datetime | None = None
    source: str = ""
    code: str = ""
    text: str = ""


def conditions_of(
    events: Iterable[HealthEvent],
    *,
    now: datetime,
    hysteresis_s: float = HYSTERESIS_S,
    drain_lead_s: float = DRAIN_LEAD_S,
) -> tuple[Condition, ...]:
    """The parts that are not well, in the order of their names.

    Reports alike in source and id count once.  Several sources may speak of one part: each is believed until it
    takes its word back or ``OPERATOR`` says otherwise later, and the worst of them holds.  So it is with several
    findings (codes) of one source: a report with a code follows up that finding alone, one without a code all of
    them.  Reports from the future (a clock that is ahead) count as of ``now``.  A part that must be left at a
    stated time drains from ``drain_lead_s`` before that.
    """
    told: dict[Entity, list[HealthEvent]] = {}
    for event in {(event.source, event.source_id, event.state): event for event in events}.values():
        told.setdefault(event.entity, []).append(event)
    found = []
    for entity in sorted(told):
        views = [
            _view(reports, now, timedelta(seconds=hysteresis_s), timedelta(seconds=drain_lead_s))
            for source in _by_source(told[entity])
            for reports in _by_finding(source)
        ]
        worst = max(views, key=lambda view: (SEVERITY[view.state], view.since, view.source))
        if worst.state is not HealthState.RECOVERED:
            found.append(worst)
    return tuple(found)


def _by_source(reports: Sequence[HealthEvent]) -> list[list[HealthEvent]]:
    """Reports of one part by who told them, without those that the operator overruled."""
    spoken = max((event.occurred_at for event in reports if event.source == OPERATOR), default=None)
    sources: dict[str, list[HealthEvent]] = {}
    for event in reports:
        if event.source == OPERATOR or spoken is None or event.occurred_at > spoken:
            sources.setdefault(event.source, []).append(event)
    return [sources[name] for name in sorted(sources)]


def _by_finding(reports: Sequence[HealthEvent]) -> list[list[HealthEvent]]:
    """Reports of one part by one source: for each code those that have it or none."""
    codes = sorted({event.code for event in reports})
    return [[event for event in reports if event.code in (code, "")] for code in codes]


def _view(reports: Sequence[HealthEvent], now: datetime, hysteresis: timedelta, lead: timedelta) -> Condition:
    """Condition of one part, or of one finding there, as one source reports it."""
    ordered = sorted(reports, key=lambda event: (event.occurred_at, SEVERITY[event.state], event.source_id))
    last = standing = ordered[-1]
    quiet_until = None
    bad = [index for index, event in enumerate(ordered) if event.state is not HealthState.RECOVERED]
    if bad and last.state is HealthState.RECOVERED:
        # the first of several recoveries counts: saying it again does not put it off
        quiet = min(ordered[bad[-1] + 1].occurred_at, now) + hysteresis
        if quiet > now:
            standing, quiet_until = ordered[bad[-1]], quiet
    is_early = standing.leave_by is not None and now < standing.leave_by - lead
    return Condition(
        entity=standing.entity,
        state=HealthState.SUSPECTED if is_early else standing.state,
        since=min(standing.occurred_at, now),
        failures=_failures(ordered),
        compute_slowdown=standing.compute_slowdown or 1.0,
        bandwidth_share=standing.bandwidth_share or 1.0,
        quiet_until=quiet_until,
        leave_by=standing.leave_by,
        source=standing.source,
        code=standing.code,
        text=standing.text,
    )


def _failures(ordered: Sequence[HealthEvent]) -> int:
    """Times the part went out: reports that repeat a failure that still stands are one."""
    count, was_out = 0, False
    for event in ordered:
        count += event.state in OUT and not was_out
        was_out = event.state in OUT
    return count


def _outages(ordered: Sequence[HealthEvent], hysteresis: timedelta) -> int:
    """Times the part went out after it was well: what fails before its recovery is believed never was."""
    count, was_out, believed = 0, False, None
    for event in ordered:
        if event.state in OUT:
            count += not was_out and (believed is None or event.occurred_at >= believed)
            was_out = True
        elif was_out:
            was_out, believed = False, event.occurred_at + hysteresis
    return count


def _repaired(events: Iterable[HealthEvent]) -> dict[str, datetime]:
    """Moment for each node when the operator last said that the whole of it is well again."""
    last: dict[str, datetime] = {}
    for event in events:
        is_word = event.source == OPERATOR and event.state is HealthState.RECOVERED
        if is_word and event.entity.kind is EntityKind.NODE:
            node = event.entity.node
            last[node] = max(event.occurred_at, last.get(node, event.occurred_at))
    return last


def quarantine_of(
    events: Iterable[HealthEvent],
    *,
    now: datetime,
    failures: int = REPEATED_FAILURES,
    within_s: float = REPEATED_WITHIN_S,
    hysteresis_s: float = HYSTERESIS_S,
) -> tuple[Quarantine, ...]:
    """Nodes that failed, or whose parts did, ``failures`` times in the last ``within_s`` seconds.

    Hardware that reports name by its ``device`` takes its failures along to the node where it was seen last. A
    flapping part failed once: one that fails before its recovery was believed (``hysteresis_s``) never was well.
    Parts that ``OPERATOR`` reported as recovered count as repaired: failures of the node until then count no more.
    """
    after = now - timedelta(seconds=within_s)
    hysteresis = timedelta(seconds=hysteresis_s)
    told = {(event.source, event.source_id, event.state): event for event in events}.values()
    ordered = sorted(told, key=lambda event: (event.occurred_at, SEVERITY[event.state]))
    repaired = _repaired(ordered)
    counting = [
        event
        for event in ordered
        if event.entity.node and event.entity.kind is not EntityKind.LINK and event.occurred_at > after
    ]
    by_node: dict[str, list[HealthEvent]] = {}
    by_device: dict[str, list[HealthEvent]] = {}
    for event in counting:
        by_node.setdefault(event.entity.node, []).append(event)
        if event.device:
            by_device.setdefault(event.device, []).append(event)
    found = {}
    for name, reports in (*by_device.items(), *by_node.items()):
        node = reports[-1].entity.node
        since = repaired.get(node, after)
        count = _outages_of_parts([event for event in reports if event.occurred_at > since], hysteresis)
        if count >= failures:
            seen_on = () if name == node else tuple(sorted({event.entity.node for event in reports}))
            found[node] = Quarantine(node, count, within_s, "" if name == node else name, seen_on)
    return tuple(found[node] for node in sorted(found))


def _outages_of_parts(ordered: Iterable[HealthEvent], hysteresis: timedelta) -> int:
    """Outages of all parts; several sources that report one count it once."""
    by_part: dict[Entity, dict[str, list[HealthEvent]]] = {}
    for event in ordered:
        by_part.setdefault(event.entity, {}).setdefault(event.source, []).append(event)
    return sum(
        max(_outages(reports, hysteresis) for reports in by_source.values()) for by_source in by_part.values()
    )
