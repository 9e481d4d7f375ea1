"""Long computations of the web process in a process beside it: answers, refusals and limits cross the border."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import anyio
import pytest

from app.documents.reading import FieldProblem, InvalidDocument
from app.priorities import SOLVES
from app.services import subprocesses
from app.services.errors import NotReady
from app.services.subprocesses import in_subprocess
from cluster_models.errors import InvalidInput

pytestmark = pytest.mark.subprocess


def _id_and_niceness() -> tuple[int, int]:
    return os.getpid(), os.nice(0)


def _refuse() -> None:
    raise InvalidDocument([FieldProblem("a.b", 3, "is odd"), FieldProblem("c", None, "is missing", "give it")])


def _served(function: Callable[[], object], limit_s: float = 60.0) -> object:
    """The answer to a request that a thread of a web server works on."""

    def answer() -> object:
        return in_subprocess(function, limit_s=limit_s, what="runs", command="meshwright calibrate")

    return anyio.run(anyio.to_thread.run_sync, answer)


def test_another_process_computes() -> None:
    """Its answer comes back, and answers to other requests go first on the same cores."""
    found = _served(_id_and_niceness)
    assert isinstance(found, tuple)
    assert found[0] != os.getpid()
    assert found[1] == max(SOLVES, os.nice(0))


def test_what_is_refused_there_is_refused_here() -> None:
    """With all its problems, each with field, value and remedy."""
    with pytest.raises(InvalidDocument) as refused:
        _served(_refuse)
    assert [(each.field, each.value, each.remedy) for each in refused.value.problems] == [
        ("a.b", 3, ""),
        ("c", None, "give it"),
    ]


def test_what_takes_too_long_is_stopped_and_the_turn_given_back() -> None:
    """The refusal says what does it without a limit."""
    with pytest.raises(InvalidInput, match=r"could not be worked out within 5 s.*meshwright calibrate"):
        _served(_sleep, limit_s=5.0)
    assert not subprocesses._TURN.locked()


def _sleep() -> None:
    time.sleep(60.0)


def test_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has waited long enough is told to come again."""
    monkeypatch.setattr(subprocesses, "PATIENCE_S", 0.0)
    with subprocesses._TURN, pytest.raises(NotReady, match="try again in a minute"):
        _served(_id_and_niceness)
