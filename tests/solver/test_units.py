"""Units: nodes whose GPUs NVLink joins are placed together, and their groups run on NVLink."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.cluster.measurements import Direction
from cluster_models.cluster.switches import Switch
from cluster_models.cluster.topology import Node
from cluster_models.errors import InvalidConfiguration, InvalidWorkload
from solver.answer.assemble import configuration_of
from solver.check import check_plan
from solver.degrees.enumeration import enumerate_candidates
from solver.degrees.priced import price_candidates
from solver.placement.cluster_fabrics import unit_widths
from solver.placement.fabric import Fabric
from solver.predict import predict
from solver.refine import prepare
from tests.remarks import codes
from tests.solver.cost_cases import candidates
from tests.solver.naive import best_plan
from tests.solver.problems import (
    DENSE,
    SPARSE,
    fabrics_of,
    nodes,
    pair_samples,
    planned,
    problem,
)


def in_domains(sizes: Sequence[int], *, gpus: int = 2, slow: Sequence[str] = ()) -> tuple[Node, ...]:
    """Nodes ``n0``, ``n1``, ... in NVLink domains of so many nodes each; those of ``slow`` compute slower."""
    domains = [f"rack{domain}" for domain, size in enumerate(sizes) for _ in range(size)]
    plain = nodes(len(domains), gpus=gpus, slowdown=dict.fromkeys(slow, 1.3))
    return tuple(replace(node, nvlink_domain=domain) for node, domain in zip(plain, domains, strict=True))


def unit_names(fabric: Fabric) -> list[tuple[str, ...]]:
    """Node names of every unit."""
    return [fabric.hosts(np.array([unit])) for unit in range(fabric.nodes)]


def test_units_are_made_inside_domains_and_their_leftovers_stay_out() -> None:
    """Domains of three and two nodes make units of three, of two and of one."""
    found = {fabric.nodes_per_unit: unit_names(fabric) for fabric in fabrics_of(problem(in_domains([3, 2])))}
    assert found[3] == [("n0", "n1", "n2")]
    assert found[2] == [("n0", "n1"), ("n3", "n4")]
    assert found[1] == [("n0",), ("n1",), ("n2",), ("n3",), ("n4",)]


def test_slow_nodes_share_a_unit_or_stay_out() -> None:
    """The two slow ones of four nodes make a unit; the slow one of three is left over."""
    pairs = next(
        fabric
        for fabric in fabrics_of(problem(in_domains([4, 3], slow=("n0", "n2", "n4"))))
        if fabric.nodes_per_unit == 2
    )
    assert sorted(map(sorted, unit_names(pairs))) == [["n0", "n2"], ["n1", "n3"], ["n5", "n6"]]
    assert sorted(pairs.slowdown.tolist()) == [1.0, 1.0, 1.3]


def test_a_node_with_slow_links_is_left_over() -> None:
    """Measured links count where compute does not tell nodes apart."""
    rates = {("n0", "n3"): 40.0, ("n1", "n3"): 4.0, ("n2", "n3"): 40.0}
    samples = pair_samples(rates, flows=2)
    pairs = fabrics_of(problem(in_domains([3, 1]), samples))[1]
    assert unit_names(pairs) == [("n0", "n2")]


def test_widths_of_large_domains_are_divisors_and_powers_of_two() -> None:
    """Small domains try every width."""
    assert unit_widths(3) == [3, 2, 1]
    assert unit_widths(72) == [72, 64, 36, 32, 24, 18, 16, 12, 9, 8, 6, 4, 3, 2, 1]


def test_between_units_the_slowest_pair_of_nodes_counts() -> None:
    """One slow pair makes both directions between its units slow, and no others."""
    rates = {("n0", "n2"): 40.0, ("n0", "n3"): 40.0, ("n1", "n2"): 5.0, ("n1", "n3"): 40.0}
    asked = problem(in_domains([2, 2]), pair_samples(rates, flows=2))
    units, single = fabrics_of(asked)
    size = 1e8
    hop, pairs = units.hop_s(size), single.hop_s(size)
    assert hop[0, 1] == pytest.approx(size / 5e9, rel=0.2)
    assert hop[0, 1] == pairs[:2, 2:].max()
    assert hop[0, 0] == pairs[:2, :2].max()


@pytest.mark.parametrize("degree", ["tensor", "context", "expert"])
def test_groups_inside_a_unit_run_on_nvlink(degree: str) -> None:
    """Groups of four GPUs over two nodes cross no network card within a domain, and do across domains."""

    def crossing(sizes: Sequence[int]) -> float:
        asked = problem(in_domains(sizes), model=SPARSE)
        degrees = {"tensor": 1, "data": 4, "expert": 1} | {degree: 4}
        if degree != "expert":
            degrees["data"] = 1
        fabric = fabrics_of(asked)[0]
        costs = prepare(asked, fabric, candidates(degrees)).costs
        return float(costs.expert_traffic.message_bytes[0] + costs.context_traffic.message_bytes[0])

    assert crossing([2, 2]) == 0.0
    if degree != "tensor":
        assert crossing([1, 1]) > 0.0


SIZES = st.lists(st.integers(1, 3), min_size=1, max_size=3)


@settings(max_examples=12)
@given(SIZES, st.sampled_from([DENSE, SPARSE]), st.sampled_from([8, 12]))
def test_every_candidate_has_one_fabric_and_none_is_lost(sizes: list[int], model: object, batch: int) -> None:
    """Leaving out what wider units take loses no combination of degrees, and keeps none twice."""
    asked = problem(in_domains(sizes), model=model, global_batch=batch)  # type: ignore[arg-type]  # sampled
    usable = fabrics_of(asked)
    found = price_candidates(asked, usable).batch
    rows = Counter(zip(*(getattr(found, name).tolist() for name in found.__slots__), strict=True))
    assert set(rows.values()) <= {1}
    for fabric in usable:
        every = enumerate_candidates(
            asked.architecture, asked.workload, gpus_per_node=fabric.gpus_per_unit, nodes=fabric.nodes
        )
        whole = every.take((every.tensor * every.context * every.data * every.pipeline) % fabric.gpus_per_unit == 0)
        grids = zip(whole.tensor, whole.context, whole.pipeline, whole.data, whole.expert, strict=True)
        kept = {row[:5] for row in rows}
        assert {(t, p, d, c, e) for t, c, p, d, e in grids} <= kept


def test_the_plan_on_two_domains_is_the_best_of_all() -> None:
    """Brute force over all degrees, units and orders finds nothing better."""
    rates = {("n0", "n2"): 40.0, ("n0", "n3"): 30.0, ("n1", "n2"): 25.0, ("n1", "n3"): 40.0}
    asked = problem(in_domains([2, 2], gpus=1), pair_samples(rates, flows=1))
    plan = planned(asked)
    assert plan.time.step_s == pytest.approx(best_plan(asked)[0], rel=1e-9)
    assert "limit_widest_units" in codes(plan.certificate.limits)
    assert check_plan(plan, asked) == ()


def test_hosts_are_nodes_in_rank_order() -> None:
    """A tensor group over a domain: its ranks sit on consecutive nodes of it, launched two a node."""
    asked = problem(in_domains([2, 2]), pinned={"tensor": 4, "data": 2})
    plan = planned(asked)
    assert (plan.placement.gpus_per_node, len(plan.placement.hosts)) == (2, 4)
    domains = {node.name: node.nvlink_domain for node in asked.snapshot.cluster.nodes}
    found = [domains[host] for host in plan.placement.hosts]
    assert found[::2] == found[1::2]
    assert [place.gpu for place in plan.placement.ranks] == [0, 1] * 4
    assert check_plan(plan, asked) == ()


@settings(max_examples=10)
@given(SIZES, st.sampled_from([DENSE, SPARSE]), st.integers(1, 4))
def test_a_plan_is_predicted_as_it_was_planned(sizes: list[int], model: object, slow: int) -> None:
    """Degrees and hosts alone tell what runs on NVLink."""
    rates = {("n0", "n1"): 10.0 * slow}
    count = sum(sizes)
    samples = pair_samples(rates, flows=2, direction=Direction.BOTH) if count > 1 else ()
    asked = problem(in_domains(sizes), samples, model=model)  # type: ignore[arg-type]  # sampled
    plan = planned(asked)
    placement = plan.placement
    again = predict(asked, plan.configuration, hosts=placement.hosts, gpus_per_node=placement.gpus_per_node)
    assert again.time.step_s == pytest.approx(plan.time.step_s, rel=1e-12)


def test_a_tensor_group_wider_than_its_domain_is_refused() -> None:
    """The message names what NVLink joins."""
    asked = problem(in_domains([2, 2]))
    plan = planned(problem(in_domains([4]), pinned={"tensor": 8}))
    with pytest.raises(
        InvalidConfiguration, match="does not fit into 2 nodes of an NVLink domain with 2 GPUs each"
    ):
        predict(asked, plan.configuration)


def test_a_domain_under_several_switches_is_refused_in_predictions_too() -> None:
    """Nothing tells which of the two uplinks a unit shares."""
    joined = [replace(node, labels={"leaf": leaf}) for node, leaf in zip(in_domains([2]), "ab", strict=True)]
    asked = problem(joined)
    made = configuration_of(prepare(asked, fabrics_of(asked)[0], candidates({"data": 4})))
    cluster = replace(asked.snapshot.cluster, switches=(Switch("leaf", None, 1e9),))
    asked = replace(asked, snapshot=replace(asked.snapshot, cluster=cluster))
    with pytest.raises(InvalidWorkload, match="NVLink domain rack0"):
        predict(asked, made, hosts=("n0", "n1"))
