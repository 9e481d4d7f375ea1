"""Plans replayed event by event: the same step, and every box of the timeline where the clock puts it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.training.frameworks import framework
from cluster_models.training.plan import Plan
from cluster_models.training.workload import Sharding
from solver.candidates import ORDER_CODES, RECOMPUTE_CODES, SHARDING_CODES
from solver.predict import predict
from solver.problem import PlanningProblem
from tests.solver.naive import NaiveStep
from tests.solver.problems import EXACT, SPARSE, candidate, nodes, planned, problem
from tests.solver.replay import Replay
from tests.solver.test_search import ONE_EACH, measured

LINKS = "5 40 20 10 8 20"
CASES: Mapping[str, PlanningProblem] = {
    "replicas": problem(nodes(4, gpus=1), measured(4, LINKS, 1), pinned={"pipeline": 2, "data": 2}),
    "replicas, one node slow": problem(
        nodes(4, gpus=1, slowdown={"n2": 1.3}), measured(4, LINKS, 1), pinned={"pipeline": 2, "data": 2}
    ),
    "interleaved": problem(
        nodes(4, gpus=1), measured(4, LINKS, 1), pinned={"pipeline": 2, "data": 2, "virtual_pipeline": 2}
    ),
    "interleaved, all warm-up": problem(
        nodes(4, gpus=1),
        measured(4, LINKS, 1),
        pinned={"pipeline": 2, "data": 2, "virtual_pipeline": 4, "micro_batch": 2},
    ),
    "interleaved over shared nodes": problem(
        nodes(3, gpus=2),
        measured(3, "4 20 40", 2),
        pinned={"tensor": 1, "pipeline": 2, "data": 3, "virtual_pipeline": 2},
        global_batch=12,
        forbidden=ONE_EACH,
    ),
    "waiting for sends": problem(
        nodes(4, gpus=1),
        measured(4, LINKS, 1),
        pinned={"pipeline": 2, "data": 2},
        framework=framework("megatron-lm-3"),
    ),
    "interleaved, waiting": problem(
        nodes(4, gpus=1),
        measured(4, LINKS, 1),
        pinned={"pipeline": 4, "virtual_pipeline": 2},
        framework=framework("megatron-lm-3"),
    ),
    "experts": problem(
        nodes(4, gpus=1),
        measured(4, LINKS, 1),
        model=SPARSE,
        pinned={"pipeline": 2, "expert": 2},
        sharding=(Sharding.NONE,),
        forbidden=ONE_EACH,
    ),
}


def replayed(plan: Plan, asked: PlanningProblem) -> Replay:
    """The replay of a plan from its configuration and its hosts."""
    chosen = plan.configuration
    made = candidate(
        asked,
        **{name: getattr(chosen.degrees, name) for name in chosen.degrees.__slots__},
        micro_batch=chosen.micro_batch,
        recompute=RECOMPUTE_CODES.index(chosen.recompute),
        sharding=SHARDING_CODES.index(chosen.sharding),
        rank_order=ORDER_CODES.index(chosen.rank_order),
    )
    return Replay(NaiveStep(made), [made.fabric.names.index(host) for host in plan.placement.hosts])


def check(plan: Plan, asked: PlanningProblem) -> None:
    """The step and every forward, backward and reduction of the timeline are those of the replay."""
    replay, degrees = replayed(plan, asked), plan.configuration.degrees
    assert replay.step_s == pytest.approx(plan.time.step_s, rel=1e-9)
    expected = {}
    (replica,) = {box.replica for box in plan.timeline}
    for (owner, (kind, chunk, micro)), run in replay.runs.items():
        virtual, stage = divmod(chunk, degrees.pipeline)
        which = f" of virtual stage {virtual}" if degrees.virtual_pipeline > 1 else ""
        if owner == replica:
            expected[f"{'forward' if kind == 'F' else 'backward'} {micro}{which}", stage] = run
    for stage, (start, seconds) in enumerate(replay.reduced):
        if seconds > 0:
            expected["gradient reduction", stage] = (start, seconds)
    shown = {
        (box.name, box.track): (box.start_s, box.duration_s)
        for box in plan.timeline
        if box.category in {"forward", "backward", "reduce"}
    }
    assert shown.keys() == expected.keys()
    for box, times in shown.items():
        assert times == pytest.approx(expected[box], rel=1e-9, abs=1e-9 * plan.time.step_s), box
    assert max(box.start_s + box.duration_s for box in plan.timeline) == pytest.approx(plan.time.step_s, rel=1e-9)


@cache
def plan_of(case: str) -> Plan:
    """The proven plan of a case."""
    return planned(CASES[case], EXACT)


@pytest.mark.parametrize("case", CASES)
def test_a_plan_runs_as_its_timeline_says(case: str) -> None:
    """1F1B and interleaved, several replicas, ranks that wait for their sends, nodes that stages share."""
    check(plan_of(case), CASES[case])


@given(st.sampled_from(sorted(CASES)), st.permutations(range(4)))
@settings(max_examples=12)
def test_a_plan_on_other_hosts_runs_as_predicted(case: str, order: list[int]) -> None:
    """The hosts of a plan in another order may be worse, but run no less as predicted."""
    plan, asked = plan_of(case), CASES[case]
    hosts = [plan.placement.hosts[index] for index in order if index < len(plan.placement.hosts)]
    check(predict(asked, plan.configuration, hosts=hosts), asked)
