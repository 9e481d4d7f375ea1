"""Children that are forks of a process that has loaded their modules: they never outlive their purpose either."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.jobs import forks
from app.jobs.child import ChildEnd, Ending, run_child
from tests.app.plan_rows import wait_until

MODULE = "tests.app.stand_in_solver"
COMMAND = (sys.executable, "-m", MODULE)


@pytest.fixture(autouse=True)
def light_forks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server of our own, which has loaded the stand-in and has nothing to rehearse."""
    monkeypatch.setattr(forks, "COMMANDS", (COMMAND,))
    monkeypatch.setattr(forks, "REHEARSAL", MODULE)
    monkeypatch.setattr(forks, "_server", None)
    yield
    forks._stop()


def _run(
    tmp_path: Path, *, limit_s: float = 30.0, should_stop: Callable[[], bool] = lambda: False, **options: Any
) -> ChildEnd:
    return run_child(
        COMMAND,
        json.dumps({"options": {"ledger": str(tmp_path / "ledger")} | options}).encode(),
        hard_limit_s=limit_s,
        scratch_root=tmp_path / "scratch",
        on_progress=lambda _message: None,
        should_stop=should_stop,
    )


def _server() -> int:
    forks.prepare()
    assert forks._server is not None
    return forks._server.process.pid


def _pids(tmp_path: Path) -> list[int]:
    """Processes of the ledger: children, and what they started."""
    lines = (tmp_path / "ledger").read_text().splitlines() if (tmp_path / "ledger").exists() else []
    return [int(line.split()[1]) for line in lines if line.startswith(("start", "grandchild"))]


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_forks_answer_in_folders_of_their_own(tmp_path: Path) -> None:
    """One server serves one after the other; each has a folder for temporary files, which goes with it."""
    ends = [_run(tmp_path) for _ in range(2)]
    folders = {end.answer["plan"]["tmpdir"] for end in ends if end.answer is not None}
    assert len(folders) == len(set(_pids(tmp_path))) == 2
    assert not list((tmp_path / "scratch").iterdir())


def test_a_fork_that_crashes_says_how(tmp_path: Path) -> None:
    """Its exit code and the end of its standard error come back, and the server serves on."""
    end = _run(tmp_path, behaviour="crash")
    assert (end.ending, end.exit_code) == (Ending.CRASHED, 3)
    assert "breaks on purpose" in end.stderr_tail
    assert _run(tmp_path).ending is Ending.ANSWERED


def test_forks_end_with_what_they_started(tmp_path: Path) -> None:
    """Whether nobody wants one any more or it is past its limit; another one that runs meanwhile is not touched."""
    end = _run(tmp_path, behaviour="hang", should_stop=lambda: len(_pids(tmp_path)) == 2)
    assert (end.ending, end.exit_code) == (Ending.STOPPED, -signal.SIGKILL)
    assert _run(tmp_path, behaviour="hang", limit_s=0.5).ending is Ending.OVERRAN
    wait_until(lambda: all(map(_is_gone, _pids(tmp_path))))


def test_loading_is_not_put_off(tmp_path: Path) -> None:
    """At the priority of solves, loading took longer on busy cores than the first plans may."""
    assert _run(tmp_path).ending is Ending.ANSWERED
    assert os.getpriority(os.PRIO_PROCESS, _server()) == os.getpriority(os.PRIO_PROCESS, 0)


def test_a_server_that_was_killed_is_replaced(tmp_path: Path) -> None:
    """A fork that runs then goes on to its end, and the next one comes from a new server."""
    first = _server()

    def kill_server() -> bool:
        if _pids(tmp_path):
            os.kill(first, signal.SIGKILL)
        return False

    assert _run(tmp_path, should_stop=kill_server, seconds=0.5).ending is Ending.ANSWERED
    assert _run(tmp_path).ending is Ending.ANSWERED
    assert _server() != first


def test_forks_end_without_their_server(tmp_path: Path) -> None:
    """Killed under a fork that hangs, it cannot kill that any more: the end of its input does."""
    first = _server()

    def kill_server() -> bool:
        if ready := len(_pids(tmp_path)) == 2:
            os.kill(first, signal.SIGKILL)
        return ready

    assert _run(tmp_path, should_stop=kill_server, behaviour="hang").ending is Ending.STOPPED
    wait_until(lambda: all(map(_is_gone, _pids(tmp_path))))


def test_forks_die_with_the_process_that_asked(tmp_path: Path) -> None:
    """After its ``kill -9`` neither the server nor its fork nor what that started is left."""
    script = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        from app.jobs import forks
        from tests.app.jobs import test_forks
        forks.COMMANDS, forks.REHEARSAL = (test_forks.COMMAND,), test_forks.MODULE
        print(test_forks._server(), flush=True)
        test_forks._run(Path({str(tmp_path)!r}), behaviour="hang")
    """)
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout as told:
        server = int(told.readline())
    wait_until(lambda: len(_pids(tmp_path)) == 2)
    parent.kill()
    parent.wait()
    wait_until(lambda: all(map(_is_gone, [server, *_pids(tmp_path)])))
