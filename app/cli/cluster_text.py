"""A cluster as the text of a file that people read and change: nodes written out, a line for each measurement."""

from __future__ import annotations

import json
from typing import Any, Final

import yaml

from app.documents.cluster import ClusterDocument
from cluster_models.units import MIB

_MOST_YAML_BYTES: Final = 2 * MIB
"""YAML is read at about 1 MB/s; a larger cluster is written as JSON, which YAML readers take too."""


def cluster_text(document: ClusterDocument, *, as_json: bool = False) -> str:
    """YAML, or JSON where it is asked for or the cluster is large; fields at their defaults are left out."""
    content: dict[str, Any] = document.model_dump(mode="json", exclude_defaults=True)
    for sample in content.get("samples", ()):
        if (size := sample["message_bytes"]) == int(size):
            sample["message_bytes"] = int(size)
    if not as_json:
        text = _yaml(content)
        if len(text) <= _MOST_YAML_BYTES:
            return text
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _yaml(content: dict[str, Any]) -> str:
    samples = content.pop("samples", [])
    text: str = yaml.dump(
        content, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None
    )
    if not samples:
        return text
    content["samples"] = samples
    return text + "samples:\n" + "".join(f"  - {json.dumps(sample, ensure_ascii=False)}\n" for sample in samples)
