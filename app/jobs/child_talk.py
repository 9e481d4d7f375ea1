"""Common part of our child processes: their side of the protocol of ``app.jobs.child``."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from typing import IO, Any, Final

from app.priorities import SOLVES, step_back
from cluster_models.errors import InvalidInput, MeshwrightError

ENOUGH: Final = threading.Event()
"""Set once whoever started us wants the best answer so far."""


def answer_one(work: Callable[[dict[str, Any], IO[str]], dict[str, Any]]) -> None:
    """Read the request, let ``work`` make the answer, and write that; errors of ours become one.

    We die with the process that started us: the request's pipe stays open until then, and its end ends us.
    """
    step_back(SOLVES)
    out = _own_output()
    line = sys.stdin.buffer.readline()
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        message = json.loads(line)
        if (limit := message["memory_limit_bytes"]) is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        answer = work(message, out)
    except InvalidInput as wrong:
        answer = failed(f"{wrong.field}: {wrong.problem}", wrong.remedy)
    except MeshwrightError as broken:
        answer = failed(str(broken))
    except MemoryError:
        answer = failed("The solve needed more memory than it may use.", "Raise MESHWRIGHT_SOLVE_MEMORY_GIB.")
    say(out, answer)


def failed(problem: str, remedy: str = "") -> dict[str, Any]:
    """The answer that there is none."""
    return {"kind": "failed", "error": {"problem": problem, "remedy": remedy}}


def say(out: IO[str], message: dict[str, Any]) -> None:
    """Write one message."""
    out.write(json.dumps(message) + "\n")
    out.flush()


def _own_output() -> IO[str]:
    """The real standard output, for us alone: whatever libraries print goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return out


def _die_with_parent() -> None:
    # The bare descriptor: a reader blocked inside sys.stdin would hold its lock while the interpreter ends.
    while os.read(0, 1024):
        ENOUGH.set()
    os.killpg(os.getpgrp(), signal.SIGKILL)
