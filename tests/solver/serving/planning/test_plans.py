"""Properties of every serving plan."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from cluster_models.cluster.topology import NodeState
from cluster_models.errors import InvalidWorkload
from cluster_models.health.degraded import degraded
from cluster_models.serving.goal import ServingMode
from cluster_models.serving.plan import IdleReason, LossReason, ServingPlan, ServingWarningKind
from cluster_models.serving.refusal import NoServingPlan, NoServingReason, RemedyKind
from cluster_models.serving.replicas import Phase
from cluster_models.serving.workload import ServingConfiguration, WeightFormat
from solver.check.serving import check_serving_plan
from solver.problem import SearchOptions
from solver.serving.plan import plan_serving
from solver.serving.problem import ServingProblem
from tests.cluster_models.clusters import host, sample, snapshot
from tests.solver.serving.planning.problems import (
    CHAT,
    OPTIONS,
    measured,
    nodes,
    problem,
    served,
    sound_plan,
)


def _nodes_of(plan: ServingPlan) -> list[set[str]]:
    """Nodes of each replica."""
    return [{place.node for place in replica.places} for replica in plan.replicas]


def _shapes(plan: ServingPlan) -> set[ServingConfiguration]:
    return {group.configuration for group in plan.groups}


@pytest.mark.parametrize("objective", ["throughput", "goodput", "gpus", "cost", "power"])
def test_plans_pass_the_independent_check(objective: str) -> None:
    """With requests in flight, on two nodes of which one has lost a GPU."""
    hosts = [*nodes(1), replace(host("n1"), gpus_in_use=(3,))]
    sound_plan(problem(hosts, served(**CHAT), objective=objective))


def test_seven_of_seven_gpus_serve() -> None:
    """An odd number of GPUs is no reason to leave one idle where it serves more."""
    plan = sound_plan(problem(nodes(1, gpus=7), served(**CHAT), objective="goodput"))
    assert plan.gpus == 7
    assert plan.idle == ()
    assert len(_shapes(plan)) > 1 or plan.groups[0].transfer is not None


def test_more_gpus_never_serve_less() -> None:
    """Goodput of 2, 3, 5, 7 and 8 GPUs."""
    reached = [
        sound_plan(problem(nodes(1, gpus=gpus), served("qwen3-32b", **CHAT), objective="goodput")).tokens_per_s
        for gpus in (2, 3, 5, 7, 8)
    ]
    assert all(less <= more * (1 + OPTIONS.gap) for less, more in pairwise(reached))


def test_slower_measured_links_change_the_plan_and_lower_what_it_serves() -> None:
    """A model that needs two nodes, on links of 45 and of 0.5 GB/s for each flow."""
    hosts = nodes(4)
    model = served("deepseek-v3", concurrency=256.0)
    fast, slow = (sound_plan(problem(hosts, model, samples=measured(hosts, pace))) for pace in (45.0, 0.5))
    assert slow.tokens_per_s < fast.tokens_per_s
    assert _shapes(slow) != _shapes(fast)


def test_a_worker_over_two_nodes_takes_near_ones() -> None:
    """n0 and n2 are near each other, n1 and n3 too; all other pairs are ten times slower."""
    hosts = nodes(4)
    near = ({"n0", "n2"}, {"n1", "n3"})
    samples = [
        replace(each, bytes_per_s=each.bytes_per_s / (1 if {each.source, each.destination} in near else 10))
        for each in measured(hosts, 45.0)
        if each.bytes_per_s is not None
    ]
    model = served("deepseek-v3", concurrency=64.0)
    plan = sound_plan(problem(hosts, model, samples=samples, modes=(ServingMode.AGGREGATED,)))
    assert all(used in near for used in _nodes_of(plan) if len(used) == 2)
    assert any(len(used) == 2 for used in _nodes_of(plan))


def test_lost_gpus_and_failed_nodes_serve_nothing() -> None:
    """A failed node, an avoided one and a GPU in use stay out, and the plan says why."""
    hosts = [
        replace(host("n0"), gpus_in_use=(0, 5)),
        replace(host("n1"), state=NodeState.FAILED),
        host("n2"),
        host("n3"),
    ]
    plan = sound_plan(problem(hosts, served(**CHAT), objective="goodput", avoid_nodes=("n2",)))
    assert set().union(*_nodes_of(plan)) <= {"n0", "n3"}
    reasons = {each.node: each.reason for each in plan.idle}
    assert reasons["n1"] is IdleReason.NOT_READY
    assert reasons["n2"] is IdleReason.AVOIDED


def test_a_slow_node_serves_less_and_is_named() -> None:
    """Its replicas have a smaller share of the requests than those of an equal node that is well."""
    hosts = [host("n0"), replace(host("n1"), state=NodeState.DEGRADED, compute_slowdown=1.5)]
    plan = sound_plan(
        problem(hosts, served(**CHAT), objective="goodput", modes=(ServingMode.AGGREGATED,), pinned={"tensor": 4})
    )
    share = {"n0": 0.0, "n1": 0.0}
    for used, replica in zip(_nodes_of(plan), plan.replicas, strict=True):
        share[next(iter(used))] += replica.share
    assert share["n1"] < share["n0"]
    assert (ServingWarningKind.DEGRADED_NODES, ("n1",)) in [(each.kind, each.subject) for each in plan.warnings]


@pytest.mark.parametrize("requests_per_s", [10.0, 15.0])
def test_of_the_cheapest_plans_for_a_rate_none_answers_sooner(requests_per_s: float) -> None:
    """One replica of two GPUs or two of one: whichever is pinned stays no shorter than what is chosen."""

    def stay_s(**goal: Any) -> float:
        load = served("qwen3-8b", requests_per_s=requests_per_s, **CHAT)
        plan = sound_plan(problem(nodes(1, gpus=2), load, objective="gpus", modes=modes, **goal))
        assert plan.gpus == 2
        return plan.figures[0].concurrency / plan.figures[0].requests_per_s

    modes = (ServingMode.AGGREGATED,)
    pinned = [stay_s(pinned={"tensor": tensor}) for tensor in (1, 2)]
    assert min(pinned) < 0.95 * max(pinned)
    assert stay_s() == pytest.approx(min(pinned), rel=0.01)


def test_degrading_nothing_changes_nothing() -> None:
    """The same problem gives the same plan."""
    given = problem(nodes(1), served(**CHAT))
    again = replace(given, snapshot=degraded(given.snapshot, ()))
    assert plan_serving(given, OPTIONS) == plan_serving(again, OPTIONS)


def test_every_replica_has_gpus_of_one_kind() -> None:
    """Two H100 nodes beside an H200 node: both kinds serve, no worker mixes them."""
    hosts = [*nodes(2), host("m0", gpu="H200-SXM-141GB")]
    plan = sound_plan(problem(hosts, served(**CHAT), objective="goodput"))
    assert {replica.gpu_kind for replica in plan.replicas} == {"H100-SXM5-80GB", "H200-SXM-141GB"}


def test_several_models_share_a_cluster() -> None:
    """Each is served at its load, on GPUs of its own."""
    plan = sound_plan(
        problem(
            nodes(1), served(**CHAT, concurrency=32.0), served("qwen3-8b", requests_per_s=3.0), objective="gpus"
        )
    )
    assert [each.model for each in plan.figures] == [0, 1]
    assert plan.figures[1].requests_per_s == pytest.approx(3.0)
    assert {group.model for group in plan.groups} == {0, 1}


def test_split_phases_only_where_asked() -> None:
    """Modes decide which phases replicas have."""
    split = sound_plan(problem(nodes(1), served(**CHAT), modes=(ServingMode.SPLIT,)))
    assert {replica.phase for replica in split.replicas} == {Phase.PREFILL, Phase.DECODE}
    assert all(group.transfer is not None for group in split.groups)
    whole = sound_plan(problem(nodes(1), served(**CHAT), modes=(ServingMode.AGGREGATED,)))
    assert {replica.phase for replica in whole.replicas} == {Phase.BOTH}


def test_budgets_hold() -> None:
    """Neither more GPUs nor more power than allowed, in the plan and in what it is compared with."""
    for budget, gpus in (({"max_gpus": 5}, 5), ({"max_power_watts": 3000.0}, 4)):
        plan = sound_plan(problem(nodes(1), served(**CHAT), objective="goodput", **budget))
        assert plan.gpus <= gpus
        assert {each.reason for each in plan.idle} == {IdleReason.BUDGET}
        compared = [each.configuration.gpus for each in plan.alternatives if each.worse_by is not None]
        assert 0 < max(compared) <= gpus


def test_a_limit_that_nothing_meets_names_the_nearest_that_is_met() -> None:
    """With the limit raised to it, a plan exists."""
    given = problem(nodes(1), served(concurrency=1.0, time_per_output_token_s=0.002))
    refused = plan_serving(given, OPTIONS)
    assert isinstance(refused, NoServingPlan)
    assert refused.reason is NoServingReason.TOKEN_LIMIT
    assert refused.nearest is not None
    (remedy,) = (each for each in refused.remedies if each.kind is RemedyKind.TOKEN_LIMIT)
    assert remedy.value is not None
    raised = served(concurrency=1.0, time_per_output_token_s=remedy.value * 1.001)
    sound_plan(problem(nodes(1), raised))


def test_limits_on_percentiles_cost_load() -> None:
    """A limit for 99 in 100 requests allows less than one for the mean; the plan says what they see."""
    load = CHAT | {"concurrency": None, "requests_per_s": 4.0}
    mean, tail = (
        sound_plan(problem(nodes(1), served(**load, limit_percentile=share), objective="goodput"))
        for share in (None, 0.99)
    )
    limits = mean.models[0].workload.limits_s
    assert tail.figures[0].most_requests_per_s < mean.figures[0].most_requests_per_s
    assert all(value <= limit for value, limit in zip(tail.figures[0].limited_s.values_s, limits, strict=True))
    assert tail.figures[0].limited_s.first_token_s > tail.figures[0].first_token_s.value


def test_a_limit_on_the_last_token_binds_and_is_named() -> None:
    """Seven tenths of what the answer takes without it: faster workers; half a second: refused."""
    free = sound_plan(problem(nodes(1), served(concurrency=8.0), objective="gpus"))
    answer = free.figures[0].limited_s.answer_s
    bound = sound_plan(problem(nodes(1), served(concurrency=8.0, end_to_end_s=0.7 * answer), objective="gpus"))
    assert bound.figures[0].limited_s.answer_s <= 0.7 * answer
    refused = plan_serving(problem(nodes(1), served(concurrency=8.0, end_to_end_s=0.5)), OPTIONS)
    assert isinstance(refused, NoServingPlan)
    assert refused.reason is NoServingReason.ANSWER_LIMIT
    assert RemedyKind.ANSWER_LIMIT in {each.kind for each in refused.remedies}


def test_a_load_beyond_the_cluster_names_what_it_keeps_up_with() -> None:
    """At nine tenths of it, a plan exists."""
    refused = plan_serving(problem(nodes(1), served(**CHAT, concurrency=9000.0), objective="gpus"), OPTIONS)
    assert isinstance(refused, NoServingPlan)
    assert refused.reason is NoServingReason.LOAD
    held = next(each.value for each in refused.remedies if each.kind is RemedyKind.CONCURRENCY)
    assert held is not None
    sound_plan(problem(nodes(1), served(**CHAT, concurrency=0.9 * held), objective="gpus"))


def test_a_model_that_no_gpu_holds_says_what_would() -> None:
    """16-bit weights of 70 billion parameters on one GPU of 80 GB."""
    refused = plan_serving(problem(nodes(1, gpus=1), served(weights=WeightFormat.BF16)), OPTIONS)
    assert isinstance(refused, NoServingPlan)
    assert refused.reason is NoServingReason.MEMORY
    assert {each.kind for each in refused.remedies} >= {RemedyKind.GPUS, RemedyKind.WEIGHTS}
    enough = next(each.value for each in refused.remedies if each.kind is RemedyKind.GPUS)
    assert enough is not None
    sound_plan(problem(nodes(int(enough), gpus=1), served(weights=WeightFormat.BF16)))


def test_no_free_gpu_is_said_so() -> None:
    """Every node has failed."""
    hosts = [replace(host("n0"), state=NodeState.FAILED)]
    refused = plan_serving(problem(hosts, served()), OPTIONS)
    assert isinstance(refused, NoServingPlan)
    assert refused.reason is NoServingReason.NO_GPUS


@pytest.mark.parametrize(
    ("field", "goal"),
    [("workload.avoid_nodes", {"avoid_nodes": ("n9",)}), ("workload.pinned", {"pinned": {"tensor": 7}})],
)
def test_goals_that_contradict_the_problem_are_refused(field: str, goal: dict[str, object]) -> None:
    """Each names its field."""
    with pytest.raises(InvalidWorkload) as error:
        plan_serving(problem(nodes(1), served(), **goal), OPTIONS)
    assert error.value.field == field


def test_a_cost_without_prices_is_refused() -> None:
    """No plan is made on a guess."""
    with pytest.raises(InvalidWorkload, match="no list price"):
        plan_serving(problem(nodes(1, gpu="H20-96GB"), served(), objective="cost"), OPTIONS)


def test_alternatives_are_worse_and_the_front_is_one() -> None:
    """No alternative that meets the limits beats the plan; along the front, speed costs throughput."""
    plan = sound_plan(problem(nodes(1), served(**CHAT)))
    worse = [each.worse_by for each in plan.alternatives if each.reason is LossReason.OBJECTIVE]
    assert worse
    assert worse == sorted(worse)
    assert all(each is not None and each >= 0 for each in worse)
    front = [each for each in plan.front if not each.is_chosen]
    speeds = [each.tokens_per_s_per_user for each in front]
    throughput = [each.tokens_per_s_per_gpu for each in front]
    assert speeds == sorted(speeds)
    assert throughput == sorted(throughput, reverse=True)
    assert any(each.is_chosen for each in plan.front)


def test_the_check_sees_what_is_wrong() -> None:
    """A GPU used twice, a gap that hides, a share too much, memory that is not there."""
    given = problem(nodes(1), served(**CHAT), pinned={"tensor": 4, "pipeline": 1})
    plan = sound_plan(given)
    assert len(plan.replicas) == 2
    group = plan.groups[0]
    replica = group.replicas[0]

    def with_replica(changed: object) -> ServingPlan:
        own = replace(group, replicas=(changed, *group.replicas[1:]))  # type: ignore[arg-type]
        return replace(plan, groups=(own, *plan.groups[1:]))

    wrong = [
        with_replica(replace(replica, places=plan.replicas[-1].places)),
        with_replica(replace(replica, memory=replace(replica.memory, weight_bytes=1e9))),
        with_replica(replace(replica, memory=replace(replica.memory, cache_bytes=1e12))),
        with_replica(replace(replica, share=2 * replica.share)),
        replace(plan, certificate=replace(plan.certificate, bound=plan.certificate.objective / 2)),
        replace(plan, certificate=replace(plan.certificate, objective=plan.certificate.objective * 1.1)),
        replace(plan, gpus=plan.gpus + 1),
        replace(plan, idle=(), groups=plan.groups[1:]) if len(plan.groups) > 1 else replace(plan, groups=()),
    ]
    for changed in wrong:
        assert check_serving_plan(changed, given), changed


def test_answers_of_one_token_have_no_front() -> None:
    """Users see no speed after the first token."""
    plan = sound_plan(problem(nodes(1, gpus=2), served("qwen3-8b", output_tokens=1)))
    assert plan.front == ()
    assert plan.tokens_per_s > 0


def test_measured_links_are_not_called_estimated() -> None:
    """A plan over two nodes warns of links that nobody measured, and of those alone."""
    hosts = nodes(2)
    model = served("deepseek-v3", concurrency=32.0)
    guessed = sound_plan(ServingProblem(snapshot(hosts), (model,)), SearchOptions(gap=0.01))
    known = sound_plan(problem(hosts, model, samples=[sample("n0", "n1")]))
    kinds = [{each.kind for each in plan.warnings} for plan in (guessed, known)]
    assert ServingWarningKind.ESTIMATED_LINKS in kinds[0]
    assert ServingWarningKind.ESTIMATED_LINKS not in kinds[1]
