"""When nothing fits: by how much, and remedies that work when they are applied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cluster_models.cluster.gpus import Precision
from cluster_models.cluster.topology import NodeState
from cluster_models.errors import InvalidInput, InvalidWorkload
from cluster_models.training.plan import Plan
from cluster_models.training.workload import Objective, Offload, Recompute, Sharding, TrainingWorkload
from solver.problem import PlanningProblem, SearchOptions
from solver.search import plan
from tests.cluster_models.clusters import host
from tests.solver.cost_cases import LLAMA_70B
from tests.solver.problems import DENSE, SPARSE, nodes, not_planned, problem

QUICK = SearchOptions(time_limit_s=0.0, alternatives=0)
APPLY: dict[str, Callable[[TrainingWorkload], TrainingWorkload]] = {
    "allow_recomputation": lambda w: replace(w, recompute=tuple(Recompute)),
    "shard_optimizer": lambda w: replace(w, sharding=(*w.sharding, Sharding.OPTIMIZER)),
    "shard_parameters": lambda w: replace(w, sharding=(*w.sharding, Sharding.PARAMETERS)),
    "offload_optimizer": lambda w: replace(w, offload=(Offload.NONE, Offload.OPTIMIZER)),
    "unpin": lambda w: replace(w, pinned={}),
    "allow_degrees": lambda w: replace(w, forbidden={}),
    "allow_gpus": lambda w: replace(w, max_gpus=None),
    "allow_power": lambda w: replace(w, max_power_watts=None),
    "lower_headroom": lambda w: replace(w, memory_headroom=0.01),
}
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "plain": (2, {"sharding": (Sharding.NONE,)}),
    "pinned": (3, {"pinned": {"tensor": 1}}),
    "few GPUs": (3, {"max_gpus": 8}),
    "forbidden": (3, {"forbidden": {"pipeline": (1, 2, 3, 4, 5, 6, 8, 12, 24)}}),
    "nearly": (3, {"sequence_length": 8192, "sharding": (Sharding.NONE,)}),
}


def too_large(case: str) -> PlanningProblem:
    """Llama 3 70B on nodes of eight, held back by the case's limits."""
    count, changes = CASES[case]
    return problem(nodes(count, gpus=8), model=LLAMA_70B, **changes)


@pytest.mark.parametrize("case", CASES)
def test_every_remedy_works(case: str) -> None:
    """Applied alone, each makes a plan; growing the cluster too."""
    asked = too_large(case)
    refusal = not_planned(asked)
    assert refusal.remedies
    for remedy in refusal.remedies:
        if isinstance(grown := remedy.figures.get("nodes"), int):
            larger = problem(nodes(grown, gpus=8), model=LLAMA_70B)
            changed = replace(larger, workload=asked.workload)
        else:
            changed = replace(asked, workload=APPLY[remedy.code](asked.workload))
        assert isinstance(plan(changed, QUICK), Plan), remedy


def test_the_shortage_is_what_is_missing() -> None:
    """With that much more memory per GPU the closest candidate fits, with less it does not."""
    asked = too_large("nearly")
    refusal = not_planned(asked)
    assert refusal.missing_bytes is not None
    assert refusal.closest is not None
    assert refusal.reasons[0].figures["missing_bytes"] == refusal.missing_bytes
    cluster = asked.snapshot.cluster
    ((name, kind),) = cluster.gpu_kinds.items()
    share = 1 - asked.workload.memory_headroom
    for factor, fits in ((1.001, True), (0.999, False)):
        memory = kind.memory_bytes + factor * refusal.missing_bytes / share
        kinds = {name: replace(kind, memory_bytes=memory)}
        snapshot = replace(asked.snapshot, cluster=replace(cluster, gpu_kinds=kinds))
        assert isinstance(plan(replace(asked, snapshot=snapshot), QUICK), Plan) is fits


def test_rules_that_leave_no_candidate_are_said() -> None:
    """All micro-batches forbidden: no closest candidate, but a way out."""
    refusal = not_planned(problem(nodes(1), forbidden={"micro_batch": tuple(range(1, 17))}))
    assert refusal.closest is None
    assert refusal.missing_bytes is None
    assert [each.code for each in refusal.reasons] == ["no_legal_degrees"]
    assert "allow_degrees" in {each.code for each in refusal.remedies}


PINNED = {
    "tensor does not divide the heads": ({"tensor": 3}, DENSE, "workload.pinned.tensor"),
    "tensor is wider than a node": ({"tensor": 4}, DENSE, "workload.pinned.tensor"),
    "context does not divide the sequence": ({"context": 3}, DENSE, "workload.pinned.context"),
    "data does not divide the batch": ({"data": 3}, DENSE, "workload.pinned.data"),
    "micro-batch does not divide the batch": ({"micro_batch": 3}, DENSE, "workload.pinned.micro_batch"),
    "together they do not": ({"data": 4, "micro_batch": 4}, DENSE, "workload.pinned.micro_batch"),
    "experts of a dense model": ({"expert": 2}, DENSE, "workload.pinned.expert"),
    "experts that do not divide": ({"expert": 3}, SPARSE, "workload.pinned.expert"),
    "more stages than layers": ({"pipeline": 4, "virtual_pipeline": 4}, DENSE, "workload.pinned.pipeline"),
    "interleaving without a pipeline": (
        {"pipeline": 1, "virtual_pipeline": 2},
        DENSE,
        "workload.pinned.virtual_pipeline",
    ),
    "more GPUs than there are": ({"data": 8}, DENSE, "workload.pinned"),
}


@pytest.mark.parametrize("rule", PINNED)
def test_pins_that_break_a_rule_are_named(rule: str) -> None:
    """The field that is wrong, before any search."""
    pinned, model, field = PINNED[rule]
    with pytest.raises(InvalidWorkload) as caught:
        plan(problem(nodes(2, gpus=2), model=model, pinned=pinned), QUICK)
    assert caught.value.field == field


@pytest.mark.parametrize("avoided", [("n0", "n1"), ("nowhere",)])
def test_nodes_that_cannot_be_avoided_are_named(avoided: tuple[str, ...]) -> None:
    """No node is left, or there is no such node."""
    with pytest.raises(InvalidWorkload) as caught:
        plan(problem(nodes(2, gpus=2), avoid_nodes=avoided), QUICK)
    assert caught.value.field == "workload.avoid_nodes"


def test_a_precision_no_gpu_knows_is_refused() -> None:
    """FP8 on A100 only."""
    asked = problem((host("a", gpu="A100-SXM4-80GB"),), precision=Precision.FP8)
    with pytest.raises(InvalidWorkload) as caught:
        plan(asked, QUICK)
    assert caught.value.field == "workload.precision"


def test_least_cost_needs_prices() -> None:
    """A GPU kind without a price cannot be compared by cost."""
    asked = problem(nodes(2), objective=Objective.COST)
    cluster = asked.snapshot.cluster
    free = {name: replace(kind, price_usd_per_hour=None) for name, kind in cluster.gpu_kinds.items()}
    snapshot = replace(asked.snapshot, cluster=replace(cluster, gpu_kinds=free))
    with pytest.raises(InvalidInput) as caught:
        plan(replace(asked, snapshot=snapshot), QUICK)
    assert caught.value.field == "workload.objective"


def test_a_cluster_without_a_working_node_is_named_as_such() -> None:
    """Nothing was to be avoided, so the nodes are what has to change."""
    down = tuple(replace(node, state=NodeState.FAILED) for node in nodes(2, gpus=2))
    with pytest.raises(InvalidWorkload, match="no node is usable") as caught:
        plan(problem(down), QUICK)
    assert caught.value.field == "cluster.nodes"
