"""Several plans as one over HTTP: all or none, solved as plans are, with one proof."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.access import tenants
from app.access.tenants import Quotas
from app.cli.planning import portfolios as command
from app.client import Client
from app.db.engine import transaction
from app.settings import Role
from tests.app.access.callers import OURS, guarded, key_of, service_of, with_key
from tests.app.api_client import API, plan_body, running
from tests.app.plan_rows import wait_until

PORTFOLIOS = f"{API}/portfolios"


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application that solves nothing."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        yield client


def _asked(client: TestClient, **more: Any) -> dict[str, Any]:
    answer = client.post(PORTFOLIOS, json={"plan": plan_body(), **(more or {"gpus": [4, 8]})})
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_plans_end_as_one_answer_with_one_proof(tmp_path: Path, database_url: str) -> None:
    """The stand-in finds the same plan for all, so the first is the best of each that may use it."""
    seed = {"name": "seed 1", "change": {"options": {"seed": 1}, "workload": {"max_gpus": 8}}}
    with running(tmp_path, database_url) as client:
        made = _asked(client, gpus=[4, 8], variants=[seed])
        address = made["links"]["self"]
        wait_until(lambda: not client.get(address).json()["is_open"])
        found = client.get(address).json()
        assert [each["name"] for each in found["members"]] == ["4 GPUs", "8 GPUs", "seed 1"]
        assert [each["most_gpus"] for each in found["members"]] == [4, 8, 8]
        assert {each["best"] for each in found["members"]} == {"4 GPUs"} == {found["best"]}
        plan = client.get(f"{API}/plans/{made['plans']['8 GPUs']}").json()["result"]["certificate"]
        assert found["certificate"]["objective"] == plan["objective"]
        assert found["certificate"]["bound"] == plan["bound"]
        assert (
            "3 of 3 plans have ended. The best is 4 GPUs: no plan of any member is better" in found["explanation"]
        )
        command._print(Client(client, retries=0).get_portfolio(made["id"]))


def test_a_portfolio_is_asked_for_once_listed_called_off_and_forgotten(waiting: TestClient) -> None:
    """All plans are called off at once; they stay when their portfolio is forgotten."""
    body, key = {"plan": plan_body(), "gpus": [4, 8]}, {"Idempotency-Key": "curve"}
    first, again = (waiting.post(PORTFOLIOS, json=body, headers=key).json() for _ in range(2))
    assert first["id"] == again["id"]
    assert waiting.post(PORTFOLIOS, json=body | {"gpus": [2, 4]}, headers=key).status_code == 422
    assert [each["id"] for each in waiting.get(PORTFOLIOS).json()["items"]] == [first["id"]]
    tag = waiting.get(first["links"]["self"]).headers["ETag"]
    assert waiting.get(first["links"]["self"]).json()["links"] == first["links"]
    assert waiting.post(first["links"]["cancel"]).json()["is_open"] is False
    statuses = {each["status"] for each in waiting.get(first["links"]["self"]).json()["members"]}
    assert statuses == {"cancelled"}
    assert waiting.delete(first["links"]["self"], headers={"If-Match": tag}).status_code == 412
    assert waiting.delete(f"{API}/plans/{first['plans']['4 GPUs']}").status_code == 204
    assert [each["name"] for each in waiting.get(first["links"]["self"]).json()["members"]] == ["8 GPUs"]
    assert waiting.delete(first["links"]["self"]).status_code == 204
    assert len(waiting.get(f"{API}/plans").json()["items"]) == 1


def test_other_work_has_no_best_of_all(waiting: TestClient) -> None:
    """Step times of batches of different tokens are not compared."""
    longer = {"name": "long", "change": {"workload": {"sequence_length": 4096}}}
    made = _asked(waiting, variants=[longer, {"name": "as it is", "change": {}}])
    found = waiting.get(made["links"]["self"]).json()
    assert found["certificate"] is None
    assert "there is no best of all" in found["explanation"]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({}, "variants"),
        ({"gpus": [8]}, "variants"),
        ({"gpus": [8, 8]}, "gpus[1]"),
        ({"variants": [{"name": "a", "change": {}}] * 2}, "variants[1]"),
        ({"gpus": list(range(1, 18))}, "gpus"),
        ({"gpus": [0, 8]}, "gpus[0]"),
        ({"gpus": [4, 8], "variants": [{"name": "a", "change": {"model": "none"}}]}, "variants[0].change.model"),
        (
            {"gpus": [4, 8], "variants": [{"name": "a", "change": {"workload": {"sequence_length": -1}}}]},
            "variants[0].change.workload.sequence_length",
        ),
        (
            {"gpus": [4, 8], "variants": [{"name": "a", "change": {"workload": None}}]},
            "variants[0].change.workload",
        ),
        ({"gpus": [4, 8], "variants": [{"name": "a", "change": []}]}, "variants[0].change"),
    ],
)
def test_what_cannot_be_planned_is_refused_as_a_whole(
    waiting: TestClient, more: dict[str, Any], field: str
) -> None:
    """By the place of the variant; no plan of the others is stored."""
    answer = waiting.post(PORTFOLIOS, json={"plan": plan_body(), **more})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field
    assert waiting.get(f"{API}/plans").json()["items"] == []


def test_a_portfolio_keeps_to_the_quota_of_waiting_plans(tmp_path: Path) -> None:
    """Three plans may wait: four at once are refused and none is stored, three are taken, and then no more."""
    with guarded(tmp_path, f"sqlite:///{tmp_path}/a.sqlite") as service:
        with transaction(service_of(service).sessions) as session:
            tenants.change_quotas(session, name=OURS, quotas=Quotas(queued_plans=3))
        ours = with_key(service, key_of(service, OURS))
        body = {"plan": plan_body()}
        assert ours.post(PORTFOLIOS, json=body | {"gpus": [1, 2, 4, 8]}).status_code == 429
        assert ours.get(f"{API}/plans").json()["items"] == []
        assert ours.post(PORTFOLIOS, json=body | {"gpus": [2, 4, 8]}).status_code == 202
        assert ours.post(PORTFOLIOS, json=body | {"gpus": [2, 4]}).status_code == 429
