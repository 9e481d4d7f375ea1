"""A process that has loaded the solver and forks: each fork works on one request with nothing left to load.

``python -m app.jobs.fork_server FD REHEARSAL MODULE...``, started by ``app.jobs.forks``.  Over the socket ``FD``
comes one byte for each child, the number of its module, with five descriptors: the child's line to us, its standard
input, output and error, its folder.  The child runs until somebody closes the other end of its line; then it is
killed with what it started, and the line says its exit code.  The end of ``FD`` ends everything.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Final, NoReturn

DESCRIPTORS: Final = 5


def main() -> None:
    """Load the modules, then fork until nobody asks any more.

    Children step back behind answers to requests themselves; loading does not, for the first solve waits for it.
    """
    descriptor, rehearsal, *modules = sys.argv[1:]
    del sys.argv[1:]
    works = [import_module(name).main for name in modules]
    try:
        import_module(rehearsal).rehearse()
    except Exception:  # noqa: BLE001 - whatever it is, a solve will meet it where it can be told
        traceback.print_exc()
    gc.freeze()
    serve(socket.socket(fileno=int(descriptor)), works)


def serve(asked: socket.socket, works: Sequence[Callable[[], None]]) -> None:
    """Fork for each request that comes; return with all children gone."""
    lines: dict[socket.socket, int] = {}
    while True:
        for ready in select.select([asked, *lines], [], [])[0]:
            if ready is not asked:
                _end(ready, lines.pop(ready))
                continue
            number, descriptors, _, _ = socket.recv_fds(asked, 1, DESCRIPTORS)
            if len(descriptors) < DESCRIPTORS:
                for line, child in lines.items():
                    _end(line, child)
                return
            line = socket.socket(fileno=descriptors[0])
            if (child := os.fork()) == 0:
                for each in (asked, line, *lines):
                    each.close()
                _become_child(descriptors[1:], works[number[0]])
            lines[line] = child
            for descriptor in descriptors[1:]:
                os.close(descriptor)


def _become_child(descriptors: Sequence[int], work: Callable[[], None]) -> NoReturn:
    """Work as a process that was started for it would, in a group of its own."""
    status = 1
    try:
        os.setsid()
        for target, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, target)
        os.fchdir(descriptors[3])
        for descriptor in descriptors:
            os.close(descriptor)
        os.environ["TMPDIR"] = tempfile.tempdir = os.getcwd()  # noqa: PTH109 - as the environment has it
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - nothing may lead a fork back into its server
        traceback.print_exc()
    finally:
        os._exit(status)


def _end(line: socket.socket, child: int) -> None:
    """Kill a child with its group, and tell how it ended; only we wait for it, so its number is still its own."""
    for kill in (os.kill, os.killpg):
        with suppress(ProcessLookupError, PermissionError):
            kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with line, suppress(OSError):
        line.send(str(code).encode())


if __name__ == "__main__":
    main()
