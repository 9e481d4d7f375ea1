"""Messages to other programs: signed, retried, sent only where they may go, and never lost."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from sqlalchemy import select
from standardwebhooks import Webhook, WebhookVerificationError

from app.db.engine import SessionFactory, transaction
from app.db.status import DeliveryStatus
from app.db.webhook_tables import WebhookDeliveryRow
from app.jobs import delivering, due_work
from app.jobs.client import JobClient
from app.jobs.delivering import AddressNotAllowed, allowed_addresses, is_allowed, send
from app.jobs.runtime import DELIVERIES_OF_ONE_ENDPOINT, JobRuntime
from app.metrics import make_metrics
from app.services.errors import NameTaken, NotAuthentic
from app.services.health import event_sources
from app.services.webhooks import webhook_deliveries, webhooks
from app.services.webhooks.webhook_deliveries import RETRY_AFTER_S, Outcome, Outgoing
from app.services.webhooks.webhooks import EventType
from app.settings import Settings
from cluster_models.errors import InvalidInput
from tests.app.plan_rows import wait_until
from tests.app.running_rows import CLUSTER, START, add_cluster

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
LOCAL = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


@contextmanager
def _receiver(*answers: int) -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """A server that answers with these statuses, the last for ever; its address, and what it was sent."""
    got: list[tuple[dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(answers[min(len(got), len(answers)) - 1])
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}/hook?x=1", got
        server.shutdown()


@contextmanager
def _dripping() -> Iterator[str]:
    """A server that takes every connection and sends a byte of a head at a time, for ever; its address."""
    done = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not done.wait(0.05):
                    self.request.sendall(b"x")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        done.set()
        server.shutdown()


def _row(sessions: SessionFactory, delivery_id: str) -> WebhookDeliveryRow:
    with sessions() as session:
        return session.get_one(WebhookDeliveryRow, delivery_id)


@on_sqlite
def test_a_message_is_signed_and_sent_again_until_it_is_taken(
    tmp_path: Path, database_url: str, sessions: SessionFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same id and body each time, a signature that the receiver's library accepts, and then no more."""
    monkeypatch.setattr(webhook_deliveries, "RETRY_AFTER_S", (0.1, 0.1))
    settings = Settings(data_dir=tmp_path, database_url=database_url, heartbeat_s=0.2, webhook_networks=LOCAL)
    with _receiver(500, 200) as (url, got):
        with transaction(sessions) as session:
            made = webhooks.create_endpoint(session, url=url)
            (delivery_id,) = webhooks.announce(session, event_type=EventType.PROPOSED, data={"n": "ä"})
        runtime = JobRuntime(settings, sessions, make_metrics())
        runtime.start()
        try:
            wait_until(lambda: _row(sessions, delivery_id).status == DeliveryStatus.DELIVERED)
        finally:
            runtime.stop()
        assert len(got) == 2
        for headers, body in got:
            read = Webhook(made.secret).verify(body, headers)
            assert (read["type"], read["data"]) == ("replan.proposed", {"n": "ä"})
            assert headers["webhook-id"] == delivery_id
            assert {name for name in headers if name.startswith("webhook-")} == _described_headers()
            assert headers["host"].startswith("localhost:")
        with pytest.raises(WebhookVerificationError):
            Webhook(webhooks.new_secret()).verify(*reversed(got[0]))
    row = _row(sessions, delivery_id)
    assert (row.attempts, row.last_status, row.last_error) == (2, 200, None)


def _described_headers() -> set[str]:
    """Headers that the description gives every message."""
    described = json.loads((Path(__file__).parents[2] / "openapi.json").read_text())["webhooks"].values()
    (names,) = {frozenset(each["name"] for each in one["post"]["parameters"]) for one in described}
    return set(names)


@on_sqlite
def test_a_round_that_comes_twice_sends_once(tmp_path: Path, database_url: str, sessions: SessionFactory) -> None:
    """Queued under an id that counts the attempts; one that broke inside the service counts as failed."""
    with transaction(sessions) as session:
        webhooks.create_endpoint(session, url="https://a.example/")
        (delivery_id,) = webhooks.announce(session, event_type=EventType.FAILED, data={})
    settings = Settings(data_dir=tmp_path, database_url=database_url)
    runtime = JobRuntime(settings, sessions, make_metrics())
    runtime.start()
    runtime.stop()
    client = JobClient(settings.resolved_jobs_database_url)
    for _ in range(2):
        due_work.queue_deliveries(sessions, client)
        assert client.states([f"{delivery_id}.0"])
    client.close()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_endpoints_that_let_their_messages_hang_do_not_delay_another(
    tmp_path: Path, database_url: str, sessions: SessionFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight of them, with many messages each, hold up nobody: the good one has its message while theirs hang."""
    monkeypatch.setattr(delivering, "DEADLINE_S", 3600.0)
    settings = Settings(data_dir=tmp_path, database_url=database_url, heartbeat_s=0.2, webhook_networks=LOCAL)
    with _dripping() as slow, _receiver(200) as (good, got):
        with transaction(sessions) as session:
            for _ in range(8):
                webhooks.create_endpoint(session, url=slow)
            for _ in range(40):
                webhooks.announce(session, event_type=EventType.PROPOSED, data={})
        runtime = JobRuntime(settings, sessions, make_metrics())
        runtime.start()
        try:
            wait_until(lambda: len(runtime._context.solving) == 8 * DELIVERIES_OF_ONE_ENDPOINT)
            with transaction(sessions) as session:
                webhooks.ping(session, endpoint_id=webhooks.create_endpoint(session, url=good).endpoint.id)
            wait_until(lambda: len(got) == 1)
            wait_until(lambda: len(runtime._context.solving) == 8 * DELIVERIES_OF_ONE_ENDPOINT)
        finally:
            runtime.stop()


def test_an_answer_by_drops_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline is of the whole attempt, not of each byte."""
    monkeypatch.setattr(delivering, "DEADLINE_S", 0.5)
    with _dripping() as url:
        outcome = send(Outgoing(url, b"{}", {}), networks=LOCAL)
    assert outcome == Outcome(None, "The endpoint did not answer within 0.5 s.")


def test_no_endpoint_fills_the_queue(sessions: SessionFactory) -> None:
    """However many messages wait for one endpoint, those of another are among the due ones."""
    with transaction(sessions) as session:
        webhooks.create_endpoint(session, url="https://a.example/")
        for _ in range(300):
            webhooks.announce(session, event_type=EventType.FAILED, data={})
        other = webhooks.create_endpoint(session, url="https://b.example/").endpoint.id
        message = webhooks.ping(session, endpoint_id=other)
        due = webhook_deliveries.due(session, now=datetime.now(UTC))
    assert message in {each.delivery_id for each in due}
    assert len(due) < 100


def test_attempts_are_spaced_and_then_given_up(sessions: SessionFactory) -> None:
    """Each delay within a fifth; an attempt written down twice counts once; a last one can be asked for."""
    now = START
    with transaction(sessions) as session:
        webhooks.create_endpoint(session, url="https://a.example/")
        (delivery_id,) = webhooks.announce(session, event_type=EventType.FAILED, data={})
        now = session.get_one(WebhookDeliveryRow, delivery_id).next_attempt_at
        for attempts, delay_s in enumerate((*RETRY_AFTER_S, 0)):
            (due,) = webhook_deliveries.due(session, now=now)
            assert due.attempts == attempts
            assert webhook_deliveries.begin(session, delivery_id=delivery_id, attempts=attempts, now=now)
            assert webhook_deliveries.due(session, now=now) == ()
            outcome = Outcome(503, "busy")
            kept = [
                webhook_deliveries.record(
                    session, delivery_id=delivery_id, attempts=attempts, outcome=outcome, now=now
                )
                for _ in range(2)
            ]
            assert kept == [True, False]
            row = session.get_one(WebhookDeliveryRow, delivery_id)
            if delay_s:
                waited = (row.next_attempt_at - now).total_seconds()
                assert 0.8 * delay_s <= waited <= 1.2 * delay_s
                now = row.next_attempt_at
        assert row.status == DeliveryStatus.FAILED
        assert webhook_deliveries.retry(session, delivery_id=delivery_id, now=now)
        (due,) = webhook_deliveries.due(session, now=now)
        outcome = Outcome(200, None)
        webhook_deliveries.record(session, delivery_id=delivery_id, attempts=due.attempts, outcome=outcome, now=now)
        assert session.get_one(WebhookDeliveryRow, delivery_id).status == DeliveryStatus.DELIVERED
        webhook_deliveries.forget(session, before=now + timedelta(days=1))
        assert session.scalars(select(WebhookDeliveryRow.id)).all() == []


@on_sqlite
def test_an_endpoint_that_is_gone_or_disabled_gets_nothing_more(sessions: SessionFactory) -> None:
    """After 410 it is disabled with the reason, and what waits for it is given up."""
    with transaction(sessions) as session:
        endpoint = webhooks.create_endpoint(session, url="https://a.example/").endpoint
        (first,) = webhooks.announce(session, event_type=EventType.APPLIED, data={})
        (second,) = webhooks.announce(session, event_type=EventType.APPLIED, data={})
        now = datetime.now(UTC)
        gone = Outcome(410, "gone")
        webhook_deliveries.record(session, delivery_id=first, attempts=0, outcome=gone, now=now)
        assert webhook_deliveries.begin(session, delivery_id=second, attempts=0, now=now) is None
        assert "410" in webhooks.get_endpoint(session, endpoint_id=endpoint.id).disabled_because
        listed = webhooks.list_deliveries(session, endpoint_id=endpoint.id, limit=9)
        assert {each.status for each in listed.items} == {DeliveryStatus.FAILED}
        assert webhooks.announce(session, event_type=EventType.APPLIED, data={}) == ()
        webhooks.change_endpoint(session, endpoint_id=endpoint.id, enabled=True, event_types=[EventType.FAILED])
        assert webhooks.announce(session, event_type=EventType.APPLIED, data={}) == ()
        assert len(webhooks.announce(session, event_type=EventType.FAILED, data={})) == 1


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("192.168.0.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),  # noqa: S104 - an address that is refused
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
        ("::ffff:93.184.215.14", True),
        ("64:ff9b::a00:1", False),
        ("64:ff9b::5db8:d70e", True),
        ("2002:a00:1::", False),
        ("64:ff9b:1::5db8:d70e", False),
        ("::5db8:d70e", False),
        ("fec0::1", False),
    ],
)
def test_only_public_addresses_are_sent_to_unless_named(address: str, allowed: bool) -> None:
    """Private, loopback, link-local, shared and multicast ones need their network named."""
    parsed = ip_address(address)
    assert is_allowed(parsed, networks=()) == allowed
    assert is_allowed(parsed, networks=(ip_network("0.0.0.0/0"), ip_network("::/0")))


def test_what_may_not_be_sent_to_is_not_connected_to() -> None:
    """The refusal names the setting; a redirect is an answer like any other; a dead port is an error."""
    with _receiver(302) as (url, got):
        message = Outgoing(url, b"{}", {"content-type": "application/json"})
        refused = send(message, networks=())
        assert refused.status is None
        assert "MESHWRIGHT_WEBHOOK_NETWORKS" in (refused.error or "")
        assert got == []
        redirected = send(message, networks=LOCAL)
        assert (redirected.status, len(got)) == (302, 1)
        assert "redirects" in (redirected.error or "")
    assert send(message, networks=LOCAL).error
    assert send(Outgoing("http://no-such-host.invalid/", b"", {}), networks=LOCAL).error
    with pytest.raises(AddressNotAllowed):
        allowed_addresses("127.0.0.1", 80, networks=())


@on_sqlite
def test_addresses_and_secrets_are_checked_when_they_are_stored(sessions: SessionFactory) -> None:
    """Each refusal names the field; a secret is made where none is given, and renewed on demand."""
    with transaction(sessions) as session:
        for url in ("ftp://a/", "https://", "https://u:p@a/", "https://a/#b", "http://[x/", "a b"):
            with pytest.raises(InvalidInput, match="url"):
                webhooks.create_endpoint(session, url=url)
        for secret in ("whsec_", "whsec_c2hvcnQ=", "plain", "whsec_%%%"):
            with pytest.raises(InvalidInput, match="secret"):
                webhooks.create_endpoint(session, url="https://a.example/", secret=secret)
        made = webhooks.create_endpoint(session, url="https://a.example/")
        assert webhooks.checked_secret(made.secret) == made.secret
        assert webhooks.renew_secret(session, endpoint_id=made.endpoint.id).secret != made.secret
        webhooks.delete_endpoint(session, endpoint_id=made.endpoint.id)
        assert webhooks.list_endpoints(session, limit=9).items == ()


@on_sqlite
def test_sources_prove_who_they_are(sessions: SessionFactory) -> None:
    """By a signature over body and time, or by the secret as a bearer token; by nothing else."""
    body = '{"node": "n1"}'
    now = datetime.now(UTC)
    with transaction(sessions) as session:
        add_cluster(session)
        made = event_sources.create_source(session, reference=CLUSTER, name="watch", adapter="plain")
        with pytest.raises(NameTaken):
            event_sources.create_source(session, reference=CLUSTER, name="watch", adapter="plain")
        assert event_sources.list_sources(session, reference=CLUSTER) == (made.source,)

        def check(headers: dict[str, str], sent: str = body) -> event_sources.EventSource:
            return event_sources.check_authentic(
                session, source_id=made.source.id, body=sent.encode(), headers=headers
            )

        signed = {
            "Webhook-Id": "m",
            "Webhook-Timestamp": str(int(now.timestamp())),
            "Webhook-Signature": Webhook(made.secret).sign("m", now, body),
        }
        assert check(signed) == made.source
        assert check({"Authorization": f"Bearer {made.secret}"}) == made.source
        old = now - timedelta(minutes=6)
        stale = signed | {
            "Webhook-Timestamp": str(int(old.timestamp())),
            "Webhook-Signature": Webhook(made.secret).sign("m", old, body),
        }
        for headers, sent in (
            ({}, body),
            (signed, body + " "),
            (stale, body),
            ({"Authorization": "Bearer x"}, body),
            ({"Authorization": "Basic x"}, body),
            (signed | {"Webhook-Signature": "nonsense"}, body),
        ):
            with pytest.raises(NotAuthentic):
                check(headers, sent)
        event_sources.delete_source(session, source_id=made.source.id)
