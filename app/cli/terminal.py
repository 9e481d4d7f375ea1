"""The consoles we print to."""

from __future__ import annotations

import os
import sys
from typing import Final

from rich.console import Console

PIPE_WIDTH: Final = 100
"""Columns where the output is no terminal and has no width of its own."""


def console() -> Console:
    """Standard output."""
    narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(file=sys.stdout, highlight=False, markup=False, width=None if narrow else PIPE_WIDTH)


def error_console() -> Console:
    """Standard error, for what changes while a command runs."""
    return Console(file=sys.stderr, highlight=False, markup=False)
