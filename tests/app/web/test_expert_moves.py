"""The page of rebalancing: the map that runs, new counts, moves, and what is wrong with any of them."""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.documents.model import ModelDocument
from app.serialization import jsonable
from app.settings import Role
from tests.app.api_client import API, ended, plan_body, running
from tests.routing_counts import dump, in_full, skewed
from tests.solver.problems import SPARSE
from tests.solver.test_planned_experts import SKEWED, routed_plan

BROWSER: Final = {"Accept": "text/html"}
PAGE: Final = "/experts/rebalance"
EXPERTS, LAYERS, SLOTS, RANKS = 16, 3, 24, 4
MAP: Final = [[slot % EXPERTS for slot in range(SLOTS)] for _ in range(LAYERS)]
COSTS: Final = {"expert_bytes": "1e6", "balanced_layer_ms": "1"}
PASTED: Final = json.dumps({"physical_to_logical_map": MAP})


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application with statistics called ``ours``."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        body = {"name": "ours", "workloads": in_full("prefill", "decode", layers=LAYERS, experts=EXPERTS)}
        assert client.post(f"{API}/routing", json=body).status_code == 201
        yield client


def ask(client: TestClient, files: dict[str, tuple[str, bytes]] | None = None, /, **fields: str) -> Any:
    """The answer to the form, sent as a browser sends it."""
    parts = [(name, (file, io.BytesIO(data))) for name, (file, data) in (files or {}).items()]
    values = {"ranks": str(RANKS), **COSTS, **fields}
    return client.post(PAGE, data=values, files=parts or [("counts", ("", b""))], headers=BROWSER)


def box(text: str, name: str) -> str:
    """Text in a box of the page."""
    found = re.search(rf'<textarea id="{name}"[^>]*>([^<]*)</textarea>', text)
    assert found is not None
    return html.unescape(found[1]).strip()


def hidden(text: str, *names: str) -> dict[str, str]:
    """Hidden fields of the page."""
    found = dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', text))
    return {name: html.unescape(found[name]) for name in names}


def told(client: TestClient, **changes: Any) -> Any:
    """Answer of the API."""
    body = {"routing": "ours", "workloads": {"decode": 1}, "ranks": RANKS, "physical_to_logical_map": MAP}
    answer = client.post(
        f"{API}/expert-placements/rebalance", json=body | {"expert_bytes": 1e6, "balanced_layer_ms": 1.0} | changes
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_page_tells_what_the_api_answers(client: TestClient) -> None:
    """Advice, balance, moves by layer, and the new map as files."""
    answer = told(client, target_balancedness=0.9)
    text = ask(client, running_text=PASTED, routing="ours", workloads="decode = 1", target_balancedness="0.9").text
    advice, _, reason = answer["verdict"].partition(": ")
    assert f"<strong>{advice.capitalize()}.</strong> {reason[0].upper()}{reason[1:]}." in html.unescape(text)
    for value in (answer["balancedness_before"], answer["balancedness"]):
        assert f"<b>{value:.3f}</b>" in text
    for each in answer["layers"]:
        row = f'<th scope="row">{each["layer"]}</th><td class="number">{each["moves"]}</td>'
        assert (row in text) == (each["moves"] > 0)
        assert f"{each['balancedness_before']:.3f}</td>" in text
    first = answer["moves"][0]
    cells = (first["new"], first["source"], first["rank"], first["slot"], first["old"])
    row = "".join(f'<td class="number">{cell}</td>' for cell in cells)
    assert f'<th scope="row">{first["layer"]}</th>{row}' in text
    sent = client.post(f"{PAGE}/map", data=hidden(text, "carried", "model_layers") | {"format": "json"})
    assert sent.json() == answer["placement"]
    files = client.post(f"{PAGE}/map", data=hidden(text, "carried", "model_layers") | {"format": "sglang"})
    assert files.headers["content-type"] == "application/zip"


def test_a_map_that_is_best_is_left_alone(client: TestClient) -> None:
    """The page says so, and shows no table of moves."""
    text = ask(client, running_text=PASTED, routing="ours", expert_bytes="1e12", steps_until_next="1").text
    assert "<strong>Leave it alone.</strong>" in text
    assert "Moves of each layer" not in text


def test_maps_come_from_files_of_any_kind(client: TestClient) -> None:
    """Arrays too; what was read stands in the box as text, which is read back as the same map."""
    array = io.BytesIO()
    np.savez(array, physical_to_logical_map=np.array(MAP))
    for name, data in (("map.npz", array.getvalue()), ("map.json", PASTED.encode())):
        text = ask(client, {"running_file": (name, data)}, routing="ours", workloads="decode").text
        read = json.loads(box(text, "running_text"))
        assert read["physical_to_logical_map"] == MAP
        again = ask(client, routing="ours", workloads="decode", running_text=box(text, "running_text")).text
        carried = [hidden(each, "carried", "model_layers") | {"format": "json"} for each in (text, again)]
        maps = [client.post(f"{PAGE}/map", data=fields).json() for fields in carried]
        assert maps[0] == maps[1] == told(client)["placement"]


def test_files_of_counts_are_carried_until_others_are_chosen(client: TestClient) -> None:
    """A mistake elsewhere does not lose them; stored statistics take their place."""
    counts = {"counts": ("now.json", dump(skewed(LAYERS, EXPERTS, 7)))}
    refused = ask(client, counts, running_text=PASTED, steps_until_next="many")
    assert refused.status_code == 422
    assert "Kept from before: now.json" in refused.text
    assert 'value="many"' in refused.text
    carried = hidden(refused.text, "carried_counts")
    done = ask(client, running_text=PASTED, **carried)
    assert done.status_code == 200, done.text
    assert '<th scope="row">now</th>' in done.text
    stored = ask(client, running_text=PASTED, routing="ours", **carried)
    assert '<th scope="row">decode</th>' in stored.text
    assert "Kept from before" not in stored.text


def test_the_map_of_a_plan_needs_neither_file_nor_ranks(tmp_path: Path) -> None:
    """Plans with experts are offered, others not; model and ranks come with them."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite") as client:
        ids = []
        sparse = ModelDocument.from_architecture(SPARSE).model_dump(mode="json")
        for number, changes in enumerate(({}, {"model": sparse})):
            made = client.post(f"{API}/plans", json=plan_body(**changes))
            ids.append(ended(client, made.headers["Location"])["id"])
            (tmp_path / "plan.json").write_text(json.dumps(jsonable(routed_plan())))
            assert (f'<option value="{ids[0]}"' in client.get(PAGE).text) is False, number
        text = client.get(f"{PAGE}?plan={ids[1]}").text
        assert f'<option value="{ids[1]}" selected>' in text
        assert f'href="{PAGE}?plan={ids[1]}"' in client.get(f"/plans/{ids[1]}").text
        counts = {"counts": ("now.json", dump([list(row) for row in reversed(SKEWED.loads)]))}
        fields = {"plan": ids[1], "ranks": "", "expert_bytes": "1e5"}
        answer = ask(client, counts, **fields)
        assert answer.status_code == 200, answer.text
        assert "What to do" in answer.text
        for wrong, anchor in (({"plan": "gone"}, "plan"), ({"plan": ids[0]}, "plan"), ({"ranks": "3"}, "plan")):
            refused = ask(client, counts, **(fields | wrong))
            assert refused.status_code == 422
            assert f'id="{anchor}-wrong-1"' in refused.text
        beside = ask(client, counts | {"running_file": ("map.json", PASTED.encode())}, **fields)
        assert 'id="running_file-wrong-1">conflicts with the map of a plan' in beside.text


OTHER_MODEL: Final = json.dumps({"physical_to_logical_map": [list(range(8))] * LAYERS})
WRONG: Final[dict[str, tuple[dict[str, Any], str, str]]] = {
    "no map": ({"running_text": ""}, "running_text", "is missing"),
    "broken map": ({"running_text": "{not"}, "running_text", "pasted.txt"),
    "empty file": ({"files": {"running_file": ("empty.json", b"")}}, "running_file", "empty.json"),
    "counts as a map": (
        {"files": {"running_file": ("counts.json", dump(skewed(2, 8, 1)))}},
        "running_file",
        "holds counts, not a map",
    ),
    "another model's map": (
        {"running_text": OTHER_MODEL},
        "running_text",
        "holds 8 experts, the statistics count 16",
    ),
    "not a number": (
        {"running_text": '{"physical_to_logical_map": [[0, NaN]]}'},
        "running_text",
        "physical_to_logical_map[0][1]",
    ),
    "other layers": (
        {"running_text": json.dumps({"physical_to_logical_map": MAP, "layers": [7, 8, 9]})},
        "running_text",
        "not among the counted ones",
    ),
    "ranks that do not divide": ({"ranks": "5"}, "running_text", "divisible by 5 ranks"),
    "no counts": ({"routing": ""}, "routing", "is missing"),
    "statistics that are gone": ({"routing": "nobody"}, "routing", "no stored statistics"),
    "a map as counts": (
        {"routing": "", "files": {"counts": ("map.json", PASTED.encode())}},
        "counts",
        "not how often they were selected",
    ),
    "two kinds of counts": (
        {"files": {"counts": ("now.json", dump(skewed(LAYERS, EXPERTS, 7)))}},
        "counts",
        "stand beside stored statistics",
    ),
    "unknown workload": ({"workloads": "chat"}, "workloads", "is not a workload of these statistics"),
    "negative weight": ({"workloads": "decode = -1"}, "workloads", ""),
    "no target": ({"target_balancedness": "1.5"}, "target_balancedness", ""),
    "an infinite target": ({"target_balancedness": "1e999"}, "target_balancedness", ""),
    "a word": ({"target_balancedness": "nan"}, "target_balancedness", "number"),
    "no steps": ({"steps_until_next": "0"}, "steps_until_next", ""),
    "infinite bytes": ({"expert_bytes": "1e400"}, "expert_bytes", ""),
    "no bytes": ({"expert_bytes": ""}, "expert_bytes", "give it, or the model"),
    "nodes": ({"nodes": "3"}, "nodes", ""),
    "another model": ({"model": "mixtral-8x7b"}, "model", "has 8 experts in a layer, the statistics 16"),
    "unknown model": ({"model": "nobody"}, "model", ""),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_stands_at_its_field(client: TestClient, what: str) -> None:
    """With everything else as it was typed."""
    fields, anchor, words = WRONG[what]
    files = fields.get("files")
    values = {"running_text": PASTED, "routing": "ours", "workloads": "decode = 1"} | fields
    values.pop("files", None)
    answer = ask(client, files, **values)
    assert answer.status_code == 422
    problem = re.search(rf'id="{anchor}-wrong-1">([^<]*)<', answer.text)
    assert problem is not None, answer.text
    assert words in html.unescape(problem[1])
    assert f'<a href="#{anchor}">' in answer.text
    assert box(answer.text, "workloads") == values["workloads"]
    for name in ("target_balancedness", "expert_bytes"):
        assert f'name="{name}" type="text" value="{values.get(name, COSTS.get(name, ""))}"' in answer.text


def test_several_mistakes_are_told_at_once(client: TestClient) -> None:
    """Problems of the map, the counts and the fields."""
    text = ask(client, running_text="", target_balancedness="2", nodes="none").text
    for anchor in ("running_text", "routing", "target_balancedness", "nodes"):
        assert f'id="{anchor}-wrong-1"' in text
    assert 'id="ranks-wrong-1"' not in ask(client, running_text="", ranks="").text, "the map may say them"
    assert 'id="ranks-wrong-1"' in ask(client, running_text=PASTED, ranks="").text


def test_the_page_has_its_address_for_itself(client: TestClient) -> None:
    """Linked from the experts, and no statistics can be stored under its name."""
    assert f'href="{PAGE}"' in client.get("/experts").text
    assert f'href="{PAGE}?statistics=ours"' in client.get("/experts/ours").text
    text = client.get(f"{PAGE}?statistics=ours").text
    assert box(text, "workloads") == "prefill = 1\ndecode = 1"
    body = {"name": "rebalance", "workloads": in_full("a", layers=LAYERS, experts=EXPERTS)}
    refused = client.post(f"{API}/routing", json=body)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "name"
    files = [("files", ("a.json", dump(skewed(LAYERS, EXPERTS, 1))))]
    page = client.post("/experts", data={"name": "rebalance"}, files=files, headers=BROWSER)
    assert '<a href="#name">Name</a>: cannot be stored' in page.text
    foreign = {**BROWSER, "Sec-Fetch-Site": "cross-site"}
    for address in (PAGE, f"{PAGE}/map"):
        assert client.post(address, data={"ranks": "2"}, headers=foreign).status_code == 403
