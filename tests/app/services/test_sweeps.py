"""Sweeps ask the same question of many failures, each answered once, and rank them by what they cost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import delete, select, update

from app.access import tenants
from app.access.tenants import Quotas
from app.db.engine import SessionFactory, transaction
from app.db.running_tables import PreparedJobRow, RunningJobRow, RunningPlanRow
from app.db.sweep_tables import SweptFailureRow
from app.db.tenancy import for_tenant
from app.documents.cluster import ClusterDocument
from app.events.reading import ReportedEvent
from app.jobs import sweeping
from app.jobs.context import JobContext
from app.metrics import make_metrics
from app.services.clusters import clusters
from app.services.decisions import sweep_answers, sweeps, what_if
from app.services.decisions.sweeps import FailureImpact, SupposedFailure, SweepStatus
from app.services.errors import Conflict, NotFound
from app.services.pagination import encode_cursor
from app.services.planning import turns
from app.services.running import occupancy
from app.settings import Settings
from cluster_models.errors import InvalidInput
from cluster_models.health.events import EntityKind, HealthState
from tests.app.running_rows import CLUSTER, add_cluster, add_job, report, told

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATE = NOW + timedelta(hours=1)
"""When no sweep waits for preparations any more."""


def _lost(node: str) -> ReportedEvent:
    return ReportedEvent(EntityKind.NODE, node, "", HealthState.FAILED, occurred_at=NOW, source_id=node)


def _site(sessions: SessionFactory) -> None:
    """Job a on n0 and n1, job b on n2 and n3, one spare: n7."""
    with transaction(sessions) as session:
        add_cluster(session)
        add_job(session, "a", "n0", "n1")
        add_job(session, "b", "n2", "n3")
        occupancy.replace_spares(session, reference=CLUSTER, nodes=["n7"])


def _asked(sessions: SessionFactory, each: str | None = None, *failures: SupposedFailure) -> str:
    with transaction(sessions) as session:
        return sweeps.create_sweep(session, reference=CLUSTER, each=each, failures=failures, now=NOW)


def _context(sessions: SessionFactory, tmp_path: Path) -> JobContext:
    own = for_tenant(sessions, None)  # as a worker has them
    return JobContext(Settings(data_dir=tmp_path), own, make_metrics(), "worker", "here")


def _work(sessions: SessionFactory, tmp_path: Path, *, most: int = 100) -> list[str]:
    """Outcomes of the next failures in line."""
    context = _context(sessions, tmp_path)
    with context.sessions() as session:
        waiting = sweep_answers.due(session, at_once=most, now=LATE)[:most]
    return [sweeping.attempt(context, sweep_id=sweep_id, number=number) for sweep_id, number in waiting]


def _worst(sessions: SessionFactory, sweep_id: str) -> tuple[FailureImpact, ...]:
    with sessions() as session:
        return sweeps.worst_failures(session, sweep_id=sweep_id, limit=100).items


def test_the_failure_that_costs_most_comes_first_as_one_what_if_says(
    sessions: SessionFactory, tmp_path: Path
) -> None:
    """Two jobs lose all their nodes and there is one spare; an idle node costs nothing."""
    _site(sessions)
    both = SupposedFailure("both", (*map(_lost, ("n0", "n1", "n2", "n3")),))
    sweep_id = _asked(sessions, None, SupposedFailure("idle", (_lost("n5"),)), both)
    assert _work(sessions, tmp_path) == [sweep_answers.ANSWERED] * 2
    worst, least = _worst(sessions, sweep_id)
    assert (worst.name, least.name) == ("both", "idle")
    assert worst.lost_tokens_per_s > 0
    assert least.lost_tokens_per_s == least.lost_gpu_hours == 0
    assert (least.spares_used, least.must_move, least.not_covered) == ((), (), ())
    assert worst.must_move or worst.not_covered
    made = what_if.answer_losses(sessions, reference=CLUSTER, losses=both.losses, now=NOW).decision
    lost = sum(max(0.0, job.tokens_per_s_before - job.tokens_per_s_after) for job in made.jobs)
    assert worst.lost_tokens_per_s == pytest.approx(lost)


def test_every_place_of_a_label_fails_once(sessions: SessionFactory, tmp_path: Path) -> None:
    """Leaf 0 holds all that runs, leaf 1 only idle nodes and the spare."""
    _site(sessions)
    sweep_id = _asked(sessions, "leaf")
    _work(sessions, tmp_path)
    worst = _worst(sessions, sweep_id)
    assert [each.name for each in worst] == ["leaf-0", "leaf-1"]
    assert worst[0].not_covered
    with sessions() as session:
        record = sweeps.get_sweep(session, sweep_id=sweep_id)
    assert (record.status, record.failures, record.answered, record.changed) == (SweepStatus.FINISHED, 2, 2, False)


def test_all_answers_are_read_page_by_page(sessions: SessionFactory, tmp_path: Path) -> None:
    """In one order, whatever the limit: equal losses by number, failures without an answer last."""
    _site(sessions)
    sweep_id = _asked(sessions, "node")
    _work(sessions, tmp_path)
    with transaction(sessions) as session:
        unable = {"error": "broken", "summary": None, "lost_tokens_per_s": None, "lost_gpu_hours": None}
        session.execute(update(SweptFailureRow).where(SweptFailureRow.number == 1).values(unable))
    ranked, cursor, seen = [each.number for each in _worst(sessions, sweep_id)], None, []
    assert ranked[-1] == 1
    with sessions() as session:
        for _ in range(3):
            found = sweeps.worst_failures(session, sweep_id=sweep_id, limit=3, cursor=cursor)
            seen += [each.number for each in found.items]
            cursor = found.next_cursor
        assert cursor is None
        for cursor in (encode_cursor("a"), encode_cursor(0.0, 0.0, 0.0, 2**31)):
            with pytest.raises(InvalidInput, match="not a cursor"):
                sweeps.worst_failures(session, sweep_id=sweep_id, limit=3, cursor=cursor)
        with pytest.raises(NotFound):
            sweeps.worst_failures(session, sweep_id="none", limit=3)
    assert seen == ranked


def test_a_sweep_waits_for_what_is_prepared_but_not_for_ever(sessions: SessionFactory) -> None:
    """Before that, the loss of a node is answered by a pause where another shape would do."""
    _site(sessions)
    _asked(sessions, "leaf")

    def waiting(now: datetime) -> int:
        with sessions() as session:
            return len(sweep_answers.due(session, at_once=9, now=now))

    assert (waiting(NOW), waiting(LATE)) == (0, 2)
    with transaction(sessions) as session:
        plans = session.scalars(select(RunningPlanRow.id)).all()
        made = {"generation": 9, "snapshot_id": "s", "document": {}, "created_at": NOW}
        session.add_all(PreparedJobRow(running_plan_id=plan, **made) for plan in plans)
    assert waiting(NOW) == 2


def test_two_that_ask_at_once_do_not_pass_the_limit(sessions: SessionFactory) -> None:
    """The second waits for the first, and counts it."""
    _site(sessions)
    for _ in range(sweeps.MOST_OPEN - 1):
        _asked(sessions, "leaf")
    with ThreadPoolExecutor() as pool:
        with transaction(sessions) as session:
            sweeps.create_sweep(session, reference=CLUSTER, each="leaf", failures=(), now=NOW)
            second = pool.submit(_asked, sessions, "leaf")
            with pytest.raises(TimeoutError):
                second.result(timeout=0.3)
        with pytest.raises(Conflict, match="wait until one has ended"):
            second.result()


def test_seconds_of_sweeps_count_as_solving(sessions: SessionFactory, tmp_path: Path) -> None:
    """Those of the last 24 hours, and of the tenant alone."""
    _site(sessions)
    _asked(sessions, "leaf")
    _work(sessions, tmp_path)
    later, wanted = datetime.now(UTC), Quotas(solver_s_per_day=1e-6)
    with sessions() as session:
        found = tenants.all_solved(session, wanted, now=later)
        assert found is not None
        assert found.again_after_s == pytest.approx(86400, abs=60)
        assert tenants.all_solved(session, wanted, now=later + timedelta(days=1)) is None
    with for_tenant(sessions, "others")() as session:
        assert tenants.all_solved(session, wanted, now=later) is None


def test_an_answer_is_stored_once_whoever_comes_late(sessions: SessionFactory, tmp_path: Path) -> None:
    """A worker that was taken for dead finds that nobody waits for its answer any more."""
    _site(sessions)
    sweep_id, context = _asked(sessions, "leaf"), _context(sessions, tmp_path)
    assert sweeping.attempt(context, sweep_id=sweep_id, number=1) == sweep_answers.ANSWERED
    assert sweeping.attempt(context, sweep_id=sweep_id, number=1) == sweep_answers.GONE
    with transaction(sessions) as session:
        again = sweep_answers.answer(session, sweep_id=sweep_id, number=1, summary=None, state="", error="late")
    assert not again
    assert _worst(sessions, sweep_id)[0].error is None


def test_what_is_called_off_is_not_answered(sessions: SessionFactory, tmp_path: Path) -> None:
    """Answers that were there stay; one that comes late is dropped, for a sweep that ended never changes again."""
    _site(sessions)
    sweep_id = _asked(sessions, "node")
    _work(sessions, tmp_path, most=2)
    with transaction(sessions) as session:
        assert sweeps.cancel_sweep(session, sweep_id=sweep_id).status is SweepStatus.CANCELLED
    assert _work(sessions, tmp_path) == []
    with transaction(sessions) as session:
        assert not sweep_answers.answer(session, sweep_id=sweep_id, number=2, summary=None, state="", error="late")
    assert len(_worst(sessions, sweep_id)) == 2


def test_a_sweep_says_that_its_answers_start_from_different_states(
    sessions: SessionFactory, tmp_path: Path
) -> None:
    """A report or a change of spares between two answers; a job that ends leaves failures without an answer."""
    _site(sessions)
    sweep_id = _asked(sessions, "leaf")
    _work(sessions, tmp_path, most=1)
    with transaction(sessions) as session:
        report(session, told("n6"))
    _work(sessions, tmp_path)
    with sessions() as session:
        assert sweeps.get_sweep(session, sweep_id=sweep_id).changed
    without_spare = _asked(sessions, "leaf")
    _work(sessions, tmp_path, most=1)
    with transaction(sessions) as session:
        occupancy.replace_spares(session, reference=CLUSTER, nodes=[])
    _work(sessions, tmp_path)
    with sessions() as session:
        assert sweeps.get_sweep(session, sweep_id=without_spare).changed
    late = _asked(sessions, "leaf")
    with transaction(sessions) as session:
        session.execute(delete(RunningJobRow))
    assert _work(sessions, tmp_path) == [sweep_answers.REFUSED] * 2
    with sessions() as session:
        record = sweeps.get_sweep(session, sweep_id=late)
    assert (record.status, record.refused) == (SweepStatus.FINISHED, 2)
    assert "No job runs" in (_worst(sessions, late)[0].error or "")


def test_sweeps_that_cannot_be_are_refused_and_leave_nothing(sessions: SessionFactory) -> None:
    """Without jobs, of unknown labels and parts, and beside too many others."""
    with transaction(sessions) as session:
        add_cluster(session)
    with pytest.raises(Conflict, match="No job runs"):
        _asked(sessions, "leaf")
    with transaction(sessions) as session:
        add_job(session, "a", "n0", "n1")
    with pytest.raises(InvalidInput, match="use one of node, leaf, nvlink_domain"):
        _asked(sessions, "rack")
    with pytest.raises(InvalidInput, match=r"failures\[1\]\.losses\[0\]\.node"):
        _asked(sessions, None, SupposedFailure("a", (_lost("n0"),)), SupposedFailure("b", (_lost("n99"),)))
    for _ in range(sweeps.MOST_OPEN):
        _asked(sessions, "leaf")
    with pytest.raises(Conflict, match="wait until one has ended"):
        _asked(sessions, "leaf")
    with sessions() as session:
        assert len(sweeps.list_sweeps(session, limit=200).items) == sweeps.MOST_OPEN


def test_the_newest_sweeps_are_kept_and_all_that_run(
    sessions: SessionFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three are to be kept: the oldest still runs, so the one in between goes."""
    monkeypatch.setattr(sweeps, "MOST_KEPT", 1)
    _site(sessions)
    first, second = _asked(sessions, "leaf"), _asked(sessions, "leaf")
    for number in range(2):
        sweeping.attempt(_context(sessions, tmp_path), sweep_id=second, number=number)
    third = _asked(sessions, "leaf")
    with sessions() as session:
        assert {each.id for each in sweeps.list_sweeps(session, limit=200).items} == {first, third}


def test_places_with_the_longest_names_are_kept(sessions: SessionFactory) -> None:
    """A leaf is named with its zone; labels and their values have up to 200 letters."""
    zone, leaf, label = "z" * 200, "l" * 200, "k" * 200
    with transaction(sessions) as session:
        add_cluster(session)
        add_job(session, "a", "n0", "n1")
        stored = clusters.get_cluster(session, reference=CLUSTER)
        labels = {"zone": zone, "leaf": leaf, label: "a"}
        nodes = tuple(replace(node, labels=labels) for node in stored.cluster.nodes)
        document = ClusterDocument.from_cluster(replace(stored.cluster, nodes=nodes), ())
        clusters.replace_cluster(session, reference=CLUSTER, document=document)
    for each in ("leaf", label):
        _asked(sessions, each)
    with sessions() as session:
        assert {each.each for each in sweeps.list_sweeps(session, limit=9).items} == {"leaf", label}


def test_a_sweep_that_is_forgotten_while_it_is_read_is_not_there(sessions: SessionFactory) -> None:
    """Its row was read, and its failures are gone."""
    _site(sessions)
    sweep_id = _asked(sessions, "leaf")
    with sessions() as session:
        session.execute(delete(SweptFailureRow))
        assert sweeps.list_sweeps(session, limit=50).items == ()
        with pytest.raises(NotFound):
            sweeps.get_sweep(session, sweep_id=sweep_id)


def test_sweeps_wait_behind_all_plans_and_take_turns() -> None:
    """The turn of the first failure of a sweep is that of the first of any other, and behind background plans."""
    assert turns.WHAT_IFS > turns.BACKGROUND
    assert turns.WHAT_IFS + 10_000 < 2**31
