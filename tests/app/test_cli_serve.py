"""How ``meshwright serve`` begins when it cannot."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from app.cli import main


@pytest.fixture(autouse=True)
def _log_elsewhere_afterwards() -> Iterator[None]:
    """A service logs to the standard error it began with, which is closed once the test has read it."""
    yield
    structlog.reset_defaults()


def test_a_taken_port_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is announced or started; the user reads which address it was and how to choose another."""
    monkeypatch.setenv("MESHWRIGHT_DATA_DIR", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--host", "127.0.0.1", "--port", str(port)]) == 2
    err = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}" in err
    assert "--port" in err
    assert "serves on" not in err
