"""Spares on lost slots against every way to put them there."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.compiled import step_seconds, violations
from solver.placement.problem import PlacementProblem
from solver.replanning import spare_assignment
from solver.replanning.spare_assignment import exchanged, fill_slots, with_units
from tests.solver.placement_cases import placement_problems


def every_way(
    placement: PlacementProblem, slots: list[int], spares: list[int], allowed: int, price_s: dict[int, float]
) -> float:
    """The shortest step of all ways to fill the slots, prices included; infinite where rules forbid all."""
    best = np.inf
    for units in permutations(spares, len(slots)):
        assignment = with_units(np.arange(placement.slots), slots, units)
        if violations(assignment, placement.arrays.rules) <= allowed:
            price = sum(price_s.get(unit, 0.0) for unit in units)
            best = min(best, step_seconds(assignment, placement.arrays)[0] + price)
    return float(best)


@settings(max_examples=75)
@given(placement=placement_problems(), lost=st.integers(1, 3), priced=st.booleans(), data=st.data())
def test_filled_slots_are_the_best_of_all_ways(
    placement: PlacementProblem, lost: int, priced: bool, data: st.DataObject
) -> None:
    """With switches, rules and prices; spares that nothing tells apart are tried once and lose nothing by it."""
    slots = list(range(min(lost, placement.slots)))
    spares = list(range(placement.slots, placement.nodes))
    home = np.arange(placement.slots)
    allowed = data.draw(st.integers(0, 2))
    price_s = {unit: data.draw(st.integers(0, 3)) / 2 for unit in spares} if priced else {}
    found = fill_slots(placement, home, slots, spares, price_s=price_s, allowed=allowed)
    best = every_way(placement, slots, spares, allowed, price_s)
    if found is None:
        assert best == np.inf
        return
    units = found.assignment[slots].tolist()
    assert found.is_best
    assert len(set(units)) == len(units)
    assert set(units) <= set(spares)
    assert np.array_equal(np.delete(found.assignment, slots), np.delete(home, slots))
    assert found.step_s + sum(price_s.get(unit, 0.0) for unit in units) == pytest.approx(best)


@settings(max_examples=30)
@given(placement=placement_problems(), lost=st.integers(1, 3))
def test_what_is_too_wide_to_enumerate_is_matched_and_never_beats_the_best(
    placement: PlacementProblem, lost: int
) -> None:
    """The same problems by matching and exchanges: legal, and no better than the best of all ways."""
    slots = list(range(min(lost, placement.slots)))
    spares = list(range(placement.slots, placement.nodes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spare_assignment, "MOST_ENUMERATED", 0)
        found = fill_slots(placement, np.arange(placement.slots), slots, spares)
    best = every_way(placement, slots, spares, 0, {})
    if found is not None:
        assert not found.is_best
        assert found.step_s >= best - 1e-12
        assert violations(found.assignment, placement.arrays.rules) == 0


@settings(max_examples=30)
@given(placement=placement_problems(), slot=st.integers(0, 40))
def test_exchanges_save_what_they_must_and_keep_the_units(placement: PlacementProblem, slot: int) -> None:
    """Every exchange is worth its share of the step; no exchange with the slot that would be is left."""
    home, slots = np.arange(placement.slots), [slot % placement.slots]
    broken = int(violations(home, placement.arrays.rules))
    before = step_seconds(home, placement.arrays)[0]
    found = exchanged(placement, home, slots, least_gain=0.1, allowed=broken)
    after = step_seconds(found, placement.arrays)[0]
    assert sorted(found) == sorted(home)
    assert np.array_equal(found, home) or after <= before * 0.9
    for other in range(placement.slots):
        once = found.copy()
        once[slots[0]], once[other] = found[other], found[slots[0]]
        legal = violations(once, placement.arrays.rules) <= broken
        assert not legal or step_seconds(once, placement.arrays)[0] > after * 0.9 - 1e-12
