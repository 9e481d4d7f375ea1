"""Work of a serving process beside its first requests."""

from __future__ import annotations

import threading

import pytest

from app import warming
from cluster_models.jobs.recovery import RecoveryAction


def test_the_made_up_failure_takes_the_way_of_a_real_one() -> None:
    """It is answered by a spare, so that everything on that way is loaded."""
    (made,) = warming.made_up_answer().jobs
    assert made.action is RecoveryAction.SWAP
    assert made.plan is not None
    assert set(made.plan.placement.hosts) == {"b", "spare"}


def test_the_made_up_failure_reads_what_was_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first real one has something prepared, and its reader takes a quarter of a second to build."""
    given: list[object] = []
    monkeypatch.setattr(warming, "work_out", lambda _problem, prepared: given.extend(prepared))
    warming.made_up_answer()
    assert given


def _threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "warm-up"]


def test_warming_up_waits_for_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is computed before, and what breaks then harms nobody."""
    started, called, left = (threading.Event() for _ in range(3))

    def breaks() -> None:
        assert started.is_set()
        called.set()
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(warming, "made_up_answer", breaks)
    monkeypatch.setattr(warming, "leave_alone_what_is_loaded", left.set)
    warming.warm_up_beside(started.is_set, lambda: False)
    (thread,) = _threads()
    assert thread.daemon
    assert not called.is_set()
    started.set()
    thread.join(10)
    assert called.is_set()
    assert left.is_set(), "the collector of garbage would stay off"
    assert not thread.is_alive()


def test_a_server_that_never_starts_is_not_warmed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread ends with it."""
    called = threading.Event()
    monkeypatch.setattr(warming, "made_up_answer", called.set)
    warming.warm_up_beside(lambda: False, lambda: True)
    for thread in _threads():
        thread.join(10)
    assert not _threads()
    assert not called.is_set()
