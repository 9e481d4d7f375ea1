"""Runs the migrations on the connection it is given, or on the database of the settings."""

from __future__ import annotations

from typing import Literal

from alembic import context
from sqlalchemy import Connection

from app.db import tables
from app.db.base import JsonText, UtcDateTime
from app.db.engine import make_engine
from app.db.postgres import prepare_migration
from app.settings import Settings


def _render(kind: str, item: object, _autogen: object) -> str | Literal[False]:
    """Plain SQLAlchemy types in the scripts: they must run when our own types are long gone."""
    if kind == "type" and isinstance(item, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    return "sa.Text()" if kind == "type" and isinstance(item, JsonText) else False


def _run(connection: Connection) -> None:
    prepare_migration(connection)
    context.configure(
        connection=connection,
        target_metadata=tables.Base.metadata,
        render_as_batch=True,
        compare_type=True,
        render_item=_render,
    )
    with context.begin_transaction():
        context.run_migrations()


def _run_from_settings() -> None:
    engine = make_engine(Settings().resolved_database_url)
    with engine.begin() as connection:
        _run(connection)
    engine.dispose()


if (given := context.config.attributes.get("connection")) is not None:
    _run(given)
else:
    _run_from_settings()
