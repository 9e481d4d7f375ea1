"""Plans that jobs run by, of training or of serving: how they are kept, where they fit, what lists show of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from app.db.status import PlanKind
from app.serialization import jsonable, load
from cluster_models.cluster.topology import Cluster
from cluster_models.jobs.running import InvalidRunningJob
from cluster_models.jobs.serving import plan_gpus
from cluster_models.serving.plan import ServingPlan
from cluster_models.training.plan import Plan

AnyPlan = Plan | ServingPlan
_MOST_KEPT: Final = 512
"""Plans that a process keeps ready: those of the jobs of a large cluster, some 100 kB each."""


@dataclass(frozen=True, slots=True)
class RunningPlanSummary:
    """A running plan as lists show it; ``degrees`` as text (``tp8 pp2 dp4``, of serving ``2 x tp4``).

    ``tokens_per_s`` are output tokens where it serves, and there are no steps.
    """

    model: str
    degrees: str
    gpus: int
    hosts: int
    tokens_per_s: float
    step_s: float | None
    global_batch: int | None = None


def kind_of(plan: AnyPlan) -> PlanKind:
    """Whether a plan trains or serves."""
    return PlanKind.TRAINING if isinstance(plan, Plan) else PlanKind.SERVING


def load_plan(kind: str, document: Mapping[str, Any]) -> AnyPlan:
    """The plan that a row keeps, of a job of that kind."""
    return load(Plan, document) if kind == PlanKind.TRAINING else load(ServingPlan, document)


@lru_cache(maxsize=_MOST_KEPT)
def training_plan_of(text: str) -> Plan:
    """The plan that a row keeps as ``text``; the same text gives the same value, which saves most of an answer."""
    return load(Plan, json.loads(text))


def stored_plan(plan: AnyPlan) -> dict[str, Any]:
    """A plan as rows keep it: without timeline and trade-offs, most of its bytes, which only its own page shows."""
    kept = replace(plan, timeline=(), trade_offs=()) if isinstance(plan, Plan) else plan
    document: dict[str, Any] = jsonable(kept)
    return document


def gpus_of(plan: AnyPlan) -> frozenset[tuple[str, int]]:
    """The GPUs that a plan takes, by node and number."""
    if isinstance(plan, ServingPlan):
        return plan_gpus(plan)
    return frozenset((place.node, place.gpu) for place in plan.placement.ranks)


def summary_of(plan: AnyPlan) -> RunningPlanSummary:
    """A plan as lists show it."""
    if isinstance(plan, ServingPlan):
        return RunningPlanSummary(
            model=", ".join(served.architecture.name for served in plan.models),
            degrees=", ".join(str(pool.pool) for pool in plan.pools),
            gpus=plan.gpus,
            hosts=len({node for node, _ in plan_gpus(plan)}),
            tokens_per_s=plan.tokens_per_s,
            step_s=None,
        )
    return RunningPlanSummary(
        model=plan.model,
        degrees=str(plan.configuration.degrees),
        gpus=len(plan.placement.ranks),
        hosts=len(plan.placement.hosts),
        tokens_per_s=plan.tokens_per_s,
        step_s=plan.time.step_s,
        global_batch=None if plan.workload is None else plan.workload.global_batch,
    )


def check_fits(plan: AnyPlan, cluster: Cluster) -> None:
    """Raise ``InvalidRunningJob`` where a plan cannot be told what it is for, or names what the cluster has not."""
    if isinstance(plan, Plan) and (plan.architecture is None or plan.workload is None):
        raise InvalidRunningJob(
            "plan", plan.model, "does not say which model and workload it is for", "plan it anew, or give both"
        )
    counts = {node.name: node.gpu_count for node in cluster.nodes}
    seen = set()
    for field, node, gpu in _places(plan):
        if not 0 <= gpu < counts.get(node, 0):
            raise InvalidRunningJob(field, f"{node}:{gpu}", f"is not a GPU of the cluster {cluster.name!r}")
        if (node, gpu) in seen:
            twice = "serves two ranks" if isinstance(plan, Plan) else "serves two replicas"
            raise InvalidRunningJob(field, f"{node}:{gpu}", twice)
        seen.add((node, gpu))


def _places(plan: AnyPlan) -> Iterator[tuple[str, str, int]]:
    """Each GPU of a plan with the field that names it."""
    if isinstance(plan, Plan):
        for place in plan.placement.ranks:
            yield f"plan.ranks[{place.rank}]", place.node, place.gpu
        return
    for replica in plan.replicas:
        for at in replica.places:
            for gpu in at.gpus:
                yield f"plan.replicas[{replica.number}]", at.node, gpu
