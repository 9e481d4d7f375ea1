"""Where predictions and outlooks for requests are worked out: in the web process only what takes a second."""

from __future__ import annotations

from typing import Any

import pytest

from app.documents.configuration import ConfigurationDocument
from app.serialization import make_snapshot
from app.services.planning import pricing_beside
from app.services.planning.predictions import predict_configuration
from app.services.planning.pricing_beside import outlook_for_request, predict_for_request
from solver.outlook import outlook
from solver.problem import PlanningProblem
from tests.plans import small_architecture, small_cluster, small_plan, small_samples, small_workload

PROBLEM = PlanningProblem(make_snapshot(small_cluster(), small_samples()), small_architecture(), small_workload())
GIVEN = ConfigurationDocument.from_plan(small_plan())


@pytest.mark.parametrize("limit", ["MOST_NODES", "MOST_PASSES"])
def test_what_is_large_is_priced_beside_the_web_process(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More nodes, or a longer schedule; with the same answer."""
    beside: list[str] = []

    def in_subprocess(function: Any, *arguments: object, limit_s: float, what: str, command: str) -> Any:
        beside.append(f"{what} {limit_s:g} {command}")
        return function(*arguments)

    monkeypatch.setattr(pricing_beside, "in_subprocess", in_subprocess)
    expected = predict_configuration(PROBLEM, document=GIVEN)
    assert predict_for_request(PROBLEM, document=GIVEN) == expected
    assert not beside
    monkeypatch.setattr(pricing_beside, limit, 1)
    assert predict_for_request(PROBLEM, document=GIVEN) == expected
    assert beside == ["configuration 120 meshwright predict"]
    monkeypatch.setattr(pricing_beside, limit, 40)
    assert predict_for_request(PROBLEM, document=GIVEN, alike=20) == expected
    assert len(beside) == 2
    monkeypatch.setattr(pricing_beside, limit, 1)
    if limit == "MOST_NODES":
        assert outlook_for_request(outlook, PROBLEM) == outlook(PROBLEM)
        assert beside[2:] == ["cluster 120 meshwright plan"]
