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
    samples = content.pop("samples", [])
    for sample in samples:
        if (size := sample["message_bytes"]) == int(size):
            sample["message_bytes"] = int(size)
    lines = list(map(json.JSONEncoder(ensure_ascii=False).encode, samples))
    if not as_json and sum(map(len, lines)) <= _MOST_YAML_BYTES:
        return _yaml(content, lines)
    text = json.dumps(content, indent=1, ensure_ascii=False)
    return text.removesuffix("\n}") + ',\n "samples": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"


def _yaml(content: dict[str, Any], samples: list[str]) -> str:
    text: str = yaml.dump(
        content, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None
    )
    return text + "samples:\n" + "".join(f"  - {sample}\n" for sample in samples) if samples else text
