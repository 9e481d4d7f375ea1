"""The engine in this process decides on failures, whatever is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, select
from sqlalchemy.exc import OperationalError

from app.db.engine import SessionFactory, transaction
from app.db.running_tables import PreparedJobRow
from app.db.status import ReplanStatus
from app.jobs.runtime import JobRuntime
from app.metrics import make_metrics
from app.serialization import jsonable, load
from app.services.decisions import preparations, replan_solves, replan_views, replans, reports
from app.services.decisions.replans import Answer, ReplanRecord
from app.services.running import occupancy
from app.settings import REPLAN_COMMAND, Role, Settings
from cluster_models.jobs.recovery import RecoveryAction
from cluster_models.jobs.running import RecoveryPolicy
from solver.replanning.check import check_decision
from solver.replanning.prepared import PreparedJob
from tests.app import stand_in_solver
from tests.app.plan_rows import wait_until
from tests.app.running_rows import CLUSTER, add_cluster, add_job, decided, plan_on, told

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

WORKER = """
import sys
from app.jobs.worker import run_worker
from app.settings import Settings
run_worker(Settings.model_validate_json(sys.argv[1]))
"""


def _settings(tmp_path: Path, database_url: str, *command: str) -> Settings:
    return Settings(
        data_dir=tmp_path,
        database_url=database_url,
        replan_command=command or REPLAN_COMMAND,
        overrun_s=5.0,
        heartbeat_s=0.2,
    )


def _stand_in(tmp_path: Path, **options: object) -> tuple[str, ...]:
    told_what = {"ledger": str(tmp_path / "ledger"), **options}
    return sys.executable, stand_in_solver.__file__, json.dumps(told_what)


@contextmanager
def _running(settings: Settings, sessions: SessionFactory) -> Iterator[JobRuntime]:
    runtime = JobRuntime(settings, sessions, make_metrics())
    runtime.start()
    try:
        yield runtime
    finally:
        runtime.stop()


def _failed(sessions: SessionFactory, tmp_path: Path) -> str:
    """A job on n0 and n1, a spare n7; n0 failed so long ago that the window is over.  The answer is in a file."""
    with transaction(sessions) as session:
        add_cluster(session)
        job = add_job(session, "a", "n0", "n1", recovery=RecoveryPolicy(may_reshape=False))
        occupancy.replace_spares(session, reference=CLUSTER, nodes=["n7"])
        then = datetime.now(UTC) - timedelta(seconds=61)
        replan_id = reports.report(session, reference=CLUSTER, told=[told("n0")], now=then).replan_id
        assert replan_id is not None
    answer = decided({job: (RecoveryAction.SWAP, plan_on("n7", "n1"))})
    (tmp_path / "decision.json").write_text(json.dumps(jsonable(answer)))
    return replan_id


def _read(sessions: SessionFactory, replan_id: str) -> ReplanRecord:
    with sessions() as session:
        return replans.get_replan(session, replan_id=replan_id)


def _starts(tmp_path: Path) -> int:
    ledger = tmp_path / "ledger"
    return ledger.read_text().count("start") if ledger.exists() else 0


def test_a_window_that_ended_is_decided_on_by_the_real_solver(
    tmp_path: Path, database_url: str, sessions: SessionFactory
) -> None:
    """Safe answer, decision and preparation, with nobody but the keeper to ask for them."""
    replan_id = _failed(sessions, tmp_path)
    with _running(_settings(tmp_path, database_url), sessions):
        wait_until(lambda: _read(sessions, replan_id).status != ReplanStatus.COLLECTING)
        wait_until(lambda: _read(sessions, replan_id).status != ReplanStatus.SOLVING)
        replan = _read(sessions, replan_id)
        assert (replan.status, replan.error) == (ReplanStatus.PROPOSED, None)
        assert replan.has_safe_answer
        with transaction(sessions) as session:
            shown = replan_views.view_answer(session, replan_id=replan_id, answer=Answer.DECISION)
            request = replan_solves.get_request(session, replan_id=replan_id)
            assert shown is not None
            assert request is not None
            assert check_decision(request.to_problem(), shown.decision) == ()
            assert [made.action for made in shown.decision.jobs] == [RecoveryAction.SWAP]
            replans.approve_replan(session, replan_id=replan_id)
            replans.finish_applied(session, replan_id=replan_id)

        def is_prepared() -> bool:
            with sessions() as session:
                return not preparations.wanted(session)

        wait_until(is_prepared)
    with sessions() as session:
        for row in session.scalars(select(PreparedJobRow)):
            assert load(PreparedJob, row.document).job_id


@pytest.mark.parametrize(
    ("behaviour", "starts", "has_decision"), [("crash_once", 2, True), ("crash", 3, False), ("refuse", 1, False)]
)
def test_a_broken_solver_is_tried_again_and_then_the_safe_answer_stands(
    tmp_path: Path, database_url: str, sessions: SessionFactory, behaviour: str, starts: int, has_decision: bool
) -> None:
    """Crashes are tried twice more; what remains is the safe answer, with the reason."""
    replan_id = _failed(sessions, tmp_path)
    command = _stand_in(tmp_path, behaviour=behaviour, decision=str(tmp_path / "decision.json"))
    with _running(_settings(tmp_path, database_url, *command), sessions):
        wait_until(lambda: _read(sessions, replan_id).status == ReplanStatus.PROPOSED)
    replan = _read(sessions, replan_id)
    assert (replan.has_decision, replan.attempts, _starts(tmp_path)) == (has_decision, starts, starts)
    assert (replan.error is None) == has_decision
    with sessions() as session:
        shown = replan_views.view_answer(session, replan_id=replan_id, answer=Answer.DECISION)
    assert shown is not None
    assert shown.decision.fallback != has_decision


def test_a_decision_outlasts_a_database_that_is_away(
    tmp_path: Path, database_url: str, engine: Engine, sessions: SessionFactory
) -> None:
    """Its answer is kept until it can be written, and it is decided once."""
    replan_id = _failed(sessions, tmp_path)
    away, refused = threading.Event(), list[object]()

    def refuse(connection: object) -> None:
        if away.is_set():
            refused.append(connection)
            raise OperationalError("BEGIN", {}, Exception("server closed the connection unexpectedly"))

    event.listen(engine, "begin", refuse)
    command = _stand_in(tmp_path, seconds=0.5, decision=str(tmp_path / "decision.json"))
    with _running(_settings(tmp_path, database_url, *command), sessions):
        try:
            wait_until(lambda: _starts(tmp_path) == 1)
            away.set()
            wait_until(lambda: "end" in (tmp_path / "ledger").read_text())
            wait_until(lambda: len(refused) > 1)
        finally:
            away.clear()
        wait_until(lambda: _read(sessions, replan_id).status == ReplanStatus.PROPOSED)
    replan = _read(sessions, replan_id)
    assert (replan.has_decision, replan.attempts, replan.error, _starts(tmp_path)) == (True, 1, None, 1)


def test_a_later_failure_ends_the_solver_and_starts_another(
    tmp_path: Path, database_url: str, sessions: SessionFactory
) -> None:
    """The old one's child is gone, the new one decides on both."""
    first = _failed(sessions, tmp_path)
    with _running(_settings(tmp_path, database_url, *_stand_in(tmp_path, behaviour="hang")), sessions):
        wait_until(lambda: _starts(tmp_path) == 1)
        then = datetime.now(UTC) - timedelta(seconds=61)
        with transaction(sessions) as session:
            second = reports.report(session, reference=CLUSTER, told=[told("n1", at_s=9)], now=then).replan_id
        assert second is not None
        wait_until(lambda: _starts(tmp_path) == 2)
        assert _read(sessions, first).superseded_by == second
        assert len(_read(sessions, second).event_ids) == 2
        with transaction(sessions) as session:
            replans.cancel_replan(session, replan_id=second)


def test_a_decision_goes_on_when_its_worker_is_killed(
    tmp_path: Path, database_url: str, sessions: SessionFactory
) -> None:
    """Killed in the middle of a decision, a worker takes nothing with it: the next one decides."""
    replan_id = _failed(sessions, tmp_path)
    slow = _settings(tmp_path, database_url, *_stand_in(tmp_path, behaviour="hang"))
    settings = slow.model_copy(update={"role": Role.WORKER})
    worker = subprocess.Popen([sys.executable, "-c", WORKER, settings.model_dump_json()], cwd=Path.cwd())
    try:
        wait_until(lambda: _starts(tmp_path) == 1)
        wait_until(lambda: _read(sessions, replan_id).status == ReplanStatus.SOLVING)
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
    quick = _stand_in(tmp_path, decision=str(tmp_path / "decision.json"))
    with _running(_settings(tmp_path, database_url, *quick).model_copy(update={"role": Role.WORKER}), sessions):
        wait_until(lambda: _read(sessions, replan_id).status == ReplanStatus.PROPOSED)
    replan = _read(sessions, replan_id)
    assert (replan.attempts, replan.rescues, replan.has_decision) == (2, 1, True)
    with transaction(sessions) as session:
        replans.approve_replan(session, replan_id=replan_id)
        (held,) = occupancy.staying_gpus(session, cluster_id=replan.cluster_id).values()
    assert {node for node, _gpu in held} == {"n7", "n1"}
