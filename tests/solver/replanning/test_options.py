"""Options of a job, against every assignment of hosts and against hand calculation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import NodeState
from cluster_models.jobs.recovery import RecoveryAction
from cluster_models.jobs.running import RecoveryPolicy, RunningJob
from cluster_models.remarks import remark
from solver.answer import assemble
from solver.compiled import step_seconds
from solver.predict import predict
from solver.problem import PlanningProblem
from solver.replanning import options as actions
from solver.replanning.optimistic import shrink_bounds, swap_rate
from solver.replanning.problem import RecoveryOption, ReplanProblem
from solver.replanning.shrinking import data_sizes, placed_with, usable_units
from solver.replanning.site import JobSite
from solver.replanning.values import flops_per_token, work_flop
from tests.solver.problems import SPARSE
from tests.solver.replanning.option_cases import plan_of, refusal, site, taken
from tests.solver.replanning.samples import after, cluster, four_jobs, job, names, one_lost, replan
from tests.solver.replanning.test_site import measured
from tests.solver.replanning.upper import NO_OPTION, reached, reshape_bounds, upper_value

RATES = st.lists(st.floats(4, 40), min_size=15, max_size=15)
SHAPES = st.sampled_from([(2, 1), (2, 2), (1, 4)])
"""Tensor and pipeline sizes."""


def lost_one(rates: Sequence[float], shape: tuple[int, int], **policy: object) -> ReplanProblem:
    """Four of six measured nodes run a job; the second failed."""
    whole = measured(cluster(6, leaf_nodes=3), list(rates), 2)
    recovery = RecoveryPolicy(**policy)  # type: ignore[arg-type]  # of several types
    running = job("a", whole, names(whole, 0, 4), recovery=recovery, tensor=shape[0], pipeline=shape[1])
    return replan(after(whole, failed=["n01"], slow={"n04": 1.3}), [running])


def test_one_lost_node_moves_its_own_ranks_and_no_other() -> None:
    """A spare on the same leaf takes the part of the lost node; the step stays."""
    problem = one_lost()
    option = taken(actions.swap(site(problem), problem.spares))
    running = problem.jobs[0]
    plan = plan_of(option)
    assert plan.placement.hosts == ("n00", "n04", "n02", "n03")
    assert [place.rank for place in option.migration.moved] == [2, 3]
    assert option.tokens_per_s == pytest.approx(running.plan.tokens_per_s)
    assert option.holds == {(host, gpu) for host in plan.placement.hosts for gpu in (0, 1)}


@settings(max_examples=12)
@given(rates=RATES, shape=SHAPES)
def test_swap_is_the_best_that_the_spares_allow(rates: list[float], shape: tuple[int, int]) -> None:
    """As fast as the better of both spares in the lost place, or faster by exchanges that pay."""
    problem = lost_one(rates, shape)
    here = site(problem)
    option = taken(actions.swap(here, problem.spares))
    plan = plan_of(option)
    best = min(here.step_s(("n00", spare, "n02", "n03")) for spare in ("n04", "n05"))
    if plan.placement.hosts[0] == "n00" and plan.placement.hosts[2:] == ("n02", "n03"):
        assert plan.time.step_s == pytest.approx(best)
    else:
        assert plan.time.step_s <= best * 0.995
    assert set(plan.placement.hosts) - {"n04", "n05"} == {"n00", "n02", "n03"}


@settings(max_examples=12)
@given(rates=RATES, shape=SHAPES)
def test_no_swap_beats_its_bound(rates: list[float], shape: tuple[int, int]) -> None:
    """Not with any order of any hosts that serve."""
    problem = lost_one(rates, shape)
    here = site(problem)
    bound = upper_value(here, RecoveryAction.SWAP)
    orders = permutations(("n00", "n02", "n03", "n04", "n05"), 4)
    steps = [here.step_s(hosts) for hosts in orders]
    tokens = here.asked.workload.tokens_per_step
    assert max(tokens / step_s for step_s in steps) <= swap_rate(here) * (1 + 1e-12)
    assert taken(actions.swap(here, problem.spares)).value_flop <= bound
    assert upper_value(here, RecoveryAction.SWAP, nodes=3) == NO_OPTION


def test_a_dear_spare_is_left_for_others() -> None:
    """A price above what the faster spare saves sends the job to the slower one."""
    problem = lost_one([30.0] * 15, (2, 1))
    here = site(problem)
    free = taken(actions.swap(here, problem.spares))
    assert "n05" in plan_of(free).placement.hosts  # n04 computes 30 % slower
    cheap = taken(actions.swap(here, problem.spares, prices={"n05": free.value_flop}))
    assert "n04" in plan_of(cheap).placement.hosts
    assert cheap.value_flop < free.value_flop
    assert cheap.limited_by == remark("limit_slow_node", node="n04", slowdown=pytest.approx(1.3))


def test_too_few_spares_are_told() -> None:
    """Two nodes are lost and one spare is given."""
    whole = cluster(6)
    running = job("a", whole, names(whole, 0, 4), tensor=2)
    problem = replan(after(whole, failed=["n00", "n01"]), [running])
    assert "2 of its nodes cannot carry its ranks, and 1 spare ones" in refusal(
        actions.swap(site(problem), ["n05"])
    )
    assert plan_of(actions.swap(site(problem), ["n05", "n04"])).placement.hosts[2:] == ("n02", "n03")


def test_a_free_gpu_of_the_same_node_takes_over_first() -> None:
    """One of four GPUs is lost, two of the node are free: one rank moves, inside the node."""
    whole = cluster(4, gpus=4)
    running = job("half", whole, names(whole, 0, 2), tensor=2, gpus_per_node=2)
    problem = replan(after(whole, lost_gpus={"n00": (1,)}), [running])
    option = taken(actions.swap(site(problem), problem.spares))
    assert plan_of(option).placement.hosts == ("n00", "n01")
    assert [(place.node, place.gpu) for place in plan_of(option).placement.ranks[:2]] == [("n00", 0), ("n00", 2)]
    assert [place.rank for place in option.migration.moved] == [1]
    assert "GPU" in refusal(actions.keep(site(problem)))


def test_a_node_with_a_lost_gpu_is_swapped_whole_or_left() -> None:
    """All its GPUs are needed: a spare node takes over, and those that live are given back."""
    whole = cluster(5)
    running = job("full", whole, names(whole, 0, 4), tensor=2)
    problem = replan(after(whole, lost_gpus={"n02": (0,)}), [running])
    option = taken(actions.swap(site(problem), problem.spares))
    assert plan_of(option).placement.hosts == ("n00", "n01", "n04", "n03")
    assert ("n02", 1) not in option.holds
    smaller = taken(actions.shrink(site(problem)))
    assert plan_of(smaller).configuration.degrees.data == 3
    assert not {node for node, _ in smaller.holds} & {"n02"}


def sizes_and_orders(here: JobSite) -> Iterator[tuple[int, float]]:
    """GPUs and tokens per second of every legal data size on every order of the job's live nodes."""
    usable = usable_units(here, here.others)
    for size in data_sizes(here, here.job.plan.configuration.degrees.data - 1):
        placed = placed_with(here, size, usable)
        if placed is None:
            continue
        arrays, tokens = placed.candidate.placement.arrays, placed.asked.workload.tokens_per_step
        for order in permutations(range(placed.candidate.placement.nodes), placed.candidate.placement.slots):
            step_s = step_seconds(np.array(order, dtype=np.int64), arrays)[0]
            yield size.configuration.degrees.gpus, float(tokens / step_s)


@settings(max_examples=12)
@given(rates=RATES, shape=SHAPES, may_change=st.booleans())
def test_no_shrunk_job_beats_its_bound(rates: list[float], shape: tuple[int, int], may_change: bool) -> None:
    """Not with any legal size on any order of any units that serve."""
    here = site(lost_one(rates, shape, may_change_batch=may_change))
    bounds = shrink_bounds(here)
    for gpus, tokens_per_s in sizes_and_orders(here):
        assert tokens_per_s <= reached(bounds, gpus) * (1 + 1e-12)
    for spares in ((), here.others):
        answer = actions.shrink(here, spares=spares)
        if isinstance(answer, RecoveryOption):
            assert answer.value_flop <= upper_value(here, RecoveryAction.SHRINK_DATA_PARALLEL)


def broken_twice() -> ReplanProblem:
    """Three replicas of two stages, a node a part; the first loses stage 1, the second stage 0."""
    whole = cluster(6)
    running = job("a", whole, names(whole, 0, 6), tensor=2, pipeline=2)
    # ranks run through the data ranks of stage 0, then those of stage 1
    return replan(after(whole, failed=["n03", "n01"]), [running])


def test_live_parts_of_two_broken_replicas_make_one() -> None:
    """Replica 0 has its first stage left and replica 1 its second: together with replica 2 that makes two."""
    option = taken(actions.shrink(site(broken_twice())))
    plan = plan_of(option)
    assert plan.configuration.degrees.data == 2
    assert set(plan.placement.hosts[:2]) == {"n00", "n02"}
    assert set(plan.placement.hosts[2:]) == {"n04", "n05"}
    assert option.migration.moved == ()  # every rank still runs layers that it ran


def test_one_lost_gpu_costs_one_replica() -> None:
    """Two nodes of eight, eight replicas of two stages, one GPU gone: seven replicas, not the four of a node."""
    whole = cluster(2, gpus=8)
    recovery = RecoveryPolicy(may_change_batch=True)
    running = job("a", whole, names(whole, 0, 2), pipeline=2, batch=128, recovery=recovery)
    here = site(replan(after(whole, lost_gpus={"n00": (3,)}), [running]))
    option = taken(actions.shrink(here))
    plan = plan_of(option)
    assert plan.configuration.degrees.data == 7
    assert plan.workload is not None
    assert plan.workload.global_batch == 112
    assert ("n00", 3) not in option.holds
    assert len(option.holds) == 14
    assert option.value_flop <= upper_value(here, RecoveryAction.SHRINK_DATA_PARALLEL)
    paired = job("b", whole, names(whole, 0, 2), tensor=2, batch=48, recovery=recovery)
    here = site(replan(after(whole, lost_gpus={"n00": (3,)}), [paired]))
    assert plan_of(actions.shrink(here)).configuration.degrees.data == 6


def test_a_batch_that_does_not_divide_may_shrink_only_where_allowed() -> None:
    """Five replicas do not divide 48 sequences; where the batch may change, 40 are five times eight."""
    whole = cluster(6)
    for may_change, data, batch in ((False, 4, 48), (True, 5, 40)):
        recovery = RecoveryPolicy(may_change_batch=may_change)
        running = job("a", whole, names(whole, 0, 6), tensor=2, recovery=recovery)
        plan = plan_of(actions.shrink(site(replan(after(whole, failed=["n05"]), [running]))))
        assert plan.configuration.degrees.data == data
        assert plan.workload is not None
        assert plan.workload.global_batch == batch


def test_a_job_without_legal_size_is_told_why() -> None:
    """One replica cannot shrink, and neither can one below the GPUs that its owner asks for."""
    single = cluster(3)
    running = job("one", single, names(single, 0, 2), tensor=2, pipeline=2)
    problem = replan(after(single, failed=["n00"]), [running])
    assert refusal(actions.shrink(site(problem))) == "it has one replica"
    least = four_jobs().jobs[0]
    least = replace(least, recovery=RecoveryPolicy(least_gpus=6))
    problem = four_jobs()
    problem = replace(problem, jobs=(least, *problem.jobs[1:]))
    assert "no data parallel size" in refusal(actions.shrink(site(problem)))


def test_replicas_of_one_expert_block_go_together() -> None:
    """Experts lie over two replicas of a node each: with one node lost its partner is of no use alone."""
    whole = cluster(6)
    running = job("moe", whole, names(whole, 0, 6), model=SPARSE, tensor=2, expert=4)
    problem = replan(after(whole, failed=["n03"]), [running], spares=())
    option = taken(actions.shrink(site(problem)))
    plan = plan_of(option)
    assert plan.configuration.degrees.data == 4
    assert "n03" not in plan.placement.hosts
    # positions in the block decide what a rank holds: even places stay on nodes that held even ones
    assert set(plan.placement.hosts[::2]) <= {"n00", "n02", "n04"}
    assert set(plan.placement.hosts[1::2]) <= {"n01", "n05"}
    assert option.migration.moved == ()


def test_the_slow_node_is_the_one_given_up() -> None:
    """A job that lost nothing and gives up a replica gives up its slowest."""
    whole = cluster(4)
    running = job("a", whole, names(whole, 0, 4), tensor=2)
    problem = replan(after(whole, slow={"n02": 1.5}), [running])
    option = taken(actions.shrink(site(problem)))
    assert set(plan_of(option).placement.hosts) == {"n00", "n01", "n03"}


@settings(max_examples=3)
@given(rates=RATES)
def test_no_other_shape_beats_its_bound(rates: list[float]) -> None:
    """With any of the spares, and with few nodes; the plan is what the planner predicts on its hosts."""
    problem = lost_one(rates, (2, 2))
    here = site(problem)
    for nodes in ((), ("n04",), ("n04", "n05")):
        option = taken(actions.reshape(here, nodes, 5.0))
        plan = plan_of(option)
        assert set(plan.placement.hosts) <= {"n00", "n02", "n03", *nodes}
        bounds = reshape_bounds(here)
        assert option.tokens_per_s <= reached(bounds, plan.configuration.degrees.gpus) * (1 + 1e-12)
        assert option.value_flop <= upper_value(here, RecoveryAction.RESHAPE, nodes=3 + len(nodes))
        asked = PlanningProblem(problem.snapshot, here.asked.architecture, here.asked.workload)
        placement = plan.placement
        again = predict(asked, plan.configuration, hosts=placement.hosts, gpus_per_node=placement.gpus_per_node)
        assert again.time.step_s == pytest.approx(plan.time.step_s, rel=1e-9)


def test_other_shapes_use_what_is_left_of_a_node() -> None:
    """Three of four GPUs live on a node of a job with pairs: other degrees may use one of them or all three."""
    whole = cluster(2, gpus=4)
    running = job("a", whole, names(whole, 0, 2), tensor=2)
    problem = replan(after(whole, lost_gpus={"n00": (3,)}), [running], spares=())
    option = taken(actions.reshape(site(problem), (), 5.0))
    assert ("n00", 3) not in option.holds
    assert len(option.holds) > 4  # more than the whole node alone


def test_shapes_are_refused_where_the_job_forbids_or_cannot() -> None:
    """Degrees may not change; nothing is as large as the job needs."""
    problem = one_lost()
    for recovery, words in (
        (RecoveryPolicy(may_reshape=False), "may not change"),
        (RecoveryPolicy(least_gpus=64), "as large as 64 GPUs"),
    ):
        running = replace(problem.jobs[0], recovery=recovery)
        here = site(replace(problem, jobs=(running,)))
        assert words in refusal(actions.reshape(here, problem.spares, 5.0))
        assert upper_value(here, RecoveryAction.RESHAPE) == NO_OPTION


def test_waiting_and_pausing_are_worth_what_the_formula_says() -> None:
    """Nothing until the nodes are back, then planned throughput less restart and bytes; nothing at all paused."""
    problem = replace(one_lost(), horizon_s=20_000.0, back_after_s=5_000.0)
    here = site(problem)
    running = problem.jobs[0]
    option = taken(actions.wait(here))
    still_s = 5_000.0 + option.migration.downtime.middle_s
    flops_per_s = running.plan.tokens_per_s * flops_per_token(running)
    bytes_s = 10 * 3600e-12 * option.migration.bytes.storage / len(option.holds)  # 10 GPU-hours a terabyte
    assert bytes_s > 0
    assert option.value_flop == pytest.approx(flops_per_s * (20_000.0 - still_s - bytes_s))
    assert option.plan is None
    assert ("n01", 0) in option.holds
    assert option.value_flop <= upper_value(here, RecoveryAction.WAIT)
    paused = actions.pause(here)
    assert (paused.value_flop, paused.holds) == (0.0, frozenset())
    assert upper_value(here, RecoveryAction.PAUSE) == 0.0


def test_a_job_waits_for_what_it_lost_itself() -> None:
    """A time of its own stands in for that of the whole problem."""
    problem = replace(one_lost(), horizon_s=20_000.0, back_after_s=5_000.0)
    (running,) = problem.jobs[:1]
    own = replace(problem, back_after_s=1_000.0, jobs_back_after_s={running.id: 5_000.0})
    assert taken(actions.wait(site(own))).value_flop == taken(actions.wait(site(problem))).value_flop


def slow_job() -> tuple[ClusterSnapshot, RunningJob]:
    """A job on three nodes."""
    whole = cluster(4)
    return whole, job("a", whole, names(whole, 0, 3), tensor=2, weight=2.0)


def test_a_job_on_a_slow_node_runs_on_slower_and_without_a_break() -> None:
    """Its value is the slower throughput over the whole horizon, twice as it weighs."""
    whole, running = slow_job()
    problem = replan(after(whole, slow={"n01": 1.4}), [running])
    here = site(problem)
    option = taken(actions.keep(here))
    assert option.action is RecoveryAction.NONE
    assert option.tokens_per_s < running.plan.tokens_per_s
    assert option.limited_by == remark("limit_slow_node", node="n01", slowdown=pytest.approx(1.4))
    assert option.value_flop == pytest.approx(work_flop(running, option.tokens_per_s, 0.0, problem.horizon_s))
    assert option.value_flop == pytest.approx(upper_value(here, RecoveryAction.NONE))
    again = taken(actions.keep(here, restart=True))
    assert again.action is RecoveryAction.RESTART_IN_PLACE
    assert again.migration.steps_lost == sum(running.recovery.repeated_steps(from_storage=False)) / 2
    assert again.value_flop <= upper_value(here, RecoveryAction.RESTART_IN_PLACE)


def test_what_drains_is_left_with_its_state() -> None:
    """The job may not stay, and the ranks that leave bring their state along: no step is repeated."""
    whole, running = slow_job()
    problem = replan(after(whole, draining=["n01"]), [running])
    here = site(problem)
    assert problem.nodes["n01"].state is NodeState.DRAINING
    assert "n01" in refusal(actions.keep(here))
    option = taken(actions.swap(here, problem.spares))
    assert option.migration.steps_lost == 0.0
    assert plan_of(option).placement.hosts == ("n00", "n03", "n02")


def test_moves_for_others_have_their_price() -> None:
    """An untouched job that gives up a replica asks what its owner set for every rank that moves."""
    whole, running = slow_job()
    free = RecoveryPolicy(may_move=True, move_price_s=50.0, transfer_price_gpu_s_per_byte=0.0, least_gain_share=0.0)
    running = replace(running, recovery=free)
    here = site(replan(whole, [running]))
    option = taken(actions.shrink(here, replicas=1))
    work = work_flop(running, option.tokens_per_s, option.migration.downtime.middle_s, here.problem.horizon_s)
    price = 2.0 * 50.0 * running.flops_per_s * len(option.migration.moved)
    assert option.value_flop == pytest.approx(work - price)


def test_bytes_over_network_cards_and_from_storage_have_their_price() -> None:
    """Each swap pays the price of its bytes; a byte over NVLink costs its time alone."""
    problem = one_lost(spares=2)
    values = []
    for gpu_s_per_byte in (0.0, 2e-9):
        policy = replace(problem.jobs[0].recovery, transfer_price_gpu_s_per_byte=gpu_s_per_byte)
        running = replace(problem.jobs[0], recovery=policy, weight=3.0)
        values.append(taken(actions.swap(site(replace(problem, jobs=(running,))), problem.spares)))
    free, priced = values
    moved = priced.migration.bytes
    assert moved.storage + moved.fabric + moved.leaf > 0
    per_gpu = 3.0 * problem.jobs[0].plan.model_flops_per_s_per_gpu
    price = per_gpu * 2e-9 * (moved.total - moved.nvlink)
    assert free.value_flop - priced.value_flop == pytest.approx(price)


def test_no_timeline_is_made_for_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options carry none, and it takes most of the time of an answer."""

    def unwanted(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(assemble, "timeline", unwanted)
    problem = one_lost()
    assert plan_of(actions.swap(site(problem), problem.spares)).timeline == ()
