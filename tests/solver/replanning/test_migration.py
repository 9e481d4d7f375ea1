"""Migrations: against sets of cells, conserved, and by hand where failures.md gives the figure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.cluster.switches import Switch
from cluster_models.jobs.recovery import Migration, StateKind, StateSource
from cluster_models.jobs.running import InvalidRunningJob, RecoveryPolicy, RunningJob
from cluster_models.model.architecture import Architecture
from cluster_models.model.experts import Experts
from cluster_models.training.expert_slots import ExpertSlots
from cluster_models.training.plan import Configuration, Plan, RankOrder
from cluster_models.training.workload import Sharding
from solver.costs.training_state import states_of
from solver.replanning.migration import WARM_UP_STEPS, migration
from solver.replanning.problem import ReplanProblem
from tests.cluster_models.clusters import snapshot
from tests.solver.problems import DENSE, SPARSE, names
from tests.solver.replanning.moves import gpus_of, hosts_of, job_on, plan_on, replanning, shape
from tests.solver.replanning.naive_state import naive_migration

SMALL = replace(DENSE, layers=3)
EXPERTS = replace(SPARSE, layers=2, experts=Experts(count=4, active=2, hidden=256))


def moved(
    job: RunningJob, new: Plan, lost: frozenset[tuple[str, int]], *, nodes: int = 8, gpus: int = 8
) -> Migration:
    """The migration on a cluster of equal nodes."""
    return migration(job, new, problem=replanning(job, hosts_of(nodes, gpus=gpus)), lost=lost)


@st.composite
def shapes(draw: st.DrawFn, model: Architecture) -> Configuration:
    """Shapes on 2, 4 or 8 GPUs."""
    tensor, pipeline, context, data = draw(
        st.sampled_from(
            [(1, 1, 1, 2), (2, 1, 1, 2), (1, 2, 2, 1), (1, 3, 1, 2), (2, 2, 1, 2), (4, 1, 1, 2), (1, 1, 2, 3)]
        )
    )
    expert = expert_tensor = 1
    if model.experts is not None:
        members = tensor * context * data
        expert = draw(st.sampled_from([e for e in (1, 2) if members % e == 0]))
        expert_tensor = draw(st.sampled_from([t for t in (1, 2) if members % (expert * t) == 0]))
    return shape(
        model,
        sharding=draw(st.sampled_from(list(Sharding))),
        order=draw(st.sampled_from(list(RankOrder))),
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        data=data,
        expert=expert,
        expert_tensor=expert_tensor,
    )


@st.composite
def rerouted(draw: st.DrawFn, plan: Plan) -> Plan:
    """The plan whole, or without replicas on one of its stages, whose work the others do."""
    degrees = plan.configuration.degrees
    if degrees.expert_block > degrees.tensor * degrees.context or degrees.data == 1:
        return plan
    stage = draw(st.integers(0, degrees.pipeline - 1))
    lost = draw(st.sets(st.integers(0, degrees.data - 1), max_size=degrees.data - 1))
    ranks = [rank for rank in plan.placement.ranks if rank.pipeline != stage or rank.data not in lost]
    return replace(plan, placement=replace(plan.placement, ranks=tuple(ranks)))


@given(data=st.data(), model=st.sampled_from([SMALL, EXPERTS, replace(SMALL, tied_embeddings=True)]))
@settings(max_examples=30)
def test_bytes_are_those_of_cells_counted_one_by_one(data: st.DataObject, model: Architecture) -> None:
    """Any two shapes on any hosts with any losses, in all: nothing more moves than a rank's GPU lacks."""
    old, new = data.draw(shapes(model)), data.draw(shapes(model))
    hosts = names(8)
    first = data.draw(st.permutations(hosts))
    second = data.draw(st.permutations(hosts))
    job = job_on(first[: -(-old.degrees.gpus // 2)], old, gpus=2, model=model)
    job = replace(
        job, recovery=RecoveryPolicy(hands_over_state=True, optimizer_instances=data.draw(st.sampled_from([1, 2])))
    )
    plan = plan_on(second[: -(-new.degrees.gpus // 2)], new, gpus=2, model=model)
    if model.experts is not None and data.draw(st.booleans()):
        rows = ((2, 0, 3, 1), (0, 1, 2, 3))
        plan = replace(plan, expert_slots=ExpertSlots((0, 1), rows, 4, new.degrees.expert))
    job, plan = replace(job, plan=data.draw(rerouted(job.plan))), data.draw(rerouted(plan))
    lost = frozenset(data.draw(st.sets(st.tuples(st.sampled_from(hosts), st.sampled_from([0, 1])), max_size=2)))
    found = moved(job, plan, lost, gpus=2)
    expected = naive_migration(job, plan, lost)
    assert found.state_without_copy_bytes == pytest.approx(expected.gone)
    if expected.gone:
        assert found.bytes.storage == pytest.approx(states_of((plan,), job.recovery)[0].model_bytes)
        assert found.steps_lost == 50
    else:
        assert found.bytes.nvlink == pytest.approx(expected.inside)
        assert found.bytes.leaf == pytest.approx(expected.between)
        assert found.bytes.storage == found.steps_lost == 0


@given(data=st.data(), model=st.sampled_from([SMALL, EXPERTS]))
@settings(max_examples=20)
def test_what_a_moved_rank_gets_is_all_it_needs(data: st.DataObject, model: Architecture) -> None:
    """Kept and moved bytes add up to its state; the givers are alive and hold what they give."""
    old, new = data.draw(shapes(model)), data.draw(shapes(model))
    job = job_on(names(4)[: -(-old.degrees.gpus // 2)], old, gpus=2, model=model)
    plan = plan_on(("n3", "n4", "n5", "n6")[: -(-new.degrees.gpus // 2)], new, gpus=2, model=model)
    lost = data.draw(st.sampled_from([frozenset(), gpus_of("n0", gpus=2), frozenset({("n0", 1)})]))
    found = moved(job, plan, lost, gpus=2)
    (state,) = states_of((plan,), job.recovery)
    held = job.plan.placement.ranks
    for each in found.moved:
        assert sum(part.bytes for part in each.state) == pytest.approx(state.rank_bytes[each.rank])
        for part in each.state:
            is_stored = part.source is StateSource.CHECKPOINT
            assert (part.rank is None) == is_stored == (part.node == "") == (found.steps_lost > 0)
            if part.rank is not None:
                giver = held[part.rank]
                assert giver.node == part.node
                assert (giver.node, giver.gpu) not in lost
                assert (part.source is StateSource.SAME_NODE) == (
                    giver.node == each.to_node and giver.gpu != each.to_gpu
                )
    predecessors = [each.old_rank for each in found.moved if each.old_rank is not None]
    assert len(predecessors) == len(set(predecessors))


@pytest.mark.parametrize("sharding", list(Sharding))
def test_one_node_with_a_spare_moves_exactly_its_ranks(sharding: Sharding) -> None:
    """The eight coordinates of the lost node go to the spare, nothing else moves."""
    configuration = shape(tensor=8, pipeline=2, data=3, sharding=sharding)
    job = job_on(names(6), configuration)
    new = plan_on(("n0", "n1", "n6", "n3", "n4", "n5"), configuration)
    found = moved(job, new, gpus_of("n2"))
    assert [each.rank for each in found.moved] == list(range(16, 24))
    assert all((each.old_rank, each.from_node, each.to_node) == (each.rank, "n2", "n6") for each in found.moved)
    assert [each.to_gpu for each in found.moved] == list(range(8))
    assert found.recut_bytes == 0
    assert (found.steps_lost > 0) == (sharding is not Sharding.NONE)


def test_a_swap_copies_two_plus_twelve_bytes_of_each_parameter() -> None:
    """Without sharding a data replica has everything: 14 bytes for each of the lost ranks' parameters."""
    configuration = shape(tensor=8, data=2, sharding=Sharding.NONE)
    job = job_on(names(2), configuration)
    found = moved(job, plan_on(("n0", "n5"), configuration), gpus_of("n1"))
    norms = (2 * DENSE.layers + 1) * DENSE.hidden
    cut = DENSE.parameters() - norms
    assert found.bytes.leaf == pytest.approx(14 * (cut + 8 * norms))
    assert found.bytes.total == found.bytes.leaf
    kinds = {part.kind for each in found.moved for part in each.state}
    assert kinds == {StateKind.WEIGHTS, StateKind.OPTIMIZER}
    assert found.steps_lost == found.state_without_copy_bytes == 0


def test_dropping_a_replica_moves_nothing_without_sharding() -> None:
    """The ranks that are left hold all they need."""
    configuration = shape(tensor=8, data=4, sharding=Sharding.NONE)
    job = job_on(names(4), configuration)
    smaller = replace(configuration, degrees=replace(configuration.degrees, data=3))
    found = moved(job, plan_on(("n0", "n2", "n3"), smaller), gpus_of("n1"))
    assert found.moved == ()
    assert found.bytes.total == found.transfer.high_s == found.recut_bytes == 0


def test_dropping_a_replica_cuts_optimizer_shards_anew() -> None:
    """Four shards become three: the new thirds lack 1/12, 1/6 and 1/12 + ... of the parameters, by hand below.

    Old shards [0, 1/4) .. on n0..n3, new thirds on n0, n2, n3, all alive: n0 keeps 1/4 of 1/3; n2 had [1/2, 3/4)
    and needs [1/3, 2/3): keeps 1/6; n3 had [3/4, 1) and needs [2/3, 1): keeps 1/4.
    """
    configuration = shape(tensor=8, data=4)
    job = job_on(names(4), configuration)
    smaller = replace(configuration, degrees=replace(configuration.degrees, data=3))
    found = moved(job, plan_on(("n0", "n2", "n3"), smaller), frozenset())
    norms = (2 * DENSE.layers + 1) * DENSE.hidden
    optimizer = 12 * (DENSE.parameters() + 7 * norms)
    assert found.moved == ()
    assert found.recut_bytes == found.bytes.total == pytest.approx(optimizer * (1 - 1 / 4 - 1 / 6 - 1 / 4))
    assert found.steps_lost == 0


def test_a_lost_optimizer_shard_sends_the_job_back_to_its_checkpoint() -> None:
    """ZeRO-1 keeps each shard once: 12 bytes of a quarter of the parameters are gone."""
    configuration = shape(tensor=8, data=4)
    job = job_on(names(4), configuration, checkpoint_interval_steps=30, storage_bytes_per_s=1e9)
    found = moved(job, plan_on(("n0", "n6", "n2", "n3"), configuration), gpus_of("n1"))
    whole = DENSE.parameters()
    assert found.state_without_copy_bytes == pytest.approx(12 * whole / 4)
    assert found.bytes.storage == pytest.approx(14 * whole)
    assert found.transfer.low_s == pytest.approx(14 * whole / 1e9)
    assert found.steps_lost == 15
    assert found.downtime.high_s - found.downtime.low_s == pytest.approx(
        found.transfer.low_s + 150 + 30 + WARM_UP_STEPS[1] - WARM_UP_STEPS[0]
    )
    assert {part.source for each in found.moved for part in each.state} == {StateSource.CHECKPOINT}


def test_instances_of_the_optimizer_save_the_way_back() -> None:
    """With two instances every shard has another copy on another node."""
    configuration = shape(tensor=8, data=4)
    job = job_on(names(4), configuration, optimizer_instances=2)
    found = moved(job, plan_on(("n0", "n6", "n2", "n3"), configuration), gpus_of("n1"))
    assert found.steps_lost == 0
    assert {part.node for each in found.moved for part in each.state if part.kind is StateKind.OPTIMIZER} == {"n3"}


def test_memory_of_a_neighbour_stands_in_for_storage() -> None:
    """The host after the lost one has its checkpoint; the steps since are lost all the same."""
    configuration = shape(tensor=8, data=4)
    job = job_on(names(4), configuration, memory_checkpoint=True, steps_since_checkpoint=7)
    new = plan_on(("n0", "n6", "n2", "n3"), configuration)
    found = moved(job, new, gpus_of("n1"))
    assert found.bytes.storage == 0
    assert found.steps_lost == 7
    assert {
        (part.source, part.node) for each in found.moved for part in each.state if part.kind is StateKind.OPTIMIZER
    } == {(StateSource.HOST_MEMORY, "n2")}
    both = moved(job, plan_on(("n0", "n6", "n7", "n3"), configuration), gpus_of("n1", "n2"))
    assert both.bytes.storage > 0
    one_gpu = moved(job, new, frozenset({("n1", 3)}))
    assert one_gpu.bytes.storage == 0


def test_states_of_memory_and_storage_are_never_mixed() -> None:
    """A node and its neighbour lost: all of the state comes from storage, at the step that storage has."""
    configuration = shape(tensor=8, data=4)
    policy = RecoveryPolicy(memory_checkpoint=True, checkpoint_interval_steps=10, storage_interval_steps=500)
    job = replace(job_on(names(4), configuration), recovery=policy)
    new = plan_on(("n0", "n6", "n7", "n3"), configuration)
    found = moved(job, new, gpus_of("n1", "n2"))
    (state,) = states_of((new,), policy)
    assert found.bytes.storage == pytest.approx(state.model_bytes)
    assert found.bytes.leaf == found.bytes.fabric == found.bytes.nvlink == 0
    assert {part.source for each in found.moved for part in each.state} == {StateSource.CHECKPOINT}
    assert found.steps_lost == 250
    known = replace(policy, steps_since_checkpoint=4, steps_since_storage_checkpoint=344)
    assert moved(replace(job, recovery=known), new, gpus_of("n1", "n2")).steps_lost == 344
    one = moved(replace(job, recovery=known), plan_on(("n0", "n6", "n2", "n3"), configuration), gpus_of("n1"))
    assert (one.steps_lost, one.bytes.storage) == (4, 0)


@pytest.mark.parametrize(
    ("field", "policy"),
    [
        ("storage_interval_steps", {"storage_interval_steps": 99}),
        ("steps_since_storage_checkpoint", {"steps_since_checkpoint": 5, "steps_since_storage_checkpoint": 4}),
    ],
)
def test_storage_is_never_newer_than_memory(field: str, policy: dict[str, int]) -> None:
    """A checkpoint on storage lies in memory as well."""
    with pytest.raises(InvalidRunningJob, match=field):
        RecoveryPolicy(memory_checkpoint=True, **policy)


def test_experts_with_one_copy_are_lost_with_their_rank() -> None:
    """Expert data parallel size 1: weights and optimizer of one expert rank's experts are gone."""
    configuration = shape(SPARSE, data=4, expert=4, sharding=Sharding.NONE)
    job = job_on(names(4), configuration, gpus=1, model=SPARSE)
    found = moved(
        job, plan_on(("n0", "n1", "n2", "n5"), configuration, gpus=1, model=SPARSE), gpus_of("n3"), gpus=1
    )
    assert SPARSE.experts is not None
    assert found.state_without_copy_bytes == pytest.approx(14 * SPARSE.layers * SPARSE.expert_parameters())


def test_another_tensor_size_reslices_and_another_pipeline_size_moves_layers() -> None:
    """Every rank moves; from two stages to one the node that holds the first half gets the second."""
    job = job_on(names(2), shape(tensor=8, pipeline=2, sharding=Sharding.NONE))
    wider = moved(job, plan_on(names(2), shape(tensor=4, pipeline=4, sharding=Sharding.NONE)), frozenset())
    assert len(wider.moved) == 16
    joined = moved(job, plan_on(("n0",), shape(tensor=8, sharding=Sharding.NONE)), frozenset())
    assert len(joined.moved) == 8
    before = states_of((job.plan,), job.recovery)[0].rank_bytes
    assert joined.bytes.leaf == pytest.approx(before[8:].sum())
    kept = [part for part in joined.moved[0].state if part.source is StateSource.SAME_GPU]
    assert sum(part.bytes for part in kept) == pytest.approx(before[0])


def test_givers_share_the_work_and_the_way_up_of_a_leaf_limits() -> None:
    """Two spares ask different replicas; a narrow way out of the leaf makes the transfer longer."""
    configuration = shape(tensor=8, data=4, sharding=Sharding.NONE)
    job = job_on(names(4), configuration)
    new = plan_on(("n0", "n1", "n4", "n5"), configuration)
    lost = gpus_of("n2", "n3")
    nodes = hosts_of(6, per_leaf=4)
    plain = snapshot(nodes)
    problem = ReplanProblem(plain, (job,), ())
    found = migration(job, new, problem=problem, lost=lost)
    givers = {each.to_node: {part.node for part in each.state} for each in found.moved}
    assert sorted(map(sorted, givers.values())) == [["n0"], ["n1"]]
    assert found.bytes.fabric == found.bytes.total > 0
    narrow = replace(plain.cluster, switches=(Switch("leaf", uplink_bytes_per_s=1e9),))
    slower = migration(job, new, problem=ReplanProblem(replace(plain, cluster=narrow), (job,), ()), lost=lost)
    assert slower.transfer.low_s == pytest.approx(found.bytes.total / 1e9)
    assert slower.transfer.low_s > found.transfer.low_s


def test_a_gpu_that_lost_its_state_is_no_source_for_itself() -> None:
    """A node that comes back empty gets everything anew, on the GPUs it had."""
    configuration = shape(tensor=8, data=2, sharding=Sharding.NONE)
    job = job_on(names(2), configuration)
    found = moved(job, job.plan, gpus_of("n1"))
    assert [each.rank for each in found.moved] == list(range(8, 16))
    assert found.bytes.leaf > 0
    assert moved(job, job.plan, frozenset()).moved == ()


def test_a_paused_job_reads_its_checkpoint_and_repeats_nothing() -> None:
    """It ended at the checkpoint and left its GPUs, memory of nodes included."""
    configuration = shape(tensor=8, data=2, sharding=Sharding.NONE)
    job = replace(job_on(names(2), configuration, memory_checkpoint=True), is_paused=True)
    found = moved(job, job.plan, frozenset())
    assert found.bytes.storage == found.bytes.total == pytest.approx(14 * DENSE.parameters())
    assert found.steps_lost == 0
    assert found.downtime.high_s == pytest.approx(
        found.transfer.high_s + found.restart.high_s + found.warm_up.high_s
    )
