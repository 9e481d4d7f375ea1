"""Nodes of which other jobs hold some GPUs: the free ones are offered, and the others' traffic counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from cluster_models.cluster.topology import Node
from solver.check import check_plan
from solver.predict import predict
from tests.solver.problems import fabrics_of, nodes, pair_samples, planned, problem

FOUR_RANKS = {"data": 4, "tensor": 1, "context": 1, "pipeline": 1}
RATES = {("n0", "n1"): 40.0, ("n0", "n2"): 40.0, ("n1", "n2"): 40.0}


def taken(in_use: Mapping[str, tuple[int, ...]], *, gpus: int = 4) -> tuple[Node, ...]:
    """Three nodes, some of whose GPUs are held."""
    return tuple(replace(node, gpus_in_use=in_use.get(node.name, ())) for node in nodes(3, gpus=gpus))


def test_free_gpus_decide_what_a_node_offers() -> None:
    """Two of four GPUs held: the node serves as one with two, and one that is full serves no more."""
    asked = problem(taken({"n0": (1, 3), "n2": (0, 1, 2, 3)}))
    found = {fabric.gpus_per_node: fabric.names for fabric in fabrics_of(asked)}
    assert found == {2: ("n0", "n1"), 4: ("n1",)}


def test_ranks_sit_on_free_gpus() -> None:
    """In rank order the first free ones of each host."""
    asked = problem(taken({"n0": (0, 2), "n2": (0, 1, 2, 3)}), pinned=FOUR_RANKS)
    plan = predict(asked, planned(asked).configuration, hosts=["n0", "n1"])
    by_host = {host: [p.gpu for p in plan.placement.ranks if p.node == host] for host in plan.placement.hosts}
    assert by_host == {"n0": [1, 3], "n1": [0, 1]}
    assert [problem for problem in check_plan(plan, asked) if "GPU" in problem] == []


def test_the_checker_sees_a_rank_on_a_gpu_that_is_held() -> None:
    """A plan made before another job came is refused."""
    asked = problem(taken({}), pinned={"pipeline": 3, "tensor": 4})
    plan = planned(asked)
    later = problem(taken({"n1": (2,)}), pinned={"pipeline": 3, "tensor": 4})
    assert any("GPU 2 of n1, which another job holds" in sentence for sentence in check_plan(plan, later))


def test_other_jobs_share_the_cards() -> None:
    """A flow of two GPUs beside two held ones takes as long as beside two of its own."""
    flows = {2: 40.0, 4: 20.0}
    samples = [
        sample for count, rate in flows.items() for sample in pair_samples(dict.fromkeys(RATES, rate), flows=count)
    ]
    busy = next(f for f in fabrics_of(problem(taken({"n0": (0, 1)}), samples)) if f.gpus_per_node == 2)
    idle = next(f for f in fabrics_of(problem(taken({}), samples))).with_gpus(2)
    full = next(f for f in fabrics_of(problem(taken({}), samples)))
    size = 2.0**28
    assert busy.hop_s(size)[0, 1] == full.hop_s(size)[0, 1] > idle.hop_s(size)[0, 1]
    assert busy.hop_s(size)[1, 2] == idle.hop_s(size)[1, 2]
    assert busy.best_s(np.array([size]))[0] <= busy.hop_s(size)[1, 2]


@pytest.mark.parametrize("order", [("n0", "n1"), ("n1", "n0")])
def test_a_plan_beside_other_jobs_is_predicted_as_planned(order: tuple[str, str]) -> None:
    """Whatever the order of hosts, the held GPUs' traffic counts in both."""
    asked = problem(taken({"n0": (0, 1)}), pair_samples(RATES, flows=4), pinned=FOUR_RANKS)
    plan = planned(asked)
    placement = plan.placement
    again = predict(asked, plan.configuration, hosts=placement.hosts, gpus_per_node=placement.gpus_per_node)
    assert again.time.step_s == pytest.approx(plan.time.step_s, rel=1e-12)
    other = predict(asked, plan.configuration, hosts=order, gpus_per_node=2)
    assert {place.gpu for place in other.placement.ranks if place.node == "n0"} == {2, 3}
