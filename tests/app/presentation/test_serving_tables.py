"""Words about alternatives and the proof of serving plans."""

from __future__ import annotations

from dataclasses import replace

from app.presentation.serving_plan import headline, serving_proof
from app.presentation.serving_tables import loss_words, other_shapes, pool_rows
from cluster_models.routing.counts import ExpertLoads
from cluster_models.serving.figures import Interval
from cluster_models.serving.plan import LossReason, ServingAlternative
from cluster_models.serving.routing import ServedRouting
from cluster_models.serving.workload import Pool, ServingConfiguration, Worker
from tests.serving_plans import two_replicas


def test_an_alternative_that_is_as_good_is_not_called_worse() -> None:
    """By the objective, which may leave several plans open."""
    whole = ServingConfiguration(Pool(Worker(tensor=4)))
    other = ServingAlternative(
        0, "H100", whole, 0.2, 0.02, 600.0, 4.0, 0.25, LossReason.OBJECTIVE, 0.25, slowest_part="dense_s"
    )
    assert loss_words(other).startswith("worse by the objective: a decode step spends more on")
    assert loss_words(replace(other, worse_by=0.0, reason_value=0.0)) == "as good by the objective"


def test_the_proof_says_how_experts_lie_where_a_router_was_counted() -> None:
    """And nothing of it otherwise."""
    plan = two_replicas()
    assert "greedy map" not in serving_proof(plan).explanation
    counts = ServedRouting((ExpertLoads("decode", (0,), ((1.0, 1.0),)),))
    models = [replace(each, workload=replace(each.workload, routing=counts)) for each in plan.models]
    assert "greedy map of the counts" in serving_proof(replace(plan, models=tuple(models))).explanation


def test_power_caps_stand_behind_the_kind_of_gpu() -> None:
    """In the pools, in what lost, and in the name of the plan's power."""
    plan = two_replicas()
    groups = tuple(
        replace(group, replicas=tuple(replace(each, power_cap_watts=490.0) for each in group.replicas))
        for group in plan.groups
    )
    slow = replace(
        plan, groups=groups, alternatives=tuple(replace(each, power_cap_watts=420.0) for each in plan.alternatives)
    )
    assert {row.gpu_kind for row in pool_rows(slow)} == {
        f"{row.gpu_kind}, capped at 490 W" for row in pool_rows(plan)
    }
    assert all(row.workers.endswith(", capped at 420 W") for row in other_shapes(slow))
    assert headline(slow)[-2][0] == "power by data sheets and caps"
    joules = f"{plan.power_watts / plan.tokens_per_s:,.3g} J a token at most"
    assert headline(plan)[-1] == ("energy of output", joules)
    known = replace(plan, groups=tuple(replace(each, drawn_watts=Interval(2e3, 1e3, 3e3)) for each in plan.groups))
    values = [f"{len(plan.groups) * watts / plan.tokens_per_s:,.3g}" for watts in (2e3, 1e3, 3e3)]
    assert headline(known)[-1][1].startswith(f"{values[0]} J a token ({values[1]} to {values[2]}), at most ")
