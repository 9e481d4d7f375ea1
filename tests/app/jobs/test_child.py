"""The solving process: what it says comes through, and it never outlives its purpose."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from app.jobs import child
from app.jobs.child import ChildEnd, Ending, run_child
from app.priorities import SOLVES
from tests.app import stand_in_solver
from tests.app.plan_rows import wait_until

COMMAND = (sys.executable, stand_in_solver.__file__)


def _run(
    tmp_path: Path,
    *,
    limit_s: float = 30.0,
    should_stop: Any = lambda: False,
    is_enough: Any = lambda: False,
    **options: Any,
) -> ChildEnd:
    request = json.dumps({"options": {"ledger": str(tmp_path / "ledger")} | options}).encode()
    return run_child(
        COMMAND,
        request,
        hard_limit_s=limit_s,
        scratch_root=tmp_path / "scratch",
        on_progress=lambda _message: None,
        should_stop=should_stop,
        is_enough=is_enough,
    )


def _pids(tmp_path: Path) -> list[int]:
    lines = (tmp_path / "ledger").read_text().splitlines() if (tmp_path / "ledger").exists() else []
    return [int(line.split()[1]) for line in lines if line.startswith(("start", "grandchild"))]


def _gone(pid: int) -> bool:
    """Whether a process has ended; a zombie that nobody waits for has ended, too."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return True
    return state == "Z"


def test_the_answer_comes_back_and_scratch_files_go(tmp_path: Path) -> None:
    """The child works in a folder of its own, which is gone afterwards."""
    end = _run(tmp_path)
    assert end.ending is Ending.ANSWERED
    assert end.answer is not None
    own_folder = Path(end.answer["plan"]["tmpdir"])
    assert own_folder.parent == tmp_path / "scratch"
    assert not own_folder.exists()


def test_requests_are_answered_before_it(tmp_path: Path) -> None:
    """Our own child goes after the web process on the cores that they share."""
    own = "import os; from app.jobs.child_talk import answer_one; answer_one(lambda *_: {'niceness': os.nice(0)})"
    end = run_child(
        (sys.executable, "-c", own),
        json.dumps({"memory_limit_bytes": None}).encode(),
        hard_limit_s=30.0,
        scratch_root=tmp_path,
        on_progress=lambda _message: None,
        should_stop=lambda: False,
    )
    assert end.answer == {"niceness": max(SOLVES, os.nice(0))}, end.stderr_tail


def test_progress_comes_through_in_order(tmp_path: Path) -> None:
    """Every progress line is handed over, oldest first."""
    seen: list[float] = []
    request = json.dumps({"options": {"ledger": str(tmp_path / "ledger"), "seconds": 0.5}}).encode()
    run_child(
        COMMAND,
        request,
        hard_limit_s=30.0,
        scratch_root=tmp_path,
        on_progress=lambda message: seen.append(message["candidates_left"]),
        should_stop=lambda: False,
    )
    assert seen == [5, 4, 3, 2, 1]


def test_a_crash_is_told_from_an_answer(tmp_path: Path) -> None:
    """A child that dies without an answer has crashed; what it wrote to standard error is kept."""
    end = _run(tmp_path, behaviour="crash")
    assert end.ending is Ending.CRASHED
    assert end.answer is None
    assert "breaks on purpose" in end.stderr_tail
    found = _run(tmp_path, behaviour="crash", draft={"kind": "plan"})
    assert (found.ending, found.answer) == (Ending.CRASHED, {"kind": "plan"})


def test_a_child_past_its_hard_limit_is_ended_with_its_children(tmp_path: Path) -> None:
    """Neither the child nor a process it started lives on."""
    end = _run(tmp_path, behaviour="hang", limit_s=2.0)
    assert end.ending is Ending.OVERRAN
    pids = _pids(tmp_path)
    assert len(pids) == 2
    wait_until(lambda: all(map(_gone, pids)))


def test_what_a_child_had_found_outlives_it(tmp_path: Path) -> None:
    """One that overran leaves its last draft."""
    end = _run(tmp_path, behaviour="hang", draft={"kind": "plan"}, limit_s=1.0)
    assert (end.ending, end.answer) == (Ending.OVERRAN, {"kind": "plan"})


def test_a_child_that_does_not_hear_of_enough_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last draft is the answer, long before its limit; one without a draft goes on."""
    monkeypatch.setattr(child, "ENOUGH_S", 0.1)
    end = _run(tmp_path, behaviour="hang", draft={"kind": "plan"}, is_enough=lambda: True)
    assert (end.ending, end.answer) == (Ending.OVERRAN, {"kind": "plan"})
    assert _run(tmp_path, seconds=0.5, is_enough=lambda: True).ending is Ending.ANSWERED


def test_a_child_nobody_wants_is_ended(tmp_path: Path) -> None:
    """Once it may stop, it is gone, and so is the process it started."""
    end = _run(tmp_path, behaviour="hang", should_stop=lambda: len(_pids(tmp_path)) == 2)
    assert end.ending is Ending.STOPPED
    wait_until(lambda: all(map(_gone, _pids(tmp_path))))


def test_lines_that_are_no_messages_are_skipped(tmp_path: Path) -> None:
    """A library that prints between the messages does no harm, however large the request is."""
    script = "import sys; sys.stdin.readline(); print('Welcome'); print('[1]'); print('{\"kind\": \"plan\"}')"
    end = run_child(
        (sys.executable, "-c", script),
        b"x" * 1_000_000,
        hard_limit_s=30.0,
        scratch_root=tmp_path,
        on_progress=lambda _message: None,
        should_stop=lambda: False,
    )
    assert end.answer == {"kind": "plan"}


def test_a_child_dies_with_a_killed_parent(tmp_path: Path) -> None:
    """After ``kill -9`` of the process that started it, the child and its own child end by themselves."""
    ledger = tmp_path / "ledger"
    script = textwrap.dedent(f"""
        import json
        from pathlib import Path
        from app.jobs.child import run_child
        run_child(
            {COMMAND!r},
            json.dumps({{"options": {{"ledger": {str(ledger)!r}, "behaviour": "hang"}}}}).encode(),
            hard_limit_s=300.0,
            scratch_root=Path({str(tmp_path)!r}),
            on_progress=print,
            should_stop=lambda: False,
        )
    """)
    parent = subprocess.Popen([sys.executable, "-c", script])
    wait_until(lambda: len(_pids(tmp_path)) == 2)
    parent.kill()
    parent.wait()
    assert os.getpid() not in _pids(tmp_path)
    wait_until(lambda: all(map(_gone, _pids(tmp_path))))
