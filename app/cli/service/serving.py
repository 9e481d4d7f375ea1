"""``meshwright serve`` and ``meshwright worker``: run until a signal ends them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from app.cli.endings import complain
from app.cli.environment import read_settings
from app.documents.reading import close_name
from app.settings import Role, Settings
from app.startup import CannotStart, listening_socket, unknown_settings


def run_server(*, host: str | None, port: int | None) -> None:
    """Serve with the settings of the environment; ``host`` and ``port`` go before them."""
    given = {"host": host, "port": port}
    _run(read_settings(**{name: value for name, value in given.items() if value is not None}))


def run_worker() -> None:
    """Solve what a server elsewhere queues, without serving anything."""
    _run(read_settings(role=Role.WORKER))


def _run(settings: Settings) -> None:
    known = [f"MESHWRIGHT_{name.upper()}" for name in Settings.model_fields]
    for name in unknown_settings():
        complain(f"meshwright: {name} is not a setting and changes nothing; {close_name(name, known)}")
    # The address first: all that is needed to serve takes seconds to import.
    with (
        nullcontext() if settings.role is Role.WORKER else listening_socket(settings) as listening,
        _compiled(),
        _uncollected(),
    ):
        from app.main import serve  # noqa: PLC0415 - see above

        serve(settings, announce=_announce, listening=listening)


def _announce(address: str) -> None:
    complain(f"Meshwright serves on {address} - Ctrl-C ends it")


@contextmanager
def _uncollected() -> Iterator[None]:
    """Leave the collector of garbage off while modules load: it takes a sixth of the start.

    Whoever serves turns it on once all is loaded (``app.warming``).
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _compiled() -> Iterator[None]:
    """Say what to do where compiled code can be kept nowhere."""
    try:
        yield
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
        raise CannotStart(
            "compiled code can be kept nowhere; set NUMBA_CACHE_DIR to a folder that can be written"
        ) from error
