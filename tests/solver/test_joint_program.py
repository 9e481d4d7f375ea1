"""One integer program over degrees and placement together, of its own making, finds what the planner finds."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cluster_models.training.frameworks import framework
from cluster_models.training.workload import Objective, Sharding
from solver.problem import PlanningProblem
from tests.solver.joint_program import joint_optimum
from tests.solver.naive import NaiveStep, fitting_candidates
from tests.solver.problems import EXACT, SPARSE, nodes, planned, problem
from tests.solver.test_search import ONE_EACH, measured

CASES: Mapping[str, PlanningProblem] = {
    "two nodes of two": problem(nodes(2, gpus=2), measured(2, "5", 2), global_batch=2, forbidden=ONE_EACH),
    "three nodes, one slow": problem(
        nodes(3, gpus=1, slowdown={"n1": 1.3}), measured(3, "5 40 20", 1), global_batch=6, forbidden=ONE_EACH
    ),
    "three nodes of two": problem(
        nodes(3, gpus=2), measured(3, "3 20 40", 2), global_batch=3, forbidden=ONE_EACH, pinned={"tensor": 1}
    ),
    "four nodes": problem(
        nodes(4, gpus=1),
        measured(4, "5 40 20 10 8 20", 1),
        global_batch=2,
        forbidden=ONE_EACH,
        pinned={"tensor": 1},
    ),
    "four nodes, interleaved": problem(
        nodes(4, gpus=1),
        measured(4, "5 40 20 10 8 20", 1),
        global_batch=4,
        pinned={"virtual_pipeline": 2, "tensor": 1},
    ),
    "waiting for sends": problem(
        nodes(3, gpus=1),
        measured(3, "5 8 3", 1),
        global_batch=4,
        forbidden=ONE_EACH,
        framework=framework("megatron-lm-3"),
    ),
    "experts over nodes": problem(
        nodes(3, gpus=2, slowdown={"n0": 1.2}),
        measured(3, "4 20 40", 2),
        model=SPARSE,
        global_batch=6,
        forbidden=ONE_EACH,
        pinned={"tensor": 1},
    ),
    "context over nodes": problem(
        nodes(4, gpus=1), measured(4, "5 40 20 10 8 20", 1), global_batch=2, pinned={"context": 2}
    ),
    "parameters sharded": problem(
        nodes(3, gpus=2), measured(3, "4 20 40", 2), global_batch=6, sharding=(Sharding.PARAMETERS,)
    ),
    "least GPU time": problem(
        nodes(3, gpus=2),
        measured(3, "4 20 40", 2),
        objective=Objective.GPU_TIME,
        global_batch=6,
        forbidden=ONE_EACH,
        pinned={"tensor": 1},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_one_program_for_all_finds_the_plan(case: str) -> None:
    """Its optimum is the plan's objective, and so is the step of the hosts that it chose, told plainly."""
    asked = CASES[case]
    made, weights = zip(*fitting_candidates(asked), strict=True)
    best = joint_optimum(made, weights, time_limit_s=60.0)
    told = NaiveStep(made[best.chosen])(best.assignment) * weights[best.chosen]
    found = planned(asked, EXACT)
    assert best.objective == pytest.approx(told, rel=1e-6)
    assert found.certificate.objective == pytest.approx(told, rel=1e-9)
    assert found.certificate.bound == pytest.approx(told, rel=1e-6)
