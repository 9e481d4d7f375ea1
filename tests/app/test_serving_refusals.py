"""Serving plans that cannot be, over HTTP and in the form: refused with their fields before anything is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.app.api_client import API, cluster_body, running
from tests.serving_bad_input import BAD, SOUND, changed

PLANS = f"{API}/plans"


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of an application for all refusals, each of which must leave nothing behind."""
    folder = tmp_path_factory.mktemp("refusing")
    with running(folder, f"sqlite:///{folder}/a.sqlite", behaviour="hang") as client:
        yield client


def _body(**changes: Any) -> dict[str, Any]:
    return {"cluster": cluster_body(), "model": "llama-3.1-8b", "workload": SOUND} | changes


def _refused(client: TestClient, body: dict[str, Any], field: str) -> dict[str, Any]:
    """The error at ``field``: problem details with the path in the request, and nothing is stored."""
    answer = client.post(PLANS, content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert client.get(PLANS).json()["items"] == []
    errors: dict[str, dict[str, Any]] = {error["field"]: error for error in answer.json()["errors"]}
    assert field in errors
    return errors[field]


@pytest.mark.parametrize(("changes", "field", "words"), BAD.values(), ids=BAD)
def test_a_workload_that_cannot_be_is_refused_before_it_is_accepted(
    refusing: TestClient, changes: dict[str, Any], field: str, words: str
) -> None:
    """Field, problem and remedy, also of numbers that JSON has no words for."""
    error = _refused(refusing, _body(workload=changed(changes)), f"workload.{field}")
    assert words in f"{error['problem']}; {error['remedy']}"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (
            {"others": [{"model": "llama-3.1-8b", "workload": SOUND | {"max_gpus": 2}}]},
            "others[0].workload.max_gpus",
        ),
        (
            {"others": [{"model": "llama-3.1-8b", "workload": SOUND | {"input_tokens": 200_000}}]},
            "others[0].workload.input_tokens",
        ),
        ({"others": [{"model": "none", "workload": SOUND}]}, "others[0].model"),
        ({"model": "none"}, "model"),
        ({"options": {"time_limit_s": 1e9}}, "options.time_limit_s"),
        ({"calibration": "x"}, "calibration"),
    ],
)
def test_a_request_that_cannot_be_is_refused(refusing: TestClient, changes: dict[str, Any], field: str) -> None:
    """Beside the workload: models, options."""
    _refused(refusing, _body(**changes), field)


_DRAFT = "speculation.draft_tokens"


@pytest.mark.parametrize(
    ("fields", "anchor", "words"),
    [
        ({"input_tokens": "many"}, "input_tokens", "whole number"),
        ({"concurrency": "", "requests_per_s": ""}, "concurrency", "exactly one"),
        ({"requests_per_s": "0", "concurrency": ""}, "requests_per_s", "greater than 0"),
        ({"input_tokens": "200000"}, "input_tokens", "takes 131072"),
        ({"requests_per_s": "nan", "concurrency": ""}, "requests_per_s", "must be a number"),
        ({"requests_per_s": "inf", "concurrency": ""}, "requests_per_s", "must be a number"),
        ({"weights": "nvfp4", "engine": "trtllm-1.2"}, "weights", "no tensor cores for this format"),
        ({"engine": "atom-0.1"}, "engine", "it is for GPUs of AMD"),
        ({_DRAFT: "2", "speculation.accepted_tokens": "3"}, "speculation.accepted_tokens", "must lie in 0..2"),
        ({"pinned.tensor": "3"}, "pinned.tensor", "must divide"),
        ({"pinned.tensor": "32"}, "pinned.tensor", "pin fewer or smaller degrees"),
        ({_DRAFT: "2"}, "speculation.accepted_tokens", "missing"),
        ({"avoid_nodes": "nowhere"}, "avoid_nodes", "is not a node"),
        ({"workload_text": "kind: serving\ninput_tokens: 1\n"}, "workload_text", "output_tokens"),
        ({"others_text": "- model: none\n"}, "others_text", "workload"),
        ({"cluster_text": ""}, "cluster_text", "missing"),
        ({"effort": "0"}, "effort", "at least 1"),
    ],
)
def test_problems_stand_at_their_fields(
    refusing: TestClient, fields: dict[str, str], anchor: str, words: str
) -> None:
    """Everything that was typed is still there, and nothing is stored."""
    headers = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    typed = {name: str(value) for name, value in SOUND.items()} | {"modes": "aggregated", "model": "llama-3.1-8b"}
    typed["cluster_text"] = json.dumps(cluster_body())
    answer = refusing.post("/plans/new/serving", data=typed | fields, headers=headers)
    assert answer.status_code == 422
    assert f'href="#{anchor}"' in answer.text
    assert words in answer.text
    assert refusing.get(f"{API}/plans").json()["items"] == []
