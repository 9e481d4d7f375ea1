"""Nodes of Kubernetes to read, and what was read of them."""

from __future__ import annotations

import json
from typing import Any, Final

from readers.formats.kubernetes.formats import FORMATS
from readers.frame.facts import HostFact
from readers.frame.reading import Contents
from readers.frame.sources import Source
from tests.readers.real_files import understood

BY_NAME: Final = {form.name: form for form in FORMATS}
NODES: Final = BY_NAME["kubernetes-nodes"]
LABELS: Final = BY_NAME["kubernetes-labels"]
GPU_LABELS: Final = {
    "kubernetes.io/hostname": "gpu-17",
    "nvidia.com/gpu.clique": "7c1f2a30-55aa-4b1e-9e0c-3f6a11d20b6e.12",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mig.config": "all-disabled",
    "topology.kubernetes.io/zone": "hall-2",
    "example.com/rack": "r07",
}


def node(name: str = "gpu-17", labels: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    """A node object with eight GPUs, ready."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": GPU_LABELS | (labels or {})},
        "spec": {"providerID": "aws:///eu-north-9b/i-00a1b2c3d4e5f6071"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.7.0.17"}, {"type": "Hostname", "address": name}],
            "allocatable": {"nvidia.com/gpu": "8"},
            "capacity": {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        }
        | status,
    }


def read_tree(tree: Any) -> Contents:
    """Read a list of nodes as JSON."""
    text = json.dumps(tree, indent=2)
    return understood(NODES, Source("nodes.json", text, tree))


def hosts(read: Contents) -> list[HostFact]:
    """The facts on hosts."""
    return [fact for fact in read.facts if isinstance(fact, HostFact)]


def codes(read: Contents) -> list[str]:
    """The codes of the doubts."""
    return [doubt.code for doubt in read.doubts]


KEYS: Final = [
    *("items", "Nodes", "metadata", "labels", "status", "spec", "capacity", "conditions", "taints", "kind", "name"),
    *("Topology", "NetworkNodes", "addresses", "nvidia.com/gpu", "nvidia.com/gpu.count"),
]
