"""Candidates that stay prepared while a search goes on."""

from __future__ import annotations

from typing import Any

import pytest

from solver import search_state
from solver.degrees.priced import price_candidates
from solver.search_state import first_state
from tests.solver.problems import fabrics_of, nodes, planned, problem


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The candidates that were prepared, one after the other."""
    seen: list[tuple[int, ...]] = []
    own = search_state.prepare

    def prepare(asked: Any, fabric: Any, batch: Any, *staging: Any) -> Any:
        seen.append(tuple(int(getattr(batch, name)[0]) for name in batch.__slots__))
        return own(asked, fabric, batch, *staging)

    monkeypatch.setattr(search_state, "prepare", prepare)
    return seen


def test_no_candidate_of_a_small_search_is_prepared_twice(rows: list[tuple[int, ...]]) -> None:
    """The plan and the alternatives are told of as they were placed."""
    assert planned(problem(nodes(2, gpus=2), global_batch=4)).alternatives
    assert len(rows) == len(set(rows)) > 1


def test_the_one_used_longest_ago_goes_first(rows: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of two nodes fit: of 0, 1, 0, 2 the first stays."""
    asked = problem(nodes(2, gpus=2), global_batch=4)
    usable = fabrics_of(asked)
    state = first_state(price_candidates(asked, usable), usable)
    monkeypatch.setattr(search_state, "MOST_READY_PAIRS", 2 * usable[0].nodes ** 2)
    for index, prepared in ((0, 1), (1, 2), (0, 2), (2, 3), (0, 3), (1, 4)):
        state.prepared(asked, index)
        assert len(rows) == prepared, index


def test_nodes_may_name_their_gpus_as_the_catalogue_does_not() -> None:
    """A cluster calls its kinds what it likes: the plan is that of the same kind under its own name."""
    alike = [planned(problem(nodes(2, gpus=2, gpu=name), global_batch=4)) for name in ("H100", "H100-SXM5-80GB")]
    assert alike[0].mfu == alike[1].mfu
