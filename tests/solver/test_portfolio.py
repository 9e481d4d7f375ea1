"""Proofs of several plans, and what they say about each other."""

from __future__ import annotations

import math

import pytest

from solver.answer.portfolio import Member, Proof, joint_proof, proofs


def _on(gpus: float, value: float | None, bound: float | None, *, space: str = "s", work: str = "w") -> Member:
    return Member(space, work, gpus, value, bound)


def test_a_plan_on_fewer_gpus_is_one_on_more_and_bounds_go_the_other_way() -> None:
    """The search on 8 found 4.0, that on 16 only 5.0; nothing on 16 beats 3.0, so nothing on 8 does."""
    assert proofs([_on(8, 4.0, 2.0), _on(16, 5.0, 3.0)]) == (Proof(4.0, 0, 3.0), Proof(4.0, 0, 3.0))


def test_seeds_of_one_problem_share_the_best_plan_and_the_best_bound() -> None:
    """Equal members prove each other's plans."""
    best = Proof(4.0, 1, 3.9)
    assert proofs([_on(math.inf, 5.0, 3.9), _on(math.inf, 4.0, 1.0)]) == (best, best)
    joint = joint_proof([_on(math.inf, 5.0, 3.9), _on(math.inf, 4.0, 1.0)])
    assert joint == best
    assert joint is not None
    assert joint.gap == pytest.approx(0.025)


def test_what_fits_nowhere_on_many_fits_nowhere_on_few() -> None:
    """An infinite bound says so; where nothing fits at 4 others may still have a plan."""
    assert proofs([_on(4, None, None), _on(8, None, math.inf)])[0] == Proof(None, None, math.inf)
    assert joint_proof([_on(4, None, math.inf), _on(8, 4.0, 3.0)]) == Proof(4.0, 1, 3.0)


def test_other_spaces_prove_nothing_of_each_other() -> None:
    """Pins make other spaces: the best of both is known, and is bounded by the weaker of the bounds."""
    members = [_on(8, 4.0, 3.5, space="tp8"), _on(8, 5.0, 2.0, space="tp4")]
    assert proofs(members) == (Proof(4.0, 0, 3.5), Proof(5.0, 1, 2.0))
    assert joint_proof(members) == Proof(4.0, 0, 2.0)


def test_without_every_bound_there_is_no_proof_and_other_work_is_not_compared() -> None:
    """A member that failed may have had a better plan, unless one on more GPUs bounds it."""
    assert joint_proof([_on(8, 4.0, 3.5), _on(8, None, None, space="t")]) == Proof(4.0, 0, None)
    assert joint_proof([_on(4, None, None), _on(8, 4.0, 3.5)]) == Proof(4.0, 1, 3.5)
    assert joint_proof([_on(8, 4.0, 3.5), _on(8, 4.0, 3.5, work="v")]) is None
    assert joint_proof([]) is None
