"""A solving process for tests of the job machinery: speaks its protocol, and does what the plan's options ask.

``behaviour`` in the request's options: ``answer`` (after ``seconds``, with progress), ``crash``, ``crash_once``,
``refuse``, ``no_plan``, ``hang`` (after a ``draft`` where one is given), or ``search``: report a plan until that is
enough, then answer.  Each start and each end leaves a line in ``ledger``.  ``plan`` is a file with the plan to
answer, ``no_plan`` one with the reason for none, ``decision`` one with a decision on failures.  Options may also
come as JSON in the first argument; preparations are refused without a trace.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

PROGRESS = {"phase": "search", "incumbent_s": None, "bound_s": 0.5, "gap": None, "incumbent": None}
COUNTS = {"elapsed_s": 0.1, "candidates_total": 2, "candidates_left": 1}


ENOUGH = threading.Event()


def _die_with_parent() -> None:
    while os.read(0, 1024):
        ENOUGH.set()
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _say(**message: Any) -> None:
    print(json.dumps(message), flush=True)  # noqa: T201 - the protocol


def main() -> None:
    """Read the request and do as it says."""
    options = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    request = json.loads(sys.stdin.buffer.readline())
    options |= request["options"]
    if request.get("task") == "prepare":
        _say(kind="failed", error={"problem": "The stand-in prepares nothing.", "remedy": ""})
        return
    threading.Thread(target=_die_with_parent, daemon=True).start()
    ledger = Path(options["ledger"])
    starts = _write(ledger, f"start {os.getpid()}")
    behaviour = options.get("behaviour", "answer")
    if "draft" in options:
        _say(kind="draft", answer=options["draft"])
    if behaviour == "crash" or (behaviour == "crash_once" and starts == 1):
        sys.stderr.write("the stand-in solver breaks on purpose\n")
        os._exit(3)
    if behaviour == "hang":
        grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        _write(ledger, f"grandchild {grandchild.pid}")
        time.sleep(600)
    while behaviour == "search" and not ENOUGH.wait(0.1):
        _say(kind="progress", **PROGRESS | {"incumbent": "tp2", "incumbent_s": 1.0}, **COUNTS)
    steps = max(1, int(options.get("seconds", 0) / 0.1))
    for step in range(steps):
        left = steps - step
        _say(kind="progress", **PROGRESS, elapsed_s=step * 0.1, candidates_total=steps, candidates_left=left)
        time.sleep(options.get("seconds", 0) / steps)
    _write(ledger, "end")
    if behaviour == "refuse":
        _say(kind="failed", error={"problem": "The plan did not pass its check.", "remedy": ""})
    elif "decision" in options:
        _say(kind="decision", decision=json.loads(Path(options["decision"]).read_text()))
    elif behaviour == "no_plan":
        told = (
            json.loads(Path(options["no_plan"]).read_text()) if "no_plan" in options else {"reason": "nothing fits"}
        )
        _say(kind="no_plan", no_plan=told)
    else:
        found = json.loads(Path(options["plan"]).read_text()) if "plan" in options else {}
        _say(kind="plan", plan=found or {"certificate": {"gap": 0.0}, "tmpdir": os.environ["TMPDIR"]})


def _write(ledger: Path, line: str) -> int:
    """Append a line and return how many starts the ledger has."""
    with ledger.open("a") as file:
        file.write(line + "\n")
    return sum(entry.startswith("start") for entry in ledger.read_text().splitlines())


if __name__ == "__main__":
    main()
