"""Writes the OpenAPI description that is committed as ``openapi.json``."""

from __future__ import annotations

import json
import sys

from app.main import create_app
from app.settings import Settings


def description_text() -> str:
    """The description of the API as JSON."""
    return json.dumps(create_app(Settings()).openapi(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(description_text())
