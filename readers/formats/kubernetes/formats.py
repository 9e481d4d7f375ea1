"""Nodes of Kubernetes, in every form that people send."""

from __future__ import annotations

from typing import Final

from readers.formats.kubernetes.nodes import holds_nodes, read_nodes
from readers.formats.kubernetes.text import DESCRIBED, FRAGMENT, TABLE, read_text
from readers.frame.reading import Format

FORMATS: Final = (
    Format(
        name="kubernetes-nodes",
        known_as="nodes of Kubernetes (kubectl get nodes -o json, EKS topology)",
        family="Kubernetes",
        read=read_nodes,
        fits=holds_nodes,
    ),
    Format(
        name="kubernetes-labels",
        known_as="labels of Kubernetes nodes (a key and value a line, kubectl describe nodes, --show-labels)",
        family="Kubernetes",
        read=read_text,
        begins=(TABLE, DESCRIBED, FRAGMENT),
    ),
)
