"""A process of the service that has loaded everything and answered once: others are forked from it."""

from __future__ import annotations

import os
import runpy

import app.main  # noqa: F401 - loaded once for all of them
from app.warming import made_up_answer

made_up_answer()


def run(environment: dict[str, str], log: str) -> None:
    """Be ``python -m app.main`` under these settings, whose output goes to the end of ``log``."""
    os.environ |= environment
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    runpy.run_module("app.main", run_name="__main__")
