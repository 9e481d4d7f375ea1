"""A database that an earlier Meshwright wrote is upgraded, and everything in it is read, shown and used.

``tests/data/upgrades/0006.json`` holds the rows of Meshwright 0.0.x, before there were tenants: a plan, the job
that runs by it, a failure with the decision that was carried out, routing counts, a calibration, a model and a
webhook.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import JSON, Connection, DateTime, LargeBinary, MetaData, insert, text

from app.db import migrate
from app.db.engine import make_engine
from app.settings import Role
from tests.app.api_client import API, running

ROWS: Final = json.loads(Path("tests/data/upgrades/0006.json").read_text())
SERVING: Final = json.loads(Path("tests/data/upgrades/0013.json").read_text())
"""A plan of serving that the code before 2bcb2493 made and stored, when engines had fewer facts."""
NAMES: Final = {
    "cluster": "demo",
    "job": "pretrain-a",
    "node": "alpha",
    "calibration": "ours",
    "routing": "small",
    "source": "watch",
    "format": "torchrun",
    "framework": "megatron-core-0.12",
}
PAGES: Final = (
    *("/plans", "/plans/{plan}", "/plans/{plan}/compare", "/plans/{plan}/sensitivity", "/plans/{plan}/run"),
    *(
        "/clusters",
        "/clusters/demo",
        "/clusters/demo/failures",
        "/clusters/demo/what-if",
        "/clusters/demo/jobs/{job}",
    ),
    *("/replans", "/replans/{replan}", "/experts", "/experts/{routing}", "/webhooks", "/webhooks/{webhook}"),
    *("/calibrations", "/calibrations/{calibration}", "/keys", "/audit", "/runs"),
)


def _value(kind: Any, value: Any) -> Any:
    if isinstance(kind, DateTime) and value is not None:
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    if isinstance(kind, JSON) and value is not None:
        return json.loads(value)
    if isinstance(kind, LargeBinary) and value is not None:
        return base64.b64decode(value["base64"])
    return value


def _fill(connection: Connection, rows: dict[str, Any]) -> None:
    metadata = MetaData()
    metadata.reflect(connection)
    for table in metadata.sorted_tables:
        for row in rows["tables"].get(table.name, ()):
            connection.execute(
                insert(table).values({name: _value(table.c[name].type, value) for name, value in row.items()})
            )
        if connection.dialect.name == "postgresql" and rows["tables"].get(table.name) and "id" in table.c:
            sequence = connection.scalar(text("SELECT pg_get_serial_sequence(:t, 'id')"), {"t": table.name})
            if sequence is not None:
                connection.execute(text(f"SELECT setval('{sequence}', max(id)) FROM {table.name}"))  # noqa: S608


@contextmanager
def _today(database_url: str, folder: Path, rows: dict[str, Any]) -> Iterator[TestClient]:
    """A client of today's service over yesterday's rows."""
    engine = make_engine(database_url)
    migrate.upgrade(engine, revision=rows["revision"])
    with engine.begin() as connection:
        _fill(connection, rows)
    migrate.upgrade(engine)
    engine.dispose()
    with running(folder, database_url, role=Role.WEB) as client:
        yield client


@pytest.fixture
def client(empty_database_url: str, tmp_path: Path) -> Iterator[TestClient]:
    """A client over a database of many things."""
    with _today(empty_database_url, tmp_path, ROWS) as client:
        yield client


def _ids() -> dict[str, str]:
    rows = ROWS["tables"]
    return NAMES | {
        "plan": rows["plans"][0]["id"],
        "replan": rows["replans"][0]["id"],
        "running_plan": rows["running_plans"][-1]["id"],
        "snapshot": rows["snapshots"][0]["id"],
        "model": rows["models"][0]["name"],
        "webhook": rows["webhook_endpoints"][0]["id"],
        "name": NAMES["routing"],
    }


def _addresses(client: TestClient) -> Iterator[str]:
    """Everything that reads, as far as something was stored that it names, but for streams."""
    ids = _ids()
    for path, methods in client.get(f"{API}/openapi.json").json()["paths"].items():
        is_named = set(re.findall(r"\{(\w+)\}", path)) <= set(ids)
        if "get" in methods and path.startswith(API) and is_named and not path.endswith("/events"):
            yield path.format(**ids)
    for page in PAGES:
        yield page.format(**ids)


def test_what_was_stored_before_is_read_shown_and_used(client: TestClient) -> None:
    """Every address answers; and the job of before is decided about when its node fails."""
    addresses = list(_addresses(client))
    assert len(addresses) > 70
    assert {address: status for address in addresses if (status := client.get(address).status_code) != 200} == {}
    answer = client.post(f"{API}/clusters/demo/events", json={"node": "alpha", "state": "failed", "id": "after"})
    summary = client.get(f"{API}/replans/{answer.json()['replan']}").json()["summary"]
    assert [(job["job"], job["action"]) for job in summary["jobs"]] == [("pretrain-a", "swap")]


def test_a_plan_of_serving_that_was_stored_before_is_shown(empty_database_url: str, tmp_path: Path) -> None:
    """Its pages, its document and every export that can take it."""
    plan = SERVING["tables"]["plans"][0]["id"]
    with _today(empty_database_url, tmp_path, SERVING) as client:
        for address in ("/plans", f"/plans/{plan}", f"/plans/{plan}/run", f"/plans/new/serving?again={plan}"):
            assert client.get(address).status_code == 200, address
        found = client.get(f"{API}/plans/{plan}").json()
        assert found["result"]["result"] == "serving_plan"
        exports = client.get(f"{API}/plans/{plan}/exports").json()
        taken = [each["address"] for each in exports if each["refusal"] is None]
        assert taken
        assert {address: client.get(address).status_code for address in taken} == dict.fromkeys(taken, 200)
