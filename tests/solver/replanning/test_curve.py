"""Throughput against nodes: what is reached lies below what no plan beats, at every size."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.plan import Plan
from cluster_models.running import RecoveryPolicy
from solver.problem import SearchOptions
from solver.replanning.curve import throughput_curve
from solver.replanning.reshaping import asked_on
from solver.replanning.site import JobSite
from solver.search import plan
from tests.solver.replanning.option_cases import site
from tests.solver.replanning.samples import after, cluster, job, names, replan
from tests.solver.replanning.test_site import measured, racks


def planned(here: JobSite, nodes: tuple[str, ...]) -> Plan:
    """The planner's own plan with ``nodes`` and nothing else."""
    asked = asked_on(here, ())
    others = {node.name for node in asked.snapshot.cluster.nodes} - set(nodes)
    only = replace(asked, workload=replace(asked.workload, avoid_nodes=tuple(sorted(others))))
    found = plan(only, SearchOptions(gap=0.001, time_limit_s=20, alternatives=0))
    assert isinstance(found, Plan)
    return found


@settings(max_examples=3, deadline=None)
@given(rates=st.lists(st.floats(3, 40), min_size=10, max_size=10))
def test_no_plan_on_any_part_of_the_nodes_beats_the_curve(rates: list[float]) -> None:
    """Plans on one, two, three and four nodes, whichever they are, lie below the bound and its hull."""
    whole = measured(cluster(5, leaf_nodes=2), rates, 2)
    running = job("a", whole, names(whole, 0, 3), tensor=2)
    here = site(replan(after(whole, failed=["n01"]), [running]))
    curve = throughput_curve(here, 5.0, sizes=(4,))
    hull = curve.hull()
    for nodes in (("n00",), ("n00", "n03"), ("n00", "n02", "n04"), ("n00", "n02", "n03", "n04")):
        best = planned(here, nodes).tokens_per_s
        assert best <= curve.upper(len(nodes)) * (1 + 1e-9)
        assert best <= hull[len(nodes)] * (1 + 1e-9)


def test_racks_are_bounded_whatever_units_they_make() -> None:
    """In NVLink domains of several nodes links count for nothing in the bound."""
    whole = racks(3, 2)
    running = job("rack", whole, names(whole, 0, 4), tensor=2)
    here = site(replan(after(whole, failed=["n03"]), [running]))
    curve = throughput_curve(here, 5.0, sizes=(5,))
    for nodes in (("n00", "n01"), ("n00", "n04"), ("n01", "n02", "n05")):
        assert planned(here, nodes).tokens_per_s <= curve.upper(len(nodes)) * (1 + 1e-9)


def test_the_curve_grows_and_its_hull_is_concave() -> None:
    """More nodes are never worth less, and along the hull a further one never more than the one before."""
    whole = cluster(9)
    running = job("a", whole, names(whole, 0, 4), tensor=2, pipeline=2)
    curve = throughput_curve(site(replan(after(whole, failed=["n01"]), [running])), 5.0, sizes=(1, 4, 8))
    assert curve.nodes == 8
    upper = [curve.upper(nodes) for nodes in range(curve.nodes + 1)]
    hull = curve.hull()
    gains = [more - less for less, more in pairwise(hull)]
    assert upper == sorted(upper)
    assert all(bound <= top * (1 + 1e-12) for bound, top in zip(upper, hull, strict=True))
    assert all(later <= gain + 1e-6 for gain, later in pairwise(gains))
    reached = [curve.reached(nodes) for nodes in range(1, curve.nodes + 1)]
    speeds = [point.tokens_per_s for point in reached if point is not None]
    assert len(speeds) == 8
    assert speeds == sorted(speeds)
    assert all(point is None or point.tokens_per_s <= curve.upper(point.nodes) for point in reached)
    assert curve.reached(0) is None


def test_sizes_that_a_job_does_not_want_have_no_points() -> None:
    """At least six GPUs of two a node: nothing is planned on fewer than three nodes."""
    whole = cluster(5)
    recovery = RecoveryPolicy(least_gpus=6)
    running = job("a", whole, names(whole, 0, 4), tensor=2, recovery=recovery)
    curve = throughput_curve(site(replan(after(whole, failed=["n01"]), [running])), 5.0, sizes=(1, 2, 3, 4))
    assert [point.nodes for point in curve.points] == [3, 4]
    assert curve.upper(2) == 0.0
    assert curve.upper(3) == pytest.approx(curve.points[0].tokens_per_s, rel=0.05)
