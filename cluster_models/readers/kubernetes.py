"""What Kubernetes says of nodes, in every form that people send."""

from __future__ import annotations

from typing import Final

from cluster_models.readers.kubernetes_nodes import holds_nodes, read_nodes
from cluster_models.readers.kubernetes_text import (
    DESCRIBED,
    FRAGMENT,
    TABLE,
    read_described,
    read_label_lines,
    read_show_labels,
)
from cluster_models.readers.reading import Format

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
        known_as="labels of a Kubernetes node, a key and a value a line",
        family="Kubernetes",
        read=read_label_lines,
        begins=(FRAGMENT,),
    ),
    Format(
        name="kubernetes-show-labels",
        known_as="kubectl get nodes --show-labels",
        family="Kubernetes",
        read=read_show_labels,
        begins=(TABLE,),
    ),
    Format(
        name="kubernetes-describe",
        known_as="kubectl describe nodes",
        family="Kubernetes",
        read=read_described,
        begins=(DESCRIBED,),
    ),
)
