"""A solve in a process of its own, which dies with us and which we can end at any moment.

The child reads one line (the request) from its standard input and ends when that input ends: a pipe closes
with the process that holds it, even after ``kill -9``.  A further line asks for the best answer so far.  The child
writes one JSON object a line; those with ``"kind": "progress"`` say how far it is, those with ``"kind": "draft"``
hold what it would answer so far, any other is its answer.
"""

from __future__ import annotations

import json
import math
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from app.jobs.forks import Child, can_fork, forked
from cluster_models.training.plan import StopReason

POLL_S: Final = 0.2
ENOUGH_S: Final = 15.0
"""A child that was asked for its best answer and gives none within this time is ended; its last draft is that."""
STDERR_TAIL_BYTES: Final = 4000


class Ending(StrEnum):
    """How a child ended."""

    ANSWERED = "answered"
    CRASHED = "crashed"
    OVERRAN = "overran"
    """It was still running at its hard deadline."""
    STOPPED = "stopped"
    """We ended it."""


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """How a child ended, its answer if there is one, and the end of what it wrote to standard error.

    The answer of one that crashed, overran, or was asked for its best in vain, is the last of its drafts.
    """

    ending: Ending
    answer: dict[str, Any] | None
    exit_code: int
    stderr_tail: str


def run_child(
    command: Sequence[str],
    request: bytes,
    *,
    hard_limit_s: float,
    scratch_root: Path,
    on_progress: Callable[[dict[str, Any]], None],
    should_stop: Callable[[], bool],
    is_enough: Callable[[], bool] = lambda: False,
) -> ChildEnd:
    """Run ``command`` to its end; our own commands run as forks.

    ``on_progress`` gets each progress object, and ``should_stop`` is asked several times a second.  Once
    ``is_enough`` says so the child is asked for its best answer so far.  The child and all processes it started are
    gone on return, and so is its folder for temporary files.
    """
    scratch_root.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="solve-", dir=scratch_root))
    try:
        with (forked if can_fork(command) else _started)(command, scratch) as child, _fed(child, request):
            ending, answer = _follow(child, time.monotonic() + hard_limit_s, on_progress, should_stop, is_enough)
        return ChildEnd(ending, answer, child.exit_code, _tail(scratch / "stderr"))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _started(command: Sequence[str], scratch: Path) -> Iterator[Child]:
    """The running child, leader of a process group that is killed in the end."""
    with (scratch / "stderr").open("wb") as stderr:
        process = subprocess.Popen(  # noqa: S603 - the command is the operator's setting
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=scratch,
            env=os.environ | {"TMPDIR": str(scratch)},
            start_new_session=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    child = Child(process.stdin, process.stdout)
    try:
        yield child
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        child.exit_code = process.wait()


def _follow(
    child: Child,
    deadline: float,
    on_progress: Callable[[dict[str, Any]], None],
    should_stop: Callable[[], bool],
    is_enough: Callable[[], bool],
) -> tuple[Ending, dict[str, Any] | None]:
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(child, lines), daemon=True).start()
    draft: dict[str, Any] | None = None
    answer_due = math.inf
    while True:
        if should_stop():
            return Ending.STOPPED, None
        now = time.monotonic()
        if now > deadline:
            return Ending.OVERRAN, draft
        if draft is not None and now > answer_due:
            return Ending.OVERRAN, _stopped(draft)
        if is_enough():  # again and again: the child may not have listened yet
            answer_due = min(answer_due, now + ENOUGH_S)
            with suppress(OSError, ValueError):
                child.stdin.write(b"enough\n")
                child.stdin.flush()
        with suppress(queue.Empty):
            if (line := lines.get(timeout=POLL_S)) is None:
                return Ending.CRASHED, _stopped(draft)
            message = _parse(line)
            if message is None:
                continue
            if message.get("kind") == "draft":
                draft = message["answer"]
            elif message.get("kind") == "progress":
                on_progress(message)
            else:
                return Ending.ANSWERED, message


def _stopped(draft: dict[str, Any] | None) -> dict[str, Any] | None:
    """The draft of a search that was ended before its time, of which drafts speak."""
    certificate = ((draft or {}).get("plan") or {}).get("certificate")
    if certificate is not None:
        certificate["stopped_by"] = StopReason.CANCELLED.value
    return draft


@contextmanager
def _fed(child: Child, request: bytes) -> Iterator[None]:
    """Write the request and leave the pipe open to the end; a child that died before it read it shows elsewhere."""
    ended = threading.Event()

    def feed() -> None:
        with suppress(OSError), child.stdin:
            child.stdin.write(request + b"\n")
            child.stdin.flush()
            ended.wait()

    threading.Thread(target=feed, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _read(child: Child, lines: queue.SimpleQueue[bytes | None]) -> None:
    """Hand over each line, then ``None``."""
    with child.stdout, suppress(OSError):
        for line in child.stdout:
            lines.put(line)
    lines.put(None)


def _parse(line: bytes) -> dict[str, Any] | None:
    """The object on a line; anything else that gets onto the output is not a message."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - STDERR_TAIL_BYTES))
        return file.read().decode(errors="replace")
