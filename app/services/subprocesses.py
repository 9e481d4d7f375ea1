"""Computations of many seconds in a process beside the web process, one at a time, each with a limit.

So a long request slows no other one, and can be stopped.  Plans and decisions are jobs instead (``app.jobs``).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Final, TypeVar

import anyio
from anyio import from_thread, to_process

from app.priorities import SOLVES, step_back
from app.services.errors import NotReady
from cluster_models.errors import InvalidInput

Result = TypeVar("Result")

PATIENCE_S: Final = 30.0
"""Seconds for which a request waits for its turn."""
_TURN: Final = threading.Lock()


def in_subprocess(
    function: Callable[..., Result], *arguments: object, limit_s: float, what: str, command: str
) -> Result:
    """Result of ``function``, of a module, for ``arguments``; both cross the border of a process.

    Call it from a thread of the web server.  ``what``: the request's part that takes so long, ``command``: does the
    same without a limit.  Raises ``NotReady`` where others take all turns, ``InvalidInput`` after ``limit_s``
    seconds, and whatever the function raises.
    """
    if not _TURN.acquire(timeout=PATIENCE_S):
        raise NotReady(f"Other requests of this kind are being worked on; try again in a minute, or use {command}.")
    try:
        return from_thread.run(_run, function, arguments, limit_s)
    except TimeoutError as error:
        raise InvalidInput(what, "", f"could not be worked out within {limit_s:g} s", f"use {command}") from error
    finally:
        _TURN.release()


async def _run(function: Callable[..., Result], arguments: tuple[object, ...], limit_s: float) -> Result:
    with anyio.fail_after(limit_s):
        return await to_process.run_sync(_answer, function, arguments, cancellable=True)


def _answer(function: Callable[..., Result], arguments: tuple[object, ...]) -> Result:
    _begin_once()
    return function(*arguments)


@cache
def _begin_once() -> None:
    """Step back behind the web process, and end when that has gone: nobody would read the answer."""
    step_back(SOLVES)
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
