"""Bytes of pairs of slots through shared switches, against sums done by hand, and what switches do to a step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.cluster.switches import Switch
from cluster_models.cluster.topology import Cluster
from solver.candidates import FloatArray
from solver.compiled import step_seconds
from solver.placement.problem import NO_SLOT
from solver.placement.uplinks import compile_uplinks
from solver.problem import PlanningProblem
from solver.refine import Candidate
from tests.solver.problems import DENSE, SPARSE, candidate, nodes, pair_samples, problem, rates_of


def asked_on(
    switches: tuple[Switch, ...], *, count: int = 4, gpus: int = 2, sparse: bool = False
) -> PlanningProblem:
    """Equal nodes on equal links, under leaves a and b in turn."""
    plain = nodes(count, gpus=gpus)
    hosts = [replace(node, labels={"leaf": "ab"[index % 2]}) for index, node in enumerate(plain)]
    rates = rates_of(count, [20.0] * (count * (count - 1) // 2))
    found = problem(hosts, pair_samples(rates, flows=gpus), model=SPARSE if sparse else DENSE)
    cluster = replace(found.snapshot.cluster, switches=switches)
    return replace(found, snapshot=replace(found.snapshot, cluster=cluster))


def leaves_of(rate: float) -> tuple[Switch, ...]:
    """Every leaf passes ``rate``."""
    return (Switch("leaf", None, rate),)


def loads(made: Candidate, asked: PlanningProblem) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Loads as the problem of the candidate has them."""
    uplinks = made.placement.arrays.uplinks
    assert len(uplinks.bytes_per_s) == len(asked.snapshot.cluster.uplinks()["leaf"])
    return uplinks.hop_bytes, uplinks.cross_bytes, uplinks.ring_bytes


def test_a_transfer_sends_the_activations_of_the_whole_cell() -> None:
    """Both GPUs of a cell send their half of a micro-batch's activations, 16 bits each."""
    asked = asked_on(leaves_of(1e9))
    hops, _, _ = loads(candidate(asked, tensor=2, pipeline=2, data=2, micro_batch=2), asked)
    assert hops[:, 0, 0].ravel() == pytest.approx(2.0 * 2048 * DENSE.hidden * 2)


def test_a_ring_sends_its_share_of_every_buffer_on_the_slot() -> None:
    """Four data ranks, of which two share a node: each of the two groups on it passes 3/4 of its buffer."""
    asked = asked_on(leaves_of(1e9), count=2, gpus=4)
    made = candidate(asked, tensor=2, data=4)
    _, _, rings = loads(made, asked)
    buffer = float(made.costs.reduce_bytes[0, 0])
    assert rings[0, 0, 0] == pytest.approx(2 * buffer * 3 / 4)
    assert rings[1, 0, 0] == pytest.approx(2 * float(made.costs.gather_bytes[0, 0]) * 3 / 4)


def test_an_all_to_all_leaves_a_slot_in_equal_parts_once() -> None:
    """However many cells list a pair, all of them together send what the GPUs of a slot send to one other slot."""
    asked = asked_on(leaves_of(1e9), count=4, gpus=1, sparse=True)
    made = candidate(asked, data=4, expert=4)
    _, cross, _ = loads(made, asked)
    pairs = made.placement.arrays.cross_pairs[1].reshape(-1, 2)
    listed = int(((pairs[:, 0] == 0) & (pairs[:, 1] == 1)).sum())
    message = float(made.costs.expert_traffic.message_bytes[0])
    assert listed * cross[1] == pytest.approx(message / 3)


def test_only_stated_switches_count() -> None:
    """Nodes under no stated switch pass freely, those of a stated one share it."""
    asked = asked_on((Switch("leaf", "a", 5e9),))
    made = candidate(asked, tensor=2, pipeline=2, data=2)
    assert made.placement.arrays.uplinks.above.tolist() == [[0, -1, 0, -1]]
    assert made.placement.arrays.uplinks.bytes_per_s.tolist() == [5e9]


def test_levels_are_kept_apart() -> None:
    """A node has a switch on every label that is stated."""
    cluster: Cluster = asked_on((Switch("leaf", None, 1e9), Switch("node", "n1", 2e9))).snapshot.cluster
    made = candidate(asked_on(()), tensor=2, pipeline=2, data=2)
    shape_loads = (np.zeros(1), np.zeros(1), np.zeros(1))
    uplinks = compile_uplinks(cluster, made.fabric.index, shape_loads)
    assert uplinks.above.tolist() == [[0, 1, 0, 1], [-1, 2, -1, -1]]
    assert uplinks.bytes_per_s.tolist() == [1e9, 1e9, 2e9]


@given(st.permutations(range(4)), st.floats(1e8, 1e11), st.floats(1.0, 10.0))
@settings(max_examples=25)
def test_wider_uplinks_never_slow_a_step(order: list[int], rate: float, wider: float) -> None:
    """And endless ones are as good as none."""
    assignment = np.array(order)
    steps = [
        step_seconds(assignment, candidate(asked_on(found), tensor=2, pipeline=2, data=2).placement.arrays)[0]
        for found in (leaves_of(rate), leaves_of(rate * wider), leaves_of(1e30), ())
    ]
    assert steps[0] >= steps[1] >= steps[2] == steps[3]


def test_loads_are_made_of_pairs_that_exist() -> None:
    """Padding sends nothing."""
    asked = asked_on(leaves_of(1e9))
    made = candidate(asked, tensor=2, pipeline=4)
    arrays = made.placement.arrays
    assert (arrays.uplinks.hop_bytes[arrays.hop_pairs[..., 0] == NO_SLOT] == 0).all()
