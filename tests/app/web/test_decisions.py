"""An answer to failures in words, its launch files, and what would be done if more failed."""

from __future__ import annotations

import html
import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from app.db.engine import transaction
from app.db.replan_tables import HealthEventRow, ReplanRow
from app.presentation.recovery import ACTIONS
from app.resources import Service
from app.services.decisions import replan_settings
from app.services.decisions.replan_settings import ReplanSettings
from app.services.decisions.replan_views import AnswerView
from app.web.failures.decision import MOST_CARDS, decision_view
from cluster_models.cluster.topology import NodeState
from cluster_models.jobs.recovery import (
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
)
from cluster_models.jobs.times import TimeRange
from cluster_models.remarks import remark
from cluster_models.training.failure_domains import FailureDomainLosses
from cluster_models.training.plan import StopReason
from tests.app.failed_site import Failed, failed_site
from tests.app.running_rows import CLUSTER, START, decided, plan_on, report
from tests.app.running_rows import told as heard
from tests.app.web_site import ticked, told
from tests.cluster_models.clusters import cluster_of, host
from tests.plans import small_plan

FOUR = "0\N{EN DASH}3"


@pytest.fixture
def failed(tmp_path: Path) -> Iterator[Failed]:
    """A decision that has just been opened."""
    with failed_site(tmp_path) as failed:
        yield failed


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
        considered=(
            ConsideredAction(RecoveryAction.WAIT, 0.0, (remark("contradiction", problem="It makes <nothing>."),)),
        ),
    )
    return replace(
        base,
        jobs=(a, base.jobs[1]),
        spares_before=("n7", "n6"),
        spares_used=("n7",),
        spares_left=("n6",),
        quarantine=(Quarantine("n0", 4),),
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
        "The search ended because its time was used up; a longer one may find better.",
        "It makes 50 % more of the next 1 h than if every job here waited.",
    ):
        assert sentence in words, sentence
    assert "<nothing>" not in page


def test_seats_are_drawn_before_above_after(failed: Failed) -> None:
    """Lost, moved, kept and spare GPUs, each host under its leaf; beside them the rates and the standstill."""
    failed.solve(_rich(failed))
    page = failed.page()
    for tip in (
        "n0, GPU 0\N{EN DASH}1 before: a, stage 0, replica 0, lost",
        f"n0, GPU {FOUR} after: lost",
        f"n7, GPU {FOUR} before: spare",
        "n7, GPU 0\N{EN DASH}1 after: a, stage 0, replica 0, moved here",
        "n1, GPU 2\N{EN DASH}3 after: a, stage 1, replica 1",
        "n2, GPU 0\N{EN DASH}1 before: b, stage 0, replica 0",
        f"n2, GPU {FOUR} after: not of these jobs",
        f"n6, GPU {FOUR} after: spare",
        "a, before: 20,000 tokens/s",
        "a, after: 15,000 tokens/s",
        "b, after: stands still",
        "a, repeat steps: 4 min 10 s",
    ):
        assert f"<title>{tip}" in page, tip
    assert "4 GPUs lost; 4 run another part than before; 8 freed. 1 spare node used." in told(page)


def test_of_many_hosts_those_that_change_are_drawn(failed: Failed) -> None:
    """A job that waits keeps its seats; what nothing happens to is counted."""
    hosts = [host(f"n{index}", gpus=1, cards=1) for index in range(100)]
    cluster = replace(
        cluster_of(hosts), nodes=(replace(hosts[0], state=NodeState.FAILED), *cluster_of(hosts).nodes[1:])
    )
    plan = small_plan()
    ranks = tuple(replace(plan.placement.ranks[0], rank=index, node=f"n{index}", gpu=0) for index in range(100))
    before = replace(plan, placement=replace(plan.placement, ranks=ranks))
    decision = decided({failed.a: (RecoveryAction.WAIT, None)})
    view = decision_view(AnswerView(decision, {failed.a.id: before}, cluster=cluster), safe=decision)
    drawing = view.seats
    assert drawing is not None
    assert view.rates is not None
    assert [box.tip.split(":")[0] for box in view.rates.boxes] == ["a, before", "a, safe answer", "a, after"]
    assert [box.tip for box in drawing.boxes] == [
        f"n0, GPU 0 {when}: a, stage 0, replica 0, lost" for when in ("before", "after")
    ]
    assert "99 hosts where nothing changes are left out." in drawing.description


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"gap": 0.0}, "Proven best: no other decision is worth more."),
        ({"fallback": True, "stopped_by": StopReason.NO_SEARCH}, "This answer was made without a search"),
        ({"fallback": True}, "The search found nothing better than the safe answer. No other decision"),
        ({"stopped_by": StopReason.NO_SEARCH}, "Nothing better was searched for."),
        ({"gap": 0.5}, "No other decision can be worth more than 50.00 % more."),
        ({"objective_if_waiting": 0.0}, "Weighed over the next 1 h."),
        ({"objective": 24.0}, "It makes 12.0 times as much of the next 1 h as if every job here waited."),
    ],
)
def test_the_proof_is_told_as_it_is(failed: Failed, changes: dict[str, Any], sentence: str) -> None:
    """How good the answer is, in a sentence for each case."""
    proof = decision_view(AnswerView(replace(_rich(failed), **changes), {})).proof
    assert sentence in " ".join(proof)


@pytest.mark.parametrize("action", list(RecoveryAction))
def test_every_action_says_what_to_do(failed: Failed, action: RecoveryAction) -> None:
    """No action is without words."""
    plan = None if action in (RecoveryAction.WAIT, RecoveryAction.PAUSE) else plan_on("n7", "n1")
    view = decision_view(AnswerView(decided({failed.a: (action, plan)}), {}))
    (card,) = view.cards
    assert card.action
    assert all(step.endswith(".") for step in view.steps)
    assert ("Nothing" in view.steps[0]) == (action is RecoveryAction.NONE)
    assert bool(card.files) == (plan is not None)


def test_of_many_jobs_the_worst_come_first_and_any_can_be_looked_at(failed: Failed) -> None:
    """Those without a card are named with a link to theirs."""
    base = decided({failed.a: (RecoveryAction.SWAP, plan_on("n7", "n1")), failed.b: (RecoveryAction.PAUSE, None)})
    swap, pause = base.jobs
    many = tuple(replace(swap, job_id=f"j{index}", job_name=f"job-{index}") for index in range(30))
    view = decision_view(AnswerView(replace(base, jobs=(*many, pause)), {}), first="j29")
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
    return failed.browser.post(f"/clusters/{CLUSTER}/what-if", data=fields, follow_redirects=True)


def test_what_if_changes_nothing(failed: Failed) -> None:
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
    assert "Nothing is prepared yet for the loss of one node of " in words
    whole = _what_if(failed, switch=["leaf:leaf-0"])
    assert "If leaf leaf-0 failed now" in told(whole.text)
    assert _counts(failed.service) == before


@pytest.mark.parametrize(
    ("fields", "words"), [({}, "choose what fails"), ({"node": ["n99"]}, "n99 is not part of the cluster")]
)
def test_what_if_of_nothing_is_refused(failed: Failed, fields: dict[str, Any], words: str) -> None:
    """422 with the words at the field."""
    answer = _what_if(failed, **fields)
    assert answer.status_code == 422
    assert words in told(answer.text)


def test_a_question_has_an_address(failed: Failed) -> None:
    """The question stands in it, so that the answer can be reloaded and sent on."""
    page = failed.browser.get(f"/clusters/{CLUSTER}/what-if?node=n1&node=n0")
    assert page.status_code == 200
    assert "If n1, n0 failed now" in told(page.text)
    assert ticked(page.text, "node") == ["n0", "n1"]
