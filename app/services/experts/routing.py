"""Routing statistics that users keep under a name: the workloads of one model, with all their counts."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.insert import insert_if_absent
from app.db.tables import RoutingRow
from app.documents.routing import check_set
from app.experts.statistics import RoutingStatistics, statistics_of
from app.serialization import jsonable, load
from app.services.errors import NameTaken, NotFound
from app.services.experts.packed_counts import packed, unpacked
from app.services.pagination import Page, in_order
from app.services.preconditions import ExpectedVersions, check_version
from app.services.rows import row_where
from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import RoutedWorkload

MOST_COUNTS: Final = 2**25
"""Bound for all workloads of a set, pairs included: 256 MiB while they are unpacked."""

_NAMES_OF_PAGES: Final = frozenset({"rebalance"})
"""Names of pages in the place that the name of statistics has in an address."""


@dataclass(frozen=True, slots=True)
class RoutingRecord:
    """Stored statistics without their counts."""

    id: str
    name: str
    version: int
    statistics: RoutingStatistics
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class StoredRouting:
    """Stored statistics; pairs are there only where they were asked for."""

    record: RoutingRecord
    workloads: tuple[RoutedWorkload, ...]


def check_new_name(name: str) -> None:
    """Raise ``InvalidInput`` of a name that nothing can be stored under."""
    if name in _NAMES_OF_PAGES:
        problem = f"cannot be stored: the page at /experts/{name} is another"
        raise InvalidInput("name", name, problem, "choose another name")


def create_routing(session: Session, *, name: str, workloads: Sequence[RoutedWorkload]) -> RoutingRecord:
    """Store workloads of one model under a name that is free, as version 1."""
    check_new_name(name)
    now = datetime.now(UTC)
    values = _content(workloads) | {"created_at": now, "updated_at": now}
    if not insert_if_absent(session, RoutingRow, id=uuid.uuid4().hex, name=name, version=1, **values):
        raise NameTaken("set of routing statistics", name, "use PUT to replace it, or another name")
    return find_routing(session, name=name)


def replace_routing(
    session: Session,
    *,
    name: str,
    workloads: Sequence[RoutedWorkload],
    expected_version: ExpectedVersions = None,
    keep_others: bool = False,
) -> RoutingRecord:
    """Store other workloads under a name, as its next version.

    ``keep_others``: those stored stay, unless one of the same name comes.
    """
    row = _locked(session, name, expected_version)
    if keep_others:
        given = {workload.name for workload in workloads}
        kept = [workload for workload in unpacked(row.counts, pairs=True) if workload.name not in given]
        workloads = (*kept, *workloads)
    for column, value in _content(workloads).items():
        setattr(row, column, value)
    row.version += 1
    row.updated_at = datetime.now(UTC)
    session.flush()
    return _record(row)


def list_routing(session: Session, *, limit: int, cursor: str | None = None) -> Page[RoutingRecord]:
    """Stored statistics by name."""
    query = select(RoutingRow)
    return in_order(session, query, RoutingRow.name, _record, limit, cursor)


def find_routing(session: Session, *, name: str) -> RoutingRecord:
    """The stored statistics of that name, without counts; raises ``NotFound``."""
    return _record(_row(session, name))


def get_routing(session: Session, *, name: str, pairs: bool = False) -> StoredRouting:
    """The stored statistics of that name; raises ``NotFound``."""
    row = _row(session, name)
    return StoredRouting(_record(row), unpacked(row.counts, pairs=pairs))


def delete_routing(session: Session, *, name: str, expected_version: ExpectedVersions = None) -> None:
    """Forget stored statistics."""
    session.delete(_locked(session, name, expected_version))


def resolve_routing(session: Session, *, name: str) -> tuple[RoutedWorkload, ...]:
    """The workloads stored under a name, with pairs; raises ``InvalidInput`` on the field ``routing``."""
    try:
        return get_routing(session, name=name, pairs=True).workloads
    except NotFound as error:
        remedy = "GET /api/v1/routing lists what is stored"
        raise InvalidInput("routing", name, "there are no stored statistics of this name", remedy) from error


def without_pairs(workloads: Sequence[RoutedWorkload]) -> tuple[RoutedWorkload, ...]:
    """The workloads with nothing but their loads."""
    return tuple(replace(workload, transitions={}, coactivation={}) for workload in workloads)


def _content(workloads: Sequence[RoutedWorkload]) -> dict[str, Any]:
    check_set(workloads)
    total = sum(
        workload.loads.size
        + sum(table.size for tables in (workload.transitions, workload.coactivation) for table in tables.values())
        for workload in workloads
    )
    if total > MOST_COUNTS:
        problem = f"a set holds at most {MOST_COUNTS:,} counts, pairs of experts included"
        raise InvalidInput("workloads", total, problem, "send pairs=false, or fewer workloads")
    return {"summary": jsonable(statistics_of(workloads)), "counts": packed(workloads)}


def _locked(session: Session, name: str, expected: ExpectedVersions) -> RoutingRow:
    """The row, held against other changes until the transaction ends."""
    row = _row(session, name)
    session.refresh(row, with_for_update=True)
    check_version("set of routing statistics", row.name, expected=expected, current=row.version)
    return row


def _row(session: Session, name: str) -> RoutingRow:
    return row_where(session, RoutingRow, RoutingRow.name == name, "set of routing statistics", name)


def _record(row: RoutingRow) -> RoutingRecord:
    return RoutingRecord(
        id=row.id,
        name=row.name,
        version=row.version,
        statistics=load(RoutingStatistics, row.summary),
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
