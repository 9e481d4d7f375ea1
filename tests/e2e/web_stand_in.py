"""A solving process for browser tests: reports progress until the file named by its argument exists, then answers.

The answer is the small plan of ``tests.plans``, so that what the page shows is known to the digit.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

from app.serialization import jsonable
from tests.plans import small_plan


def _die_with_parent() -> None:
    while sys.stdin.buffer.readline():
        pass
    os._exit(1)


def _say(**message: object) -> None:
    print(json.dumps(message), flush=True)  # noqa: T201 - the protocol


def main() -> None:
    """Read the request, report until the gate opens, answer."""
    gate = Path(sys.argv[1])
    sys.stdin.buffer.readline()
    threading.Thread(target=_die_with_parent, daemon=True).start()
    begun = time.monotonic()
    while not gate.exists():
        _say(
            kind="progress",
            elapsed_s=time.monotonic() - begun,
            phase="placement",
            candidates_total=200,
            candidates_left=50,
            incumbent_s=0.61,
            bound_s=0.59,
            gap=0.033,
            incumbent="tp2 pp2 dp2",
        )
        time.sleep(0.2)
    _say(kind="plan", plan=jsonable(small_plan()))


if __name__ == "__main__":
    main()
