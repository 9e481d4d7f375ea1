"""Requests that a client repeats because it lost the answer: made once, whatever they make."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import DateTime, Engine, MetaData, bindparam, insert, text

from app.db import migrate
from app.db.engine import make_engine, make_session_factory, transaction
from app.documents.model import ModelDocument
from app.services import idempotency
from app.services.errors import IdempotencyKeyReused
from app.settings import Role
from tests.app.api_client import API, cluster_body, plan_body, running
from tests.app.calibration_bodies import calibration_document
from tests.app.failure_bodies import SITE, job_body, plan_document, store_cluster
from tests.app.import_files import ANSWERS, FILES, document
from tests.plans import small_architecture

KEY = {"Idempotency-Key": "again"}
SAMPLE = {"source": "n0", "destination": "n1", "tool": "t", "collective": "alltoall", "message_bytes": 1e6}
MODEL = ModelDocument.from_architecture(small_architecture()).model_dump(mode="json")
CALIBRATION = calibration_document().model_dump(mode="json", by_alias=True)
HOOK = {"url": "https://a.example/", "event_types": []}

CREATED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (f"{API}/clusters", cluster_body(), {"source": "another"}),
    (f"{API}/models", {"name": "own", "model": MODEL}, {"name": "other"}),
    (f"{API}/calibrations", {"name": "own", "calibration": CALIBRATION}, {"name": "other"}),
    (f"{API}/plans", plan_body(), {"options": {"seed": 5}}),
    (f"{API}/webhooks", HOOK, {"event_types": ["replan.failed"]}),
    (f"{API}/routing", {"name": "own", "logical_count": [[120, 80]]}, {"name": "other"}),
    (f"{SITE}/event-sources", {"name": "watch", "adapter": "plain"}, {"name": "other"}),
    (f"{SITE}/jobs", job_body("b", "n4", "n5"), {"weight": 2.0}),
    (f"{SITE}/jobs/a/running-plans", {"plan": plan_document("n2", "n3")}, {"plan": plan_document("n6", "n7")}),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of an application that has a cluster and a job."""
    folder: Path = tmp_path_factory.mktemp("site")
    with running(folder, f"sqlite:///{folder}/a.sqlite", role=Role.WEB) as client:
        store_cluster(client)
        client.post(f"{SITE}/jobs", json=job_body("a", "n0", "n1"))
        yield client


@pytest.mark.parametrize(("path", "body", "changes"), CREATED, ids=[path for path, _, _ in CREATED])
def test_what_a_repeated_request_asks_for_is_made_once(
    client: TestClient, path: str, body: dict[str, Any], changes: dict[str, Any]
) -> None:
    """The second answer is the first, secrets included; another body under the key is refused and makes nothing."""
    first, again = (client.post(path, json=body, headers=KEY) for _ in range(2))
    assert first.status_code in (201, 202), first.text
    assert (again.status_code, again.headers["Location"]) == (first.status_code, first.headers["Location"])
    assert again.json() == first.json()
    other = client.post(path, json=body | changes, headers=KEY)
    assert (other.status_code, other.json()["type"]) == (422, "/problems/idempotency-key-reused")


def test_a_repeated_upload_adds_nothing(client: TestClient) -> None:
    """Measurements and files: the same once more is fine, another body under the key is not."""
    place = f"{SITE}/measurements"
    body = {"samples": [{**SAMPLE, "bandwidth_gbytes_per_s": 9.0}]}
    added = [client.post(place, json=body, headers=KEY) for _ in range(2)]
    assert [(answer.status_code, answer.json()["added"]) for answer in added] == [(201, 1), (201, 0)]
    other = {"samples": [{**SAMPLE, "bandwidth_gbytes_per_s": 8.0}]}
    assert client.post(place, json=other, headers=KEY).json()["type"] == "/problems/idempotency-key-reused"
    imports, fields = f"{API}/imports", {"cluster": "made", "answers": ANSWERS}
    digest = client.post(imports, **document(FILES, **fields)).json()["digest"]
    sent = document(FILES, **fields, store=True, digest=digest)
    stored = [client.post(imports, **sent, headers=KEY) for _ in range(2)]
    assert [(answer.status_code, answer.json()["stored"]["added"]) for answer in stored] == [(201, 2), (201, 0)]
    assert client.post(imports, **sent).status_code == 409, "without a key the report is another by now"
    fewer = document(dict([*FILES.items()][:1]), **fields, store=True, digest=digest)
    assert client.post(imports, **fewer, headers=KEY).status_code == 422


def test_what_is_gone_is_made_anew(client: TestClient) -> None:
    """A key outlives what it made, and does not bring back an answer about nothing."""
    made = client.post(f"{API}/webhooks", json=HOOK, headers={"Idempotency-Key": "gone"}).headers["Location"]
    client.delete(made)
    again = client.post(f"{API}/webhooks", json=HOOK, headers={"Idempotency-Key": "gone"})
    assert again.status_code == 201
    assert client.get(again.headers["Location"]).status_code == 200


def test_requests_at_once_make_one_thing(engine: Engine) -> None:
    """Whoever comes second waits for the first, and gets what that made."""
    sessions, made, got = make_session_factory(engine), [], []
    request = idempotency.keyed("thing", "k", "body")

    def ask(name: str) -> None:
        def make() -> str:
            made.append(name)
            return name

        with transaction(sessions) as session:
            got.append(idempotency.once(session, request, make=make, find=lambda found: found))

    threads = [threading.Thread(target=ask, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 8
    assert len(set(got)) == 1
    assert got[0] in made


def test_keys_of_plans_are_kept_by_the_migration(empty_database_url: str) -> None:
    """A client that repeats its request across an upgrade finds its plan."""
    engine = make_engine(empty_database_url)
    migrate.upgrade(engine, revision="0004")
    asked = idempotency.fingerprint(b"{}")
    now = datetime(2026, 3, 1, tzinfo=UTC)
    nothing = {"model_name": "m", "status": "queued", "attempts": 0, "rescues": 0, "problem": "{}", "options": "{}"}
    former_tables = MetaData()
    former_tables.reflect(engine)
    rows = {
        "snapshots": {"id": "s", "cluster_name": "c", "document": "{}", "created_at": now},
        "plans": nothing | {"id": "p", "snapshot_id": "s", "cluster_name": "c", "created_at": now},
    }
    with transaction(make_session_factory(engine)) as session:
        for table, values in rows.items():
            session.execute(insert(former_tables.tables[table]).values(**values))
        columns = "key, request_hash, plan_id, created_at"
        former = text(f"INSERT INTO idempotency_keys ({columns}) VALUES ('k', :asked, 'p', :now)")  # noqa: S608 - ours
        moment = bindparam("now", type_=DateTime(timezone=True))
        session.execute(former.bindparams(moment), {"asked": asked, "now": now})
    migrate.upgrade(engine)
    with transaction(make_session_factory(engine)) as session:
        request = idempotency.keyed("plan", "k", "{}")
        assert idempotency.made_before(session, request, find=lambda found: found) == "p"
        with pytest.raises(IdempotencyKeyReused):
            idempotency.made_before(session, idempotency.keyed("plan", "k", "[]"), find=lambda found: found)
    engine.dispose()
