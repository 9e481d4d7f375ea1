"""The integer program against every choice there is, on clusters small enough to try them all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pytest
from scipy.optimize import linprog

from cluster_models.cluster.topology import Node
from cluster_models.serving.goal import ServingMode
from solver.serving.planning.islands import site_of
from solver.serving.planning.offers import Priced, capacities, priced
from solver.serving.planning.program import patterns_of
from solver.serving.planning.zones import zones_of
from solver.serving.problem import ServingProblem
from tests.solver.serving.planning.problems import CHAT, nodes, problem, served, sound_plan

Slots = tuple[int, ...]
"""GPUs of each part of a group, largest first."""


def _packs(parts: Sequence[int], islands: tuple[int, ...]) -> bool:
    """Whether parts fit into islands, by trying every island for each."""
    if not parts:
        return True
    return any(
        left >= parts[0] and _packs(parts[1:], (*islands[:i], left - parts[0], *islands[i + 1 :]))
        for i, left in enumerate(islands)
    )


def _choices(kinds: Sequence[Slots], islands: tuple[int, ...], taken: tuple[int, ...] = ()) -> Iterator[list[int]]:
    """Every list of groups (by number, not decreasing) that fits into the islands."""
    yield list(taken)
    for number in range(taken[-1] if taken else 0, len(kinds)):
        parts = sorted((size for each in (*taken, number) for size in kinds[each]), reverse=True)
        if sum(parts) <= sum(islands) and _packs(parts, islands):
            yield from _choices(kinds, islands, (*taken, number))


@cache
def _prices(given: ServingProblem) -> Priced:
    site = site_of(given.snapshot, given.goal)
    return priced(0, given.models[0], site, zones_of(site, optimistic=True), given.goal)


def _slots(prices: Priced, group: int) -> Slots:
    return tuple(size for size, count in prices.groups[group].slots for _ in range(count))


def _islands(given: ServingProblem) -> tuple[int, ...]:
    return tuple(len(node.free_gpus) for node in given.snapshot.cluster.nodes)


AGGREGATED = (ServingMode.AGGREGATED,)
CLUSTERS = [nodes(1, gpus=4), nodes(1, gpus=3), [*nodes(1, gpus=3), *nodes(2, gpus=2)[1:]]]


@pytest.mark.parametrize(
    ("hosts", "objective", "load"),
    [
        (CLUSTERS[0], "goodput", {"concurrency": 70.0}),
        (CLUSTERS[1], "goodput", {"requests_per_s": 4.0}),
        (CLUSTERS[2], "goodput", {"concurrency": 70.0}),
        (CLUSTERS[0], "gpus", {"concurrency": 70.0}),
        (CLUSTERS[2], "gpus", {"concurrency": 70.0}),
    ],
)
def test_no_choice_of_groups_beats_the_program(hosts: list[Node], objective: str, load: dict[str, float]) -> None:
    """Every multiset of groups that packs, each at its highest load: the best is the plan."""
    given = problem(hosts, served("qwen3-32b", **CHAT, **load), objective=objective)
    prices = _prices(given)
    tops = capacities(prices, np.arange(len(prices.groups)))
    able = [g for g in np.flatnonzero(tops.meets & (tops.requests_per_s > 0)).tolist() if prices.top[g] >= 0]
    best_of: dict[Slots, float] = {}
    for g in able:
        value = tops.requests_per_s[g] if objective == "goodput" else tops.concurrency[g]
        best_of[_slots(prices, g)] = max(float(value), best_of.get(_slots(prices, g), 0.0))
    kinds = sorted(best_of)
    best = -math.inf
    for choice in _choices(kinds, _islands(given)):
        value = sum(best_of[kinds[each]] for each in choice)
        gpus = sum(sum(kinds[each]) for each in choice)
        if objective == "goodput":
            best = max(best, value * 1024)
        elif value >= 70.0 * (1 - 1e-9):
            best = max(best, -float(gpus))
    assert sound_plan(given).certificate.objective == pytest.approx(abs(best), rel=1e-3)


@pytest.mark.parametrize(("hosts", "load"), [(CLUSTERS[0], 24.0), (CLUSTERS[1], 3.0), (CLUSTERS[2], 60.0)])
def test_no_division_of_requests_in_flight_beats_the_program(hosts: list[Node], load: float) -> None:
    """Every multiset of replicas, the requests divided among them by a linear program: the best is the plan."""
    given = problem(hosts, served("qwen3-32b", concurrency=load), modes=AGGREGATED)
    best = max(_most_tokens_per_s(given, choice) for choice in _aggregated(given))
    plan = sound_plan(given)
    assert plan.certificate.objective == pytest.approx(best, rel=1e-2)
    assert plan.certificate.bound >= best * (1 - 1e-3)


@pytest.mark.parametrize(("hosts", "load"), [(CLUSTERS[0], 160.0), (CLUSTERS[2], 160.0)])
def test_of_the_plans_with_fewest_gpus_none_answers_sooner(hosts: list[Node], load: float) -> None:
    """Every multiset of replicas on as many GPUs: by Little's law the one that answers most stays shortest."""
    given = problem(hosts, served("qwen3-32b", concurrency=load, **CHAT), objective="gpus", modes=AGGREGATED)
    plan = sound_plan(given)
    prices = _prices(given)
    as_few = [
        _most_tokens_per_s(given, choice)
        for choice in _aggregated(given)
        if sum(prices.groups[g].gpus for g in choice) == plan.gpus
    ]
    assert len(as_few) > 1
    assert plan.tokens_per_s == pytest.approx(max(as_few), rel=1e-2)


def _aggregated(given: ServingProblem) -> Iterator[list[int]]:
    """Every multiset of replicas (by number) that fits, but none at all."""
    prices = _prices(given)
    kinds = [_slots(prices, g) for g in range(len(prices.groups))]
    return (choice for choice in _choices(kinds, _islands(given)) if choice)


def _most_tokens_per_s(given: ServingProblem, choice: Sequence[int]) -> float:
    """Output tokens a second, the requests in flight divided best among ``choice``; 0 where limits are missed."""
    prices = _prices(given)
    points, load = prices.points, given.models[0].workload.concurrency
    assert load is not None
    rows = [np.arange(np.searchsorted(points.group, g), prices.top[g] + 1) for g in choice]
    flat = np.concatenate(rows)
    equal = [np.repeat(np.arange(len(rows)) == own, [len(each) for each in rows]) for own in range(len(rows))]
    answer = linprog(
        -points.requests_per_s[flat],
        A_eq=np.array([*equal, points.concurrency[flat]], dtype=float),
        b_eq=[*([1.0] * len(rows)), load],
    )
    return -answer.fun * 1024 if answer.status == 0 else 0.0


def test_patterns_are_the_ways_to_cut_an_island_full() -> None:
    """Against every multiset of sizes."""

    def every(gpus: int, sizes: tuple[int, ...]) -> set[Slots]:
        found = {(size, *rest) for size in sizes if size <= gpus for rest in every(gpus - size, sizes)}
        return {tuple(sorted(each, reverse=True)) for each in found} | {()}

    for sizes in ((8, 4, 3), (5, 2), (7, 3, 1), (4,)):
        full = {each for each in every(8, sizes) if 8 - sum(each) < min(sizes)}
        assert sorted(patterns_of(8, sizes)) == sorted(full)
