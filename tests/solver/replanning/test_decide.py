"""Decisions about batches of failures: scenarios that every re-planner must get right, and what always holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.presentation.decision_reasons import objection, reason_of
from benchmarks.first_come import first_come
from cluster_models.cluster.snapshot import ClusterSnapshot, LinkShare
from cluster_models.cluster.topology import NodeState
from cluster_models.health.events import Entity, EntityKind, HealthEvent, HealthState
from cluster_models.jobs.recovery import BatchDecision, ConsideredAction, JobDecision, RecoveryAction
from cluster_models.jobs.running import RecoveryPolicy, RunningJob
from cluster_models.training.plan import StopReason
from solver.replanning import decide as decide_module
from solver.replanning import options as actions
from solver.replanning.check import check_decision
from solver.replanning.columns import columns_of
from solver.replanning.decide import decide, safe_answer
from solver.replanning.problem import ReplanOptions, ReplanProblem
from solver.replanning.touched import Touched, touched
from tests.cluster_models.clusters import cluster_of, host
from tests.solver.problems import SPARSE
from tests.solver.replanning.samples import (
    SAME_SHAPE,
    after,
    cluster,
    four_jobs,
    job,
    names,
    one_lost,
    replan,
)

WHOLE = replace(SAME_SHAPE, least_gpus=8)
"""A job that cannot do with less than four nodes of two."""


def decided(problem: ReplanProblem, options: ReplanOptions | None = None) -> BatchDecision:
    """The decision, after every check."""
    decision = decide(problem, options)
    assert check_decision(problem, decision) == ()
    return decision


def of_job(decision: BatchDecision, name: str) -> JobDecision:
    """The decision about the job called ``name``."""
    (made,) = (made for made in decision.jobs if made.job_name == name)
    return made


def considered(made: JobDecision, action: RecoveryAction) -> ConsideredAction:
    """The reason given for an action that was not taken."""
    (found,) = (each for each in made.considered if each.action is action)
    return found


@pytest.mark.parametrize("gpus", [2, 8])
def test_one_node_lost_takes_the_spare_of_its_leaf_and_moves_its_ranks_alone(gpus: int) -> None:
    """Scenario 1: of spares on two leaves the near one is taken, and only the ranks of the lost node move."""
    whole = cluster(10, leaf_nodes=5, gpus=gpus)
    problem = replan(
        after(whole, failed=["n01"]),
        [job("one", whole, names(whole, 0, 4), tensor=2, recovery=SAME_SHAPE)],
        spares=["n07", "n04"],
    )
    decision = decided(problem)
    made = of_job(decision, "one")
    assert made.action is RecoveryAction.SWAP
    assert decision.spares_used == ("n04",)
    assert decision.spares_left == ("n07",)
    assert {moved.to_node for moved in made.migration.moved} == {"n04"}
    assert len(made.migration.moved) == gpus
    assert "n01" in reason_of(made)
    assert "n04" in reason_of(made)
    assert decision.gap <= 0.01
    assert considered(made, RecoveryAction.SHRINK_DATA_PARALLEL).value_flop is not None


def test_leaf_of_four_jobs_shares_its_spares_as_the_best_assignment_does() -> None:
    """Scenario 2: no way to hand two spares to two of four jobs is worth more, the others shrinking or pausing."""
    problem = four_jobs(recovery=SAME_SHAPE)
    decision = decided(problem)
    best = best_handing_out(problem)
    assert decision.objective >= best * (1 - 1e-9)
    assert decision.bound >= best
    assert decision.gap <= 0.01
    assert set(decision.spares_used) == {"n16", "n17"}
    assert of_job(decision, "j3").action is RecoveryAction.SWAP


def best_handing_out(problem: ReplanProblem) -> float:
    """The best of all ways to give each spare to a job, every job doing the best it can with its own."""
    jobs = touched(problem).hit
    worth: dict[tuple[str, frozenset[str]], float] = {}

    def value(asked: RunningJob, spares: frozenset[str]) -> float:
        key = (asked.id, spares)
        if key not in worth:
            site = columns_of(problem, asked, Touched(hit=(asked,))).views[0].site
            answers = [actions.swap(site, sorted(spares)), actions.shrink(site), actions.pause(site)]
            worth[key] = max(made.value_flop or 0.0 for made in answers)
        return worth[key]

    return max(
        sum(
            value(asked, frozenset(s for s, taker in zip(problem.spares, takers, strict=True) if taker == asked.id))
            for asked in jobs
        )
        for takers in product([asked.id for asked in jobs], repeat=len(problem.spares))
    )


def test_lost_tray_is_replaced_inside_its_nvlink_domain() -> None:
    """Scenario 3: tensor groups of two trays go on with a tray of their rack, not with one of another."""
    trays = [host(f"t{i}", domain=f"rack-{i // 6}", gpus=4, cards=4, leaf=f"rack-{i // 6}") for i in range(12)]
    whole = ClusterSnapshot("racks", cluster_of(trays), ())
    running = job("wide", whole, names(whole, 0, 4), tensor=8, recovery=SAME_SHAPE)
    decision = decided(replan(after(whole, failed=["t1"]), [running], spares=["t8", "t9", "t4", "t5"]))
    made = of_job(decision, "wide")
    assert made.action is RecoveryAction.SWAP
    assert set(decision.spares_used) <= {"t4", "t5"}


def test_job_that_lost_all_its_nodes_starts_elsewhere_from_its_checkpoint() -> None:
    """Scenario 4: a whole rack is gone with all that the job held; it goes on on four spares of another."""
    whole = cluster(12)
    running = job("gone", whole, names(whole, 0, 4), tensor=2, recovery=SAME_SHAPE)
    decision = decided(replan(after(whole, failed=names(whole, 0, 4)), [running]))
    made = of_job(decision, "gone")
    assert made.action is RecoveryAction.SWAP
    assert len(decision.spares_used) == 4
    assert made.migration.steps_lost == sum(running.recovery.repeated_steps(from_storage=False)) / 2
    assert made.migration.bytes.storage > 0


@pytest.mark.parametrize(("horizon_s", "moves"), [(6 * 3600.0, True), (60.0, False)])
def test_slow_node_is_left_only_where_the_horizon_pays_for_it(horizon_s: float, moves: bool) -> None:
    """Scenario 7, for a node: leaving pays over hours; nobody moves for what is lost in a minute."""
    whole = cluster(6, leaf_nodes=6)
    running = job("slow", whole, names(whole, 0, 4), tensor=2, recovery=SAME_SHAPE)
    problem = replan(after(whole, slow={"n02": 1.8}), [running], spares=["n05"], horizon_s=horizon_s)
    made = of_job(decided(problem), "slow")
    assert made.action is (RecoveryAction.SWAP if moves else RecoveryAction.NONE)
    assert bool(made.migration.moved) is moves
    if moves:
        assert made.tokens_per_s_after == pytest.approx(made.tokens_per_s_before, rel=0.01)


def test_slow_link_is_left_by_one_of_its_ends() -> None:
    """Scenario 7, for a link at a tenth of its speed: one end goes to a spare, and both stay usable."""
    whole = cluster(6, leaf_nodes=6)
    running = job("linked", whole, names(whole, 0, 4), tensor=2, recovery=SAME_SHAPE)
    slow = replace(whole, link_shares=(LinkShare("n01", "n02", 0.1),))
    made = of_job(decided(replan(slow, [running])), "linked")
    assert made.action is RecoveryAction.SWAP
    assert made.plan is not None
    assert not {"n01", "n02"} <= set(made.plan.placement.hosts)


def test_link_that_lost_little_changes_nothing() -> None:
    """A link at 99 %: nobody is asked, everything runs on."""
    whole = cluster(6, leaf_nodes=6)
    running = job("linked", whole, names(whole, 0, 4), tensor=2)
    decision = decided(replan(replace(whole, link_shares=(LinkShare("n01", "n02", 0.99),)), [running]))
    assert decision.jobs == ()
    assert decision.untouched == (running.id,)
    assert decision.stopped_by is StopReason.PROVEN


def test_experts_with_one_copy_fall_back_to_the_checkpoint() -> None:
    """Scenario 10: with each expert on one node the job repeats steps; with copies of all state it does not."""
    whole = cluster(6, leaf_nodes=6)
    once = RecoveryPolicy(may_reshape=False, steps_since_checkpoint=40)
    running = job("experts", whole, names(whole, 0, 4), model=SPARSE, tensor=2, expert=4, recovery=once)
    after_loss = after(whole, failed=["n01"])
    made = of_job(decided(replan(after_loss, [running])), "experts")
    assert made.migration.steps_lost == 40
    assert made.migration.state_without_copy_bytes > 0
    kept = replace(running, recovery=replace(once, memory_checkpoint=True))
    assert of_job(decided(replan(after_loss, [kept])), "experts").value_flop > made.value_flop


def test_no_legal_size_pauses_with_the_reason() -> None:
    """Scenario 11: no size of data parallelism divides the batch, no spare is left, and the sentence says so."""
    whole = cluster(5, leaf_nodes=5)
    running = job("odd", whole, names(whole), tensor=2, batch=25, recovery=replace(SAME_SHAPE, least_gpus=4))
    decision = decided(replan(after(whole, failed=["n03"]), [running], spares=[]))
    made = of_job(decision, "odd")
    assert made.action in {RecoveryAction.PAUSE, RecoveryAction.WAIT}
    assert made.plan is None
    assert "25" in objection(considered(made, RecoveryAction.SHRINK_DATA_PARALLEL))
    assert "n03" in reason_of(made)


def test_cheapest_job_pauses_for_the_others_when_spares_are_gone() -> None:
    """Scenario 12: three jobs lost a node, there is no spare: the cheapest gives its nodes to the others."""
    problem = four_jobs(failed=["n00", "n04", "n08"], spares=0, recovery=WHOLE)
    decision = decided(problem)
    assert of_job(decision, "j0").action in {RecoveryAction.PAUSE, RecoveryAction.WAIT}
    for name in ("j1", "j2"):
        made = of_job(decision, name)
        assert made.action is RecoveryAction.SWAP
        assert made.plan is not None
        assert set(made.plan.placement.hosts) & {"n01", "n02", "n03"}
    assert decision.untouched == ("job-j3",)
    assert "j1" in reason_of(of_job(decision, "j0"))
    assert "j2" in reason_of(of_job(decision, "j0"))


def test_node_that_failed_three_times_is_advised_against_and_a_suspicion_moves_nothing() -> None:
    """Scenarios 6 and 13: repeat offenders are named; a node that may be well again keeps its ranks."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    states = [HealthState.FAILED, HealthState.RECOVERED] * 3
    events = tuple(
        HealthEvent(Entity(EntityKind.NODE, "n01"), state, start + timedelta(hours=hour), "test", f"e{hour}")
        for hour, state in enumerate(states)
    )
    whole = cluster(6, leaf_nodes=6)
    running = job("calm", whole, names(whole, 0, 4), tensor=2)
    seen = replace(
        whole,
        cluster=replace(
            whole.cluster,
            nodes=tuple(
                replace(node, state=NodeState.UNKNOWN) if node.name == "n01" else node
                for node in whole.cluster.nodes
            ),
        ),
    )
    decision = decided(replan(seen, [running], events=events))
    assert decision.jobs == ()
    assert [advice.node for advice in decision.quarantine] == ["n01"]


def test_paused_job_comes_back_on_what_is_free_and_repeats_nothing() -> None:
    """Its own nodes but one are free again: it starts there, with a spare for the one, from where it ended."""
    whole = cluster(6, leaf_nodes=6)
    paused = replace(job("back", whole, names(whole, 0, 4), tensor=2, recovery=SAME_SHAPE), is_paused=True)
    decision = decided(replan(after(whole, failed=["n02"]), [paused]))
    made = of_job(decision, "back")
    assert made.action is RecoveryAction.SWAP
    assert made.plan is not None
    assert {"n00", "n01", "n03"} < set(made.plan.placement.hosts)
    assert made.migration.steps_lost == 0
    assert made.tokens_per_s_before == 0


def test_job_that_wants_more_grows_on_spares_where_that_pays() -> None:
    """Half of what it wants: it takes the rest over hours, and stays as it is when only a minute is left."""
    whole = cluster(6, leaf_nodes=6)
    half = replace(job("half", whole, names(whole, 0, 2), tensor=1), wanted_gpus=8)
    made = of_job(decided(replan(whole, [half])), "half")
    assert made.plan is not None
    assert len(made.plan.placement.ranks) == 8
    assert made.tokens_per_s_after > made.tokens_per_s_before
    assert of_job(decided(replan(whole, [half], horizon_s=60.0)), "half").action is RecoveryAction.NONE


def test_job_that_wants_more_grows_before_anything_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where time goes for bounds alone it still takes back the replicas that spares leave room for."""
    monkeypatch.setattr(decide_module, "ROUNDS", 0)
    whole = cluster(6, leaf_nodes=6)
    half = replace(job("half", whole, names(whole, 0, 2), tensor=1), wanted_gpus=16)
    made = of_job(decided(replan(whole, [half])), "half")
    assert made.plan is not None
    assert len(made.plan.placement.ranks) == 12


def test_job_that_took_another_shape_grows_back() -> None:
    """A node fails and comes back: the shape in between narrows nothing of what the owner asked for."""
    whole = cluster(4)
    asked = job("one", whole, whole_names := names(whole), tensor=2, pipeline=4)
    smaller = of_job(decided(replan(after(whole, failed=["n01"]), [asked])), "one").plan
    assert smaller is not None
    assert len(smaller.placement.ranks) < 8
    assert smaller.workload == replace(asked.plan.workload, pinned=smaller.workload.pinned)
    again = of_job(decided(replan(whole, [replace(asked, plan=smaller, wanted_gpus=8)])), "one")
    assert again.plan is not None
    assert set(again.plan.placement.hosts) == set(whole_names)


@pytest.mark.parametrize(("price_s", "moves"), [(0.0, True), (1e6, False)])
def test_whole_job_gives_up_gpus_only_at_its_price(price_s: float, moves: bool) -> None:
    """A heavy job lost a node and no spare is left: a light one gives replicas up, unless that costs too much."""
    whole = cluster(8)
    light = replace(SAME_SHAPE, may_move=True, move_price_s=price_s)
    jobs = [
        job("heavy", whole, names(whole, 0, 4), tensor=2, weight=10.0, recovery=WHOLE),
        job("light", whole, names(whole, 4, 4), tensor=2, recovery=light),
    ]
    decision = decided(replan(after(whole, failed=["n00"]), jobs))
    heavy, other = of_job(decision, "heavy"), of_job(decision, "light")
    assert heavy.action is RecoveryAction.SWAP
    # dropping replicas moves no rank; where ranks move all the same, the price of a million seconds forbids it
    assert other.action in {RecoveryAction.SHRINK_DATA_PARALLEL, RecoveryAction.PAUSE}
    if not moves:
        assert not other.migration.moved


def test_budget_of_gpus_holds_for_all_jobs_together() -> None:
    """With 30 GPUs for four jobs of eight, none frozen, somebody goes without."""
    problem = replace(four_jobs(recovery=SAME_SHAPE, spares=4), gpu_budget=30)
    decision = decided(problem)
    held = sum(len(made.plan.placement.ranks) for made in decision.jobs if made.plan is not None)
    assert held <= 30
    assert of_job(decision, "j3").action is RecoveryAction.SWAP


def test_order_of_jobs_and_spares_does_not_matter() -> None:
    """The same decision for every order in which jobs and spares are listed."""
    problem = four_jobs(failed=["n00", "n04"], spares=2, recovery=SAME_SHAPE)
    first = decided(problem)
    for order in list(permutations(range(4)))[::7]:
        jobs = tuple(problem.jobs[index] for index in order)
        assert decided(replace(problem, jobs=jobs, spares=problem.spares[::-1])) == first


def test_search_of_other_shapes_closes_the_gap_and_repeats() -> None:
    """With free degrees the decision is proven, at least as good as with fixed ones, and the same again."""
    problem = four_jobs(spares=1, failed=["n00", "n04"])
    first = decided(problem)
    assert first.gap <= 0.01
    assert first == decided(problem)
    assert first.objective >= decided(four_jobs(spares=1, failed=["n00", "n04"], recovery=SAME_SHAPE)).objective


def test_stopped_search_has_a_feasible_answer() -> None:
    """Cancelled at once, or without any time, every job is decided all the same and the bound holds."""
    problem = four_jobs(recovery=SAME_SHAPE)
    cancelled = decide(problem, is_cancelled=lambda: True)
    assert check_decision(problem, cancelled) == ()
    hurried = decided(four_jobs(), ReplanOptions(time_limit_s=0.0))
    full = decided(four_jobs())
    assert hurried.stopped_by is StopReason.TIME_LIMIT
    assert hurried.bound >= full.objective


FAILURES = st.sets(st.sampled_from([f"n{index:02d}" for index in range(18)]), min_size=1, max_size=9)


@settings(max_examples=12)
@given(failed=FAILURES)
def test_every_answer_is_feasible_and_the_best_is_best(failed: Sequence[str]) -> None:
    """For any failures all three answers pass the checks, and none beats the bound of the decision."""
    problem = four_jobs(failed=failed, recovery=SAME_SHAPE)
    best, safe, plain = decided(problem), safe_answer(problem), first_come(problem)
    assert check_decision(problem, safe) == ()
    assert check_decision(problem, plain) == ()
    assert safe.fallback
    for other in (safe, plain):
        assert other.objective <= best.bound * (1 + 1e-9)
        assert other.objective <= best.objective + 0.01 * best.bound


def test_wrong_decisions_are_found() -> None:
    """A GPU given twice, a failed node, a job forgotten and a wrong sum each have their sentence."""
    problem = one_lost(recovery=SAME_SHAPE)
    decision = decided(problem)
    (made,) = decision.jobs
    assert made.plan is not None
    old = problem.jobs[0].plan
    wrong = {
        "lost": replace(decision, jobs=(replace(made, plan=old),)),
        "is not the sum": replace(decision, objective=2 * decision.objective),
        "is below the objective": replace(decision, bound=decision.objective / 2),
        "is decided 0 times": replace(decision, jobs=()),
        "Spares used": replace(decision, spares_used=()),
        "although it may not change": replace(
            decision,
            jobs=(replace(made, plan=replace(made.plan, workload=replace(old.workload, global_batch=96))),),
        ),
    }
    for sentence, changed in wrong.items():
        assert any(sentence in text for text in check_decision(problem, changed)), sentence
