"""The page of a decision: what to do next at each step, the answer in words, launch files, and what if."""

from __future__ import annotations

import html
import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, select

from app.db.engine import transaction
from app.db.replan_tables import HealthEventRow, ReplanRow
from app.db.status import ReplanStatus
from app.presentation.recovery import ACTIONS
from app.resources import Service
from app.services import occupancy, replan_settings, replan_solves, replans
from app.services.replan_settings import ReplanSettings
from app.services.running_jobs import JobRecord
from app.services.safe_answers import answer_safely
from app.web.views.decision import MOST_CARDS, decision_view
from cluster_models.failure_domains import FailureDomainLosses
from cluster_models.plan import StopReason
from cluster_models.recovery import (
    BatchDecision,
    ConsideredAction,
    Migration,
    MigrationBytes,
    MovedRank,
    MovedState,
    Quarantine,
    RecoveryAction,
    StateKind,
    StateSource,
    TimeRange,
)
from tests.app.running_rows import CLUSTER, START, add_cluster, add_job, decided, plan_on, report, solved
from tests.app.running_rows import told as heard
from tests.app.web_site import FOREIGN, buttons, site, ticked, told, where

FOUR = "0\N{EN DASH}3"


@dataclass
class Failed:
    """Jobs ``a`` on n0, n1 and ``b`` on n2, n3; a spare n7; n0 has failed and its replan collects."""

    service: Service
    browser: TestClient
    replan_id: str
    a: JobRecord
    b: JobRecord

    @property
    def address(self) -> str:
        """Of the decision's page."""
        return f"/replans/{self.replan_id}"

    def page(self) -> str:
        """The decision's page as it is now."""
        answer = self.browser.get(self.address)
        assert answer.status_code == 200, answer.text
        return answer.text

    def press(self, do: str, **fields: str) -> Any:
        """What a button answers."""
        return self.browser.post(self.address, data={"do": do, **fields})

    def solve(self, decision: BatchDecision | None = None) -> None:
        """Let the window end and the solver answer, by default that ``a`` takes the spare."""
        swap = decided({self.a: (RecoveryAction.SWAP, plan_on("n7", "n1"))}, untouched=[self.b])
        with transaction(self.service.sessions) as session:
            solved(session, self.replan_id, decision or swap)

    def status(self) -> ReplanStatus:
        """Where the decision is."""
        with self.service.read_sessions() as session:
            return replans.get_replan(session, replan_id=self.replan_id).status


@pytest.fixture
def failed(tmp_path: Path) -> Iterator[Failed]:
    """A decision that has just been opened."""
    with site(tmp_path) as (service, browser):
        with transaction(service.sessions) as session:
            add_cluster(session)
            jobs = add_job(session, "a", "n0", "n1"), add_job(session, "b", "n2", "n3")
            occupancy.replace_spares(session, reference=CLUSTER, nodes=["n7"])
            replan_id = report(session, heard("n0")).replan_id
        assert replan_id is not None
        yield Failed(service, browser, replan_id, *jobs)


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


def test_the_countdown_runs_by_the_clock(failed: Failed) -> None:
    """Seconds until the window ends, then that the search begins."""
    with transaction(failed.service.sessions) as session:
        row = session.get_one(ReplanRow, failed.replan_id)
        row.window_ends_at = datetime.now(UTC) + timedelta(seconds=45.4)
    assert re.search(r"The search begins in 4[345] s\.", failed.page())
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


def test_launch_files_name_the_new_hosts(failed: Failed) -> None:
    """Every file on the page can be fetched; options of the site reach it; a job that pauses has none."""
    failed.solve(
        decided({failed.a: (RecoveryAction.SWAP, plan_on("n7", "n1")), failed.b: (RecoveryAction.PAUSE, None)})
    )
    page = failed.browser.get(f"{failed.address}?command=ours.py").text
    links = [html.unescape(link) for link in re.findall(r'href="([^"]*/files/[^"]*)"', page)]
    assert links
    assert all(f"/files/{failed.a.id}/" in link for link in links)
    for link in links:
        answer = failed.browser.get(link)
        assert answer.status_code == 200, link
    script = next(link for link in links if "/torchrun-nodes?" in link)
    assert "ours.py" in failed.browser.get(script).text
    hostfile = failed.browser.get(next(link for link in links if "/hostfile?" in link)).text
    assert [line.split()[0] for line in hostfile.splitlines()] == ["n7", "n1"]
    archive = next(link for link in links if "/openmpi?" in link)
    assert zipfile.ZipFile(io.BytesIO(failed.browser.get(archive).content)).namelist()
    assert failed.browser.get(f"{failed.address}/files/{failed.b.id}/torchrun").status_code == 409
    assert failed.browser.get(f"{failed.address}/files/{failed.a.id}/nothing").status_code == 404


def _rich(failed: Failed) -> BatchDecision:
    """An answer with something in every field."""
    base = decided({failed.a: (RecoveryAction.SWAP, plan_on("n7", "n1")), failed.b: (RecoveryAction.PAUSE, None)})
    state = (
        MovedState(StateKind.WEIGHTS, StateSource.PEER, 5, "n3", 2e9),
        MovedState(StateKind.OPTIMIZER, StateSource.CHECKPOINT, None, "", 3e9),
    )
    moved = tuple(MovedRank(rank, rank, "n0", rank, "n7", rank, state) for rank in range(4))
    a = replace(
        base.jobs[0],
        migration=Migration(
            moved=moved,
            bytes=MigrationBytes(leaf=8e9, storage=12e9),
            downtime=TimeRange(90, 250),
            steps_lost=50,
            state_without_copy_bytes=12e9,
        ),
        tokens_per_s_before=20_000,
        tokens_per_s_after=15_000,
        lost_gpu_hours=(0.5, 2),
        survives=(FailureDomainLosses("leaf", 1, 3, ("leaf-0", "leaf-1")),),
        considered=(ConsideredAction(RecoveryAction.WAIT, 0.0, "It makes <nothing>."),),
    )
    return replace(
        base,
        jobs=(a, base.jobs[1]),
        spares_before=("n7", "n6"),
        spares_used=("n7",),
        spares_left=("n6",),
        quarantine=(Quarantine("n0", 4, "n0 failed 4 times"),),
        gap=0.0042,
        objective=3.0,
        objective_if_waiting=2.0,
        stopped_by=StopReason.TIME_LIMIT,
    )


def test_an_answer_is_told_in_words(failed: Failed) -> None:
    """Action, reason, figures, moves by node, what may still fail, what else was considered; then the batch."""
    with transaction(failed.service.sessions) as session:
        settings = ReplanSettings(quarantine_after=1)
        replan_settings.replace_settings(session, reference=CLUSTER, settings=settings)
        now = (datetime.now(UTC) - START).total_seconds()
        report(session, heard("n0", at_s=now - 60, source="again"), at_s=now)
    failed.solve(_rich(failed))
    page = failed.page()
    words = told(page)
    assert words.index("b pauses and gives up its GPUs") < words.index("a moves to spare nodes")
    for sentence in (
        "stands still for 1 min 30 s to 4 min 10 s",
        "before 20,000 tokens/s",
        "after 15,000 tokens/s",
        "change 25 % less",
        "ranks that move 4",
        "GPU-hours lost 0.5 to 2",
        "12 GB of its state has no live copy: it goes back to its last checkpoint and repeats about 50 steps.",
        "What moves: 8 GB under one leaf switch, 12 GB from storage.",
        f"{FOUR} n0 n7 GPU {FOUR} a live copy on n3; the last checkpoint on storage 20 GB",
        "Any 1 leaf of 3 may be lost",
        "Wait for the nodes It makes <nothing>.",
        "there were 2: n7, n6",
        "are used 1: n7",
        "are left 1: n6",
        "n0 failed 1 times in 30 days",
        "No other decision can be worth more than 0.42 % more.",
        "The search ended because its time was used up.",
        "It makes 50 % more of the next 1 h than if every job here waited.",
    ):
        assert sentence in words, sentence
    assert "<nothing>" not in page


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"gap": 0.0}, "Proven best: no other decision is worth more."),
        ({"fallback": True}, "This answer was made without a search"),
        ({"stopped_by": StopReason.NO_SEARCH}, "Nothing better was searched for."),
        ({"gap": 0.5}, "No other decision can be worth more than 50.00 % more."),
        ({"objective_if_waiting": 0.0}, "Weighed over the next 1 h."),
        ({"objective": 24.0}, "It makes 12.0 times as much of the next 1 h as if every job here waited."),
    ],
)
def test_the_proof_is_told_as_it_is(failed: Failed, changes: dict[str, Any], sentence: str) -> None:
    """How good the answer is, in a sentence for each case."""
    proof = decision_view(replace(_rich(failed), **changes), {}).proof
    assert sentence in " ".join(proof)


@pytest.mark.parametrize("action", list(RecoveryAction))
def test_every_action_says_what_to_do(failed: Failed, action: RecoveryAction) -> None:
    """No action is without words."""
    plan = None if action in (RecoveryAction.WAIT, RecoveryAction.PAUSE) else plan_on("n7", "n1")
    (card,) = decision_view(decided({failed.a: (action, plan)}), {}).cards
    assert card.action
    assert card.todo.endswith(".")
    assert bool(card.files) == (plan is not None)


def test_of_many_jobs_the_worst_come_first_and_any_can_be_looked_at(failed: Failed) -> None:
    """Those without a card are named with a link to theirs."""
    base = decided({failed.a: (RecoveryAction.SWAP, plan_on("n7", "n1")), failed.b: (RecoveryAction.PAUSE, None)})
    swap, pause = base.jobs
    many = tuple(replace(swap, job_id=f"j{index}", job_name=f"job-{index}") for index in range(30))
    view = decision_view(replace(base, jobs=(*many, pause)), {}, first="j29")
    assert [card.id for card in view.cards[:3]] == ["j29", failed.b.id, "j0"]
    assert len(view.cards) == MOST_CARDS
    assert {card.id for card in view.cards} | {job_id for job_id, *_ in view.others} == {
        failed.b.id,
        *(f"j{index}" for index in range(30)),
    }
    assert len(view.cards) + len(view.others) == 31


def test_a_leaf_lost_in_many_reports_stays_readable(failed: Failed) -> None:
    """The timeline begins with the first report; what is more than a dozen is folded away."""
    with transaction(failed.service.sessions) as session:
        report(session, *(heard("n0", at_s=index, source=f"probe-{index}") for index in range(1, 20)), at_s=20)
    page = failed.page()
    lines = re.findall(r'<li class="\w+"><span class="where">(.*?)</span>', page)
    assert lines == sorted(lines)
    assert len(lines) == 20 or "more reports" in page


def _counts(service: Service) -> list[int]:
    with service.read_sessions() as session:
        return [
            session.scalar(select(func.count()).select_from(table)) or 0 for table in (ReplanRow, HealthEventRow)
        ]


def _what_if(failed: Failed, **fields: Any) -> Any:
    return failed.browser.post(f"/clusters/{CLUSTER}/what-if", data=fields)


def test_what_if_stores_nothing(failed: Failed) -> None:
    """The answer to losses on top of what was reported, with the form as it was."""
    before = _counts(failed.service)
    answer = _what_if(failed, node=["n2"])
    assert answer.status_code == 200, answer.text
    words = told(answer.text)
    assert "If n2 failed now" in words
    assert [action for action, words_of in ACTIONS.items() if f" b {words_of} " in words] != []
    assert f" b {ACTIONS[RecoveryAction.NONE]} " not in words
    assert ticked(answer.text, "node") == ["n2"]
    assert "/files/" not in answer.text
    whole = _what_if(failed, switch=["leaf:leaf-0"])
    assert "If leaf leaf-0 failed now" in told(whole.text)
    assert _counts(failed.service) == before


@pytest.mark.parametrize(
    ("fields", "words"), [({}, "choose what fails"), ({"node": ["n99"]}, "n99 is no part of the cluster")]
)
def test_what_if_of_nothing_is_refused(failed: Failed, fields: dict[str, Any], words: str) -> None:
    """422 with the words at the field."""
    answer = _what_if(failed, **fields)
    assert answer.status_code == 422
    assert words in told(answer.text)


def test_what_approves_itself_says_so(failed: Failed) -> None:
    """With approval by itself the page is at the carrying out when somebody comes to look."""
    with transaction(failed.service.sessions) as session:
        settings = ReplanSettings(auto_approve=True)
        replan_settings.replace_settings(session, reference=CLUSTER, settings=settings)
    failed.solve()
    assert buttons(failed.page()) == ["applied", "start", "failed", "cancel"]
