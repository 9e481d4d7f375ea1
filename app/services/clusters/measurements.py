"""Samples of links, one row each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import Select, insert, or_, select
from sqlalchemy.orm import Session

from app.db.base import UtcDateTime
from app.db.tables import MeasurementRow
from app.services.pagination import Page, in_order
from cluster_models.cluster.measurements import Collective, Direction, Sample, SampleStatus

_COLUMNS: Final = tuple(field.name for field in fields(Sample))
_QUERY: Final = select(*(getattr(MeasurementRow, name) for name in _COLUMNS))
_DIRECTIONS: Final[Mapping[str, Direction]] = {each.value: each for each in Direction}
_COLLECTIVES: Final[Mapping[str, Collective]] = {each.value: each for each in Collective}
_STATUSES: Final[Mapping[str, SampleStatus]] = {each.value: each for each in SampleStatus}
_MOST_NAMED: Final = 200
"""Names in one query; with more, nearly all samples are meant."""


@dataclass(frozen=True, slots=True)
class MeasurementFilter:
    """Filter for samples of a cluster; ``None`` means any.  ``node`` is either end."""

    node: str | None = None
    status: SampleStatus | None = None
    since_version: int | None = None


def store(session: Session, *, cluster_id: str, version: int, samples: Iterable[Sample]) -> int:
    """Add samples to a cluster; returns how many."""
    key = {"cluster_id": cluster_id, "version": version}
    if session.get_bind().dialect.name == "sqlite":
        return _store_fast(session, key, samples)
    rows = [key | {name: getattr(sample, name) for name in _COLUMNS} for sample in samples]
    if rows:
        session.execute(insert(MeasurementRow), rows)
    return len(rows)


def unknown(session: Session, *, cluster_id: str, samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """Samples, each once, that the cluster does not have yet."""
    samples = dict.fromkeys(samples)
    sources = {sample.source for sample in samples}
    query = _QUERY.where(MeasurementRow.cluster_id == cluster_id)
    if len(sources) <= _MOST_NAMED:
        query = query.where(MeasurementRow.source.in_(sources))
    known = set(_samples(session, query))
    return tuple(sample for sample in samples if sample not in known)


def read_all(session: Session, *, cluster_id: str) -> tuple[Sample, ...]:
    """Every sample of a cluster, oldest first."""
    query = _QUERY.where(MeasurementRow.cluster_id == cluster_id).order_by(MeasurementRow.id)
    return tuple(_samples(session, query))


def list_measurements(
    session: Session, *, cluster_id: str, which: MeasurementFilter, limit: int, cursor: str | None = None
) -> Page[Sample]:
    """Samples of a cluster in the order they came."""
    query = select(MeasurementRow).where(MeasurementRow.cluster_id == cluster_id)
    if which.node is not None:
        query = query.where(or_(MeasurementRow.source == which.node, MeasurementRow.destination == which.node))
    if which.status is not None:
        query = query.where(MeasurementRow.status == which.status)
    if which.since_version is not None:
        query = query.where(MeasurementRow.version > which.since_version)
    return in_order(session, query, MeasurementRow.id, _sample, limit, cursor)


def _store_fast(session: Session, key: Mapping[str, object], samples: Iterable[Sample]) -> int:
    """``store`` in a third of the time, for nobody else writes to an SQLite database meanwhile."""
    connection = session.connection()
    moment = UtcDateTime().bind_processor(connection.dialect) or (lambda value: value)
    columns = ", ".join((*key, *_COLUMNS))
    marks = ", ".join("?" * (len(key) + len(_COLUMNS)))
    *values_of, last = _COLUMNS
    assert last == "measured_at", "the one value that SQLite does not take as it is"
    plain = attrgetter(*values_of)
    same = tuple(key.values())
    rows = [(*same, *plain(sample), moment(sample.measured_at)) for sample in samples]
    if rows:
        connection.exec_driver_sql(f"INSERT INTO measurements ({columns}) VALUES ({marks})", rows)  # noqa: S608 - names of ours
    return len(rows)


def _samples(session: Session, query: Select[Any]) -> Iterator[Sample]:
    """The samples of ``_QUERY``; a third of the time that rows as objects take, of which there may be 100,000."""
    for source, destination, direction, tool, collective, size, ranks, pairs, status, *figures in session.execute(
        query
    ):
        rate, latency, moment = figures
        yield Sample(
            source=source,
            destination=destination,
            direction=_DIRECTIONS[direction],
            tool=tool,
            collective=_COLLECTIVES[collective],
            message_bytes=size,
            ranks_per_node=ranks,
            pairs_active=pairs,
            status=_STATUSES[status],
            bytes_per_s=rate,
            latency_s=latency,
            measured_at=moment,
        )


def _sample(row: MeasurementRow) -> Sample:
    return Sample(
        source=row.source,
        destination=row.destination,
        direction=Direction(row.direction),
        tool=row.tool,
        collective=Collective(row.collective),
        message_bytes=row.message_bytes,
        ranks_per_node=row.ranks_per_node,
        pairs_active=row.pairs_active,
        status=SampleStatus(row.status),
        bytes_per_s=row.bytes_per_s,
        latency_s=row.latency_s,
        measured_at=row.measured_at,
    )
