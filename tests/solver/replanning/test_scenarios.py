"""From reports to decisions: what happened to parts of a cluster, how it is then, and what is done about it.

Nodes of eight GPUs, four to a leaf, and a rack of trays; ``tests.app.services.test_scenarios`` has what
services decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.presentation.decision_reasons import objection, reason_of
from benchmarks.first_come import first_come
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.health.conditions import conditions_of
from cluster_models.health.degraded import degraded
from cluster_models.health.events import Entity, EntityKind, HealthEvent, HealthState
from cluster_models.jobs.recovery import BatchDecision, JobDecision, RecoveryAction, StateSource
from cluster_models.jobs.running import RecoveryPolicy, RunningJob
from solver.replanning.check import check_decision, held_after
from solver.replanning.decide import decide, safe_answer
from solver.replanning.problem import ReplanProblem
from tests.cluster_models.clusters import cluster_of, host
from tests.solver.problems import SPARSE
from tests.solver.replanning.samples import SAME_SHAPE, cluster, job, names

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def told(
    part: str,
    state: HealthState = HealthState.FAILED,
    *,
    kind: EntityKind = EntityKind.NODE,
    of: str = "",
    at: datetime = NOW,
    share: float = 0.0,
) -> HealthEvent:
    """A report about a node or switch ``part``, or about a part of the node ``of``."""
    entity = Entity(kind, part) if kind is EntityKind.NODE else Entity(kind, of, part)
    return HealthEvent(entity, state, at, "watch", f"{entity} {state} {at:%M:%S}", bandwidth_share=share)


def problem(
    whole: ClusterSnapshot,
    jobs: Sequence[RunningJob],
    events: Sequence[HealthEvent],
    *,
    spares: Sequence[str] | None = None,
    horizon_s: float = 6 * 3600.0,
) -> ReplanProblem:
    """The cluster as the reports leave it a minute later; every node of no job is a spare where none are named."""
    snapshot = degraded(whole, conditions_of(events, now=NOW + MINUTE))
    held = {name for each in jobs for name in each.nodes}
    others = tuple(node.name for node in whole.cluster.nodes if node.name not in held)
    return ReplanProblem(
        snapshot, tuple(jobs), others if spares is None else tuple(spares), horizon_s, events=tuple(events)
    )


def decided(asked: ReplanProblem) -> BatchDecision:
    """The decision, after every check, and no worse than first come, first served."""
    decision = decide(asked)
    assert check_decision(asked, decision) == ()
    greedy = first_come(asked)
    same = {made.job_id for made in decision.jobs} == {made.job_id for made in greedy.jobs}
    assert not same or decision.objective >= greedy.objective * (1 - 1e-9)
    return decision


def of_job(decision: BatchDecision, name: str) -> JobDecision:
    """The decision about a job."""
    (made,) = (made for made in decision.jobs if made.job_name == name)
    return made


def test_one_node() -> None:
    """1: exactly its eight ranks move, to the spare of its leaf, and the job of the other leaf is left alone."""
    whole = cluster(10, leaf_nodes=4, gpus=8)
    jobs = [
        job(name, whole, names(whole, first, 3), tensor=8, recovery=SAME_SHAPE)
        for name, first in (("a", 0), ("b", 4))
    ]
    decision = decided(problem(whole, jobs, [told("n01")], spares=["n08", "n07", "n03"]))
    made = of_job(decision, "a")
    assert (made.action, decision.spares_used, decision.untouched) == (RecoveryAction.SWAP, ("n03",), ("job-b",))
    assert {(move.rank, move.from_node, move.to_node) for move in made.migration.moved} == {
        (rank, "n01", "n03") for rank in range(8, 16)
    }
    assert made.tokens_per_s_after == pytest.approx(made.tokens_per_s_before)


def test_leaf_switch() -> None:
    """2: a switch takes a node from each of four jobs; the lightest shrinks, what it frees mends another."""
    whole = cluster(18, leaf_nodes=4)
    jobs = [
        job(
            f"j{index}",
            whole,
            [f"n{index:02d}", *names(whole, 4 + 3 * index, 3)],
            weight=1.0 + index,
            tensor=2,
            pipeline=2,
            recovery=SAME_SHAPE,
        )
        for index in range(4)
    ]
    asked = problem(whole, jobs, [told("leaf:leaf-0", kind=EntityKind.SWITCH)])
    decision = decided(asked)
    assert len(decision.jobs) == 4
    assert decision.spares_used == ("n16", "n17")
    swapped = {made.job_name for made in decision.jobs if made.action is RecoveryAction.SWAP}
    assert swapped == {"j1", "j2", "j3"}
    assert of_job(decision, "j0").action is RecoveryAction.SHRINK_DATA_PARALLEL  # which frees a node for j1
    used = {node for gpus in held_after(asked, decision).values() for node, _ in gpus}
    assert not used & {"n00", "n01", "n02", "n03"}
    assert decision.objective > 1.05 * first_come(asked).objective


def _racks() -> tuple[ClusterSnapshot, RunningJob]:
    """Two racks of six trays of four GPUs in one NVLink domain each; tensor groups of the job span two trays."""
    trays = [host(f"t{i:02d}", domain=f"r{i // 6}", leaf=f"r{i // 6}", gpus=4, cards=4) for i in range(12)]
    whole = ClusterSnapshot("racks", cluster_of(trays), ())
    return whole, job("wide", whole, names(whole, 0, 4), tensor=8, recovery=SAME_SHAPE)


def test_one_tray() -> None:
    """3: a spare tray of the same NVLink domain takes over; a tray of the other rack could not."""
    whole, running = _racks()
    near = decided(problem(whole, [running], [told("t01")]))
    assert near.spares_used in (("t04",), ("t05",))
    assert of_job(near, "wide").migration.bytes.fabric == 0
    far = decided(problem(whole, [running], [told("t01")], spares=["t06"]))
    assert of_job(far, "wide").action is not RecoveryAction.SWAP


def test_whole_rack() -> None:
    """4: a report for each tray of a rack; the job starts in the other rack from the last checkpoint."""
    whole, running = _racks()
    decision = decided(problem(whole, [running], [told(f"t{i:02d}") for i in range(6)]))
    made = of_job(decision, "wide")
    assert made.plan is not None
    assert set(made.plan.placement.hosts) <= set(names(whole, 6))
    sources = {state.source for move in made.migration.moved for state in move.state}
    assert StateSource.CHECKPOINT in sources
    assert not sources & {StateSource.PEER, StateSource.SAME_GPU, StateSource.HOST_MEMORY}
    assert made.migration.steps_lost == sum(running.recovery.repeated_steps(from_storage=False)) / 2


def test_spot_wave() -> None:
    """5: six nodes of three jobs go within a minute: one decision, none of the gone nodes, better than greed."""
    whole = cluster(16)
    jobs = [
        job(f"j{index}", whole, names(whole, 4 * index, 4), weight=weight, tensor=2, recovery=SAME_SHAPE)
        for index, weight in enumerate((1.0, 2.0, 4.0))
    ]
    gone = ["n00", "n01", "n05", "n08", "n09", "n10"]
    asked = problem(whole, jobs, [told(name, at=NOW + place * MINUTE / 6) for place, name in enumerate(gone)])
    decision = decided(asked)
    assert len(decision.jobs) == 3
    assert not {node for gpus in held_after(asked, decision).values() for node, _ in gpus} & set(gone)
    assert decision.objective > first_come(asked).objective


@pytest.mark.parametrize(("horizon_s", "leaves"), [(6 * 3600.0, True), (60.0, False)])
def test_slow_link(*, horizon_s: float, leaves: bool) -> None:
    """7: a link at half its speed; its job leaves an end where hours pay for it, the other job is not asked."""
    whole = cluster(9, leaf_nodes=9)
    jobs = [job("a", whole, names(whole, 0, 4), recovery=SAME_SHAPE), job("b", whole, names(whole, 4, 4))]
    event = told("n01", HealthState.DEGRADED, kind=EntityKind.LINK, of="n00", share=0.5)
    decision = decided(problem(whole, jobs, [event], horizon_s=horizon_s))
    assert "job-b" in decision.untouched
    hosts = set(jobs[0].nodes)
    for made in decision.jobs:
        assert made.plan is not None
        hosts = set(made.plan.placement.hosts)
    assert ({"n00", "n01"} <= hosts) is not leaves


@pytest.mark.parametrize("survives", [False, True])
def test_network_card_that_fails_ends_its_job(*, survives: bool) -> None:
    """Stock NCCL ends the job: it starts again from its checkpoint, unless its communication goes on."""
    whole = cluster(4)
    policy = replace(SAME_SHAPE, survives_lost_card=survives)
    jobs = [job("a", whole, names(whole, 0, 2), recovery=policy), job("b", whole, names(whole, 2, 2))]
    asked = problem(whole, jobs, [told("mlx5_0", kind=EntityKind.NIC, of="n00")], spares=[])
    decision = decided(asked)
    assert "job-b" in decision.untouched
    made = next((made for made in decision.jobs if made.job_name == "a"), None)
    if survives:
        assert made is None or made.action is RecoveryAction.NONE
        return
    assert made is not None
    assert made.action is RecoveryAction.RESTART_IN_PLACE
    assert made.migration.steps_lost == sum(policy.repeated_steps(from_storage=False)) / 2
    assert made.migration.restart.high_s == policy.restart_high_s
    assert "a network card of n00 failed" in reason_of(made).lower()
    assert safe_answer(asked).jobs[0].action is RecoveryAction.RESTART_IN_PLACE


def test_experts_with_one_copy() -> None:
    """10: the plan says beforehand that it survives no node; the loss of one costs the steps since a checkpoint."""
    whole = cluster(6)
    policy = replace(SAME_SHAPE, checkpoint_interval_steps=80)
    running = job("experts", whole, names(whole, 0, 2), model=SPARSE, expert=4, recovery=policy)
    decision = decided(problem(whole, [running], [told("n01")]))
    made = of_job(decision, "experts")
    assert made.action is RecoveryAction.SWAP
    assert made.migration.steps_lost == 40
    assert made.migration.state_without_copy_bytes > 0
    (nodes,) = (each for each in made.survives if each.label == "node")
    assert nodes.count == 0


def test_no_legal_data_size() -> None:
    """11: of four replicas three are left, and 8 sequences do not divide by three, nor may the batch change."""
    whole = cluster(4)
    policy = replace(SAME_SHAPE, least_gpus=6)
    running = job("a", whole, names(whole), tensor=2, batch=8, recovery=policy)
    made = of_job(decided(problem(whole, [running], [told("n03")])), "a")
    assert made.action in {RecoveryAction.WAIT, RecoveryAction.PAUSE}
    (shrink,) = (each for each in made.considered if each.action is RecoveryAction.SHRINK_DATA_PARALLEL)
    assert "8" in objection(shrink)
    assert "divide" in objection(shrink)
    freed = replace(running, recovery=replace(policy, may_change_batch=True))
    made = of_job(decided(problem(whole, [freed], [told("n03")])), "a")
    assert made.plan is not None
    assert made.plan.configuration.degrees.data == 3


def test_no_spare_left() -> None:
    """12: three jobs that cannot shrink lost a node each: the cheapest pauses, and its nodes mend the others."""
    whole = cluster(12)
    policy = replace(RecoveryPolicy(may_reshape=False), least_gpus=8)
    jobs = [
        job(f"j{index}", whole, names(whole, 4 * index, 4), weight=weight, tensor=2, recovery=policy)
        for index, weight in enumerate((2.0, 1.0, 3.0))
    ]
    asked = problem(whole, jobs, [told("n00"), told("n04"), told("n08")])
    decision = decided(asked)
    assert {made.job_name: made.action for made in decision.jobs} == {
        "j0": RecoveryAction.SWAP,
        "j1": RecoveryAction.PAUSE,
        "j2": RecoveryAction.SWAP,
    }
    assert decision.spares_before == ()
    taken = held_after(asked, decision)
    assert {node for name in ("job-j0", "job-j2") for node, _ in taken[name]} - {"n01", "n02", "n03"} <= {
        f"n{index:02d}" for index in range(5, 12)
    }


def test_nodes_that_come_back() -> None:
    """A job that shrank with its batch grows to the size and the batch that it was meant to have."""
    whole = cluster(4)
    policy = RecoveryPolicy(may_change_batch=True)
    small = job("small", whole, names(whole, 0, 3), tensor=2, batch=36, recovery=policy)
    asked = problem(whole, [replace(small, wanted_gpus=8, wanted_batch=48)], [])
    made = of_job(decided(asked), "small")
    assert made.plan is not None
    assert made.plan.workload is not None
    assert (made.plan.configuration.degrees.gpus, made.plan.workload.global_batch) == (8, 48)


@pytest.mark.parametrize("grows", [False, True])
def test_first_come_gives_no_gpu_twice(*, grows: bool) -> None:
    """A paused job does not start where it ran before once a job before it in the list took a node of that."""
    whole = cluster(8)
    jobs = [
        job(name, whole, names(whole, first, 4), tensor=2, recovery=SAME_SHAPE)
        for name, first in (("a", 0), ("b", 4))
    ]
    paused = replace(jobs[1], is_paused=True)
    asked = problem(whole, [jobs[0], paused], [told("n01")], spares=names(whole, 4))
    decision = first_come(asked, grows=grows)
    assert check_decision(asked, decision) == ()
    assert of_job(decision, "a").action is RecoveryAction.SWAP
    assert of_job(decision, "b").action is RecoveryAction.PAUSE


def test_free_gpus_beside_a_job() -> None:
    """One of the two GPUs that a job has on each of its nodes is lost: a free one of that node is no theft."""
    whole = cluster(2, gpus=4)
    running = job("half", whole, names(whole), tensor=2, gpus_per_node=2, recovery=SAME_SHAPE)
    asked = problem(whole, [running], [told("1", kind=EntityKind.GPU, of="n00")], spares=())
    made = of_job(decided(asked), "half")
    assert made.action is RecoveryAction.SWAP
    assert [(move.to_node, move.from_gpu) for move in made.migration.moved] == [("n00", 1)]
