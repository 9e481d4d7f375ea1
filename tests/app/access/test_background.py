"""Work that no request asks for: signed reports, solves, decisions and messages stay with their tenant."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text
from standardwebhooks import Webhook

from app.db.engine import SessionFactory, transaction
from app.db.replan_tables import ReplanRow
from app.db.tables import ModelRow
from app.db.tenancy import OwnerMissing, for_tenant
from app.db.webhook_tables import WebhookDeliveryRow, WebhookEndpointRow
from app.jobs import due_work
from app.services.webhooks import webhooks
from app.settings import Role
from tests.app.access.callers import OURS, THEIRS, guarded, key_of, service_of, with_key
from tests.app.api_client import API, ended, plan_body
from tests.app.failure_bodies import SITE, store_site
from tests.app.running_rows import add_cluster, add_job, report, told

REPORT = json.dumps({"node": "n0", "state": "failed", "id": "e-1"}).encode()


def _signed(secret: str) -> dict[str, str]:
    now = datetime.now(UTC)
    signature = Webhook(secret).sign("m-1", now, REPORT.decode())
    return {
        "webhook-id": "m-1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signature,
        "Content-Type": "application/json",
    }


def test_a_signature_says_whose_a_report_is(tmp_path: Path, database_url: str) -> None:
    """Two tenants have a cluster and a source of the same names; a report without any key goes to whose it is."""
    with guarded(tmp_path, database_url) as service:
        clients = {tenant: with_key(service, key_of(service, tenant)) for tenant in (OURS, THEIRS)}
        secrets = {}
        for tenant, client in clients.items():
            store_site(client)
            made = client.post(f"{SITE}/event-sources", json={"name": "watch", "adapter": "plain"})
            secrets[tenant] = made.json()["secret"]

        def send(headers: dict[str, str], query: str = "?source=watch") -> int:
            return service.post(f"{SITE}/events/plain{query}", content=REPORT, headers=headers).status_code

        assert send(_signed(secrets[THEIRS])) == 200
        assert len(clients[THEIRS].get(f"{SITE}/events").json()["items"]) == 1
        assert clients[OURS].get(f"{SITE}/events").json()["items"] == []
        assert len(clients[THEIRS].get(f"{API}/replans").json()["items"]) == 1
        assert clients[OURS].get(f"{API}/replans").json()["items"] == []
        assert send({"Authorization": f"Bearer {secrets[OURS]}"}) == 200
        assert len(clients[OURS].get(f"{SITE}/events").json()["items"]) == 1
        for headers, query in (
            ({}, "?source=watch"),
            (_signed(webhooks.new_secret()), "?source=watch"),
            (_signed(secrets[OURS]), ""),
            (_signed(secrets[OURS]), "?source=nobody"),
        ):
            assert send(headers, query) == 401


def test_a_plan_is_solved_for_its_tenant(tmp_path: Path) -> None:
    """A worker, which sees all tenants, writes the result where only one reads it."""
    with guarded(tmp_path, "", role=Role.ALL) as service:
        ours, theirs = (with_key(service, key_of(service, tenant)) for tenant in (OURS, THEIRS))
        for client in (theirs, ours):
            address = client.post(f"{API}/plans", json=plan_body()).headers["Location"]
        assert ended(ours, address)["status"] == "succeeded"
        assert theirs.get(address).status_code == 404


def _site(sessions: SessionFactory) -> None:
    """A cluster with a job, and an address that is told."""
    with transaction(sessions) as session:
        add_cluster(session)
        add_job(session, "a", "n0", "n1")
        webhooks.create_endpoint(session, url="https://hooks.example/")


def test_decisions_and_messages_stay_with_their_tenant(sessions: SessionFactory) -> None:
    """A keeper answers one tenant's failure: only that tenant's address is told, of its own cluster."""
    for tenant in (OURS, THEIRS):
        _site(for_tenant(sessions, tenant))
    with transaction(for_tenant(sessions, OURS)) as session:
        report(session, told("n0"))
    everybody = for_tenant(sessions, None)
    due_work.answer_the_unanswered(everybody)
    with everybody() as session:
        replan = session.scalars(select(ReplanRow)).one()
        assert (replan.tenant_id, replan.safe_revision) == (OURS, replan.revision)
        messages = session.execute(
            select(WebhookDeliveryRow.tenant_id, WebhookEndpointRow.tenant_id, WebhookDeliveryRow.event_type).join(
                WebhookEndpointRow, WebhookEndpointRow.id == WebhookDeliveryRow.endpoint_id
            )
        ).all()
    assert [tuple(each) for each in messages] == [(OURS, OURS, "replan.safe_answer")]


def test_nothing_is_made_without_an_owner(sessions: SessionFactory) -> None:
    """A session of all tenants, and one of nobody, can make nothing that a tenant would have to own."""
    row: dict[str, Any] = {"name": "m", "document": {}, "created_at": datetime.now(UTC)}
    for tenant in (None, ""):
        with (
            pytest.raises(Exception, match="sessions of a tenant") as raised,
            transaction(for_tenant(sessions, tenant)) as session,
        ):
            session.add(ModelRow(id="m", **row))
        assert isinstance(raised.value.__cause__ or raised.value, OwnerMissing)


def test_nobody_sees_nothing(tmp_path: Path) -> None:
    """The service as nobody sees it, which is what a public page gets, has no row."""
    with guarded(tmp_path, "") as service:
        store_site(with_key(service, key_of(service, OURS)))
        nobody = service_of(service).of_tenant("")
        with nobody.read_sessions() as session:
            assert session.scalars(select(ReplanRow)).all() == []
            assert session.scalar(text("SELECT count(*) FROM clusters")) == 1, "the table itself is not empty"
            assert session.scalars(select(ModelRow.id)).all() == []
