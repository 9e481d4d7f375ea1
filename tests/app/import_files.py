"""Files to import: our own names and figures in the formats of tools."""

from __future__ import annotations

import json
from typing import Any

NODES = "".join(
    f"NodeName={name} Arch=x86_64 CoresPerSocket=48\n   Gres=gpu:h100:8(S:0-1)\n"
    f"   NodeAddr={name}.cluster.example NodeHostName={name}\n   State=IDLE ThreadsPerCore=2\n\n"
    for name in ("n1", "n2")
)
TABLE = (
    "node_a,node_b,gpus_per_node,collective,size_bytes,busbw_gbs,status\n"
    "n1,n2,8,alltoall,268435456,41.5,ok\n"
    "n1,n2,8,alltoall,1073741824,44.25,ok\n"
)
ANSWERS: dict[str, Any] = {"chosen": {"*.nics": "8 x 400 infiniband"}, "gpu_kind": "H100-SXM5-80GB"}
FILES = {"nodes.txt": NODES, "table.csv": TABLE}


def form(files: dict[str, str | bytes] | dict[str, str], **fields: Any) -> dict[str, Any]:
    """Form of a client: files, and fields as text."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}
    parts = [("files", (name, data.encode() if isinstance(data, str) else data)) for name, data in files.items()]
    return {"files": parts, "data": texts}


def document(files: dict[str, str], **fields: Any) -> dict[str, Any]:
    """The same as JSON."""
    return {"json": {"files": [{"name": name, "text": text} for name, text in files.items()], **fields}}
