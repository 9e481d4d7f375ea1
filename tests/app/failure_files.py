"""Files of a small cluster with a job on two of its nodes and a spare, for tests of commands about failures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.documents.cluster import ClusterDocument
from app.documents.plan import PlanDocument
from cluster_models.training.plan import Plan
from tests.plans import small_cluster, small_plan, small_samples

CLUSTER = "cluster.yaml"
PLAN = "plan.json"
POLICY = "policy.yaml"
NAME = small_cluster().name


def plan_on(first: str, second: str) -> Plan:
    """The small plan on two nodes of four GPUs."""
    plan = small_plan()
    hosts = (first, second)
    ranks = tuple(replace(place, node=hosts[place.rank // 4]) for place in plan.placement.ranks)
    return replace(plan, placement=replace(plan.placement, hosts=hosts, ranks=ranks))


def write_files(folder: Path) -> None:
    """The cluster of nodes a, b and c, the plan of a job on a and b, and a policy that keeps its shape."""
    document = ClusterDocument.from_cluster(small_cluster(), small_samples())
    (folder / CLUSTER).write_text(document.model_dump_json(exclude_none=True))
    (folder / PLAN).write_text(PlanDocument.from_plan(plan_on("b", "a"), timeline=False).model_dump_json())
    (folder / POLICY).write_text("may_reshape: false\n")
