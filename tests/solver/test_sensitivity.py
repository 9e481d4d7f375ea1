"""Plans on fewer GPUs, and what a node more, faster links, more memory or an overlap bring."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_models.links.model import effective_links
from cluster_models.model.experts import Experts
from cluster_models.training.framework_choices import Overlap
from cluster_models.training.frameworks import framework
from cluster_models.training.sensitivity import Lever, Obstacle, Sensitivity
from solver.problem import SearchOptions
from solver.sensitivity import FASTER, changed_problem, sensitivity
from tests.solver.problems import DENSE, SPARSE, nodes, pair_samples, planned, problem, rates_of

OPTIONS = SearchOptions(time_limit_s=30.0)
SLOW_LINKS = problem(nodes(2, gpus=2), pair_samples(rates_of(2, [2.0]), flows=2))


@pytest.fixture(scope="module")
def found() -> Sensitivity:
    """Two nodes with slow links, of which the framework reduces gradients unhidden."""
    workload = SLOW_LINKS.workload
    asked = replace(workload, framework=replace(workload.framework, overlap_gradients=False))
    result = sensitivity(replace(SLOW_LINKS, workload=asked), OPTIONS)
    assert isinstance(result, Sensitivity)
    return result


def step_after(found: Sensitivity, change: Lever | Overlap) -> float:
    """The step after one change."""
    step_s = next(each for each in found.effects if each.change is change).step_s
    assert step_s is not None
    return step_s


def test_more_gpus_on_the_front_are_faster_and_each_plan_is_the_best_of_its_number(found: Sensitivity) -> None:
    """The plan of a search for so many GPUs alone."""
    gpus = [plan.configuration.degrees.gpus for plan in found.front]
    steps = [plan.time.step_s for plan in found.front]
    assert gpus == sorted(set(gpus))
    assert steps == sorted(steps, reverse=True)
    for plan in found.front[:-1]:
        assert plan.workload is not None
        alone = planned(
            replace(SLOW_LINKS, workload=replace(plan.workload, max_gpus=plan.configuration.degrees.gpus))
        )
        assert plan.time.step_s == pytest.approx(alone.time.step_s, rel=OPTIONS.gap)


def test_no_change_of_the_hardware_makes_the_same_plan_slower(found: Sensitivity) -> None:
    """The bound lies below what was found, faster links and hidden reductions help where links are slow."""
    before = found.fastest.time.step_s
    for each in found.effects:
        assert each.step_s is not None
        assert each.kept_step_s is not None
        assert each.bound_step_s is not None
        assert each.bound_step_s <= each.step_s * (1 + 1e-9)
        assert each.kept_step_s <= before * (1 + 1e-9)
    assert step_after(found, Lever.LINKS) < before
    assert step_after(found, Overlap.GRADIENTS) < before


def test_links_are_twice_as_fast_between_nodes_alone() -> None:
    """Transfers take half of what lies above their latency; the inside of nodes stays."""
    plan = planned(SLOW_LINKS)
    changed = changed_problem(SLOW_LINKS, plan, Lever.LINKS)
    before, after = effective_links(SLOW_LINKS.snapshot), effective_links(changed.snapshot)
    slow, fast = (links.transfer_s(1e9, 1) - links.latency_s for links in (before, after))
    inside = [0, 1]
    assert fast[inside, inside] == pytest.approx(slow[inside, inside])
    assert slow[0, 1] / fast[0, 1] == pytest.approx(FASTER, rel=1e-3)


def test_one_more_node_is_as_good_as_others_and_used_within_a_raised_limit() -> None:
    """Three nodes where there were two, each with a name of its own."""
    limited = replace(SLOW_LINKS, workload=replace(SLOW_LINKS.workload, max_gpus=4))
    plan = planned(limited)
    changed = changed_problem(limited, plan, Lever.NODE)
    assert len(changed.snapshot.cluster.nodes) == 3
    assert changed.workload.max_gpus == 6
    again = changed_problem(changed, plan, Lever.NODE)
    assert len({node.name for node in again.snapshot.cluster.nodes}) == 4


def test_memory_decides_where_plans_end() -> None:
    """A model that one node just holds: fewer GPUs hold none, and that is said."""
    wide = replace(DENSE, name="wide", layers=12, hidden=8192, heads=64, mlp_hidden=22016)
    result = sensitivity(problem(nodes(2, gpus=4), model=wide, global_batch=8), OPTIONS)
    assert isinstance(result, Sensitivity)
    assert result.too_few_gpus is not None
    assert result.too_few_gpus < result.front[0].configuration.degrees.gpus


def test_pinned_degrees_end_the_front_as_memory_does() -> None:
    """A tensor size of two is on no single GPU."""
    pinned = replace(SLOW_LINKS, workload=replace(SLOW_LINKS.workload, pinned={"tensor": 2}))
    result = sensitivity(pinned, OPTIONS)
    assert isinstance(result, Sensitivity)
    assert result.front[0].configuration.degrees.gpus == 2
    assert result.too_few_gpus == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("megatron-core-0.12", {Overlap.TENSOR: None, Overlap.EXPERTS: Obstacle.NO_SWITCH}),
        ("megatron-core-0.15", {Overlap.TENSOR: None, Overlap.EXPERTS: None}),
        ("nanotron-0.5", dict.fromkeys((Overlap.PARAMETERS, Overlap.TENSOR), Obstacle.NO_SWITCH)),
    ],
)
def test_overlaps_are_priced_where_the_framework_has_a_switch(name: str, expected: dict[Overlap, Obstacle]) -> None:
    """Others are refused with the reason, and what it does by itself is not a change."""
    model = DENSE if name.startswith("nanotron") else replace(SPARSE, experts=Experts(4, 2, 2816))
    asked = problem(nodes(1, gpus=2), model=model, framework=framework(name))
    result = sensitivity(asked, SearchOptions(time_limit_s=5.0))
    assert isinstance(result, Sensitivity)
    obstacles = {each.change: each.obstacle for each in result.effects if isinstance(each.change, Overlap)}
    assert obstacles == expected


def test_a_cancelled_search_hands_out_its_first_plan() -> None:
    """Nothing else was searched for."""
    result = sensitivity(SLOW_LINKS, OPTIONS, is_cancelled=lambda: True)
    assert isinstance(result, Sensitivity)
    assert len(result.front) == 1
    assert all(each.plan is None for each in result.effects)
