"""The page of a decision on failures: what to do next at each step, and that the steps are taken."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.db.engine import transaction
from app.db.replan_tables import ReplanRow
from app.db.status import ReplanStatus
from app.services.decisions import replan_settings, replan_solves, replans, sweep_answers
from app.services.decisions.replan_settings import ReplanSettings
from app.services.decisions.safe_answers import answer_safely
from app.services.running import occupancy
from cluster_models.health.events import HealthState
from tests.app.failed_site import Failed, failed_site
from tests.app.running_rows import CLUSTER, START, report
from tests.app.running_rows import told as heard
from tests.app.web_site import FOREIGN, buttons, told, where


@pytest.fixture
def failed(tmp_path: Path) -> Iterator[Failed]:
    """A decision that has just been opened."""
    with failed_site(tmp_path) as failed:
        yield failed


def _heading(page: str) -> str:
    found = re.search(r"<h1>(.*?)</h1>", page)
    assert found is not None
    return html.unescape(found[1])


def test_while_it_collects_there_is_a_countdown_and_a_safe_answer(failed: Failed) -> None:
    """First nothing to do; with the safe answer there it can be approved at once."""
    page = failed.page()
    assert _heading(page) == "Nothing to do yet"
    assert buttons(page) == ["cancel"]
    assert answer_safely(failed.service.sessions, replan_id=failed.replan_id, now=START)
    page = failed.page()
    assert _heading(page) == "A safe answer is ready"
    assert buttons(page) == ["approve_safe", "cancel"]
    assert "a moves to spare nodes where it lost some" in told(page)
    assert "made without a search" in told(page)
    assert '<meta http-equiv="refresh"' in page
    where(failed.press("approve_safe"))
    assert failed.status() is ReplanStatus.APPROVED
    assert buttons(failed.page()) == ["applied", "start", "failed", "cancel"]


def test_the_page_of_a_job_leads_to_the_decision_about_it(failed: Failed) -> None:
    """As long as it is open; the page of a job that no failure touched says nothing of it."""
    assert answer_safely(failed.service.sessions, replan_id=failed.replan_id, now=START)
    pages = {name: failed.browser.get(f"/clusters/{CLUSTER}/jobs/{name}").text for name in ("a", "b")}
    link = f'href="/replans/{failed.replan_id}"'
    assert link in pages["a"]
    assert "A failure touches it" in told(pages["a"])
    assert link not in pages["b"]
    assert "Nothing to do: it runs." in told(pages["b"])


def test_the_countdown_runs_by_the_clock(failed: Failed) -> None:
    """Seconds until the window ends, then that the search begins."""
    with transaction(failed.service.sessions) as session:
        row = session.get_one(ReplanRow, failed.replan_id)
        row.window_ends_at = datetime.now(UTC) + timedelta(seconds=45.4)
    assert re.search(r"The search begins in (3\d|4[0-5]) s\.", failed.page())
    with transaction(failed.service.sessions) as session:
        session.get_one(ReplanRow, failed.replan_id).window_ends_at = START
    assert "The search is about to begin." in failed.page()


def test_the_page_notices_what_changed(failed: Failed) -> None:
    """The moving part says when all of the page has to be fetched again, and only then."""
    seen = re.search(r'data-progress="([^"]*)"', failed.page())
    assert seen is not None
    address = html.unescape(seen[1])
    assert "Plan-Finished" not in failed.browser.get(address).headers
    with transaction(failed.service.sessions) as session:
        report(session, heard("n2"), at_s=5)
    assert failed.browser.get(address).headers["Plan-Finished"] == "yes"
    seen = re.search(r'data-progress="([^"]*)"', failed.page())
    assert seen is not None
    assert "Plan-Finished" not in failed.browser.get(html.unescape(seen[1])).headers
    failed.solve()
    assert failed.browser.get(html.unescape(seen[1])).headers["Plan-Finished"] == "yes"


def test_from_proposed_to_applied(failed: Failed) -> None:
    """Each page has the next thing on top and takes it."""
    failed.solve()
    page = failed.page()
    assert _heading(page) == "Approve the answer"
    assert buttons(page) == ["approve", "cancel"]
    assert "Not touched: b." in told(page)
    assert where(failed.press("approve")) == failed.address
    assert _heading(failed.page()) == "Carry it out, then say that it is done"
    where(failed.press("start"))
    assert failed.status() is ReplanStatus.APPLYING
    assert buttons(failed.page()) == ["applied", "failed", "cancel"]
    where(failed.press("applied"))
    page = failed.page()
    assert _heading(page) == "Nothing left to do"
    assert buttons(page) == []
    assert "data-progress" not in page or "progress.js" not in page
    late = failed.press("cancel")
    assert late.status_code == 409
    assert "is applied" in told(late.text)
    assert "done" in told(failed.browser.get("/replans").text)


def test_a_job_is_done_on_its_card_and_who_did_it_is_kept(failed: Failed) -> None:
    """As long as it is still to be carried out; with the last job the decision is done."""
    failed.solve()
    page = failed.page()
    assert "job_done" not in page
    where(failed.press("approve", actor="J. Doe"))
    page = failed.page()
    assert f'value="job_done:{failed.a.id}"' in page
    assert "Still to be carried out: a." in told(page)
    where(failed.press(f"job_done:{failed.a.id}"))
    assert failed.status() is ReplanStatus.APPLIED
    words = told(failed.page())
    assert "approved by J. Doe (not verified)" in words
    assert "a runs as decided, nobody said by whom" in words


@pytest.mark.parametrize(("do", "title"), [("failed", "It failed"), ("cancel", "It was called off")])
def test_what_went_wrong_is_told_and_a_new_decision_offered(failed: Failed, do: str, title: str) -> None:
    """The reason that was typed stands on the page; deciding anew leads to another page."""
    failed.solve()
    failed.press("approve")
    where(failed.press(do, problem="<u>No spare came up"))
    page = failed.page()
    assert _heading(page).startswith(title)
    assert "<u>No spare came up" in told(page)
    assert "<u>" not in page
    assert buttons(page) == ["again"]
    fresh = where(failed.press("again"))
    assert fresh != failed.address
    assert failed.browser.get(fresh).status_code == 200


def test_an_overtaken_decision_leads_to_the_later_one(failed: Failed) -> None:
    """A failure after the proposal: the old page has nothing to press but the way on."""
    failed.solve()
    with transaction(failed.service.sessions) as session:
        later = report(session, heard("n2"), at_s=100).replan_id
    page = failed.page()
    assert buttons(page) == []
    assert f'href="/replans/{later}"' in page


def test_without_an_answer_of_the_solver_the_safe_one_is_offered(failed: Failed) -> None:
    """The page says why, and approves the safe one."""
    assert answer_safely(failed.service.sessions, replan_id=failed.replan_id, now=START)
    with transaction(failed.service.sessions) as session:
        now = START + timedelta(seconds=61)
        assert replan_solves.begin_attempt(session, replan_id=failed.replan_id, now=now) is not None
        error = {"problem": "The solver broke.", "remedy": ""}
        assert replan_solves.finish_without(session, replan_id=failed.replan_id, error=error)
    page = failed.page()
    assert _heading(page) == "Approve the safe answer"
    assert "The solver broke." in told(page)
    where(failed.press("approve_safe"))
    assert failed.status() is ReplanStatus.APPROVED


def test_the_enter_key_never_ends_a_decision(failed: Failed) -> None:
    """The box for the reason shares a form with the ways back only: Enter presses a form's first button."""
    failed.solve()
    failed.press("approve")
    (form,) = [
        form for form in re.findall(r"<form.*?</form>", failed.page(), re.DOTALL) if 'name="problem"' in form
    ]
    assert buttons(form) == ["failed", "cancel"]


def test_what_is_pressed_too_early_changes_nothing(failed: Failed) -> None:
    """No answer can be approved that is not there; unknown buttons and other sites are refused."""
    assert failed.press("approve").status_code == 409
    assert failed.press("applied").status_code == 409
    assert failed.press("explode").status_code == 422
    assert failed.browser.post(failed.address, data={"do": "cancel"}, headers=FOREIGN).status_code == 403
    assert failed.status() is ReplanStatus.COLLECTING
    assert failed.browser.get("/replans/nowhere").status_code == 404


def test_what_approves_itself_says_so(failed: Failed) -> None:
    """With approval by itself the page is at the carrying out when somebody comes to look."""
    with transaction(failed.service.sessions) as session:
        settings = ReplanSettings(auto_approve=True)
        replan_settings.replace_settings(session, reference=CLUSTER, settings=settings)
    failed.solve()
    assert buttons(failed.page()) == ["applied", "start", "failed", "cancel"]


def test_a_proposal_whose_causes_recovered_says_so(failed: Failed) -> None:
    """Approving is no more the first thing to do; a new failure of the node brings that back."""
    failed.solve()
    with transaction(failed.service.sessions) as session:
        report(session, heard("n0", HealthState.RECOVERED, at_s=100), at_s=100)
        record = replans.get_replan(session, replan_id=failed.replan_id)
        assert record.causes_recovered
    page = failed.page()
    assert _heading(page) == "Look again: what failed is back"
    assert buttons(page) == ["cancel", "approve"]


def test_in_a_storm_of_reports_the_page_asks_to_look_first(failed: Failed) -> None:
    """At the safe answer already, and at the proposal."""
    with transaction(failed.service.sessions) as session:
        report(session, *(heard(node) for node in ("n4", "n5", "n2")))
    assert answer_safely(failed.service.sessions, replan_id=failed.replan_id, now=START)
    assert "Look first: watch reported trouble on 4 of 8 nodes within 5 min" in told(failed.page())
    failed.solve()
    assert "Look first: watch reported trouble on 4 of 8 nodes within 5 min" in told(failed.page())


def test_free_nodes_that_are_no_spares_are_offered_and_priced(failed: Failed) -> None:
    """Without the spare the free nodes are named; their answer has an address, and a button makes them spares."""
    assert "free and no spare" in told(failed.page())
    with transaction(failed.service.sessions) as session:
        occupancy.replace_spares(session, reference=CLUSTER, nodes=[])
    assert answer_safely(failed.service.sessions, replan_id=failed.replan_id, now=START)
    page = failed.page()
    assert "nodes are free and no spares, so this decision leaves them out: n4, n5, n6 and n7." in told(page)
    offered = failed.browser.get(f"{failed.address}/free-nodes").text
    assert "a moves to spare nodes where it lost some" in told(offered)
    assert re.search(
        r"With them: .+ throughput.*, \d+ ranks move; without: .+ throughput.*, \d+ ranks move\.", told(offered)
    )
    assert buttons(offered) == ["use_free"]
    fresh = where(failed.press("use_free"))
    assert "free and no spare" not in told(failed.browser.get(fresh).text)
    with failed.service.read_sessions() as session:
        cluster_id = replans.get_replan(session, replan_id=failed.replan_id).cluster_id
        assert occupancy.spare_names(session, cluster_id=cluster_id) == ("n4", "n5", "n6", "n7")


def test_a_sweep_is_asked_for_watched_and_called_off(failed: Failed) -> None:
    """From the page of one what-if to the ranked answers; its progress says when there is nothing more to come."""
    asked = failed.browser.get(f"/clusters/{CLUSTER}/what-if").text
    assert "each leaf" in asked
    address = where(failed.browser.post(f"/clusters/{CLUSTER}/what-if-sweeps", data={"each": "leaf"}))
    sweep_id = address.rpartition("/")[2]
    assert where(failed.browser.post(f"/clusters/{CLUSTER}/what-if-sweeps", data={"each": "leaf"})) == address
    shown = failed.browser.get(address).text
    assert "0 of 2 failures answered, running." in shown
    assert "Plan-Finished" not in failed.browser.get(f"{address}/progress").headers
    with transaction(failed.service.sessions) as session:
        sweep_answers.work_out(lambda do: do(session), sweep_id=sweep_id, number=0)
    assert "leaf-0" in failed.browser.get(address).text
    assert where(failed.browser.post(f"{address}/cancel")) == address
    for page in (address, f"/clusters/{CLUSTER}/what-if"):
        assert "1 of 2 failures answered, cancelled." in failed.browser.get(page).text
    assert failed.browser.get(f"{address}/progress").headers["Plan-Finished"] == "yes"
    assert where(failed.browser.post(f"/clusters/{CLUSTER}/what-if-sweeps", data={"each": "leaf"})) != address
