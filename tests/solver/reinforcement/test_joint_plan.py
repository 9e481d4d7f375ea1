"""The choice between all ways to share nodes out, against each of them planned."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from cluster_models.errors import InvalidInput, SolverFailed
from cluster_models.reinforcement.plan import NoReinforcementPlan, ReinforcementPlan, SplitEnd, StepParts
from cluster_models.reinforcement.workload import Arrangement
from cluster_models.remarks import remark
from cluster_models.serving.engines import serving_engine
from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.refusal import NoServingPlan
from cluster_models.serving.workload import Worker
from cluster_models.training.plan import NoPlan, Plan, StopReason
from cluster_models.training.roles import Roles
from solver import search
from solver.check.reinforcement import check_reinforcement
from solver.reinforcement import plan as joint
from solver.reinforcement import rollout
from solver.reinforcement.parts import (
    least_training_s,
    served_policy,
    serving_problem,
    training_problem,
    update_beside,
)
from solver.reinforcement.plan import plan_reinforcement
from solver.reinforcement.problem import ReinforcementProblem
from solver.reinforcement.rollout import drawn_batch, simulated
from solver.reinforcement.weights import broadcast, offload_s, resharding, shared_memory
from solver.serving.plan import plan_serving
from solver.serving.problem import ServingProblem
from tests.cluster_models.clusters import snapshot
from tests.solver.problems import nodes as hosts
from tests.solver.reinforcement.cases import QUICK, problem, trained_with

WORKERS = (Worker(1), Worker(2))
Key = tuple[Arrangement, int, bool]


def best_rollout(
    asked: ReinforcementProblem, nodes: list[str], fraction: float | None
) -> tuple[float, ServingPlan]:
    """The shortest rollout on nodes over all shapes, each planned by itself."""
    served, found = served_policy(asked, fraction), []
    for worker in WORKERS:
        if worker.gpus <= asked.gpus_per_node * len(nodes):
            made = plan_serving(serving_problem(asked, served, nodes, worker), QUICK)
            assert isinstance(made, ServingPlan)
            found.append((simulated(asked, made, drawn_batch(asked.workload)).finish_s, made))
    return min(found, key=lambda each: each[0])


def every_split(asked: ReinforcementProblem) -> dict[Key, tuple[float, float, float]]:
    """Rollout, training and what passes between them, of every split, planned part by part without bounds."""
    found = {}
    every, updates = len(asked.nodes), asked.workload.optimizer_steps
    for nodes in range(1, every):
        training = search.plan(training_problem(asked, nodes), QUICK)
        assert isinstance(training, Plan)
        rest = [node.name for node in asked.nodes if node.name not in training.placement.hosts]
        rollout_s, serving = best_rollout(asked, rest, None)
        moved_s = broadcast(asked, training, serving).seconds
        found[Arrangement.SEPARATE, nodes, False] = rollout_s, updates * training.time.step_s, moved_s
    update = update_beside(asked, asked.workload.rollout.engine.reserved_bytes)
    training = search.plan(training_problem(asked, every, update), QUICK)
    assert isinstance(training, Plan)
    hosts = list(dict.fromkeys(training.placement.hosts))
    for offloads in (False, True):
        memory = shared_memory(asked, training, offloads=offloads)
        assert memory is not None
        rollout_s, _ = best_rollout(asked, hosts, memory.engine_fraction)
        moved_s = resharding(asked, training).seconds + offload_s(asked, training, memory)
        found[Arrangement.COLOCATED, every, offloads] = rollout_s, updates * training.time.step_s, moved_s
    return found


def test_the_plan_is_the_best_of_all_splits() -> None:
    """Brute force over splits and shapes; no bound lies above its split.  In turns and a step apart.

    PPO: two updates, two epochs and a critic are eight optimizer steps.
    """
    asked = problem(3, roles=Roles(critic=True, epochs=2), pinned={"pipeline": 1})
    asked = trained_with(asked, context=1, tensor=1)
    assert asked.workload.optimizer_steps == 8
    parts = every_split(asked)
    for staleness in (0, 1):
        steps = {
            key: (max(one, two) if staleness and key[0] is Arrangement.SEPARATE else one + two) + moved
            for key, (one, two, moved) in parts.items()
        }
        asked = replace(asked, workload=replace(asked.workload, staleness=staleness))
        found = plan_reinforcement(asked, QUICK)
        assert isinstance(found, ReinforcementPlan)
        assert check_reinforcement(found, asked) == ()
        assert found.parts.step_s == pytest.approx(min(steps.values()), rel=1e-6)
        assert {(split.arrangement, split.training_nodes, split.offloads) for split in found.splits} == set(steps)
        for split in found.splits:
            assert split.bound_s is not None
            assert split.bound_s <= steps[split.arrangement, split.training_nodes, split.offloads] * (1 + 1e-9)
        assert found.certificate.gap < 0.05


def test_generating_and_learning_at_once_takes_the_longer_of_both() -> None:
    """A simulation of two parts that hand over batches and weights, against the formula of the step."""
    for rollout_s, training_s, weights_s in ((5.0, 3.0, 0.5), (3.0, 5.0, 0.5)):
        for is_overlapped in (False, True):
            parts = StepParts(rollout_s, training_s, weights_s, 0.0, is_overlapped)
            assert parts.step_s == pytest.approx(steady_period_s(parts))


def steady_period_s(parts: StepParts) -> float:
    """Seconds between the ends of two late updates.

    A batch is generated once the weights have arrived that may be a step old where both overlap: those of the
    update before the last.
    """
    updated, generated, ends = [0.0], [0.0], [0.0]
    for step in range(1, 12):
        wanted = step - (2 if parts.is_overlapped else 1)
        # sending starts when those weights are there and the engine has ended its batch, and both parts take part
        ready = max(updated[max(wanted, 0)], generated[step - 1])
        busy = ends[-1] if parts.is_overlapped else 0.0
        sent = max(ready, busy) + parts.weights_s
        generated.append(sent + parts.rollout_s)
        previous = step - 1 if parts.is_overlapped else step
        if previous >= 1:
            start = max(sent if parts.is_overlapped else 0.0, generated[previous], ends[-1])
            ends.append(start + parts.training_s)
            updated.append(ends[-1])
    return ends[-1] - ends[-2]


def test_what_cannot_be_is_refused() -> None:
    """Fields as users write them."""
    for changes, field in (
        ({"avoid_nodes": ("n9",)}, "workload.avoid_nodes"),
        ({"avoid_nodes": ("n0", "n1"), "arrangements": (Arrangement.SEPARATE,)}, "workload.arrangements"),
        ({"avoid_nodes": ("n0", "n1", "n2")}, "cluster"),
        ({"pinned": {"tensor": 3}}, "workload.rollout.pinned"),
    ):
        with pytest.raises(InvalidInput) as caught:
            plan_reinforcement(problem(3, **changes), QUICK)
        assert caught.value.field.startswith(field)


def test_nothing_fits_is_an_answer() -> None:
    """A memory that must stay free altogether leaves no split, each with the part that does not fit."""
    found = plan_reinforcement(problem(2, memory_headroom=0.98), QUICK)
    assert isinstance(found, NoReinforcementPlan)
    assert {split.end for split in found.splits} == {SplitEnd.NO_TRAINING}


def test_the_check_finds_what_does_not_follow() -> None:
    """One changed figure or node at a time."""
    asked = problem(2, arrangements=(Arrangement.COLOCATED,))
    found = plan_reinforcement(asked, QUICK)
    assert isinstance(found, ReinforcementPlan)
    assert found.memory is not None
    broken = (
        replace(found, arrangement=Arrangement.SEPARATE),
        replace(found, parts=replace(found.parts, rollout_s=found.parts.rollout_s / 2)),
        replace(found, memory=replace(found.memory, engine_fraction=1.0)),
        replace(found, certificate=replace(found.certificate, bound_s=0.0)),
        replace(found, splits=found.splits[:1]),
        replace(found, weights=replace(found.weights, weight_bytes=1.0)),
    )
    assert all(check_reinforcement(each, asked) for each in broken)
    avoided = replace(asked, workload=replace(asked.workload, avoid_nodes=(found.training_nodes[0],)))
    assert any("may use" in each for each in check_reinforcement(found, avoided))


def test_engines_that_cannot_share_a_gpu_are_kept_apart() -> None:
    """TensorRT-LLM's share is of free memory, which a sleeping trainer does not leave it."""
    asked = problem(2)
    served = replace(asked.workload.rollout, engine=serving_engine("trtllm-1.2"))
    apart = replace(asked, workload=replace(asked.workload, rollout=served))
    assert apart.arrangements == (Arrangement.SEPARATE,)


def test_gpus_of_several_kinds_are_bounded_together() -> None:
    """A pipeline over an H100 and an A100 node: the curve has both nodes, and the plan there is no faster."""
    unlike = hosts(1)[0], hosts(2, gpu="A100-SXM4-80GB")[1]
    asked = trained_with(problem(2, arrangements=(Arrangement.COLOCATED,)), tensor=2, pipeline=2)
    asked = replace(asked, snapshot=snapshot(unlike, asked.snapshot.samples))
    curve = least_training_s(asked)
    assert list(curve) == [2]
    late = least_training_s(asked, is_time_up=lambda: True)
    assert list(late) == [2]
    assert 0 < late[2] <= curve[2]
    found = plan_reinforcement(asked, QUICK)
    assert isinstance(found, ReinforcementPlan)
    assert check_reinforcement(found, asked) == ()
    assert curve[2] <= found.parts.training_s


def test_what_is_not_planned_in_time_is_not_said_not_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches of the engine that end without a plan leave their split open, in the bound and in the end."""
    asked = problem(2, staleness=1)
    plan_one = rollout.plan_serving

    def late(*given: Any, **named: Any) -> ServingPlan | NoServingPlan:
        if given[0].models[0].workload.memory_fraction is None:  # on nodes of its own
            raise SolverFailed("no serving plan was seen")
        return plan_one(*given, **named)

    monkeypatch.setattr(rollout, "plan_serving", late)
    found = plan_reinforcement(asked, QUICK)
    assert isinstance(found, ReinforcementPlan)
    assert found.arrangement is Arrangement.COLOCATED
    apart = next(split for split in found.splits if split.arrangement is Arrangement.SEPARATE)
    assert apart.end is SplitEnd.NOT_REACHED
    assert found.certificate.stopped_by is StopReason.TIME_LIMIT
    assert apart.bound_s is not None
    assert found.certificate.bound_s <= apart.bound_s
    with pytest.raises(SolverFailed, match="before any split was planned"):
        plan_reinforcement(problem(2, arrangements=(Arrangement.SEPARATE,)), QUICK)


def test_trainers_that_were_not_found_in_time_are_not_said_not_to_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that no placement was found to keep may be kept by another."""
    made = plan_reinforcement(problem(2, arrangements=(Arrangement.SEPARATE,)), QUICK)
    for code, ended in (("rules_search_ended", pytest.raises(SolverFailed)), ("nothing_fits", nullcontext())):
        none = NoPlan((remark(code),), None, None, (), made.provenance)
        monkeypatch.setattr(search, "plan", lambda *_, none=none, **__: none)
        with ended:
            found = plan_reinforcement(problem(2, arrangements=(Arrangement.SEPARATE,)), QUICK)
            assert isinstance(found, NoReinforcementPlan)


def test_a_search_that_is_called_off_or_late_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a plan it says so: at once when it is called off, after its first split when time is up by then."""
    with pytest.raises(SolverFailed, match="before any split was planned"):
        plan_reinforcement(problem(2), QUICK, is_cancelled=lambda: True)
    tried: set[tuple[str, ...]] = set()

    def late(asked: ServingProblem, *_: Any, **__: Any) -> ServingPlan:
        tried.add(asked.goal.avoid_nodes)
        raise SolverFailed("no serving plan was seen")

    monkeypatch.setattr(joint, "LATE_S", -60.0)
    monkeypatch.setattr(rollout, "plan_serving", late)
    with pytest.raises(SolverFailed, match="before any split was planned"):
        plan_reinforcement(problem(3, arrangements=(Arrangement.SEPARATE,)), QUICK)
    assert len(tried) == 1


def test_no_step_bounds_a_split_on_which_the_trainer_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that fits only without an engine asleep beside it leaves the bound to splits of nodes apart."""
    asked = problem(2)
    no_plan = search.plan(training_problem(problem(2, memory_headroom=0.98), 2), QUICK)
    plan_one = search.plan

    def alone(given: Any, *others: Any, **named: Any) -> Plan | NoPlan:
        is_alone = given.workload.memory_headroom == asked.workload.training.memory_headroom
        return plan_one(given, *others, **named) if is_alone else no_plan

    monkeypatch.setattr(search, "plan", alone)
    found = plan_reinforcement(asked, QUICK)
    assert isinstance(found, ReinforcementPlan)
    ends = {split.arrangement: (split.end, split.bound_s is None) for split in found.splits}
    assert ends[Arrangement.COLOCATED] == (SplitEnd.NO_TRAINING, True)
    assert ends[Arrangement.SEPARATE] == (SplitEnd.CHOSEN, False)
