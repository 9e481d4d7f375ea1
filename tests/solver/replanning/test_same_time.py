"""Orders of hosts that count as equal take the same time by the whole cost model, whatever the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cluster_models.cluster.switches import Switch
from cluster_models.cluster.topology import Node
from cluster_models.model.architecture import Architecture
from cluster_models.model.experts import Experts
from cluster_models.training.plan import RankOrder
from solver.answer.assemble import configuration_of
from solver.candidates import ORDER_CODES
from solver.compiled import step_seconds
from solver.problem import PlanningProblem
from solver.refine import Candidate
from solver.replanning.alike import alike_hosts
from solver.replanning.problem import ReplanProblem
from solver.replanning.rank_matching import relabel
from tests.cluster_models.clusters import host
from tests.solver.problems import DENSE, SPARSE, candidate, names, pair_samples, problem
from tests.solver.replanning.moves import job_on

SMALL = replace(DENSE, layers=4, vocabulary=4096)
EXPERTS = replace(SPARSE, layers=4, vocabulary=4096, experts=Experts(count=4, active=2, hidden=512))
SHAPES = (
    {"tensor": 2, "data": 6},
    {"tensor": 2, "pipeline": 2, "data": 3},
    {"pipeline": 2, "data": 6},
    {"pipeline": 2, "data": 4},
    {"tensor": 4, "pipeline": 3, "data": 1},
    {"tensor": 1, "pipeline": 3, "data": 4},
    {"context": 2, "pipeline": 3, "data": 2},
    {"tensor": 2, "pipeline": 4, "data": 1},
)


@st.composite
def clusters(draw: st.DrawFn) -> PlanningProblem:
    """Six nodes of two GPUs under leaves of any size, some slow, some pairs measured, perhaps shared ways up."""
    leaves = draw(st.lists(st.integers(0, 2), min_size=6, max_size=6))
    slow = draw(st.lists(st.sampled_from([1.0, 1.0, 1.0, 1.3]), min_size=6, max_size=6))
    nodes: list[Node] = [
        replace(host(f"n{k}", leaf=f"leaf-{leaves[k]}", gpus=2, cards=2), compute_slowdown=slow[k])
        for k in range(6)
    ]
    pairs = draw(st.lists(st.sampled_from(list(combinations(names(6), 2))), max_size=4, unique=True))
    rates = {pair: draw(st.sampled_from([5.0, 10.0, 20.0])) for pair in pairs}
    model: Architecture = draw(st.sampled_from([SMALL, EXPERTS]))
    asked = problem(nodes, pair_samples(rates, flows=2), model=model, global_batch=12)
    if draw(st.booleans()):
        cluster = replace(asked.snapshot.cluster, switches=(Switch("leaf", oversubscription=3.0),))
        asked = replace(asked, snapshot=replace(asked.snapshot, cluster=cluster))
    return asked


def seconds(placed: Candidate, hosts: Sequence[str]) -> float:
    """The step on ``hosts`` in rank order."""
    assignment = np.array([placed.fabric.names.index(name) for name in hosts], dtype=np.int64)
    return float(step_seconds(assignment, placed.placement.arrays)[0])


@given(data=st.data(), asked=clusters())
@settings(max_examples=30)
def test_orders_that_count_as_equal_take_the_same_time(data: st.DataObject, asked: PlanningProblem) -> None:
    """Exchanges of alike hosts and of alike leaves, one by one, and all of them with rotations by ``relabel``."""
    degrees = dict(data.draw(st.sampled_from(SHAPES)))
    order = data.draw(st.sampled_from(list(RankOrder)))
    members = degrees.get("tensor", 1) * degrees.get("context", 1) * degrees.get("data", 1)
    if asked.architecture.experts is not None:
        degrees["expert"] = data.draw(st.sampled_from([e for e in (1, 2, 4) if members % e == 0]))
    placed = candidate(asked, rank_order=ORDER_CODES.index(order), **degrees)
    configuration = configuration_of(placed)
    slots = configuration.degrees.gpus // 2
    assume(configuration.degrees.gpus % 2 == 0)
    hosts = data.draw(st.permutations(names(6)))[:slots]
    old = data.draw(st.permutations(names(6)))[:slots]
    job = job_on(old, configuration, gpus=2, model=asked.architecture)
    problem_now = ReplanProblem(asked.snapshot, (job,), ())
    before = seconds(placed, hosts)
    found = relabel(job, hosts, configuration, problem_now)
    assert sorted(found) == sorted(hosts)
    assert seconds(placed, found) == pytest.approx(before, rel=1e-9)
    apart = bool(asked.snapshot.cluster.switches)
    for classes in alike_hosts(hosts, job, problem_now, problem_now.links(), apart=apart):
        swapped = list(hosts)
        for first, second in combinations(classes, 2):
            for a, b in zip(first.tolist(), second.tolist(), strict=True):
                swapped[a], swapped[b] = swapped[b], swapped[a]
            assert seconds(placed, swapped) == pytest.approx(before, rel=1e-9)
        for first, second in combinations(classes[0].tolist(), 2):
            one = list(hosts)
            one[first], one[second] = one[second], one[first]
            assert seconds(placed, one) == pytest.approx(before, rel=1e-9)
