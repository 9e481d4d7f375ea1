"""Probes and metrics for operators, and the description that clients are made from."""

from __future__ import annotations

import json
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode, checks
from schemathesis.specs.openapi import checks as openapi
from sqlalchemy import event, text, update
from structlog.testing import capture_logs

from app.db.engine import SessionFactory, transaction
from app.db.tables import WorkerRow
from app.main import DescribedApp, create_app
from app.services import workers
from app.settings import Role, Settings
from tests.app.api_client import API, cluster_body, ended, plan_body, running
from tests.app.plan_rows import wait_until

CHECKS = (
    checks.not_a_server_error,
    openapi.status_code_conformance,
    openapi.content_type_conformance,
    openapi.response_schema_conformance,
)
REPOSITORY = Path(__file__).parents[3]
EXAMPLES = 30 if os.environ.get("MESHWRIGHT_TEST_EXPLORE") else 4
"""Requests for each of the hundred operations; the same ones in every run, unless new ones are looked for."""


def test_the_service_is_ready_once_a_worker_was_seen(tmp_path: Path) -> None:
    """In role all it is its own worker; in role web alone, plans would wait."""
    url = f"sqlite:///{tmp_path}/a.sqlite"
    with running(tmp_path, url, role=Role.WEB) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/readyz").status_code == 503
        assert "worker" in client.get("/readyz").json()["detail"]
    with running(tmp_path, url) as client:
        assert client.get("/readyz").json() == {"status": "ok"}


@pytest.mark.parametrize(("revision", "status"), [("0001", 503), ("of-tomorrow", 200)])
def test_who_runs_already_goes_on_while_a_newer_version_is_rolled_out(
    tmp_path: Path, revision: str, status: int
) -> None:
    """A newer schema is no reason to send requests elsewhere; an older one is."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite") as client:
        with client.app.state.service.engine.begin() as connection:  # type: ignore[attr-defined]
            connection.execute(text("UPDATE alembic_version SET version_num = :new"), {"new": revision})
        assert client.get("/readyz").status_code == status


def test_workers_that_cannot_write_their_signs_of_life_count_as_silent(tmp_path: Path) -> None:
    """So a disk without room shows; a worker that restarts may be silent for half a minute."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        sessions = client.app.state.service.sessions  # type: ignore[attr-defined]
        for silent_s, status in ((20, 200), (40, 503)):
            with transaction(sessions) as session:
                workers.beat(session, executor_id="w", pid=1, pid_scope="m")
                session.execute(update(WorkerRow).values(beat_at=datetime.now(UTC) - timedelta(seconds=silent_s)))
            assert client.get("/readyz").status_code == status


def test_a_database_that_is_away_is_said_to_be_so(tmp_path: Path) -> None:
    """503 with a time to try again, in the API and on pages alike; the process itself is well."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        for name in ("a.sqlite", "a.sqlite-wal", "a.sqlite-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / "a.sqlite").mkdir()
        client.app.state.service.engine.dispose()  # type: ignore[attr-defined]  # connections kept would go on
        answer = client.get(f"{API}/plans")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert client.get("/readyz").headers["Retry-After"] == "5"
        page = client.get("/plans", headers={"accept": "text/html"})
        assert page.headers["Retry-After"] == "5"
        assert (page.status_code, "The database does not answer" in page.text) == (503, True)
        assert client.get("/healthz").is_success
        assert "meshwright_database_up 0.0" in client.get("/metrics").text


def test_a_full_disk_is_said_to_be_so(tmp_path: Path) -> None:
    """Waiting does not help: the operator must free space; what is stored can be read all the while."""

    def is_full(connection: sqlite3.Connection, *_: object) -> None:
        connection.execute("PRAGMA max_page_count = 1")  # of as many as there are

    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        engine = client.app.state.service.engine  # type: ignore[attr-defined]
        event.listen(engine, "checkout", is_full)
        for number in range(50):
            answer = client.post(f"{API}/clusters", json=cluster_body(name=f"c{number}"))
            if not answer.is_success:
                break
        assert (answer.status_code, "disk of the database is full" in answer.json()["detail"]) == (503, True)
        assert len(client.get(f"{API}/clusters").json()["items"]) == number


def test_making_the_description_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes seconds the first time, and anybody may ask for it."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client, ThreadPoolExecutor() as pool:

        def openapi(_app: DescribedApp) -> dict[str, Any]:
            return {"meanwhile": pool.submit(client.get, "/healthz").result(timeout=20.0).status_code}

        monkeypatch.setattr(DescribedApp, "openapi", openapi)
        assert client.get(f"{API}/openapi.json").json() == {"meanwhile": 200}


def test_the_clock_of_a_worker_does_not_count(sessions: SessionFactory) -> None:
    """Silence is measured by the database's clock on both ends, whatever the machines say."""
    with transaction(sessions) as session:
        assert workers.silence(session) is None
        workers.beat(session, executor_id="w", pid=1, pid_scope="m")
        silent = workers.silence(session)
    assert silent is not None
    assert abs(silent.total_seconds()) < 60.0


def test_metrics_count_requests_and_solves(tmp_path: Path) -> None:
    """Requests by operation, plans by status, solves by backend."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite") as client:
        ended(client, client.post(f"{API}/plans", json=plan_body()).headers["Location"])

        def text() -> str:
            return client.get("/metrics").text

        wait_until(lambda: 'meshwright_solve_seconds_count{backend="cbc",status="succeeded"} 1.0' in text())
        counted = text()
    assert 'meshwright_plans{status="succeeded"} 1.0' in counted
    for line in (
        "meshwright_queue_seconds_count 1.0",
        "meshwright_oldest_queued_seconds 0.0",
        "meshwright_workers 1.0",
        'meshwright_replans_open{status="proposed"} 0.0',
        "meshwright_webhook_messages_waiting 0.0",
        "meshwright_step_ratio NaN",
        "meshwright_database_up 1.0",
    ):
        assert line in counted
    assert 'meshwright_http_requests_total{operation="create_plan",status="202"} 1.0' in counted


def test_whoever_changes_something_or_is_refused_leaves_a_line_in_the_log(tmp_path: Path) -> None:
    """With the request id of the answer; reads that succeed leave none unless that is wanted."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client, capture_logs() as logs:
        client.get(f"{API}/plans")
        missing = client.get(f"{API}/plans/none", headers={"X-Request-Id": "find-me"})
        client.post(f"{API}/clusters", json=cluster_body())
    lines = [line for line in logs if line["event"] == "request"]
    assert [(line["method"], line["status"], line["operation"]) for line in lines] == [
        ("GET", missing.status_code, "get_plan"),
        ("POST", 201, "create_cluster"),
    ]
    assert lines[1]["tenant"] == "default"


def test_the_committed_description_is_the_served_one() -> None:
    """``openapi.json`` changes only together with the code; the failure says how to renew it."""
    served = json.loads(json.dumps(create_app(Settings()).openapi()))
    committed = json.loads((REPOSITORY / "openapi.json").read_text())
    assert committed == served, "renew it with: python -m app.api.description > openapi.json"


def test_operations_have_short_unique_names_and_examples() -> None:
    """Clients made from the description get readable method names."""
    described = create_app(Settings()).openapi()
    names = [operation["operationId"] for path in described["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))
    assert all(name.isidentifier() for name in names)
    for schema in ("WorkloadDocument", "FrameworkSettings", "FrameworkAnswer", "CalibrationSummary"):
        fields = described["components"]["schemas"][schema]["properties"]
        assert [name for name, field in fields.items() if not {"description", "examples"} <= set(field)] == []


@pytest.mark.slow
def test_the_service_keeps_what_its_description_promises(tmp_path: Path) -> None:
    """Generated requests, good and bad, get no breakage, and the statuses and bodies that are described."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        client.post(f"{API}/clusters", json=cluster_body())
        client.get(f"{API}/openapi.json")  # made here, for schemathesis waits ten seconds at most
        schema = schemathesis.openapi.from_asgi(f"{API}/openapi.json", client.app)
        for found in schema.exclude(path_regex="(plan}/events|replan}/events|/readyz)$").get_all_operations():
            operation = found.ok()  # type: ignore[union-attr]  # our own description is sound, as the test above says
            good = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
            bad = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)

            @given(case=good | bad)
            @settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
            def conforms(case: Any) -> None:
                case.validate_response(case.call(), checks=CHECKS)

            conforms()
