"""Free nodes that are not spares, as a decision on failures offers them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from app.presentation.figures import plural
from app.presentation.recovery import change
from cluster_models.jobs.recovery import BatchDecision, JobDecision
from cluster_models.wording import joined


def free_nodes_sentence(nodes: Sequence[str]) -> str:
    """Nodes that are free and left out of a decision; empty where none is."""
    if not nodes:
        return ""
    lead = "1 node is free and no spare" if len(nodes) == 1 else f"{len(nodes):,} nodes are free and no spares"
    return f"{lead}, so this decision leaves {'it' if len(nodes) == 1 else 'them'} out: {joined(nodes)}."


def free_nodes_change(with_them: BatchDecision, without: BatchDecision | None) -> str:
    """Training throughput of the jobs decided on with the free nodes and without, and ranks that move."""
    told = f"With them: {_worth(with_them)}"
    return f"{told}." if without is None else f"{told}; without: {_worth(without)}."


def _worth(decision: BatchDecision) -> str:
    if not decision.jobs:
        return "no training job is touched"
    moved = sum(len(made.migration.moved) for made in decision.jobs)
    return f"{_throughput(decision.jobs)}, {plural(moved, 'rank')} {'moves' if moved == 1 else 'move'}"


def _throughput(jobs: Sequence[JobDecision]) -> str:
    before = math.fsum(made.tokens_per_s_before for made in jobs)
    found = change(before, math.fsum(made.tokens_per_s_after for made in jobs))
    return f"throughput {found}" if found == "unchanged" else f"{found} throughput"
