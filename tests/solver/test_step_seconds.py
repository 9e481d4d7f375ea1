"""The step time of an assignment and the rules it breaks, against plain Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.compiled import Rules, step_seconds, violations
from solver.placement.problem import PlacementProblem, placed_times
from tests.solver.placement_cases import placement_problems

Flow = tuple[int, int, float]


def passed(problem: PlacementProblem, flows: Iterable[Flow]) -> dict[tuple[str, int], float]:
    """Bytes that pass each switch, by direction, of flows (sender, receiver, bytes) at the same time."""
    load: dict[tuple[str, int], float] = defaultdict(float)
    for sender, receiver, sent_bytes in flows:
        for switch in on_the_way(problem, sender, receiver):
            load[switch] += sent_bytes
    return load


def on_the_way(problem: PlacementProblem, sender: int, receiver: int) -> list[tuple[str, int]]:
    """Switches between two nodes, each with the direction in which it is passed."""
    levels = problem.arrays.uplinks.above
    up = [("up", int(level[sender])) for level in levels if level[sender] != level[receiver]]
    down = [("down", int(level[receiver])) for level in levels if level[sender] != level[receiver]]
    return [(way, switch) for way, switch in up + down if switch >= 0]


def slowest(
    problem: PlacementProblem,
    chosen: np.ndarray,
    pairs: np.ndarray,
    between_s: np.ndarray,
    load: dict[tuple[str, int], float],
    inside_s: float = 0.0,
) -> float:
    """The slowest of some slot pairs, the switches on their ways shared with ``load``."""
    worst = 0.0
    for a, b in pairs[pairs[:, 0] >= 0]:
        sender, receiver = int(chosen[a]), int(chosen[b])
        alone = inside_s if a == b else float(between_s[sender, receiver])
        worst = max(worst, alone)
        if a != b and alone > 0:
            rates = problem.arrays.uplinks.bytes_per_s
            ways = on_the_way(problem, sender, receiver)
            worst = max([worst, *(load[way, switch] / float(rates[switch]) for way, switch in ways)])
    return worst


def flows_of(chosen: np.ndarray, pairs: np.ndarray, sent_bytes: np.ndarray) -> list[Flow]:
    """Flows between the nodes of slot pairs (u, 2) that send ``sent_bytes`` (u,)."""
    return [
        (int(chosen[a]), int(chosen[b]), float(size))
        for (a, b), size in zip(pairs, sent_bytes, strict=True)
        if a >= 0 and a != b
    ]


@given(placement_problems(ruled=False), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_transfers_wait_for_their_slowest_pair_and_switch(problem: PlacementProblem, random: Random) -> None:
    """All replicas' transfers between two ranks, one way, pass the switches together."""
    arrays = problem.arrays
    chosen = np.array(random.sample(range(problem.nodes), problem.slots))
    delay_s = placed_times(problem, chosen).delay_s
    sent_bytes = arrays.uplinks.hop_bytes
    for _, way, s in np.ndindex(delay_s.shape):
        together = zip(arrays.hop_pairs[:, way, s], sent_bytes[:, way, s], strict=True)
        load = passed(problem, [flow for pairs, sizes in together for flow in flows_of(chosen, pairs, sizes)])
        for r, pairs in enumerate(arrays.hop_pairs[:, way, s]):
            expected = slowest(problem, chosen, pairs, arrays.hop_s, load, arrays.local_hop_s)
            assert delay_s[r, way, s] == pytest.approx(expected)


@given(placement_problems(ruled=False), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_crossing_traffic_waits_for_its_slowest_pair_and_switch(problem: PlacementProblem, random: Random) -> None:
    """All collectives of one kind pass the switches together."""
    arrays = problem.arrays
    chosen = np.array(random.sample(range(problem.nodes), problem.slots))
    crossing_s = placed_times(problem, chosen).crossing_s
    for x, r, way, s in np.ndindex(crossing_s.shape):
        together = arrays.cross_pairs[x].reshape(-1, 2)
        sizes = np.full(len(together), arrays.uplinks.cross_bytes[x])
        load = passed(problem, flows_of(chosen, together, sizes))
        alone = slowest(problem, chosen, arrays.cross_pairs[x, r, s], arrays.cross_s[x], load)
        assert crossing_s[x, r, way, s] == pytest.approx(max(0.0, alone - arrays.cross_hidden_s[x, way]))


@given(placement_problems(ruled=False), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_rings_wait_for_their_slowest_pair_and_switch(problem: PlacementProblem, random: Random) -> None:
    """All rings of one kind pass the switches together; what stays inside nodes bounds them too."""
    arrays = problem.arrays
    chosen = np.array(random.sample(range(problem.nodes), problem.slots))
    times = placed_times(problem, chosen)
    sent = arrays.uplinks.ring_bytes
    for found, between_s, local_s, hidden_s, ring_bytes in (
        (times.reduce_s, arrays.reduce_s, arrays.reduce_local_s, arrays.reduce_hidden_s, sent[0]),
        (times.gather_s, arrays.gather_s, arrays.gather_local_s, arrays.gather_hidden_s, sent[1]),
    ):
        total = -hidden_s
        for y, rings in enumerate(arrays.ring_pairs):
            sizes = np.repeat(ring_bytes[y], rings.shape[1])
            load = passed(problem, flows_of(chosen, rings.reshape(-1, 2), sizes))
            between = between_s[arrays.ring_times[y]]
            alone = [
                slowest(problem, chosen, ring, matrix, load) for ring, matrix in zip(rings, between, strict=True)
            ]
            total += np.maximum(alone, local_s[y])
        assert found == pytest.approx(np.maximum(0.0, total))


@given(placement_problems(), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_switches_only_delay_and_both_ways_to_a_step_agree(problem: PlacementProblem, random: Random) -> None:
    """``placed_times`` gives the step of ``step_seconds``, which no endless switch exceeds."""
    chosen = np.array(random.sample(range(problem.nodes), problem.slots))
    step_s = step_seconds(chosen, problem.arrays)[0]
    assert placed_times(problem, chosen).step_s == step_s
    uplinks = problem.arrays.uplinks
    endless = problem.arrays._replace(uplinks=uplinks._replace(bytes_per_s=np.full_like(uplinks.bytes_per_s, 1e30)))
    assert step_seconds(chosen, endless)[0] <= step_s


def broken(chosen: list[int], rules: Rules) -> int:
    """How often an assignment breaks the rules, as the words of ``Rules`` say."""
    count = sum(not rules.eligible[slot, node] for slot, node in enumerate(chosen))
    for slots, places, fewest, most in zip(
        rules.group_slots, rules.places, rules.fewest_places, rules.most_places, strict=True
    ):
        used = {int(places[chosen[slot]]) for slot in slots if slot >= 0}
        count += max(0, fewest - len(used)) + max(0, len(used) - most)
    for quota, (fewest, most) in enumerate(zip(rules.fewest_used, rules.most_used, strict=True)):
        members = sum(int((rules.quota_of[:, node] == quota).sum()) for node in chosen)
        count += max(0, fewest - members) + max(0, members - most)
    return count


@given(placement_problems(), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_violations_are_counted_as_the_rules_say(problem: PlacementProblem, random: Random) -> None:
    """Slots, places of groups and quotas, counted with sets."""
    chosen = random.sample(range(problem.nodes), problem.slots)
    assert violations(np.array(chosen), problem.arrays.rules) == broken(chosen, problem.arrays.rules)
