"""Free nodes that are no spares, as a decision on failures offers them."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_models.wording import joined


def free_nodes_sentence(nodes: Sequence[str]) -> str:
    """Nodes that are free and left out of a decision; empty where none is."""
    if not nodes:
        return ""
    lead = "1 node is free and no spare" if len(nodes) == 1 else f"{len(nodes):,} nodes are free and no spares"
    return f"{lead}, so this decision leaves {'it' if len(nodes) == 1 else 'them'} out: {joined(nodes)}."
