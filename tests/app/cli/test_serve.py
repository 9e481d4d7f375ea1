"""How ``meshwright serve`` begins when it cannot."""

from __future__ import annotations

import json
import logging
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from app.cli import main
from app.logs import configure_logs
from app.settings import Settings


@pytest.fixture(autouse=True)
def _log_elsewhere_afterwards() -> Iterator[None]:
    """A service logs to the standard error it began with, which is closed once the test has read it."""
    loggers = [logging.getLogger(), logging.getLogger("dbos")]
    before = [(logger, logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    yield
    structlog.reset_defaults()
    logging.captureWarnings(capture=False)
    for logger, handlers, level, propagate in before:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


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


def test_a_broken_file_of_the_job_engine_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not the traceback of a server that failed to start."""
    monkeypatch.setenv("MESHWRIGHT_DATA_DIR", str(tmp_path))
    (tmp_path / "jobs.sqlite").write_bytes(bytes(range(256)) * 32)
    assert main(["serve", "--port", "0"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "the job engine's database cannot be used" in line
    assert "MESHWRIGHT_JOBS_DATABASE_URL" in line


def test_libraries_log_as_we_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One JSON object a line, whoever speaks."""
    configure_logs(Settings(data_dir=tmp_path, log_json=True))
    logging.getLogger("uvicorn.error").warning("too many of %s", "them")
    logging.getLogger("dbos").error("lost")
    structlog.get_logger().info("solving", slots=1)
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [each["event"] for each in said] == ["too many of them", "lost", "solving"]
    assert [each.get("logger") for each in said] == ["uvicorn.error", "dbos", None]


def test_the_address_is_tried_before_anything_heavy_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the application itself a taken port is still a sentence."""
    monkeypatch.setenv("MESHWRIGHT_DATA_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "app.main", None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "cannot listen on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("WEBHOOK_NETWORKS", "10.0.0.0/8", "MESHWRIGHT_WEBHOOK_NETWORKS: is not JSON (got '10.0.0.0/8')"),
        ("DATABASE_URL", "postgresql://u@127.0.0.1:1/d", "the database cannot be used: (psycopg.OperationalError)"),
        ("DATABASE_URL", "nonsense", "the database cannot be used: Could not parse"),
        ("DATABASE_URL", "oracle+nothing://h/d", "the database cannot be used: Can't load plugin"),
        ("DATA_DIR", "{folder}/file/below", "MESHWRIGHT_DATA_DIR"),
        ("PORTT", "80", "MESHWRIGHT_PORTT is not a setting and changes nothing; did you mean 'MESHWRIGHT_PORT'?"),
    ],
)
def test_what_keeps_a_service_from_starting_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    value: str,
    words: str,
) -> None:
    """Each names the variable and what to do; nothing is an internal error."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("MESHWRIGHT_DATA_DIR", str(tmp_path / "file" / "below"))
    monkeypatch.setenv("MESHWRIGHT_ROLE", "web")
    monkeypatch.setenv(f"MESHWRIGHT_{variable}", value.format(folder=tmp_path))
    assert main(["serve", "--port", "0"]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert "internal error" not in err
