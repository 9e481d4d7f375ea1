"""Maps from transitions between layers: the file that has them, the map, and what the command prints of it.

Beside all that ``app.routing`` reads (traces of tokens, counts with transitions, tables), bare counts are taken,
``{"transitions": [..]}`` or plain: a table (experts, experts) for each counted layer and the next.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from app.routing.reading import loads_of
from benchmarks.routing_files import read_workloads
from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import Counts, RoutedWorkload
from solver.candidates import FloatArray
from solver.experts.bounds import plain_bound
from solver.experts.chains import STEPS, Chained, chain_experts
from solver.experts.layout import ExpertLayout
from solver.experts.loads import node_local_share
from solver.experts.transitions import EVERY_CHANGE, ChangePrices


def add_options(parser: argparse.ArgumentParser) -> None:
    """Transitions as the command takes them."""
    parser.add_argument("--transitions", type=Path, help="traces of tokens, or counts from layer to layer")
    parser.add_argument(
        "--least-locality", type=float, default=0.98, help="share of the best locality kept while balancing"
    )
    parser.add_argument(
        "--inside-price", type=float, default=1.0, help="cost of a change of rank inside a node, between nodes 1"
    )


def read_counted(path: Path) -> list[RoutedWorkload]:
    """The workloads of a file of counts or of traces.  Raises ``InvalidInput``."""
    try:
        return read_workloads(path)
    except InvalidInput:
        return list(loads_of(path))


def with_transitions(workloads: Sequence[RoutedWorkload], path: Path) -> RoutedWorkload:
    """The workloads as one, with the transitions that the file tells.  Raises ``InvalidInput``."""
    first = workloads[0]
    if any(other.loads.shape != first.loads.shape or other.layers != first.layers for other in workloads):
        raise InvalidInput("loads", [other.name for other in workloads], "differ in their layers or experts")
    loads = np.sum([other.loads for other in workloads], axis=0)
    joined = RoutedWorkload(" + ".join(other.name for other in workloads), first.layers, loads)
    tables = _bare(path, joined)
    if tables is None:
        tables = _read(path, joined, {other.name for other in workloads})
    if not tables:
        raise InvalidInput("transitions", str(path), f"has no transitions between layers {joined.layers}")
    return replace(joined, transitions=tables)


def chained_map(
    workload: RoutedWorkload,
    layout: ExpertLayout,
    *,
    least_locality: float,
    prices: ChangePrices = EVERY_CHANGE,
    seed: int = 0,
) -> dict[str, Any]:
    """The map for ``workload`` with transitions and what it is worth, as the command prints it."""
    _warm_up(prices)
    started = time.perf_counter()
    answer = chain_experts(workload, layout, prices=prices, least_locality=least_locality, steps=STEPS, seed=seed)
    seconds = time.perf_counter() - started
    rows = answer.rows()
    least = [plain_bound(shares * layout.ranks, layout) for shares in workload.shares()]
    return {
        "physical_to_logical_map": rows.tolist(),
        "balancedness": answer.balancedness,
        "bound": min(1.0, float(np.mean(1 / np.array(least)))),
        "node_local_share": node_local_share(rows, workload.loads, layout),
        "seconds": seconds,
        "layers": list(workload.layers),
        "workloads": {workload.name: answer.balancedness},
        "transition_stay_share": answer.stay_share,
        "transition_node_stay_share": answer.node_stay_share,
        "transition_worth": answer.worth,
        "transition_best": answer.most_worth,
        "transition_bound": answer.bound,
        "exact": answer.exact,
    }


def _warm_up(prices: ChangePrices) -> Chained:
    """Load the compiled loops on a tiny case, solved exactly, and one that is searched."""
    for experts, layout in ((4, ExpertLayout(4, 2, 4)), (24, ExpertLayout(4, 2, 24))):
        tables = {0: np.ones((experts, experts)) + np.eye(experts)}
        tiny = RoutedWorkload("tiny", (0, 1), np.ones((2, experts)), tables)
        answer = chain_experts(tiny, layout, prices=prices, starts=1, steps=1)
    return answer


def _bare(path: Path, workload: RoutedWorkload) -> dict[int, Counts] | None:
    """Tables without anything beside them, ``None`` where the file is another."""
    if path.suffix.casefold() != ".json":
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise InvalidInput("transitions", str(path), f"cannot be read as JSON: {problem}") from problem
    if isinstance(document, dict):
        if set(document) != {"transitions"}:
            return None
        document = document["transitions"]
    try:
        tables: FloatArray = np.array(document, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    if tables.shape != (len(workload.layers) - 1, workload.experts, workload.experts):
        return None
    return dict(enumerate(tables))


def _read(path: Path, workload: RoutedWorkload, names: set[str]) -> dict[int, Counts]:
    """The transitions of all workloads of a file, or of those with the ``names`` where it has such."""
    found = [other for other in loads_of(path, experts=workload.experts) if other.transitions]
    found = [other for other in found if other.name in names] or found
    tables: dict[int, Counts] = {}
    for other in found:
        # layers are told apart by their numbers, or one by one where there are as many
        numbers = workload.layers if len(other.layers) == len(workload.layers) else other.layers
        for index, (here, there) in enumerate(itertools.pairwise(numbers)):
            at = workload.layers.index(here) if here in workload.layers else -1
            if at < 0 or workload.layers[at + 1 : at + 2] != (there,) or index not in other.transitions:
                continue
            if other.experts != workload.experts:
                raise InvalidInput(
                    "transitions", str(path), f"has {other.experts} experts, the loads {workload.experts}"
                )
            tables[at] = tables[at] + other.transitions[index] if at in tables else other.transitions[index]
    return tables
