"""The outlook before a search: never better than what the search ends with, and the fewest GPUs by trying each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_models.errors import InvalidInput
from cluster_models.training.plan import NoPlan, Plan
from solver.outlook import Outlook, outlook
from solver.problem import PlanningProblem, SearchOptions
from solver.search import plan
from tests.solver.problems import nodes, problem

ASKED = problem(nodes(4, gpus=2), global_batch=16)


def _with_memory(count: int, gib: float) -> PlanningProblem:
    """As many nodes, whose GPUs may fill so many GiB."""
    return problem(nodes(count, gpus=2), global_batch=16, memory_headroom=1 - gib / 80)


def test_the_first_plan_is_no_better_than_the_search() -> None:
    """It is one of those that the search looks at, and all of them are listed where the time suffices."""
    seen, found = outlook(ASKED, pricing_s=60.0), plan(ASKED, SearchOptions())
    assert isinstance(seen, Outlook)
    assert isinstance(found, Plan)
    assert seen.first is not None
    assert seen.first.step_s >= found.certificate.bound * (1 - 1e-9)
    assert seen.is_complete
    assert seen.configurations == found.certificate.candidates_total
    assert seen.too_large == found.certificate.candidates_infeasible


def test_no_time_still_gives_an_answer() -> None:
    """The first configurations are priced whatever the time, and the outlook says that others were not."""
    seen = outlook(ASKED, pricing_s=0.0)
    assert isinstance(seen, Outlook)
    assert seen.first is not None


@pytest.mark.parametrize("gib", [1.5, 2.5, 4.0, 8.0])
def test_the_fewest_gpus_are_those_of_the_first_size_that_fits(gib: float) -> None:
    """Tried node by node, by clusters of so many nodes."""
    whole = _with_memory(4, gib)
    seen = outlook(whole, pricing_s=60.0)
    alone = [
        count for count in range(1, 5) if isinstance(outlook(_with_memory(count, gib), pricing_s=60.0), Outlook)
    ]
    if isinstance(seen, NoPlan):
        assert not alone
        return
    assert seen.least_gpus == 2 * alone[0]


def test_contradictions_are_refused_as_by_a_search() -> None:
    """Nothing is priced."""
    wrong = replace(ASKED, workload=replace(ASKED.workload, pinned={"tensor": 3}))
    with pytest.raises(InvalidInput, match="tensor"):
        outlook(wrong)
