"""How many transitions stay on their rank, on the tokens a map was made from and on others.

    python -m benchmarks.experts transitions [--folder FOLDER] [--json]

Maps are made from one half of each trace and used on the other, and made from one workload and used on the others
of its model.  *Best*: made without regard to load; *balanced*: with at least 98 % of its locality.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from app.imports.sources import SentFile
from app.routing.reading import loads_of, read_routing
from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import RoutedWorkload
from solver.experts.chains import chain_experts
from solver.experts.layout import ExpertLayout
from solver.experts.loads import balancedness
from solver.experts.transitions import stay_share

RANKS: Final = {8: (2, 4), 16: (2, 4), 64: (8,)}
"""Ranks for which maps are made, by the experts of a layer; the experts over 16 for others."""


@dataclass(frozen=True, slots=True)
class Used:
    """A map made from ``made`` and used on ``used``; the share that stays there, and the balance there."""

    model: str
    ranks: int
    made: str
    used: str
    kind: str
    exact: bool
    stays: float
    bound: float
    contiguous: float
    balancedness: float
    seconds: float


def compare_chains(folder: Path) -> list[Used]:
    """Every map made from a workload with transitions in ``folder``, on all workloads of its file."""
    rows: list[Used] = []
    for path in sorted(folder.rglob("*.json")):
        workloads = _with_halves(path)
        for ranks in RANKS.get(workloads[0].experts, (workloads[0].experts // 16,)) if workloads else ():
            rows.extend(_used(path.stem, workloads, ranks))
    if not rows:
        raise InvalidInput("folder", str(folder), "has no file with transitions")
    return rows


def chain_table(rows: Sequence[Used]) -> str:
    """The rows as a page."""
    head = (
        "| map | GPUs | made from | used on | stays | bound | contiguous | balancedness | s |\n" + "|---" * 9 + "|"
    )
    lines = [
        f"| {row.model} {row.kind}{', exact' if row.exact else ''} | {row.ranks} | {row.made} | {row.used} "
        f"| {row.stays:.3f} | {row.bound:.3f} | {row.contiguous:.3f} | {row.balancedness:.3f} | {row.seconds:.2f} |"
        for row in rows
    ]
    return "\n".join([head, *lines])


def _with_halves(path: Path) -> list[RoutedWorkload]:
    """The workloads of a file that have transitions; of a trace both halves of its tokens too."""
    try:
        found = [workload for workload in loads_of(path) if workload.transitions]
        document: Any = json.loads(path.read_text(encoding="utf-8"))
        if found and isinstance(document, dict) and isinstance(document.get("experts"), list):
            tokens = document["experts"]
            for name, part in (
                ("first half", tokens[: len(tokens) // 2]),
                ("second half", tokens[len(tokens) // 2 :]),
            ):
                content = json.dumps({**document, "shape": None, "experts": part}).encode()
                found += read_routing([SentFile(f"{name}.json", content)], experts=found[0].experts)
    except (InvalidInput, ValueError):
        return []
    return found


def _used(model: str, workloads: Sequence[RoutedWorkload], ranks: int) -> list[Used]:
    layout = ExpertLayout(ranks, 1, workloads[0].experts)
    plain = np.tile(np.arange(layout.slots), (len(workloads[0].layers), 1))
    rows: list[Used] = []
    for made in workloads:
        for kind, least in (("best", 1.0), ("balanced", 0.98)):
            started = time.perf_counter()
            answer = chain_experts(made, layout, least_locality=least)
            seconds = time.perf_counter() - started
            rows.extend(
                Used(
                    model=model,
                    ranks=ranks,
                    made=made.name.rpartition(":")[2],
                    used=used.name.rpartition(":")[2],
                    kind=kind,
                    exact=answer.exact,
                    stays=stay_share(answer.rows(), used.transitions, layout),
                    bound=answer.bound if used is made else 1.0,
                    contiguous=stay_share(plain, used.transitions, layout),
                    balancedness=balancedness(answer.rows(), used.loads, layout),
                    seconds=seconds,
                )
                for used in workloads
                if used.layers == made.layers
            )
    return rows
