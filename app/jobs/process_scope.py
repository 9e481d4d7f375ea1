"""Tells whether a process on record is surely gone, without asking it."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def current_pid_scope() -> str:
    """A name for where our process numbers mean something: this boot and this container.

    On Linux that is the boot's id and the PID namespace; elsewhere the host's name.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return platform.node()


def is_surely_gone(pid: int, pid_scope: str) -> bool:
    """Whether no process ``pid`` exists; always false for processes of another scope."""
    if pid <= 0 or pid_scope != current_pid_scope():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return pid == os.getpid()
