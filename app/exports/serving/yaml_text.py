"""YAML of engines' configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


def yaml_text(content: Mapping[str, Any]) -> str:
    """The mapping in its own order."""
    return yaml.safe_dump(dict(content), sort_keys=False, width=10_000)
