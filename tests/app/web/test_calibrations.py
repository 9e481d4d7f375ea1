"""Pages of calibrations, and the choice of one in the form of a plan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.documents.calibration import CalibrationDocument
from app.settings import Role
from tests.app.api_client import API, running
from tests.app.calibration_bodies import calibration_document, profile_body

BROWSER = {"Accept": "text/html"}


@pytest.fixture
def client(tmp_path: Path, database_url: str) -> Iterator[TestClient]:
    """A client of an application whose solver is a stand-in."""
    with running(tmp_path, database_url, role=Role.WEB) as client:
        yield client


def test_a_profile_sent_in_the_form_becomes_a_page(client: TestClient) -> None:
    """The page has each parameter and a file to download; the list and the form of a plan offer it."""
    files = {"profile_file": ("profile.json", json.dumps(profile_body()), "application/json")}
    answer = client.post("/calibrations/new", data={"name": "ours"}, files=files, headers=BROWSER)
    assert answer.status_code == 200, answer.text
    assert answer.url.path == "/calibrations/ours"
    for words in ("sustained_share", "90 % interval", "node-7", "1 timing of collectives"):
        assert words in answer.text
    assert 'href="/calibrations/ours"' in client.get("/calibrations").text
    assert 'href="/calibrations/ours/file"' in answer.text
    file = CalibrationDocument.model_validate_json(client.get("/calibrations/ours/file").content)
    assert file.to_fitted().source == client.get(f"{API}/calibrations/ours").json()["label"]
    form = client.get("/plans/new", params={"calibration": "ours"}).text
    assert '<option value="ours" selected>ours</option>' in form
    gone = client.post("/calibrations/ours/delete", headers=BROWSER)
    assert gone.url.path == "/calibrations"
    assert client.get("/calibrations/ours", headers=BROWSER).status_code == 404


def test_what_is_wrong_stands_at_its_box(client: TestClient) -> None:
    """The form comes back with what was typed and the problem beside the field."""
    for sent, anchor in (
        ({"name": "x", "runs_text": "gpu,wheels\n"}, "runs_text"),
        ({"name": "a b", "runs_text": "gpu\n"}, "name"),
        ({"name": "", "runs_text": "gpu\n"}, "name"),
        ({"name": "x", "profile_text": "{}"}, "profile_text"),
        ({"name": "x", "profile_text": json.dumps(profile_body(device="Abacus 9"))}, "profile_text"),
        ({"name": "x", "calibration_text": "{not json"}, "calibration_text"),
    ):
        answer = client.post("/calibrations/new", data=sent, headers=BROWSER)
        assert answer.status_code == 422
        assert f'<a href="#{anchor}">' in answer.text, (sent, answer.text)
    assert client.get(f"{API}/calibrations").json()["items"] == []


def test_a_missing_name_is_named_once(client: TestClient) -> None:
    """The label says which field it is, so the sentence does not say it again."""
    answer = client.post("/calibrations/new", data={"profile_text": json.dumps(profile_body())}, headers=BROWSER)
    assert answer.status_code == 422
    assert 'href="#name">Name</a>: is missing' in answer.text


def test_the_empty_list_says_what_plans_use(client: TestClient) -> None:
    """Without any calibration the page says that plans use what is shipped, and links the script."""
    text = client.get("/calibrations").text
    assert "plans use the parameters that are shipped" in text
    assert "/profiler/gpu_profile.py" in text


def test_a_deleted_calibration_is_not_swapped_silently(client: TestClient) -> None:
    """The form keeps the name that was asked for; sending it says that there is none."""
    client.post(f"{API}/calibrations", json={"calibration": calibration_document().model_dump(mode="json")})
    client.delete(f"{API}/calibrations/slow")
    form = client.get("/plans/new", params={"calibration": "slow"}).text
    assert '<option value="slow" selected>slow</option>' in form


def test_points_of_serving_are_fitted_from_the_form(client: TestClient) -> None:
    """A table of points becomes rates of its engine; a wrong cell stands at the box with its line."""
    head = "engine,gpu,model,input_tokens,output_tokens,concurrency,weights,ttft_ms,tpot_ms,output_tok_s"
    lines = [f"vllm-0.16,H100,llama-3.1-8b,1024,512,{load},fp8,50,{8 + load / 8:g},{load * 90}" for load in (4, 8)]
    wrong = client.post("/calibrations/new", data={"name": "x", "serving_text": f"{head}\na,b"}, headers=BROWSER)
    assert wrong.status_code == 422
    assert '<a href="#serving_text">' in wrong.text
    sent = {"name": "served", "serving_text": "\n".join([head, *lines])}
    answer = client.post("/calibrations/new", data=sent, headers=BROWSER)
    assert answer.url.path == "/calibrations/served", answer.text
    assert "vllm-0.16" in answer.text
