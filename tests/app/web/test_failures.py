"""The page of a cluster's failures, and that of connections: what is shown, stored and refused."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from app.db.engine import transaction
from app.db.replan_tables import EventSourceRow, HealthEventRow
from app.db.webhook_tables import WebhookDeliveryRow, WebhookEndpointRow
from app.resources import Service
from app.services.clusters import aliases
from app.services.decisions import replan_settings, replans
from app.services.decisions.replan_settings import ReplanSettings
from app.services.running import occupancy
from app.services.webhooks import webhook_deliveries, webhooks
from app.services.webhooks.webhook_deliveries import Outcome
from app.services.webhooks.webhooks import EventType
from app.web.failures.failure_forms import filled_settings, settings_of
from cluster_models.health.events import EntityKind, HealthState
from cluster_models.jobs.recovery import RecoveryAction
from tests.app.running_rows import CLUSTER, START, add_cluster, add_job, report
from tests.app.running_rows import told as heard
from tests.app.web_site import FOREIGN, box, buttons, chosen, site, ticked, told, where

Site = tuple[Service, TestClient]
ADDRESS = f"/clusters/{CLUSTER}/failures"


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Site]:
    """Eight nodes under two leaves; a job ``a`` on n0 and n1, a spare n7."""
    with site(tmp_path) as (service, browser):
        with transaction(service.sessions) as session:
            add_cluster(session)
            add_job(session, "a", "n0", "n1")
            occupancy.replace_spares(session, reference=CLUSTER, nodes=["n7"])
        yield service, browser


def _reported(service: Service) -> list[tuple[str, str, str, str]]:
    with service.read_sessions() as session:
        rows = session.scalars(select(HealthEventRow).order_by(HealthEventRow.received_at))
        return [(row.kind, row.node, row.part, row.state) for row in rows]


def _form(**fields: str) -> dict[str, str]:
    blank = {"kind": "node", "node": "", "part": "", "switch": "", "state": "failed", "text": "", "token": ""}
    return blank | fields | {"do": "report"}


def test_a_healthy_cluster_says_that_nothing_waits(pages: Site) -> None:
    """One sentence on top, forms below."""
    page = pages[1].get(ADDRESS).text
    assert "Nothing waits for you. Nothing is reported as broken." in told(page)
    assert buttons(page) == ["report", "decide", "spares", "settings"]
    assert ticked(page, "spare") == ["n7"]


def test_a_failure_of_a_job_leads_to_its_decision(pages: Site) -> None:
    """The report is stored as the operator's word, and the browser goes where something is to be done."""
    service, browser = pages
    address = where(browser.post(ADDRESS, data=_form(node="n0", text="burnt")))
    with service.read_sessions() as session:
        replan = replans.open_replan_of(session, reference=CLUSTER)
    assert replan is not None
    assert address == f"/replans/{replan.id}"
    page = told(browser.get(ADDRESS).text)
    assert "A decision on failures of eight: collecting reports" in page
    assert "Node n0 failed since" in page
    assert "told by an operator" in page
    assert "burnt" in page
    assert f'href="/replans/{replan.id}"' in browser.get("/").text
    cluster = browser.get(f"/clusters/{CLUSTER}").text
    assert f'href="/replans/{replan.id}"' in cluster
    assert "1 node of 8 failed." in told(cluster)
    assert re.search(r'<li class="host bad"><b><a href="/clusters/[^"]*/failures\?node=n0#by-hand"', cluster)
    assert '>n0</a></b> <span class="badge bad">failed</span>' in cluster


def test_a_failure_of_nobodys_part_is_kept_and_needs_nothing(pages: Site) -> None:
    """Back on the same page with a word that it was stored."""
    service, browser = pages
    address = where(browser.post(ADDRESS, data=_form(node="n5")))
    assert "Stored. No job is touched by it" in browser.get(address).text
    assert _reported(service) == [("node", "n5", "", "failed")]


@pytest.mark.parametrize(
    ("fields", "stored"),
    [
        ({"kind": "gpu", "node": "n5", "part": "3"}, ("gpu", "n5", "3", "failed")),
        ({"kind": "nic", "node": "n5", "part": "mlx5_0"}, ("nic", "n5", "mlx5_0", "failed")),
        ({"kind": "link", "node": "n6", "part": "n5"}, ("link", "n5", "n6", "failed")),
        ({"kind": "switch", "switch": "leaf:leaf-1", "node": "n0"}, ("switch", "", "leaf:leaf-1", "failed")),
        ({"kind": "node", "node": "n5", "state": "draining", "part": "3"}, ("node", "n5", "", "draining")),
    ],
)
def test_every_part_can_be_reported(pages: Site, fields: dict[str, str], stored: tuple[str, str, str, str]) -> None:
    """Boxes that do not belong to the part are left alone."""
    service, browser = pages
    where(browser.post(ADDRESS, data=_form(**fields)))
    assert _reported(service) == [stored]


@pytest.mark.parametrize(
    ("fields", "anchor", "words"),
    [
        ({"node": "n99"}, "node", "is not a node of this cluster"),
        ({"node": ""}, "node", "is missing"),
        ({"kind": "gpu", "node": "n5", "part": "4"}, "part", "0 to 3"),
        ({"kind": "gpu", "node": "n5", "part": "x"}, "part", "0 to 3"),
        ({"kind": "link", "node": "n5", "part": "n5"}, "part", "must be the other node"),
        ({"kind": "nic", "node": "n5"}, "part", "is missing"),
        ({"kind": "switch", "switch": "leaf:nowhere"}, "switch", "choose one"),
        ({"kind": "moon", "node": "n5"}, "kind", "choose one"),
        ({"node": "n5", "state": "tired"}, "state", "choose one"),
        ({"node": "n5", "text": "x" * 2001}, "text", "longer than"),
    ],
)
def test_a_report_with_a_mistake_comes_back_whole(
    pages: Site, fields: dict[str, str], anchor: str, words: str
) -> None:
    """The problem at its field, what was typed still there, nothing stored."""
    service, browser = pages
    answer = browser.post(ADDRESS, data=_form(**{"text": "smoke", **fields}))
    assert answer.status_code == 422
    assert f'id="{anchor}-wrong-1"' in answer.text
    assert words in html.unescape(answer.text)
    assert box(answer.text, "node") == fields.get("node", "")
    assert box(answer.text, "text") == fields.get("text", "smoke")
    assert _reported(service) == []


def test_a_form_that_is_sent_twice_counts_once(pages: Site) -> None:
    """The page gives each form a token of its own."""
    service, browser = pages
    found = re.search(r'name="token" value="(\w{32})"', browser.get(ADDRESS).text)
    assert found is not None
    for _ in range(2):
        where(browser.post(ADDRESS, data=_form(node="n5", token=found[1])))
    assert len(_reported(service)) == 1
    assert found[1] not in browser.get(ADDRESS).text


def test_unknown_names_are_shown_and_can_be_remembered(pages: Site) -> None:
    """A report about a name that nobody knows stays on the page until somebody says which node it is."""
    service, browser = pages
    with transaction(service.sessions) as session:
        report(session, heard("<i>ip-10-0-0-5", known=False))
    page = browser.get(ADDRESS).text
    assert "<i>ip" not in page
    assert "<i>ip-10-0-0-5 failed unknown name" in told(page)
    wrong = browser.post(ADDRESS, data={"do": "alias", "alias": "<i>ip-10-0-0-5", "alias_node": "n55"})
    assert wrong.status_code == 422
    assert "names a node that the cluster does not have" in wrong.text
    assert box(wrong.text.replace('<input class="short"', "<input"), "alias_node") == "n55"
    with transaction(service.sessions) as session:
        report(session, heard("ip-10-0-0-5", known=False))
    address = where(browser.post(ADDRESS, data={"do": "alias", "alias": "ip-10-0-0-5", "alias_node": "n5"}))
    assert "under that name count from now on" in browser.get(address).text
    with service.read_sessions() as session:
        assert [(a.alias, a.node) for a in aliases.list_aliases(session, reference=CLUSTER)] == [
            ("ip-10-0-0-5", "n5")
        ]


def test_conditions_say_since_when_and_who_told(pages: Site) -> None:
    """The worst first, with what was told; nodes that fail again and again are named."""
    service, browser = pages
    now = datetime.now(UTC)
    with transaction(service.sessions) as session:
        for hours in (30, 20, 10):
            at_s = (now - timedelta(hours=hours) - START).total_seconds()
            report(session, heard("n5", at_s=at_s, source="slurm"))
            report(session, heard("n5", HealthState.RECOVERED, at_s=at_s + 60, source="slurm"))
        at_s = (now - timedelta(hours=2) - START).total_seconds()
        report(session, heard("n6", HealthState.SUSPECTED, at_s=at_s))
        report(session, heard("n4", kind=EntityKind.GPU, part="2", at_s=at_s, source="dcgm"))
    words = told(browser.get(ADDRESS).text)
    assert words.index("GPU 2 of n4 failed since") < words.index("Node n6 under suspicion since")
    assert "(2 h), told by dcgm" in words
    assert "n5 failed 3 times in 30 days" in words
    assert "GPU 2 failed" in told(browser.get(f"/clusters/{CLUSTER}").text)


def test_spares_are_stored_as_ticked(pages: Site) -> None:
    """Nodes of jobs are not offered; unknown names come back with the form."""
    service, browser = pages
    assert 'value="n0"' not in re.sub(r"<datalist.*?</datalist>", "", browser.get(ADDRESS).text, flags=re.DOTALL)
    where(browser.post(ADDRESS, data={"do": "spares", "spare": ["n5", "n6"]}))
    assert ticked(browser.get(ADDRESS).text, "spare") == ["n5", "n6"]
    wrong = browser.post(ADDRESS, data={"do": "spares", "spare": ["n5", "n77"]})
    assert wrong.status_code == 422
    assert "n77 is not a node of the cluster" in told(wrong.text)
    assert ticked(wrong.text, "spare") == ["n5"]
    with service.read_sessions() as session:
        assert [each.node for each in occupancy.list_spares(session, reference=CLUSTER)] == ["n5", "n6"]


def test_settings_are_stored_in_the_units_of_the_form(pages: Site) -> None:
    """Hours and minutes on the page, seconds inside; a mistake stores nothing and loses nothing."""
    service, browser = pages
    values = filled_settings(ReplanSettings())
    wrong = browser.post(ADDRESS, data=values | {"do": "settings", "window_s": "5", "horizon_s": "soon"})
    assert wrong.status_code == 422
    assert 'id="window_s-wrong-1"' in wrong.text
    assert 'id="horizon_s-wrong-1"' in wrong.text
    assert box(wrong.text, "horizon_s") == "soon"
    changed = {"horizon_s": "12", "hysteresis_s": "2.5", "gpu_budget": "64", "boxes": ["auto_approve"]}
    where(browser.post(ADDRESS, data=values | {"do": "settings"} | changed))
    with service.read_sessions() as session:
        stored = replan_settings.get_settings(session, reference=CLUSTER)
    expected = ReplanSettings(horizon_s=12 * 3600.0, hysteresis_s=150.0, gpu_budget=64, auto_approve=True)
    assert stored == expected
    assert settings_of(filled_settings(expected), []) == expected
    assert ticked(browser.get(ADDRESS).text, "boxes") == ["auto_approve"]


def test_the_limits_of_automatic_approval_are_ticked_and_typed(pages: Site) -> None:
    """Actions as boxes, a gap in percent; what is empty has no limit."""
    service, browser = pages
    values = filled_settings(ReplanSettings())
    changed = {"auto_actions": ["swap"], "auto_most_nodes": "4", "auto_most_gap": "5", "gpu_back_after_s": "0.25"}
    where(browser.post(ADDRESS, data=values | {"do": "settings"} | changed))
    with service.read_sessions() as session:
        stored = replan_settings.get_settings(session, reference=CLUSTER)
    assert stored == ReplanSettings(
        auto_actions=(RecoveryAction.SWAP,), auto_most_nodes=4, auto_most_gap=0.05, gpu_back_after_s=900.0
    )
    assert ticked(browser.get(ADDRESS).text, "auto_actions") == ["swap"]


def test_a_part_that_works_for_hours_is_left_later(pages: Site) -> None:
    """Nothing is decided now; the time goes only with what must be left."""
    service, browser = pages
    wrong = browser.post(ADDRESS, data=_form(node="n0", leave_h="5"))
    assert (wrong.status_code, "goes only with what works" in told(wrong.text)) == (422, True)
    where(browser.post(ADDRESS, data=_form(node="n0", state="draining", leave_h="336")))
    assert _reported(service) == [("node", "n0", "", "draining")]
    assert "to be left by" in told(browser.get(ADDRESS).text)


def test_a_decision_can_be_asked_for_without_a_report(pages: Site) -> None:
    """For whoever knows more than monitoring."""
    service, browser = pages
    address = where(browser.post(ADDRESS, data={"do": "decide"}))
    with service.read_sessions() as session:
        replan = replans.open_replan_of(session, reference=CLUSTER)
    assert replan is not None
    assert address == f"/replans/{replan.id}"


def test_other_sites_and_unknown_buttons_do_nothing(pages: Site) -> None:
    """403 and 422; nothing is stored."""
    service, browser = pages
    assert browser.post(ADDRESS, data=_form(node="n0") | {"do": "explode"}).status_code == 422
    assert browser.post("/webhooks", data={"do": "explode"}).status_code == 422
    for address in (ADDRESS, "/webhooks", "/webhooks/x", f"/clusters/{CLUSTER}/what-if"):
        assert browser.post(address, data=_form(node="n0"), headers=FOREIGN).status_code == 403
    assert _reported(service) == []


def test_a_source_gets_a_secret_that_is_shown_once(pages: Site) -> None:
    """Its address names cluster, format and source."""
    service, browser = pages
    sent = {"do": "add_source", "source_cluster": CLUSTER, "source_name": "alerts a", "adapter": "alertmanager"}
    page = browser.post("/webhooks", data=sent).text
    with service.read_sessions() as session:
        row = session.scalars(select(EventSourceRow)).one()
    assert row.secret in html.unescape(page)
    again = browser.get("/webhooks").text
    assert row.secret not in html.unescape(again)
    assert f"/api/v1/clusters/{CLUSTER}/events/alertmanager?source=alerts%20a" in again
    taken = browser.post("/webhooks", data=sent)
    assert taken.status_code == 409
    assert box(taken.text, "source_name") == "alerts a"
    assert chosen(taken.text, "source_cluster") == CLUSTER
    where(browser.post("/webhooks", data={"do": "delete_source", "id": row.id}))
    assert "alerts%20a" not in browser.get("/webhooks").text


def test_an_endpoint_is_added_switched_and_removed(pages: Site) -> None:
    """Its secret is shown once and again when it is renewed; a wrong address comes back."""
    service, browser = pages
    wrong = browser.post("/webhooks", data={"do": "add", "url": "ftp://x", "types": ["replan.failed"]})
    assert wrong.status_code == 422
    assert box(wrong.text, "url") == "ftp://x"
    assert ticked(wrong.text, "types") == ["replan.failed"]
    page = browser.post("/webhooks", data={"do": "add", "url": "https://x.example/h", "types": ["replan.failed"]})
    with service.read_sessions() as session:
        row = session.scalars(select(WebhookEndpointRow)).one()
    assert row.secret in html.unescape(page.text)
    assert row.secret not in html.unescape(browser.get("/webhooks").text)
    assert "Is told when: a decision failed." in told(browser.get("/webhooks").text)
    renewed = browser.post("/webhooks", data={"do": "renew", "id": row.id}).text
    with service.read_sessions() as session:
        fresh = session.scalars(select(WebhookEndpointRow.secret)).one()
    assert fresh != row.secret
    assert fresh in html.unescape(renewed)
    where(browser.post("/webhooks", data={"do": "disable", "id": row.id}))
    assert "It was disabled." in browser.get("/webhooks").text
    where(browser.post("/webhooks", data={"do": "enable", "id": row.id}))
    where(browser.post("/webhooks", data={"do": "delete", "id": row.id}))
    assert "https://x.example/h" not in browser.get("/webhooks").text


def test_messages_show_how_they_fared_and_can_be_sent_again(pages: Site) -> None:
    """Attempts, the last answer, and when the next comes; one that was given up has a button."""
    service, browser = pages
    now = datetime.now(UTC)
    with transaction(service.sessions) as session:
        endpoint = webhooks.create_endpoint(session, url="https://x.example/h").endpoint
        waiting, gone = (webhooks.announce(session, event_type=EventType.PROPOSED, data={})[0] for _ in range(2))
        webhook_deliveries.record(
            session, delivery_id=waiting, attempts=0, outcome=Outcome(503, "It answered 503."), now=now
        )
        session.get_one(WebhookDeliveryRow, gone).attempts = 9
        session.flush()
        webhook_deliveries.record(
            session, delivery_id=gone, attempts=9, outcome=Outcome(None, "No answer."), now=now
        )
    words = told(browser.get("/webhooks").text)
    assert re.search(r"on its way a decision waits for approval .*?1 attempt, last answer 503, next in \d s", words)
    assert re.search(r"given up a decision waits for approval .*?10 attempts No answer\. Send again", words)
    page = browser.get(f"/webhooks/{endpoint.id}").text
    assert page.count("Send again") == 1
    where(browser.post(f"/webhooks/{endpoint.id}", data={"delivery": gone}))
    assert "Send again" not in browser.get(f"/webhooks/{endpoint.id}").text
    assert browser.get("/webhooks/nowhere").status_code == 404
