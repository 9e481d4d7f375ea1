"""Bounds hold: price <= bound of the placement <= the best placement, for every candidate on any links."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.cluster.measurements import Collective, Direction, Sample
from cluster_models.training.frameworks import framework
from cluster_models.training.workload import Objective, Sharding
from solver.compiled import step_seconds
from solver.degrees.priced import price_candidates
from solver.degrees.stage_costs import kind_rows, objective_weight
from solver.placement.bounds import placement_bound_s
from solver.problem import PlanningProblem
from solver.refine import Candidate
from tests.cluster_models.clusters import sample
from tests.solver.naive import NaiveStep
from tests.solver.problems import (
    DENSE,
    SPARSE,
    candidate,
    every_candidate,
    fabrics_of,
    names,
    nodes,
    problem,
    rates_of,
)

SLACK = 1 + 1e-9


@st.composite
def samples_between(draw: st.DrawFn, count: int, flows: int) -> tuple[Sample, ...]:
    """Each way on its own: some unmeasured, others at odd sizes and rates that need not grow with the size."""
    result = []
    for a, b in permutations(names(count), 2):
        for mib in draw(st.sets(st.sampled_from([0.01, 0.3, 1.0, 3.0, 64.0, 256.0]), max_size=3)):
            rate = draw(st.sampled_from([1.0, 4.0, 10.0, 20.0, 40.0])) * min(1.0, (mib / 8) ** 0.5)
            result.append(
                sample(
                    a,
                    b,
                    rate,
                    collective=Collective.POINT_TO_POINT,
                    ranks=flows,
                    mib=mib,
                    direction=Direction.FORWARD,
                )
            )
    return tuple(result)


@st.composite
def problems(draw: st.DrawFn) -> PlanningProblem:
    """A few nodes of one to four GPUs, some slow, a dense or a sparse model."""
    count, gpus = draw(st.sampled_from([(2, 1), (4, 1), (3, 2), (4, 2), (2, 3), (2, 4), (3, 4)]))
    slow = {f"n{i}": draw(st.sampled_from([1.0, 1.0, 1.2])) for i in range(count)}
    return problem(
        nodes(count, gpus=gpus, slowdown=slow),
        draw(samples_between(count, gpus)),
        model=draw(st.sampled_from([DENSE, SPARSE])),
        global_batch=draw(st.sampled_from([4, 6, 8])),
        forbidden={"micro_batch": tuple(range(2, 17))},
        sharding=draw(st.sampled_from([(Sharding.NONE, Sharding.PARAMETERS), (Sharding.OPTIMIZER,)])),
        framework=framework(
            draw(st.sampled_from(["megatron-core-0.12", "megatron-lm-3", "torchtitan-2025"]))
        ),  # delays, waits
    )


def best_by_force(placed: Candidate) -> float:
    """The best step over all ordered choices of nodes."""
    orders = permutations(range(placed.fabric.nodes), placed.placement.slots)
    return min(step_seconds(np.array(order), placed.placement.arrays)[0] for order in orders)


@settings(max_examples=15)
@given(problems(), st.integers(0, 10))
def test_no_placement_beats_either_bound(asked: PlanningProblem, first: int) -> None:
    """A sample of the candidates of each problem, every placement of each."""
    price = price_candidates(asked, fabrics_of(asked)).bound_s
    for index, placed in every_candidate(asked, first, 11).items():
        best = best_by_force(placed)
        assert price[index] <= best * SLACK
        assert placement_bound_s(placed.placement) <= best * SLACK


@settings(max_examples=12)
@given(problems(), st.integers(0, 12), st.randoms(use_true_random=False))
def test_the_compiled_step_is_the_plain_one(asked: PlanningProblem, first: int, random: object) -> None:
    """Arrays of slot pairs give what ranks and groups written out give."""
    for placed in every_candidate(asked, first, 13).values():
        order = np.arange(placed.fabric.nodes)
        random.shuffle(order)  # type: ignore[attr-defined]  # hypothesis' random
        assignment = order[: placed.placement.slots]
        expected = NaiveStep(placed)(assignment.tolist())
        assert step_seconds(assignment, placed.placement.arrays)[0] == pytest.approx(expected, rel=1e-12)


@settings(max_examples=15)
@given(st.sampled_from([(2, 1), (3, 2), (4, 4)]), st.data())
def test_curves_never_promise_more_than_a_link_gives(shape: tuple[int, int], data: st.DataObject) -> None:
    """The fastest link and the inside of a node at any size, between and beside the measured sizes."""
    count, gpus = shape
    fabric = fabrics_of(problem(nodes(count, gpus=gpus), data.draw(samples_between(count, gpus))))[0]
    between = ~np.eye(count, dtype=bool)
    for exponent in data.draw(st.lists(st.floats(10, 34), min_size=5, max_size=15)):
        size = 2.0**exponent
        sizes = np.array([size])
        assert fabric.best_s(sizes)[0] <= fabric.hop_s(size)[between].min() * SLACK
        assert fabric.best_inside_s(sizes)[0] <= fabric.local_hop_s(size) * SLACK


def test_a_slow_node_slows_compute_but_not_the_traffic_beside_it() -> None:
    """Where every plan needs the slow node, the bound adds its slowdown to compute alone."""
    links = dict.fromkeys(rates_of(2, [0.0]), 0.5)
    slow = tuple(sample(a, b, r, collective=Collective.POINT_TO_POINT, ranks=2) for (a, b), r in links.items())
    asked = problem(nodes(2, gpus=2, slowdown={"n0": 2.0, "n1": 2.0}), slow, model=SPARSE)
    placed = candidate(asked, data=4, expert=4)
    assert placement_bound_s(placed.placement) <= best_by_force(placed) * SLACK


def test_rings_of_stages_that_straddle_nodes_are_counted_by_stage() -> None:
    """Three ranks a stage on nodes of four: stage 0 stays on its node, stages 1 and 2 do not."""
    placed = candidate(problem(nodes(3, gpus=4), global_batch=6), data=3, pipeline=4)
    rings = (placed.placement.arrays.ring_pairs[0, :, :, 0] >= 0).any(axis=1)
    assert rings.tolist() == [False, True, True, False]
    local = placed.placement.arrays.reduce_local_s[0]
    whole = placed.fabric.local_ring_s(float(placed.costs.reduce_bytes[0, 0]), 3)
    assert local[0] == pytest.approx(whole)
    order = np.arange(3)
    assert step_seconds(order, placed.placement.arrays)[0] == pytest.approx(NaiveStep(placed)([0, 1, 2]))


def test_weights_of_the_objectives() -> None:
    """A second counts 1, the GPUs, their price per second, or their watts."""
    asked = problem(nodes(2, gpus=2))
    placed = candidate(asked, data=4)
    price = placed.fabric.gpu.price_usd_per_hour
    assert price is not None
    kinds = kind_rows(placed.batch)
    weights = [float(objective_weight(o, placed.fabric.kinds, placed.batch, kinds)[0]) for o in Objective]
    assert weights == pytest.approx([1.0, 4.0, 4 * price / 3600, 4 * 700.0])
