"""How the parts of a cluster are now, folded from reports that come late, twice and out of order.

The newest report of a part by the time it *happened* holds, whenever it came in.  A recovery is believed only when
nothing bad followed it for a while: what flaps stays out until it has been quiet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cluster_models.health.states import SEVERITY
from cluster_models.health_events import Entity, EntityKind, HealthEvent, HealthState
from cluster_models.recovery import Quarantine

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
    them.  Reports from the future (a clock that is ahead) count as of ``now``.  What is to be left at a stated time
    drains from ``drain_lead_s`` before that.
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
    """By node when the operator last said that the whole of it is well again."""
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

    What flaps failed once: a part that fails before its recovery was believed (``hysteresis_s``) never was well.
    What ``OPERATOR`` reported as recovered counts as repaired: failures of the node until then count no more.
    """
    after = now - timedelta(seconds=within_s)
    told = list({(event.source, event.source_id, event.state): event for event in events}.values())
    repaired = _repaired(told)
    by_part: dict[Entity, list[HealthEvent]] = {}
    for event in told:
        counts = event.occurred_at > max(after, repaired.get(event.entity.node, after))
        if event.entity.node and event.entity.kind is not EntityKind.LINK and counts:
            by_part.setdefault(event.entity, []).append(event)
    counted: dict[str, int] = {}
    for entity, reports in by_part.items():
        by_source: dict[str, list[HealthEvent]] = {}
        for event in sorted(reports, key=lambda event: (event.occurred_at, SEVERITY[event.state])):
            by_source.setdefault(event.source, []).append(event)
        # several sources that report one failure count it once
        hysteresis = timedelta(seconds=hysteresis_s)
        most = max(_outages(ordered, hysteresis) for ordered in by_source.values())
        counted[entity.node] = counted.get(entity.node, 0) + most
    days = within_s / 86_400
    return tuple(
        Quarantine(node, count, f"{node} failed {count} times in {days:.3g} days: keep it out until it is repaired")
        for node, count in sorted(counted.items())
        if count >= failures
    )
