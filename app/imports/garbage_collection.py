"""Fewer runs of the garbage collector while files are read."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SELDOM: Final = 5_000_000
"""Objects made between two runs, which finds next to nothing: what is read lives until its report is done.

A run in between bounds what cycles of other work in the process can hold, however long uploads overlap.
"""
_lock = threading.Lock()
_inside = 0
_before = (0, 0, 0)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Let the collector run seldom until the last of the threads that are inside has left; then as before.

    A collector that is switched off stays so.
    """
    global _inside, _before  # noqa: PLW0603 - the collector is one for the whole process
    with _lock:
        if _inside == 0:
            _before = gc.get_threshold()
            if _before[0]:
                gc.set_threshold(max(_SELDOM, _before[0]), *_before[1:])
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                gc.set_threshold(*_before)


@contextmanager
def never_collected() -> Iterator[None]:
    """Switch the collector off for a command that ends soon: all that it reads lives until its report is out."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
