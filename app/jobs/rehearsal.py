"""A small solve, so that forks of a process have what a first one loads: compiled loops, readers of documents."""

from __future__ import annotations

from io import StringIO

from app.jobs import solve_child
from app.serialization import jsonable, make_snapshot
from cluster_models.cluster.catalogue import gpu_kinds
from cluster_models.cluster.topology import Cluster, NicGroup, Node
from cluster_models.model.catalogue import catalogue_model
from cluster_models.training.workload import TrainingWorkload
from solver.problem import SearchOptions


def rehearse() -> None:
    """Solve it; no integer program is needed, whose threads a fork would not have."""
    kind = gpu_kinds()["H100-SXM5-80GB"]
    nics = NicGroup(count=8, bytes_per_s=50e9, fabric="infiniband")
    nodes = tuple(Node(name, kind.name, 8, name, nics) for name in ("a", "b"))
    message = {
        "snapshot": jsonable(make_snapshot(Cluster("two", nodes, {kind.name: kind}, source="made up"), ())),
        "architecture": jsonable(catalogue_model("llama-3.1-8b")),
        "workload": jsonable(TrainingWorkload(sequence_length=8192, global_batch=32)),
        "options": jsonable(SearchOptions(time_limit_s=10.0, gap=0.05)),
    }
    solve_child.work(message, StringIO())
