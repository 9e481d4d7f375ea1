"""Obstacles to the start of a service, each said in one line; light, so that it is said at once."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from app.db.engine import make_engine
from app.settings import LOOPBACK, Access, Settings
from cluster_models.errors import MeshwrightError

_PREFIX: Final = "MESHWRIGHT_"
_OTHERS: Final = frozenset({"DEBUG", "KEY", "SERVER", "TEST_EXPLORE", "TOOL_SOURCES"})
"""Variables with our prefix that are not settings of the service."""


class AddressRefused(MeshwrightError):
    """The operating system does not let us listen at the address of the settings."""


class CannotStart(MeshwrightError):
    """The settings name something that cannot be used."""


def listening_socket(settings: Settings) -> socket.socket:
    """A socket on the address of the settings, before anything is started that would have to be stopped again.

    Raises ``AddressRefused``, and ``CannotStart`` where others could reach it without access control.
    """
    if settings.access is Access.LOOPBACK and settings.host not in LOOPBACK:
        raise CannotStart(
            f"{settings.host} can be reached from elsewhere, and anybody there could change everything; set "
            f"MESHWRIGHT_ACCESS={Access.KEYS} and make a key (meshwright keys create NAME --role admin), listen on "
            f"127.0.0.1, or say MESHWRIGHT_ACCESS={Access.OPEN}"
        )
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listening = socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        raise AddressRefused(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}; choose another address"
            " with --host and --port, or MESHWRIGHT_HOST and MESHWRIGHT_PORT"
        ) from error
    # Connections inherit it; without, an answer's body waits until the client has acknowledged its head.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


@contextmanager
def explained(
    settings: Settings, *, database: str = "the database", variable: str = "MESHWRIGHT_DATABASE_URL"
) -> Iterator[None]:
    """Turn what is wrong with a database, set by ``variable``, or the data folder into ``CannotStart``."""
    try:
        yield
    except (SQLAlchemyError, ImportError) as error:
        reason = str(error).splitlines()[0]
        raise CannotStart(
            f"{database} cannot be used: {reason}; check {variable}, and that its server answers"
        ) from error
    except OSError as error:
        place = error.filename or settings.data_dir
        raise CannotStart(
            f"{place}: {error.strerror or error}; set MESHWRIGHT_DATA_DIR to a folder that can be written"
        ) from error


def connect(url: str) -> None:
    """Ask a database for its answer to nothing; raises ``SQLAlchemyError``."""
    engine = make_engine(url)
    try:
        with engine.connect() as connection:
            connection.execute(text("SELECT 1"))
    finally:
        engine.dispose()


def unknown_settings() -> tuple[str, ...]:
    """Variables of the environment that begin as ours do and are none: misspelt ones would change nothing."""
    known = {name.upper() for name in Settings.model_fields} | _OTHERS
    named = (name.upper() for name in os.environ)
    return tuple(sorted(name for name in named if name.startswith(_PREFIX) and name[len(_PREFIX) :] not in known))
