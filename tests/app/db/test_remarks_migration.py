"""Sentences of plans and decisions stored before remarks had codes are read as their texts, and written back."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from sqlalchemy import text

from app.db import migrate
from app.db.engine import make_engine
from app.serialization import jsonable, load
from app.services.decisions.replan_answers import JobSummary, summary_of
from cluster_models.jobs.recovery import BatchDecision, RecoveryAction
from cluster_models.remarks import remark
from cluster_models.training.plan import NoPlan, Plan
from tests.app.access.test_tenant_migration import BEFORE as FILLED
from tests.app.access.test_tenant_migration import fill
from tests.app.running_rows import decided
from tests.plans import small_no_plan, small_plan

BEFORE = "0010"
SENTENCE = "A sentence of before."


class _Job(NamedTuple):
    id: str
    name: str


def _old_plan() -> dict[str, Any]:
    plan: dict[str, Any] = jsonable(small_plan())
    plan["warnings"] = [SENTENCE]
    plan["confidence"]["outside"] = [SENTENCE]
    plan["robustness"] |= {"spread_from": SENTENCE, "summary": SENTENCE}
    plan["certificate"]["explanation"] = SENTENCE
    for name in ("limits", "unpriced", "unlisted", "basis"):
        del plan["certificate"][name]
    for other in plan["alternatives"]:
        other["reason"] = SENTENCE
    return plan


def _old_no_plan() -> dict[str, Any]:
    answer: dict[str, Any] = jsonable(small_no_plan())
    del answer["reasons"]
    return answer | {"reason": SENTENCE, "remedies": [SENTENCE, SENTENCE]}


def _old_decision() -> tuple[dict[str, Any], dict[str, Any]]:
    decision = decided({_Job("j", "a"): (RecoveryAction.SWAP, small_plan())})
    told: dict[str, Any] = jsonable(decision)
    summary: dict[str, Any] = jsonable(summary_of(decision))
    for job in told["jobs"]:
        job["plan"] = _old_plan()
        job["limited_by"] = SENTENCE
        job["considered"] = [{"action": "wait", "value_flop": 0.0, "reason": SENTENCE}]
    for job in (*told["jobs"], *summary["jobs"]):
        del job["causes"], job["reasons"]
        job["reason"] = SENTENCE
    told["quarantine"] = [{"node": "n0", "failures": 3, "reason": SENTENCE}]
    return {"base": {}, "decision": told}, summary


def test_stored_sentences_become_the_texts_of_remarks(empty_database_url: str) -> None:
    """On both databases; and the way back ends where it began, but for what was left out before."""
    engine, told = make_engine(empty_database_url), remark("text", text=SENTENCE)
    migrate.upgrade(engine, revision=FILLED)
    with engine.begin() as connection:
        fill(connection)
    migrate.upgrade(engine, revision=BEFORE)
    decision, summary = _old_decision()
    stored = {
        ("plans", "result"): _old_plan(),
        ("running_plans", "plan"): _old_plan(),
        ("replans", "decision"): decision,
        ("replans", "summary"): summary,
    }
    with engine.begin() as connection:
        connection.execute(text("UPDATE plans SET kind = 'training'"))
        for (table, column), document in stored.items():
            connection.execute(text(f"UPDATE {table} SET {column} = :it"), {"it": json.dumps(document)})  # noqa: S608
    migrate.upgrade(engine)
    with engine.begin() as connection:
        read = {
            (table, column): json.loads(connection.scalar(text(f"SELECT {column} FROM {table}")) or "")  # noqa: S608
            for table, column in stored
        }
    plan = load(Plan, read["plans", "result"])
    assert plan.warnings == plan.confidence.outside == (told,)  # type: ignore[union-attr]
    assert plan.alternatives[0].reason == told
    assert load(Plan, read["running_plans", "plan"]) == plan
    made = load(BatchDecision, read["replans", "decision"]["decision"])
    assert (made.jobs[0].reasons, made.jobs[0].considered[0].reasons) == ((told,), (told,))
    assert made.jobs[0].plan == plan
    assert load(JobSummary, read["replans", "summary"]["jobs"][0]).reasons == (told,)
    migrate.downgrade(engine, revision=BEFORE)
    with engine.begin() as connection:
        back = json.loads(connection.scalar(text("SELECT result FROM plans")) or "")
        assert back["warnings"] == back["confidence"]["outside"] == [SENTENCE]
        connection.execute(text("UPDATE plans SET result = :it"), {"it": json.dumps(_old_no_plan())})
    migrate.upgrade(engine)
    with engine.begin() as connection:
        refused = load(NoPlan, json.loads(connection.scalar(text("SELECT result FROM plans")) or ""))
    assert (refused.reasons, refused.remedies) == ((told,), (told, told))
    engine.dispose()
