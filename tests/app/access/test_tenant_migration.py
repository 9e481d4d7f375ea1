"""Rows stored before there were tenants are the default tenant's afterwards, with all that refers to them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Connection, MetaData, Table, insert, text
from sqlalchemy.types import Boolean, DateTime, Float, Integer, LargeBinary

from app.db import migrate
from app.db.engine import make_engine, make_session_factory, transaction
from app.documents.cluster import ClusterDocument
from app.services.clusters import clusters, snapshots
from app.services.errors import NameTaken
from app.settings import DEFAULT_TENANT
from tests.app.api_client import cluster_body

BEFORE = "0006"
IDS = {"clusters": "c", "snapshots": "s", "plans": "p", "replans": "r", "running_jobs": "j", "running_plans": "q"}
CHOICES = {"plans": "queued", "replans": "proposed", "running_plans": "applied", "webhook_deliveries": "pending"}
OWNERLESS = {"workers", "tenants", "api_keys", "sign_ins", "audit_log"}


def _value(table: Table, name: str) -> Any:
    """A value that a column takes: the id of the one row where it refers to another table."""
    column = table.c[name]
    for key in column.foreign_keys:
        return IDS.get(key.column.table.name, key.column.table.name[:30])
    if name == "status":
        return CHOICES.get(table.name, "ok")
    if name == "standing":
        return "running"
    if name == "id" and not isinstance(column.type, Integer):
        return IDS.get(table.name, table.name[:30])
    kinds = ((Boolean, True), (Integer, 1), (Float, 1.0), (DateTime, datetime.now(UTC)), (LargeBinary, b"x"))
    return next((value for kind, value in kinds if isinstance(column.type, kind)), "{}")


def fill(connection: Connection) -> dict[str, int]:
    """One row in every table, parents first."""
    metadata = MetaData()
    metadata.reflect(connection)
    tables = [table for table in metadata.sorted_tables if table.name != "alembic_version"]
    for table in tables:
        columns = [column.name for column in table.c]
        connection.execute(insert(table).values({name: _value(table, name) for name in columns}))
    return {table.name: 1 for table in tables}


def _counts(connection: Connection) -> dict[str, int]:
    metadata = MetaData()
    metadata.reflect(connection)
    names = [name for name in metadata.tables if name != "alembic_version"]
    return {name: connection.scalar(text(f"SELECT count(*) FROM {name}")) or 0 for name in names}  # noqa: S608


def test_everything_is_kept_and_belongs_to_the_default_tenant(empty_database_url: str) -> None:
    """One row of every table goes up, and back down, and nothing that refers to another is lost on the way."""
    engine = make_engine(empty_database_url)
    migrate.upgrade(engine, revision=BEFORE)
    with engine.begin() as connection:
        before = fill(connection)
    migrate.upgrade(engine)
    with engine.begin() as connection:
        after = _counts(connection)
        # what was prepared is worked out again by another version
        assert {name: after[name] for name in before} == before | {"prepared_jobs": 0}
        metadata = MetaData()
        metadata.reflect(connection)
        owned = {name for name, table in metadata.tables.items() if "tenant_id" in table.c} - OWNERLESS
        owned &= set(before)
        assert len(owned) == 14
        for name in owned:
            owners = connection.scalars(text(f"SELECT tenant_id FROM {name}")).all()  # noqa: S608 - names of ours
            assert owners == [DEFAULT_TENANT], name
    migrate.downgrade(engine, revision=BEFORE)
    with engine.begin() as connection:
        assert _counts(connection) == before | {"prepared_jobs": 0}
    engine.dispose()


def test_nothing_of_other_tenants_is_dropped_on_the_way_down(empty_database_url: str) -> None:
    """The older schema does not know whose it would be, so it is not gone back to."""
    engine = make_engine(empty_database_url)
    migrate.upgrade(engine)
    with transaction(make_session_factory(engine, tenant="lab")) as session:
        snapshots.take_snapshot(session, reference=_stored(session))
    with pytest.raises(RuntimeError, match="belong to tenants"):
        migrate.downgrade(engine, revision=BEFORE)
    assert migrate.is_current(engine)
    engine.dispose()


def _stored(session: Any) -> str:
    document = ClusterDocument.model_validate(cluster_body())
    made = clusters.create_cluster(session, document=document)
    with pytest.raises(NameTaken):
        clusters.create_cluster(session, document=document)
    return made.id
