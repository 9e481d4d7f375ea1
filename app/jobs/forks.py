"""Children that a server of forks starts (``app.jobs.fork_server``), one server for each process that needs it.

A tiny plan takes 0.5 s of processor time so; in a process of its own it takes 2.4 s, nearly all to load the solver.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from app.settings import REPLAN_COMMAND, SOLVE_COMMAND

COMMANDS: Final = (SOLVE_COMMAND, REPLAN_COMMAND)
"""Commands that a fork stands in for."""
REHEARSAL: Final = "app.jobs.rehearsal"
END_WITHIN_S: Final = 2.0
"""Seconds that we wait until a child is gone; the server may be loading, and kills it when it has."""

_lock: Final = threading.Lock()
_server: _Server | None = None


@dataclass(slots=True)
class Child:
    """Our ends of a child's input and output, and how it ended: as if killed, until anybody knows better."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    exit_code: int = -signal.SIGKILL


@dataclass(frozen=True, slots=True)
class _Server:
    process: subprocess.Popen[bytes]
    requests: socket.socket

    def stop(self) -> None:
        self.requests.close()
        self.process.kill()
        self.process.wait()


def can_fork(command: Sequence[str]) -> bool:
    """Whether a fork does what a command does; elsewhere than on Linux, libraries may not survive one."""
    return sys.platform == "linux" and tuple(command) in COMMANDS


def prepare() -> None:
    """Start the server, so that it has loaded the solver before anybody asks."""
    with _lock:
        _running_server()


@contextlib.contextmanager
def forked(command: Sequence[str], scratch: Path) -> Iterator[Child]:
    """The running child in its folder, where ``stderr`` is; killed in the end with what it started."""
    line, other_end = socket.socketpair()
    with line:
        with other_end, contextlib.ExitStack() as theirs:
            (their_input, our_output), (our_input, their_output) = os.pipe(), os.pipe()
            child = Child(os.fdopen(our_output, "wb"), os.fdopen(our_input, "rb"))
            errors = os.open(scratch / "stderr", os.O_WRONLY | os.O_CREAT, 0o600)
            folder = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
            descriptors = [their_input, their_output, errors, folder]
            for descriptor in descriptors:
                theirs.callback(os.close, descriptor)
            _request(COMMANDS.index(tuple(command)), [other_end.fileno(), *descriptors])
        try:
            yield child
        finally:
            child.exit_code = _end(line)


def _end(line: socket.socket) -> int:
    """Let the server kill the child; its exit code, or that of a killed one."""
    try:
        line.shutdown(socket.SHUT_WR)
        line.settimeout(END_WITHIN_S)
        return int(line.recv(16))
    except (OSError, ValueError):
        return -signal.SIGKILL


def _request(number: int, descriptors: Sequence[int]) -> None:
    """Ask the server for a child; a server that has died is replaced once."""
    with _lock:
        try:
            socket.send_fds(_running_server().requests, [bytes([number])], descriptors)
        except BrokenPipeError:
            _stop()
            socket.send_fds(_running_server().requests, [bytes([number])], descriptors)


def _running_server() -> _Server:
    global _server  # noqa: PLW0603 - a process needs one at most, whoever asks
    if _server is None:
        ours, theirs = socket.socketpair()
        with theirs:
            modules = [module for _, _, module in COMMANDS]
            process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", "app.jobs.fork_server", str(theirs.fileno()), REHEARSAL, *modules],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,
                start_new_session=True,
            )
        _server = _Server(process, ours)
    return _server


@atexit.register
def _stop() -> None:
    global _server  # noqa: PLW0603 - see above
    if _server is not None:
        _server.stop()
        _server = None
