"""Uploads that take long keep nobody else from writing."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.db.engine import SessionFactory, transaction
from app.documents.measurements import MeasurementsDocument
from app.documents.reading import read_document
from app.services import workers
from app.services.clusters import clusters, measurements, snapshots
from app.services.clusters.clusters import NodeChange
from app.settings import Role
from cluster_models.cluster.topology import NodeState
from tests.app.api_client import API, cluster_body, plan_body, running
from tests.app.running_rows import CLUSTER, add_cluster

SAMPLE = {"tool": "t", "collective": "alltoall", "message_bytes": 1e6, "bandwidth_gbytes_per_s": 9.0}
WITH_TIME = {"measured_at": "2026-03-01T02:00:00+02:00", "latency_us": 3.0, "ranks_per_node": 4}
SAMPLES = [
    {**SAMPLE, "source": "n0", "destination": "n1"},
    {**SAMPLE, **WITH_TIME, "source": "n1", "destination": "n2"},
]


def test_others_write_while_measurements_are_read_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading and checking, most of the time of a large upload, happen before the lock is taken."""
    others: list[str] = []
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        body = cluster_body()
        client.post(f"{API}/clusters", json=body | {"samples": []})
        service: Any = client.app.state.service  # type: ignore[attr-defined]

        def watch(name: str) -> None:
            work = getattr(snapshots, name)

            def work_while_another_writes(*args: Any, **kwargs: Any) -> Any:
                with transaction(service.sessions) as session:
                    workers.beat(session, executor_id=name, pid=1, pid_scope="here")
                others.append(name)
                return work(*args, **kwargs)

            monkeypatch.setattr(snapshots, name, work_while_another_writes)

        watch("samples_of")
        watch("reject_absurd")
        place = f"{API}/clusters/{body['name']}/measurements"
        answer = client.post(place, json={"samples": body["samples"]})
        again = client.post(place, json={"samples": body["samples"]})
    assert (answer.status_code, answer.json()["added"]) == (201, len(body["samples"]))
    assert (again.status_code, again.json()["added"]) == (201, 0)
    assert others == ["samples_of", "reject_absurd", "samples_of"]


def test_a_plan_that_ends_while_an_upload_is_stored_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upload holds the database until the solver has answered; then the answer is stored, at the first try."""
    ledger, store = tmp_path / "ledger", measurements.store

    def store_once_the_solver_has_ended(*args: Any, **kwargs: Any) -> None:
        store(*args, **kwargs)
        until = time.monotonic() + 20.0
        while "end" not in ledger.read_text() and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(0.3)

    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", seconds=0.5) as client:
        body = cluster_body()
        client.post(f"{API}/clusters", json=body | {"samples": []})
        monkeypatch.setattr(measurements, "store", store_once_the_solver_has_ended)
        plan = client.post(f"{API}/plans", json=plan_body()).json()["id"]
        until = time.monotonic() + 20.0
        while not ledger.exists() and time.monotonic() < until:
            time.sleep(0.02)
        place = f"{API}/clusters/{body['name']}/measurements"
        assert client.post(place, json={"samples": body["samples"]}).status_code == 201
        while (found := client.get(f"{API}/plans/{plan}").json())["status"] not in {"succeeded", "failed"}:
            assert time.monotonic() < until + 20.0
            time.sleep(0.05)
    assert found["status"] == "succeeded"
    assert ledger.read_text().split().count("start") == 1


def test_measurements_of_a_cluster_that_changed_meanwhile_are_read_again(sessions: SessionFactory) -> None:
    """Samples read under another version are checked again; moments and figures come back as they were."""
    document = read_document(MeasurementsDocument, {"samples": SAMPLES}, what="measurements")
    with transaction(sessions) as session:
        cluster_id = add_cluster(session)
    read = []
    for _ in range(2):
        with sessions() as session:
            read.append(snapshots.read_measurements(session, reference=CLUSTER, document=document))
    with transaction(sessions) as session:
        clusters.change_node(session, reference=CLUSTER, node="n7", change=NodeChange(state=NodeState.FAILED))
    for earlier, added in zip(read, (2, 0), strict=True):
        with transaction(sessions) as session:
            done = snapshots.add_measurements(session, reference=CLUSTER, document=document, read=earlier)
        assert (done.added, done.already_known) == (added, 2 - added)
    with sessions() as session:
        stored = measurements.read_all(session, cluster_id=cluster_id)
    assert [sample.measured_at for sample in stored] == [None, datetime(2026, 3, 1, tzinfo=UTC)]
    assert stored == read[0].fresh
