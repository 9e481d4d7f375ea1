"""The command line ``meshwright``."""

from app.cli.commands import main

__all__ = ["main"]
