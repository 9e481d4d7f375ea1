"""Traces of spot nodes, and what lives through them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from benchmarks.first_come import first_come
from benchmarks.spot_jobs import KINDS, kinds_for
from benchmarks.spot_replay import figures, main
from benchmarks.spot_run import Broken, Decide, Run, expected_quiet_s, replay
from benchmarks.spot_traces import SpotEvent, batches, made_trace, most_at_once, read_trace, write_trace
from cluster_models.errors import InvalidInput
from cluster_models.jobs.recovery import BatchDecision
from solver.replanning.decide import decide
from solver.replanning.problem import ReplanProblem

WINDOW_S = 60.0


def lived(events: list[SpotEvent], way: Decide, *, jobs: int = 1) -> Run:
    """The run of the first kinds of job."""
    return replay(events, KINDS[:jobs], way, window_s=WINDOW_S, horizon_s=3600.0)


def added(count: int) -> list[SpotEvent]:
    """``count`` nodes from the start on."""
    return [SpotEvent(0.0, added=True, node=f"node{index}") for index in range(count)]


def test_traces_are_written_and_read_alike(tmp_path: Path) -> None:
    """And what is not a line of a trace is refused by number."""
    events = made_trace(1, nodes=8, hours=1.0)
    write_trace(tmp_path / "trace.csv", events)
    assert list(read_trace(tmp_path / "trace.csv")) == events
    (tmp_path / "wrong.csv").write_text("0,add,node1\n5,gone,node1\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="line 2"):
        read_trace(tmp_path / "wrong.csv")


@pytest.mark.parametrize("seed", range(4))
def test_made_traces_look_like_published_ones(seed: int) -> None:
    """Nodes go once, after they came; half of the minutes with removals and more have several; names are new."""
    events = made_trace(seed, hours=12.0)
    alive: set[str] = set()
    for event in events:
        assert (event.node in alive) is not event.added
        (alive.add if event.added else alive.discard)(event.node)
    assert max(Counter((event.node, event.added) for event in events).values()) == 1
    waves = Counter(event.at_s for event in events if not event.added)
    alone = sum(count for count in waves.values() if count == 1)
    assert 0.4 <= 1 - alone / sum(waves.values()) <= 0.95
    assert 20 <= most_at_once(events) <= 32
    windows = list(batches(events, WINDOW_S))
    assert [event for batch in windows for event in batch.events] == events
    assert all(batch.events[-1].at_s < batch.ends_s for batch in windows)


def test_jobs_that_lose_nothing_work_all_the_time() -> None:
    """Nothing moves, and the work is throughput times time; a node that comes later changes nothing."""
    run = lived([*added(5), SpotEvent(600.0, added=True, node="late")], decide)
    assert run.ended_s - run.started_s == 600.0
    assert run.net_flop == run.work_flop == pytest.approx(run.most_flop)
    assert run.moved_bytes == 0


def test_a_job_stands_still_from_the_loss_to_the_end_of_its_downtime() -> None:
    """One node of four goes, one spare is there: the job works except for the window and what the swap takes."""
    seen: list[BatchDecision] = []
    looked_ahead_s: list[float] = []

    def noted(problem: ReplanProblem) -> BatchDecision:
        looked_ahead_s.append(problem.horizon_s)
        seen.append(decide(problem))
        return seen[-1]

    events = [*added(5), SpotEvent(600.0, added=False, node="node1"), SpotEvent(6000.0, added=True, node="late")]
    run = lived(events, noted)
    (made,) = seen[0].jobs
    (state,) = run.states
    assert state.down_s == pytest.approx(WINDOW_S + made.migration.downtime.middle_s)
    worked_s = run.ended_s - run.started_s - state.down_s
    assert run.work_flop == pytest.approx(run.most_flop * worked_s / (run.ended_s - run.started_s))
    assert run.moved_bytes == made.migration.bytes.total > 0
    assert run.net_flop < run.work_flop
    assert looked_ahead_s[0] == 600.0, "until it was hit for the first time"


def test_more_work_than_first_come_on_a_wave_that_comes_back() -> None:
    """Three nodes of two jobs go, three others come: no rule is broken, and decisions make more of it."""
    gone = [SpotEvent(600.0, added=False, node=name) for name in ("node1", "node5", "node6")]
    back = [SpotEvent(1500.0, added=True, node=name) for name in ("new1", "new2", "new3")]
    events = [*added(10), *gone, *back, SpotEvent(9000.0, added=True, node="late")]
    ours = lived(events, decide, jobs=2)
    greedy = lived(events, first_come, jobs=2)
    growing = lived(events, partial(first_come, grows=True), jobs=2)
    assert ours.work_flop >= max(greedy.work_flop, growing.work_flop)
    found = figures(ours)
    assert 0 <= found["gap"] < 0.1
    assert 0 < found["work_share"] < 1


def test_decisions_that_break_a_rule_are_found() -> None:
    """One that leaves a job on a node that is gone."""

    def idle(problem: ReplanProblem) -> BatchDecision:
        made = decide(problem)
        return replace(made, jobs=(), untouched=tuple(job.id for job in problem.jobs), objective=0.0)

    with pytest.raises(Broken, match="lost GPUs"):
        lived([*added(5), SpotEvent(600.0, added=False, node="node1")], idle)


def test_the_look_ahead_follows_the_hits_seen() -> None:
    """None seen: for ever; three in two jobs' hour: forty minutes."""
    assert expected_quiet_s(0, at_work_s=50.0) == float("inf")
    assert expected_quiet_s(3, at_work_s=2 * 3600.0) == 2400.0


def test_the_command_prints_every_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON with all figures; a trace with too few nodes is refused."""
    events = [*added(5), SpotEvent(600.0, added=False, node="node1"), SpotEvent(3000.0, added=True, node="late")]
    write_trace(tmp_path / "trace.csv", events)
    assert main(["--trace", str(tmp_path / "trace.csv"), "--jobs", "1", "--json", "--prices", "0", "1e6"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 4
    assert rows["decide, 0 GPU-h/TB"]["swaps"] == 1
    dear = rows["decide, 1e+06 GPU-h/TB"]
    assert dear["moved_tb"] == 0 < rows["decide, 0 GPU-h/TB"]["moved_tb"]
    assert dear["work_eflop"] < rows["decide, 0 GPU-h/TB"]["work_eflop"]
    write_trace(tmp_path / "few.csv", added(2))
    assert main(["--trace", str(tmp_path / "few.csv")]) == 2
    assert "at once" in capsys.readouterr().err
    assert kinds_for(9, 11) == KINDS[:2]
