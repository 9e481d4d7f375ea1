"""Pages of serving plans: the form, what came out, and the way from one to the other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.datastructures import FormData

from app.documents.reading import problems_of, read_document
from app.documents.serving import ServingWorkloadDocument
from app.serialization import jsonable
from app.web.planning.form import typed
from app.web.planning.serving_form import (
    LABELS,
    WORKLOAD,
    at_serving_fields,
    blank_serving,
    filled_serving,
    serving_request,
    workload_data,
)
from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import ExpertLoads
from cluster_models.serving.adapters import ServedAdapters
from cluster_models.serving.goal import ServedModel, ServingGoal, ServingMode, ServingObjective
from cluster_models.serving.routing import ServedRouting
from cluster_models.serving.workload import CacheFormat, Speculation, WeightFormat
from tests.app.api_client import API, cluster_body, ended, running
from tests.serving_plans import nothing_serves, replayed_plan, served, split_phases, two_replicas

HEADERS = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
TYPED = {
    "input_tokens": "1024",
    "output_tokens": "512",
    "concurrency": "64",
    "weights": "fp8",
    "modes": "aggregated",
}


def _form(**fields: Any) -> dict[str, Any]:
    return {"cluster_text": json.dumps(cluster_body()), "model": "llama-3.1-8b", **TYPED, **fields}


def _client(tmp_path: Path, answer: object) -> Any:
    (tmp_path / "serving.json").write_text(json.dumps(jsonable(answer)))
    return running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", plan=str(tmp_path / "serving.json"))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of a service whose solver finds split phases at once."""
    with _client(tmp_path, split_phases()) as client:
        yield client


def test_folded_fields_open_where_they_are_filled_or_wrong(client: TestClient) -> None:
    """Adapters and experts stay closed otherwise."""
    wrong = client.post("/plans/new/serving", data=_form(**{"adapters.count": "4"}), headers=HEADERS).text
    for text, adapters in ((client.get("/plans/new/serving").text, None), (wrong, " open")):
        folds = [re.search(rf"<details( open)?>\s*<summary>{name}", text) for name in ("Adapters", "How evenly")]
        assert [found and found[1] for found in folds] == [adapters, None]


def test_classes_are_typed_as_yaml() -> None:
    """In place of the mean lengths; problems stand at their box, and a workload comes back into it."""
    text = "- {name: chat, share: 3, input_tokens: 512, output_tokens: {quantiles: {p50: 100, p90: 300}}}"
    blank = blank_serving(time_limit_s=60)
    given, _ = typed(FormData(_form(classes=text, input_tokens="", output_tokens="")), blank)
    workload = serving_request(given).workload
    assert workload.classes is not None
    assert workload.to_workload().class_names == ("chat",)
    again = filled_serving(blank, workload.model_dump(mode="json", exclude_unset=True))
    assert workload_data(again)["classes"] == workload_data(given)["classes"]
    fields = _form(classes=text.replace("512", "0"), input_tokens="", output_tokens="")
    wrong, _ = typed(FormData(fields), blank)
    with pytest.raises(InvalidInput) as refused:
        serving_request(wrong)
    (problem,) = at_serving_fields(problems_of(refused.value), wrong)
    assert (problem.anchor, "classes[0].input_tokens" in problem.text) == ("classes", True)


def test_a_trace_takes_the_place_of_lengths_and_load() -> None:
    """Its problems stand at its box, and a workload with one comes back into the form."""
    rows = "arrival_s,input_tokens,output_tokens\n0,5,5\n{},5,5\n"
    blank, empty = blank_serving(time_limit_s=60), {"input_tokens": "", "output_tokens": "", "concurrency": ""}
    given, _ = typed(FormData(_form(trace=rows.format(1), **empty)), blank)
    workload = serving_request(given).workload
    assert workload.to_workload().requests_per_s == 1.0
    again = filled_serving(blank, workload.model_dump(mode="json", exclude_unset=True))
    assert workload_data(again)["trace"] == rows.format(1)
    wrong, _ = typed(FormData(_form(trace=rows.format("nan"), **empty)), blank)
    with pytest.raises(InvalidInput) as refused:
        serving_request(wrong).workload.to_workload()
    (problem,) = at_serving_fields(problems_of(refused.value), wrong)
    assert (problem.anchor, "row 2" in problem.text) == ("trace", True)


def test_a_plan_goes_from_the_form_to_its_page(client: TestClient) -> None:
    """The decision, latencies against limits, places, memory, front, proof, alternatives and exports."""
    assert 'href="/plans/new/serving"' in client.get("/plans/new").text
    asked = client.post("/plans/new/serving", data=_form(), headers=HEADERS, follow_redirects=False)
    assert asked.status_code == 303, asked.text
    address = asked.headers["Location"]
    ended(client, API + address)
    shown = client.get(address).text
    for words in (
        "1 replica of tp2 for prefill, 2 GPUs on a",
        "1 replica of tp4 for decode, 4 GPUs on b",
        "Latencies against limits",
        "31.25 ms",
        "GPU 0, 1, 2, 3",
        "Memory of a GPU of each pool",
        "Throughput against speed for each user",
        "At most 6.25 % from the best",
        "its time to first token of 750.0 ms misses the limit",
        "4 GPUs on c stay idle",
        "Links between a, b were not measured",
        "vLLM servers: a script for every host",
        'data-copy="file-1"',
        "serve 1 b 0,1,2,3 env VLLM_NIXL_SIDE_CHANNEL_HOST=b",
        "Plan again with changes",
    ):
        assert words in shown, words
    listed = client.get("/plans").text
    assert "serving</span>" in listed
    assert re.search(r"[\d,]+ tokens/s</td><td>on 6 GPUs</td><td class=\"number\">6.25 %", listed)


def test_the_form_has_an_input_for_every_field_of_the_workload(client: TestClient) -> None:
    """A field of the document that the page leaves out could not be asked for."""
    text = unescape(client.get("/plans/new/serving").text)
    assert [each for each in WORKLOAD.inputs if f'name="{each}"' not in text or LABELS[each] not in text] == []


def test_options_of_exports_travel_with_their_links(client: TestClient) -> None:
    """The texts on the page follow them, and one that cannot be is said at its field."""
    address = client.post("/plans/new/serving", data=_form(), headers=HEADERS, follow_redirects=False).headers[
        "Location"
    ]
    ended(client, API + address)
    changed = client.get(address, params={"model_path": "/weights/mine"}).text
    assert "vllm serve /weights/mine" in changed
    assert "set=model_path%3D%2Fweights%2Fmine" in changed
    wrong = client.get(address, params={"port": "0"})
    assert wrong.status_code == 422
    assert "must lie in 1..65535" in wrong.text


def test_the_same_questions_come_back(client: TestClient) -> None:
    """With all that was typed; the form of training sends plans of serving on to theirs."""
    fields = {"pinned.tensor": "2", "max_gpus": "6", "time_to_first_token_ms": "500", "objective": "cost"}
    asked = client.post("/plans/new/serving", data=_form(**fields), headers=HEADERS, follow_redirects=False)
    plan_id = asked.headers["Location"].rpartition("/")[2]
    again = client.get("/plans/new", params={"again": plan_id}, follow_redirects=False)
    assert again.headers["Location"] == f"/plans/new/serving?again={plan_id}"
    shown = client.get(again.headers["Location"]).text
    for value in ("1024", "512", "64", "500", "6", "2"):
        assert f'value="{value}"' in shown, value
    assert '<option value="cost" selected>' in shown
    assert '<option value="llama-3.1-8b" selected>' in shown


def test_the_form_says_what_fits_before_it_is_sent(client: TestClient) -> None:
    """The answer, an address that fills the form again and the request for programs; nothing is stored."""
    answer = client.post("/plans/new/serving/outlook", data=_form()).text
    for words in ("It fits: ", "before any search", "curl --fail-with-body", "meshwright --server"):
        assert words in answer
    (link,) = re.findall(r'href="(/plans/new/serving\?cluster_text[^"]*)"', answer)
    assert f'value="{TYPED["input_tokens"]}"' in client.get(unescape(link)).text
    limited = _form() | {"time_to_first_token_ms": "0.01"}
    none = client.post("/plans/new/serving/outlook", data=limited).text
    assert "nothing meets the limit" in none
    wrong = client.post("/plans/new/serving/outlook", data=_form(input_tokens="many"))
    assert wrong.status_code == 422
    assert client.get("/api/v1/plans").json()["items"] == []


@pytest.mark.parametrize("form", ["/plans/new", "/plans/new/serving"])
def test_a_box_that_is_too_long_does_not_come_back(
    client: TestClient, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page would be as long as what was sent."""
    monkeypatch.setattr("app.web.planning.plan_form.MOST_GIVEN_BACK", 10_000)
    answer = client.post(form, data=_form(cluster_text="#" * 10_001) | {"sequence_length": "many"})
    assert answer.status_code == 422
    assert "is too long to come back; choose its file again" in answer.text
    assert "#####" not in answer.text


def test_nothing_serves_names_what_would(tmp_path: Path) -> None:
    """The nearest that can be met, and remedies."""
    (tmp_path / "none.json").write_text("{}")
    with running(
        tmp_path, f"sqlite:///{tmp_path}/a.sqlite", behaviour="no_plan", no_plan=str(tmp_path / "none.json")
    ) as client:
        (tmp_path / "none.json").write_text(json.dumps(jsonable(nothing_serves())))
        address = client.post("/plans/new/serving", data=_form(), headers=HEADERS, follow_redirects=False).headers[
            "Location"
        ]
        ended(client, API + address)
        shown = client.get(address).text
    assert "Nothing serves this" in shown
    assert "nothing meets the limit on the time per output token of tiny-4" in shown
    assert "raise time_per_output_token_ms to 7.82" in shown


def test_a_workload_survives_the_form() -> None:
    """Goal, limits, drafts and formats."""
    given = served(
        "sglang-0.5.8",
        requests_per_s=2.5,
        concurrency=None,
        cache=CacheFormat.FP8,
        attention_weights=WeightFormat.BF16,
        speculation=Speculation(2, 1.25),
        memory_fraction=0.75,
        prefill_imbalance=0.25,
        decode_imbalance=0.125,
        adapters=ServedAdapters(64, 16, 8),
    )
    counts = ServedRouting((ExpertLoads("prefill", (0,), ((1.0, 2.0),)), ExpertLoads("b", (0,), ((3.0, 4.0),))), 4)
    workload = replace(given.workload, routing=counts, prefill_imbalance=None, decode_imbalance=None)
    for own in (given, replace(given, workload=workload)):
        _survives_the_form(own)


def _survives_the_form(given: ServedModel) -> None:
    goal = ServingGoal(
        ServingObjective.POWER, (ServingMode.SPLIT,), 12, 9000.0, avoid_nodes=("a", "b"), pinned={"tensor": 2}
    )
    written = ServingWorkloadDocument.from_served(given, goal).model_dump(mode="json")
    values, found = typed(FormData(), filled_serving(blank_serving(time_limit_s=60), written))
    assert found == ()
    values |= {"modes": ("split",)}  # a form without boxes ticked sends none
    document = read_document(ServingWorkloadDocument, workload_data(values), what="workload")
    assert document.served(given.architecture) == given
    assert document.to_goal() == goal


def test_further_models_come_as_a_list() -> None:
    """In YAML, and a problem with one names its place."""
    text = "- model: llama-3.1-8b\n  workload: {kind: serving, input_tokens: 8, output_tokens: 8, concurrency: 1}\n"
    values = blank_serving(time_limit_s=60) | _form(modes=("split",), others_text=text)
    assert serving_request(values).others[0].workload.input_tokens == 8
    with pytest.raises(InvalidInput) as refused:
        serving_request(values | {"others_text": text.replace("input_tokens: 8", "input_tokens: 0")})
    (shown,) = at_serving_fields(problems_of(refused.value), values)
    assert shown.anchor == "others_text"
    assert "others[0].workload.input_tokens" in shown.text


@pytest.mark.parametrize(("story", "model"), [("chat", "llama-3.1-70b"), ("long-prompts", "deepseek-v3")])
def test_examples_fill_the_form(client: TestClient, story: str, model: str) -> None:
    """Each shipped story of serving."""
    assert f"?example={story}" in client.get("/plans/new/serving").text
    shown = client.get(f"/plans/new/serving?example={story}").text
    assert f'<option value="{model}" selected>' in shown


def test_two_replicas_are_shown_with_their_launch_file(tmp_path: Path) -> None:
    """Side by side on one node."""
    with _client(tmp_path, two_replicas()) as client:
        address = client.post("/plans/new/serving", data=_form(), headers=HEADERS, follow_redirects=False).headers[
            "Location"
        ]
        ended(client, API + address)
        assert "2 replicas of tp2 for prefill and decode, 2 GPUs each on a" in client.get(address).text


def test_a_replay_stands_beside_the_closed_form(tmp_path: Path) -> None:
    """With the limit that the simulation misses."""
    with _client(tmp_path, replayed_plan()) as client:
        sent = client.post("/plans/new/serving", data=_form(), headers=HEADERS, follow_redirects=False)
        ended(client, API + sent.headers["Location"])
        page = client.get(sent.headers["Location"]).text
    assert "Simulated step by step" in page
    assert "250.0 ms, 1.000 s, 2.000 s" in page
    assert "its 90th percentile of 1.000 s misses the limit" in page
