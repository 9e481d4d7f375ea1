"""The program of a batch against every choice there is, and its bounds against what they bound."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.jobs.recovery import Migration, RecoveryAction
from cluster_models.remarks import remark
from solver.problem import Backend
from solver.replanning.problem import RecoveryOption
from solver.replanning.program import Gpu, Limits, Promise, choose, prices, relaxed

GPUS: tuple[Gpu, ...] = tuple((f"n{node}", gpu) for node in range(4) for gpu in range(2))
TOLERANCE = 1e-6
Options = list[RecoveryOption]


def option(job: str, value: float, *holds: Gpu, action: RecoveryAction = RecoveryAction.SWAP) -> RecoveryOption:
    """An option that holds ``holds``."""
    return RecoveryOption(
        job, action, frozenset(holds), value, 0.0, remark("limit_gpus"), Migration(), None, remark("nothing_lost")
    )


def pause(job: str) -> RecoveryOption:
    """An option that is always possible."""
    return option(job, 0.0, action=RecoveryAction.PAUSE)


@st.composite
def batches(draw: st.DrawFn) -> Options:
    """Up to four jobs with up to five options beside the pause, on eight GPUs."""
    found = []
    for job in "abcd"[: draw(st.integers(1, 4))]:
        found.append(pause(job))
        for _ in range(draw(st.integers(0, 5))):
            held = draw(st.sets(st.sampled_from(GPUS), min_size=1, max_size=6))
            found.append(option(job, float(draw(st.integers(1, 30))) * 1e19, *held))
    return found


def best_by_hand(options: Options, budget: int | None = None) -> float:
    """The best of every combination of one option a job."""
    jobs = sorted({made.job_id for made in options})
    return max(
        sum(made.value_flop for made in taken)
        for taken in product(*([made for made in options if made.job_id == job] for job in jobs))
        if _fits(taken, budget)
    )


def _fits(taken: tuple[RecoveryOption, ...], budget: int | None) -> bool:
    held = [gpu for made in taken for gpu in made.holds]
    return len(held) == len(set(held)) and (budget is None or len(held) <= budget)


@settings(max_examples=20)
@given(options=batches(), budget=st.none() | st.integers(0, 8), backend=st.sampled_from(Backend))
def test_choice_is_the_best_of_all_combinations(options: Options, budget: int | None, backend: Backend) -> None:
    """One option a job, no GPU twice, the budget kept, and the value of the best combination."""
    choice = choose(options, Limits(budget), backend=backend)
    assert choice is not None
    assert set(choice.chosen) == {made.job_id for made in options}
    assert _fits(tuple(choice.chosen.values()), budget)
    assert choice.objective == pytest.approx(best_by_hand(options, budget))
    assert choice.bound == pytest.approx(choice.objective, rel=TOLERANCE, abs=1e15)


@settings(max_examples=12)
@given(options=batches(), data=st.data())
def test_order_of_options_does_not_matter(options: Options, data: st.DataObject) -> None:
    """The same options in another order give the same choice."""
    shuffled = data.draw(st.permutations(options))
    first, second = choose(options, Limits()), choose(shuffled, Limits())
    assert first is not None
    assert second is not None
    assert first.chosen == second.chosen


@settings(max_examples=30)
@given(options=batches(), budget=st.none() | st.integers(0, 8))
def test_relaxation_bounds_and_prices_every_option(options: Options, budget: int | None) -> None:
    """The bound is no less than the optimum, and at its prices no option beats what its job adds."""
    limits = Limits(budget, {"all": frozenset(GPUS)})
    priced = prices(options, (), limits)
    best = best_by_hand(options, budget)
    assert priced.bound >= best * (1 - TOLERANCE)
    assert all(priced.reduced(made) <= TOLERANCE * 1e20 for made in options)


@settings(max_examples=30)
@given(options=batches(), data=st.data(), budget=st.none() | st.integers(0, 8))
def test_promises_bound_the_options_that_they_stand_for(
    options: Options, data: st.DataObject, budget: int | None
) -> None:
    """With any options replaced by promises about them, both bounds still hold for all of them."""
    limits = Limits(budget, {"first": frozenset(GPUS[:4]), "all": frozenset(GPUS)})
    hidden = data.draw(st.sets(st.integers(0, len(options) - 1)))
    promises = [
        Promise(
            made.job_id,
            made.value_flop * 1.01,
            frozenset(sorted(made.holds)[:1]),
            {name: len(made.holds & pool) for name, pool in limits.pools.items()},
            len(made.holds),
        )
        for made in (options[index] for index in hidden)
    ]
    known = [made for index, made in enumerate(options) if index not in hidden]
    best = best_by_hand(options, budget)
    tight = relaxed(known, promises, limits).bound
    assert tight >= best * (1 - TOLERANCE)
    assert prices(known, promises, limits).bound >= tight * (1 - TOLERANCE)


def test_scarce_gpu_goes_to_the_job_that_makes_more_of_it() -> None:
    """Two jobs want one spare: the heavier gets it, and the price of the spare is what the lighter would give."""
    spare = GPUS[0]
    options = [pause("a"), pause("b"), option("a", 3e20, spare), option("b", 5e20, spare)]
    choice = choose(options, Limits())
    assert choice is not None
    assert choice.chosen["b"].holds == {spare}
    assert not choice.chosen["a"].holds
    worth = prices(options, (), Limits()).gpus[spare]
    assert 3e20 * (1 - TOLERANCE) <= worth <= 5e20 * (1 + TOLERANCE)


def test_freed_gpus_serve_another_job() -> None:
    """A job that shrinks gives two GPUs to one that would stand still without them."""
    small = option("a", 4e20, *GPUS[:2], action=RecoveryAction.SHRINK_DATA_PARALLEL)
    options = [
        pause("a"), pause("b"), small, option("a", 5e20, *GPUS[:4]), option("b", 3e20, *GPUS[2:6]),
    ]  # fmt: skip
    choice = choose(options, Limits())
    assert choice is not None
    assert choice.objective == pytest.approx(7e20)
    assert choice.chosen["a"] == small


def test_equal_values_hold_fewer_gpus() -> None:
    """A job that gains nothing by more GPUs leaves them."""
    wide, narrow = option("a", 2e20, *GPUS[:4]), option("a", 2e20, *GPUS[:2])
    choice = choose([pause("a"), wide, narrow], Limits())
    assert choice is not None
    assert choice.chosen["a"] == narrow
