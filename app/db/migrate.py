"""Brings a database to the newest schema, and tells whether it is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from filelock import FileLock
from sqlalchemy import Engine, inspect

import migrations
from app.db.engine import make_engine
from app.settings import Settings
from cluster_models.errors import MeshwrightError

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS_FOLDER: Final = Path(migrations.__file__).parent
REVISIONS: Final = tuple(sorted(file.name[:4] for file in MIGRATIONS_FOLDER.glob("versions/0*.py")))
"""Each follows on the one before."""


def alembic_config() -> Config:
    """Alembic's settings, with the scripts found wherever the package is installed."""
    from alembic.config import Config  # noqa: PLC0415 - a service starts sooner where nothing is to be migrated

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS_FOLDER).replace("%", "%%"))
    return config


class SchemaNotCurrent(MeshwrightError):
    """The database waits for its migration."""


def prepared_engine(settings: Settings) -> Engine:
    """An engine on the database of the settings, at the newest schema.

    The embedded database is migrated here; a server's is changed only when its operator says so.
    """
    engine = make_engine(settings.resolved_database_url)
    prepare(engine, settings)
    return engine


def prepare(engine: Engine, settings: Settings) -> None:
    """Migrate an embedded database; raise ``SchemaNotCurrent`` where a server's is not at the newest schema."""
    if settings.uses_sqlite:
        with FileLock(settings.data_dir / "migrate.lock"):
            if not is_current(engine):
                upgrade(engine)
    elif not is_current(engine):
        raise SchemaNotCurrent("The database's schema is not the newest; migrate it with: meshwright migrate")


def refuse_newer(engine: Engine) -> None:
    """Raise ``SchemaNotCurrent`` where a newer Meshwright wrote the database."""
    if unknown := _unknown(engine):
        raise SchemaNotCurrent(
            f"The database's schema, {', '.join(unknown)}, is of a newer Meshwright than this one; install that "
            "one, or name another database or data folder"
        )


def upgrade(engine: Engine, *, revision: str = "head") -> None:
    """Move the schema up to ``revision``; raises ``SchemaNotCurrent`` where a newer Meshwright wrote it."""
    from alembic import command  # noqa: PLC0415 - see above

    refuse_newer(engine)
    with _migrating(engine) as config:
        command.upgrade(config, revision)


def downgrade(engine: Engine, *, revision: str = "base") -> None:
    """Move the schema down to ``revision``; tables made later lose their content."""
    from alembic import command  # noqa: PLC0415 - see above

    with _migrating(engine) as config:
        command.downgrade(config, revision)


@contextmanager
def _migrating(engine: Engine) -> Iterator[Config]:
    """A transaction in which the schema changes, all of it or nothing.

    SQLite changes a key by copying the table and dropping the old one, which must not delete what refers to it: its
    references are enforced again after the transaction, which fails where one leads nowhere.
    """
    config = alembic_config()
    with engine.connect() as connection:
        copies_tables = engine.dialect.name == "sqlite"
        if copies_tables:
            connection.connection.cursor().execute("PRAGMA foreign_keys=OFF")
        try:
            with connection.begin():
                config.attributes["connection"] = connection
                yield config
                if copies_tables and (lost := connection.exec_driver_sql("PRAGMA foreign_key_check").first()):
                    raise SchemaNotCurrent(f"A row of {lost[0]} refers to one of {lost[2]} that is not there.")
        finally:
            if copies_tables:
                connection.connection.cursor().execute("PRAGMA foreign_keys=ON")


def is_current(engine: Engine) -> bool:
    """Whether the schema is the newest one."""
    return _revisions(engine) == {REVISIONS[-1]}


def is_newer(engine: Engine) -> bool:
    """Whether a newer Meshwright wrote the database."""
    return bool(_unknown(engine))


def _unknown(engine: Engine) -> set[str]:
    """Revisions that the database is at and we have not heard of."""
    return _revisions(engine).difference(REVISIONS)


def _revisions(engine: Engine) -> set[str]:
    """The revisions that the database is at: one, or none before its first migration."""
    with engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return set()
        return set(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalars())
