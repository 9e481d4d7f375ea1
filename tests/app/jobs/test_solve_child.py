"""The real solving process, on the small problem."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from app.jobs import solve_child
from app.jobs.child import ChildEnd, Ending, run_child
from app.serialization import jsonable, load, make_snapshot
from cluster_models.training.plan import NoPlan, Plan
from solver.check import check_plan
from solver.problem import IsCancelled, OnProgress, PlanningProblem, Progress, SearchOptions
from solver.serving import plan as serving_plan
from solver.serving.planning.reports import ServingReports
from tests.plans import small_architecture, small_cluster, small_no_plan, small_samples, small_workload
from tests.solver.serving.planning.problems import CHAT, OPTIONS, nodes, problem, served

SMALL = PlanningProblem(make_snapshot(small_cluster(), small_samples()), small_architecture(), small_workload())


def _request(**changes: Any) -> dict[str, Any]:
    request: dict[str, Any] = jsonable(SMALL)
    return request | {"options": jsonable(SearchOptions(time_limit_s=20.0)), "memory_limit_bytes": None} | changes


def _solve(tmp_path: Path, request: dict[str, Any], progress: list[dict[str, Any]] | None = None) -> ChildEnd:
    return run_child(
        (sys.executable, "-m", "app.jobs.solve_child"),
        json.dumps(request).encode(),
        hard_limit_s=120.0,
        scratch_root=tmp_path,
        on_progress=(progress if progress is not None else []).append,
        should_stop=lambda: False,
    )


def test_it_answers_with_a_sound_plan_and_tells_of_progress(tmp_path: Path) -> None:
    """The plan passes the independent check here, too."""
    progress: list[dict[str, Any]] = []
    end = _solve(tmp_path, _request(), progress)
    assert end.ending is Ending.ANSWERED, end.stderr_tail
    assert end.answer is not None
    assert end.answer["kind"] == "plan", end.answer
    assert check_plan(load(Plan, end.answer["plan"]), SMALL) == ()
    assert progress
    assert progress[-1]["candidates_total"] > 0


def test_enough_is_heard_once_a_plan_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that is asked to stop before goes on until then."""
    heard: list[bool] = []

    def plan(
        _problem: object, _options: object, *, on_progress: OnProgress, is_cancelled: IsCancelled, on_draft: object
    ) -> NoPlan:
        newest = Progress(0.1, "search", 2, 1, None, 0.5, None, None)
        for incumbent in (None, "tp2"):
            on_progress(replace(newest, incumbent=incumbent))
            heard.append(is_cancelled())
        return small_no_plan()

    enough = Event()
    monkeypatch.setattr(solve_child, "ENOUGH", enough)
    monkeypatch.setattr(solve_child, "plan", plan)
    for _ in range(2):
        solve_child.solve(SMALL, SearchOptions(), solve_child.Talk(io.StringIO()))
        enough.set()
    assert heard == [False, False, False, True]


def test_a_search_for_serving_drafts_and_hears_of_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its drafts go out checked, and once a plan is known whoever wants that gets it."""
    asked = problem(nodes(1, gpus=2), served("llama-3.1-8b", **CHAT), objective="goodput")
    monkeypatch.setattr(serving_plan, "ServingReports", partial(ServingReports, due_s=0.0))
    enough, out = Event(), io.StringIO()
    enough.set()
    monkeypatch.setattr(solve_child, "ENOUGH", enough)
    answer = solve_child.work(jsonable(asked) | {"options": jsonable(OPTIONS)}, out)
    assert answer["kind"] == "plan", answer
    assert answer["plan"]["certificate"]["stopped_by"] == "cancelled"
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [message["answer"]["kind"] for message in told if message["kind"] == "draft"] == ["plan"]
    assert told[0]["objective"] == "goodput"


def test_nothing_fits_is_an_answer(tmp_path: Path) -> None:
    """A model that needs more memory than there is yields the reason and remedies, not a failure."""
    request = _request()
    request["architecture"] |= {"hidden": 65536, "mlp_hidden": 262144, "layers": 64}
    end = _solve(tmp_path, request)
    assert end.answer is not None, end.stderr_tail
    assert end.answer["kind"] == "no_plan", end.answer
    assert load(NoPlan, end.answer["no_plan"]).remedies


def test_too_little_memory_ends_the_solve_alone(tmp_path: Path) -> None:
    """Under a limit that leaves no room there is no plan: the process says so, or dies where a library gives up."""
    cluster = small_cluster()
    nodes = tuple(replace(cluster.nodes[0], name=f"n{number}", nvlink_domain=f"n{number}") for number in range(200))
    large = jsonable(make_snapshot(replace(cluster, nodes=nodes), ()))
    end = _solve(tmp_path, _request(snapshot=large, memory_limit_bytes=1024**2))
    assert end.ending in {Ending.ANSWERED, Ending.CRASHED}
    assert end.answer is None or end.answer["kind"] == "failed"


def test_a_contradiction_fails_with_its_field(tmp_path: Path) -> None:
    """A mistake that slipped through the checks of the service is told in the solver's own words."""
    request = _request()
    request["workload"]["pinned"] = {"tensor": 3}
    end = _solve(tmp_path, request)
    assert end.answer is not None
    assert end.answer["kind"] == "failed"
    assert "workload.pinned.tensor" in end.answer["error"]["problem"]
