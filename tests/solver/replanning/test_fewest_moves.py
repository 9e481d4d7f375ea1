"""The decision that moves fewest ranks among those worth the same, against every choice there is."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.presentation.sentences import sentence
from cluster_models.jobs.recovery import Migration, MovedRank, RecoveryAction
from solver.problem import Backend
from solver.replanning.decide import Beside, decide_beside
from solver.replanning.explain import reasons_of
from solver.replanning.fewest_moves import with_fewest_moves
from solver.replanning.problem import RecoveryOption, ReplanOptions, ReplanProblem
from solver.replanning.program import Limits, choose
from solver.replanning.values import WORTH_MOVING
from tests.solver.replanning.moves import hosts_of, snapshot
from tests.solver.replanning.samples import one_lost
from tests.solver.replanning.test_program import GPUS, Options, batches, option, pause

WORTH = 1e21
FEW, MANY = 8, 96


def moving(made: RecoveryOption, ranks: int) -> RecoveryOption:
    """``made`` with so many ranks that move."""
    moved = tuple(MovedRank(rank, rank, "n0", rank, "n1", rank, ()) for rank in range(ranks))
    return replace(made, migration=Migration(moved=moved))


def decided(*options: RecoveryOption, gap: float = 0.01) -> dict[str, RecoveryOption]:
    """The choice of a decision among options that were worked out beside its own jobs."""
    problem = ReplanProblem(snapshot(hosts_of(1)), (), ())
    return dict(decide_beside(problem, Beside(options), ReplanOptions(gap=gap)).chosen)


@pytest.mark.parametrize(("lead", "ranks"), [(9e-6, FEW), (0.9 * WORTH_MOVING, FEW), (1.1 * WORTH_MOVING, MANY)])
def test_no_ranks_move_for_what_predictions_cannot_tell(lead: float, ranks: int) -> None:
    """96 ranks move where that is worth more than links drift by, else the 8 that must."""
    far = moving(option("a", WORTH * (1 + lead), *GPUS[:2]), MANY)
    near = moving(option("a", WORTH, *GPUS[:1]), FEW)
    assert len(decided(far, near, pause("a"))["a"].migration.moved) == ranks


def test_a_gap_that_is_asked_for_is_kept() -> None:
    """Whoever asks for a finer gap than that gets it, but for what is worth the same."""
    far, near = moving(option("a", WORTH * 1.001, GPUS[0]), MANY), moving(option("a", WORTH, GPUS[1]), FEW)
    assert decided(far, near, gap=1e-4)["a"] == far
    same = moving(option("a", WORTH * (1 + 9e-6), GPUS[0]), MANY)
    assert decided(same, near, gap=0.0)["a"] == near


def test_what_was_worth_a_trifle_more_is_said_to_move_too_many_ranks() -> None:
    """Nobody reads of a budget or of other jobs that there are not."""
    problem = one_lost()
    far, near = moving(option("a", WORTH * 1.002, GPUS[0]), MANY), moving(option("a", WORTH, GPUS[1]), FEW)
    _, why = reasons_of(problem, problem.jobs[0], near, [far], {})
    assert sentence(why).endswith("would be worth 0.2 % more, too little for moving 96 ranks")


def test_a_paused_job_that_a_budget_stops_reads_of_the_budget() -> None:
    """Standing still is worth nothing, of which everything is more than a trifle."""
    problem = one_lost()
    _, why = reasons_of(problem, problem.jobs[0], pause("a"), [moving(option("a", WORTH, GPUS[0]), MANY)], {})
    assert sentence(why).endswith("which the GPU budget does not leave it")


def test_no_job_stands_still_so_that_others_move_less() -> None:
    """A light job beside a heavy one is worth less than predictions can tell of both, and still gets its GPUs."""
    heavy = option("a", 1000 * WORTH, GPUS[0], action=RecoveryAction.NONE)
    light = moving(option("b", WORTH, GPUS[1]), FEW)
    assert decided(heavy, light, pause("b"))["b"] == light


@settings(max_examples=20)
@given(options=batches(), data=st.data(), backend=st.sampled_from(Backend))
def test_fewest_ranks_of_all_combinations_worth_the_same(
    options: Options, data: st.DataObject, backend: Backend
) -> None:
    """As every combination tried by hand: the fewest ranks within the slack, and of those the most value."""
    drawn = [moving(made, data.draw(st.integers(0, 4))) if made.holds else made for made in options]
    nearly = [replace(made, value_flop=1e20 + made.value_flop / 100) if made.holds else made for made in drawn]
    first = choose(nearly, Limits(), backend=backend)
    assert first is not None
    slack = data.draw(st.floats(1e-5, 1e-2)) * first.objective
    found = with_fewest_moves(nearly, Limits(), first.chosen, slack_flop=slack, backend=backend)
    own = first.chosen
    alike = [
        taken
        for taken in product(*([made for made in nearly if made.job_id == job] for job in sorted(own)))
        if sum(len(made.holds) for made in taken) == len({gpu for made in taken for gpu in made.holds})
        and all(own[x.job_id].value_flop - x.value_flop <= WORTH_MOVING * own[x.job_id].value_flop for x in taken)
        and sum(own[x.job_id].value_flop - x.value_flop for x in taken) <= slack * (1 - 1e-6)
    ]
    assert ranks(tuple(found.values())) <= min(map(ranks, alike))
    assert sum(made.value_flop for made in found.values()) >= first.objective - slack


def ranks(taken: tuple[RecoveryOption, ...]) -> int:
    """Ranks that move."""
    return sum(len(made.migration.moved) for made in taken)
