"""The profiler script as text, to be taken to a GPU node."""

from __future__ import annotations

from importlib import resources
from typing import Final

SCRIPT_NAME: Final = "gpu_profile.py"


def script_text() -> str:
    """The script, whole: it needs nothing of this product."""
    return resources.files("app.profiler").joinpath(SCRIPT_NAME).read_text(encoding="utf-8")
