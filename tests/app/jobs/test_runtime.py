"""The engine in this process: every plan ends once, in the right state, on both databases."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from sqlalchemy import update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.db.engine import SessionFactory, transaction
from app.db.status import PlanStatus
from app.db.tables import PlanRow
from app.jobs.client import JobClient, RunningJob
from app.jobs.context import JobContext
from app.jobs.keeper import Keeper
from app.jobs.names import JobKind
from app.jobs.process_scope import current_pid_scope, is_surely_gone
from app.jobs.runtime import DataFolderInUse, JobRuntime, lock_data_folder
from app.metrics import Metrics, make_metrics
from app.services import workers
from app.services.errors import NotReady
from app.services.planning import plans, solves
from app.settings import Settings
from tests.app import stand_in_solver
from tests.app.plan_rows import add_plan, read_plan, wait_for_end, wait_until

COMMAND = (sys.executable, stand_in_solver.__file__)


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    """A service on its own data folder, with the stand-in solver."""
    return Settings(
        data_dir=tmp_path, database_url=database_url, solve_command=COMMAND, overrun_s=1.0, heartbeat_s=0.2
    )


@pytest.fixture
def metrics() -> Metrics:
    """Measurements at zero."""
    return make_metrics()


@pytest.fixture
def runtime(settings: Settings, sessions: SessionFactory, metrics: Metrics) -> Iterator[JobRuntime]:
    """A running engine."""
    runtime = JobRuntime(settings, sessions, metrics)
    runtime.start()
    yield runtime
    runtime.stop()


@pytest.fixture
def client(settings: Settings) -> Iterator[JobClient]:
    """A connection to the engine's database."""
    client = JobClient(settings.resolved_jobs_database_url)
    yield client
    client.close()


@pytest.fixture
def submit(sessions: SessionFactory, client: JobClient, tmp_path: Path) -> Callable[..., str]:
    """A function that puts a plan into the queue and returns its id."""

    def submit(**options: object) -> str:
        plan_id = add_plan(sessions, tmp_path / "ledger", **options)
        client.enqueue(plan_id)
        return plan_id

    return submit


def _starts(tmp_path: Path) -> int:
    ledger = tmp_path / "ledger"
    return ledger.read_text().count("start") if ledger.exists() else 0


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize(
    ("behaviour", "status", "starts"),
    [
        ("answer", PlanStatus.SUCCEEDED, 1),
        ("no_plan", PlanStatus.INFEASIBLE, 1),
        ("refuse", PlanStatus.FAILED, 1),
        ("crash_once", PlanStatus.SUCCEEDED, 2),
        ("crash", PlanStatus.FAILED, 3),
    ],
)
def test_a_plan_ends_as_its_solver_says(
    behaviour: str,
    status: PlanStatus,
    starts: int,
    submit: Callable[..., str],
    sessions: SessionFactory,
    tmp_path: Path,
) -> None:
    """Answers are final at once; only crashes are tried again, twice, and then end in a sentence."""
    row = wait_for_end(sessions, submit(behaviour=behaviour))
    assert row.status == status
    assert row.attempts == _starts(tmp_path) == starts
    assert (row.result is not None) == (status in {PlanStatus.SUCCEEDED, PlanStatus.INFEASIBLE})
    assert (row.error is not None) == (status is PlanStatus.FAILED)
    if behaviour == "crash":
        assert row.error is not None
        assert "ended without an answer 3 times" in row.error["problem"]


@pytest.mark.usefixtures("runtime")
def test_what_the_last_crash_had_found_is_the_answer(
    submit: Callable[..., str], sessions: SessionFactory, tmp_path: Path
) -> None:
    """Those before it are tried again, for they might find more."""
    draft = {"kind": "plan", "plan": {"found": "before", "certificate": {"stopped_by": "time_limit"}}}
    row = wait_for_end(sessions, submit(behaviour="crash", draft=draft))
    assert (row.status, row.attempts, _starts(tmp_path)) == (PlanStatus.SUCCEEDED, 3, 3)
    assert row.result == {"found": "before", "certificate": {"stopped_by": "cancelled"}}


@pytest.mark.usefixtures("runtime")
def test_a_repeated_enqueue_solves_once(
    submit: Callable[..., str], client: JobClient, sessions: SessionFactory, tmp_path: Path
) -> None:
    """The job's id is the plan's id, so a second request finds the first."""
    plan_id = submit()
    client.enqueue(plan_id)
    wait_for_end(sessions, plan_id)
    client.enqueue(plan_id)
    wait_for_end(sessions, submit())
    assert read_plan(sessions, plan_id).attempts == 1
    assert _starts(tmp_path) == 2


@pytest.mark.usefixtures("runtime")
def test_a_cancelled_plan_stops_and_stays_cancelled(
    submit: Callable[..., str], sessions: SessionFactory, tmp_path: Path, metrics: Metrics
) -> None:
    """The solver is ended, the slot is free again, and nothing is stored over the cancellation."""
    plan_id = submit(behaviour="hang")
    wait_until(lambda: _starts(tmp_path) == 1)
    with transaction(sessions) as session:
        assert solves.finish(session, plan_id=plan_id, status=PlanStatus.CANCELLED)
    assert wait_for_end(sessions, submit()).status == PlanStatus.SUCCEEDED
    row = read_plan(sessions, plan_id)
    assert row.status == PlanStatus.CANCELLED
    assert row.result is None


@pytest.mark.usefixtures("runtime")
def test_a_stopped_search_ends_with_the_best_plan_so_far(
    submit: Callable[..., str], sessions: SessionFactory
) -> None:
    """Not before one is known; then the plan succeeds, and stopping it once more changes nothing."""
    plan_id = submit(behaviour="search")

    def knows_a_plan() -> bool:
        with sessions() as session:
            try:
                return plans.stop_plan(session, plan_id=plan_id).is_stopping
            except NotReady:
                return False
            finally:
                session.commit()

    wait_until(knows_a_plan)
    assert wait_for_end(sessions, plan_id).status == PlanStatus.SUCCEEDED
    with transaction(sessions) as session:
        again = plans.stop_plan(session, plan_id=plan_id)
    assert (again.status, again.is_stopping) == (PlanStatus.SUCCEEDED, False)


@pytest.mark.usefixtures("runtime")
def test_a_plan_cancelled_in_the_queue_never_starts(
    submit: Callable[..., str], sessions: SessionFactory, tmp_path: Path
) -> None:
    """With one slot, a plan that waits behind another can be cancelled before it begins."""
    first, second = submit(seconds=1.0), submit()
    with transaction(sessions) as session:
        solves.finish(session, plan_id=second, status=PlanStatus.CANCELLED)
    assert wait_for_end(sessions, first).status == PlanStatus.SUCCEEDED
    assert wait_for_end(sessions, submit()).status == PlanStatus.SUCCEEDED
    assert read_plan(sessions, second).attempts == 0
    assert _starts(tmp_path) == 2


@pytest.mark.usefixtures("runtime")
def test_progress_can_be_read_while_it_runs(submit: Callable[..., str], sessions: SessionFactory) -> None:
    """The newest progress is in the plan's row before the plan ends."""
    plan_id = submit(seconds=2.0)
    wait_until(lambda: read_plan(sessions, plan_id).progress is not None)
    row = read_plan(sessions, plan_id)
    assert row.status == PlanStatus.RUNNING
    assert row.progress is not None
    assert row.progress["phase"] == "search"
    assert "kind" not in row.progress
    assert wait_for_end(sessions, plan_id).status == PlanStatus.SUCCEEDED


@pytest.mark.usefixtures("runtime")
def test_a_solver_that_ignores_its_time_limit_is_ended(
    submit: Callable[..., str], sessions: SessionFactory
) -> None:
    """Past the limit and the grace, the plan fails with a sentence, and is not tried again."""
    row = wait_for_end(sessions, submit(behaviour="hang", time_limit_s=0.5))
    assert row.status == PlanStatus.FAILED
    assert row.attempts == 1
    assert row.error is not None
    assert "time limit" in row.error["problem"]


@pytest.mark.usefixtures("runtime")
def test_the_plan_of_a_solver_that_is_ended_is_kept(submit: Callable[..., str], sessions: SessionFactory) -> None:
    """Past the limit and the grace, the last draft is the answer."""
    draft = {"kind": "plan", "plan": {"certificate": {"gap": 0.5}}}
    row = wait_for_end(sessions, submit(behaviour="hang", draft=draft, time_limit_s=0.5))
    assert (row.status, row.result) == (PlanStatus.SUCCEEDED, draft["plan"])


@pytest.mark.usefixtures("runtime")
def test_a_plan_that_was_never_queued_is_found(sessions: SessionFactory, tmp_path: Path) -> None:
    """A row whose request died between its commit and the queue is solved all the same."""
    plan_id = add_plan(sessions, tmp_path / "ledger")
    assert wait_for_end(sessions, plan_id).status == PlanStatus.SUCCEEDED


def test_plans_of_an_older_backup_are_solved_again(
    settings: Settings, sessions: SessionFactory, metrics: Metrics, submit: Callable[..., str], tmp_path: Path
) -> None:
    """The engine remembers that the solve ended, our restored tables do not: no plan fails for that."""
    runtime = JobRuntime(settings, sessions, metrics)
    runtime.start()
    plan_id = submit()
    wait_for_end(sessions, plan_id)
    runtime.stop()
    with transaction(sessions) as session:
        values = {"status": PlanStatus.QUEUED, "result": None, "finished_at": None}
        session.execute(update(PlanRow).values(**values))
    runtime = JobRuntime(settings, sessions, metrics)
    runtime.start()
    try:
        assert wait_for_end(sessions, plan_id).status == PlanStatus.SUCCEEDED
    finally:
        runtime.stop()
    assert _starts(tmp_path) == 2


def test_a_stopped_service_hands_its_solve_to_the_next(
    settings: Settings, sessions: SessionFactory, metrics: Metrics, client: JobClient, tmp_path: Path
) -> None:
    """An orderly stop ends the child, shows the plan as queued, and counts no rescue."""
    runtime = JobRuntime(settings, sessions, metrics)
    runtime.start()
    plan_id = add_plan(sessions, tmp_path / "ledger", behaviour="crash_once", seconds=0.1)
    hanging = add_plan(sessions, tmp_path / "other", behaviour="hang")
    assert wait_for_end(sessions, plan_id).status == PlanStatus.SUCCEEDED
    wait_until(lambda: read_plan(sessions, hanging).status == PlanStatus.RUNNING)
    runtime.stop()
    row = read_plan(sessions, hanging)
    assert (row.status, row.rescues) == (PlanStatus.QUEUED, 0)
    assert client.states([hanging]) == {hanging: "ENQUEUED"}
    with sessions() as session:
        assert workers.list_workers(session) == []


def test_a_vanished_workers_solve_is_taken_over_a_few_times_only(
    settings: Settings, sessions: SessionFactory, metrics: Metrics, tmp_path: Path
) -> None:
    """A solve that goes down with every worker is rescued three times and then fails with a sentence."""
    plan_id = add_plan(sessions, tmp_path / "ledger")
    with transaction(sessions) as session:
        verdicts = [solves.count_rescue(session, plan_id=plan_id) for _ in range(4)]
    assert verdicts == [True, True, True, False]
    row = read_plan(sessions, plan_id)
    assert row.status == PlanStatus.FAILED
    assert row.error is not None
    assert "4 workers vanished" in row.error["problem"]


def test_the_smallest_turn_is_next(
    settings: Settings, sessions: SessionFactory, client: JobClient, tmp_path: Path
) -> None:
    """Whatever was queued first; equal turns in the order of asking."""
    turns = (90, 30, 60, 30)
    plan_ids = [add_plan(sessions, tmp_path / "ledger") for _ in turns]
    for plan_id, turn in zip(plan_ids, turns, strict=True):
        client.enqueue(plan_id, turn=turn)
    runtime = JobRuntime(settings, sessions, make_metrics())
    runtime.start()
    begun = [wait_for_end(sessions, plan_id).started_at for plan_id in plan_ids]
    runtime.stop()
    assert sorted(range(4), key=lambda index: str(begun[index])) == [1, 3, 2, 0]


def test_only_the_first_result_counts(sessions: SessionFactory, tmp_path: Path) -> None:
    """A second worker that comes late with another answer changes nothing."""
    plan_id = add_plan(sessions, tmp_path / "ledger")
    with transaction(sessions) as session:
        assert solves.finish(session, plan_id=plan_id, status=PlanStatus.SUCCEEDED, result={"n": 1})
        assert not solves.finish(session, plan_id=plan_id, status=PlanStatus.SUCCEEDED, result={"n": 2})
        assert not solves.save_progress(session, plan_id=plan_id, progress={})
        assert solves.begin_attempt(session, plan_id=plan_id) is None
    assert read_plan(sessions, plan_id).result == {"n": 1}


def test_one_of_several_gets_a_vanished_workers_solves(sessions: SessionFactory) -> None:
    """Striking a worker off succeeds once."""
    with transaction(sessions) as session:
        workers.register_silent(session, executor_id="gone")
    verdicts = []
    for _ in range(2):
        with transaction(sessions) as session:
            verdicts.append(workers.remove(session, executor_id="gone"))
    assert verdicts == [True, False]


def test_a_data_folder_serves_one_process(tmp_path: Path) -> None:
    """The second one is told so in a sentence; after the first ends, the folder is free."""
    settings = Settings(data_dir=tmp_path)
    lock = lock_data_folder(settings)
    with pytest.raises(DataFolderInUse, match="MESHWRIGHT_DATA_DIR"):
        lock_data_folder(settings)
    lock.release()
    lock_data_folder(settings).release()


def test_a_process_of_another_machine_is_never_surely_gone() -> None:
    """Process numbers are compared within one boot and one container only."""
    assert not is_surely_gone(2**22 + 1, "another machine")
    assert is_surely_gone(2**22 + 1, current_pid_scope())
    assert not is_surely_gone(0, current_pid_scope())
    # Ids of executors never repeat: our own number on record under another id is a former process's.
    assert is_surely_gone(os.getpid(), current_pid_scope())


class Outage:
    """Sessions of a database that can be away."""

    def __init__(self, sessions: SessionFactory) -> None:
        self._sessions = sessions
        self.away = threading.Event()
        self.refused = 0

    def __call__(self) -> Session:
        """A session, or what SQLAlchemy raises when there is none to be had."""
        if self.away.is_set():
            self.refused += 1
            raise OperationalError("SELECT 1", {}, Exception("server closed the connection unexpectedly"))
        return self._sessions()


def test_a_solve_outlasts_a_database_that_is_away(
    settings: Settings, sessions: SessionFactory, metrics: Metrics, submit: Callable[..., str], tmp_path: Path
) -> None:
    """Its progress is not written meanwhile, its answer is kept until it can be, and it is solved once."""
    outage = Outage(sessions)
    runtime = JobRuntime(settings, cast("SessionFactory", outage), metrics)
    runtime.start()
    try:
        plan_id = submit(seconds=1.5)
        wait_until(lambda: _starts(tmp_path) == 1)
        outage.away.set()
        wait_until(lambda: (tmp_path / "ledger").read_text().count("end") == 1)
        wait_until(lambda: outage.refused > 3)
        assert read_plan(sessions, plan_id).status == PlanStatus.RUNNING
        outage.away.clear()
        assert wait_for_end(sessions, plan_id).status == PlanStatus.SUCCEEDED
    finally:
        outage.away.clear()
        runtime.stop()
    assert _starts(tmp_path) == 1


def test_a_job_that_nobody_works_on_is_put_back(sessions: SessionFactory, settings: Settings) -> None:
    """Whatever the engine says of it: once it was idle for as long as a worker may be silent, and not before."""
    put_back: list[str] = []
    running = [RunningJob(name, JobKind.SOLVE, "we", "solve") for name in ("idle", "solved")]
    client = cast(
        "JobClient",
        SimpleNamespace(put_back=lambda jobs: put_back.extend(job.id for job in jobs)),
    )
    context = JobContext(
        settings.model_copy(update={"worker_lost_after_s": 0.2}), sessions, make_metrics(), "we", "here"
    )
    context.solving.add("solved")
    keeper = Keeper(context, client)
    keeper.put_back_the_stranded(running)
    assert put_back == []
    wait_until(lambda: (keeper.put_back_the_stranded(running), put_back)[1] == ["idle"])
