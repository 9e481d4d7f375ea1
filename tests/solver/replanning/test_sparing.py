"""Fewer bytes for next to nothing: never for more, and never at the cost of another job."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cluster_models.recovery import Migration, MigrationBytes, RecoveryAction
from solver.replanning.problem import RecoveryOption
from solver.replanning.program import Gpu, Limits
from solver.replanning.sparing import GIVEN_UP, spare_moves

GAP = 0.01


def option(job: str, value: float, moved: float, *holds: Gpu) -> RecoveryOption:
    """An option worth ``value`` that moves so many bytes and holds ``holds``."""
    moves = Migration(bytes=MigrationBytes(storage=moved))
    return RecoveryOption(job, RecoveryAction.SWAP, frozenset(holds), value, 0.0, "", moves, None, "")


@st.composite
def choices(draw: st.DrawFn) -> tuple[dict[str, list[RecoveryOption]], dict[str, RecoveryOption]]:
    """Options of up to three jobs on six GPUs, and one of each that no other gets in the way of."""
    options: dict[str, list[RecoveryOption]] = {}
    for number, job in enumerate("abc"[: draw(st.integers(1, 3))]):
        own = ("n", number)
        options[job] = [option(job, 1000.0, 9.0, own)]
        for _ in range(draw(st.integers(0, 4))):
            held = draw(st.sets(st.sampled_from([("n", gpu) for gpu in range(6)]), min_size=1, max_size=3))
            value = draw(st.sampled_from([980.0, 994.0, 996.0, 1000.0]))
            options[job].append(option(job, value, draw(st.sampled_from([0.0, 5.0, 9.0, 12.0])), *held))
    return options, {job: found[0] for job, found in options.items()}


@given(choices(), st.sampled_from([None, 2, 4]), st.sampled_from([0.0, 0.998]))
def test_little_is_given_up_and_no_gpu_goes_to_two_jobs(
    known: tuple[dict[str, list[RecoveryOption]], dict[str, RecoveryOption]], budget: int | None, floor: float
) -> None:
    options, chosen = known
    limits, floor_flop = Limits(budget), floor * sum(each.value_flop for each in chosen.values())
    made = spare_moves(options, chosen, limits, gap=GAP, floor_flop=floor_flop)
    held = [gpu for each in made.values() for gpu in each.holds]
    assert len(held) == len(set(held))
    assert sum(each.value_flop for each in made.values()) >= floor_flop
    for job, each in made.items():
        assert each.value_flop >= chosen[job].value_flop * (1 - GIVEN_UP * GAP)
        assert each.migration.bytes.total <= chosen[job].migration.bytes.total
        assert each is chosen[job] or budget is None or len(held) <= max(budget, len(chosen))


def test_the_option_that_moves_least_is_taken_where_it_is_worth_about_as_much() -> None:
    heavy, light = option("a", 1000.0, 9.0, ("n", 0)), option("a", 996.0, 1.0, ("n", 1))
    worse = replace(light, value_flop=994.0)
    assert spare_moves({"a": [heavy, light]}, {"a": heavy}, Limits(), gap=GAP, floor_flop=0.0) == {"a": light}
    assert spare_moves({"a": [heavy, worse]}, {"a": heavy}, Limits(), gap=GAP, floor_flop=0.0) == {"a": heavy}
    assert spare_moves({"a": [heavy, light]}, {"a": heavy}, Limits(), gap=GAP, floor_flop=998.0) == {"a": heavy}
