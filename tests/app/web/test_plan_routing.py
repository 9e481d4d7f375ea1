"""Routing statistics in the form of a new plan, and what its page says of the map."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from fastapi.testclient import TestClient

from app.documents.model import ModelDocument
from app.services.planning import plans
from app.settings import Role
from app.web.experts.workload_weights import weight_lines, weights_of
from app.web.planning.form import blank
from cluster_models.errors import InvalidInput
from tests.app.api_client import API, cluster_body, running
from tests.solver.problems import SPARSE
from tests.solver.test_planned_experts import OTHER, SKEWED

BROWSER: Final = {"Accept": "text/html"}
COUNTS: Final = {name: [list(row) for row in each.loads] for name, each in (("a = b", SKEWED), ("c", OTHER))}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application with counts of the sparse model under the name ``ours``."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        store(client, "ours", COUNTS)
        yield client


def store(client: TestClient, name: str, counts: dict[str, Any]) -> None:
    """Statistics under a name."""
    workloads = [{"name": each, "logical_count": rows} for each, rows in counts.items()]
    answer = client.post(f"{API}/routing", json={"name": name, "workloads": workloads})
    assert answer.status_code == 201, answer.text


def ask(client: TestClient, **changes: str) -> Any:
    """The answer to the form for a plan of the sparse model."""
    values = {name: text for name, text in blank(time_limit_s=5).items() if isinstance(text, str)}
    values |= {
        "recompute": "none",
        "sharding": "none",
        "offload": "none",
        "context_exchange": "ring",
        "schedule": "1f1b",
        "sequence_length": "2048",
        "global_batch_sequences": "8",
    }
    values |= {"cluster_text": json.dumps(cluster_body()), "model_text": model()}
    return client.post("/plans/new", data=values | changes, headers=BROWSER, follow_redirects=False)


def model() -> str:
    """The sparse model as it is pasted."""
    return json.dumps(ModelDocument.from_architecture(SPARSE).model_dump(mode="json"))


def problem_of(client: TestClient, answer: Any) -> Any:
    """Problem of a plan that was taken in."""
    assert answer.status_code == 303, answer.text
    service = client.app.state.service  # type: ignore[attr-defined]
    with service.read_sessions() as session:
        return plans.get_problem(session, plan_id=answer.headers["location"].rpartition("/")[2])


def box(text: str, name: str) -> str:
    """Text in a box of a page."""
    found = re.search(rf'<textarea id="{name}"[^>]*>([^<]*)</textarea>', text)
    assert found is not None
    return html.unescape(found[1])


def test_stored_counts_and_weights_go_into_the_plan(client: TestClient) -> None:
    """By name, each workload with its weight, those without a line with none."""
    problem = problem_of(client, ask(client, routing="ours", routing_weights="a = b = 3", keep_expert_order="true"))
    assert [(each.name, each.weight) for each in problem.routing] == [("a = b", 3.0), ("c", 0.0)]
    assert problem.routing[0].loads == tuple(map(tuple, COUNTS["a = b"]))
    assert problem.keep_expert_order
    plain = problem_of(client, ask(client))
    assert plain.routing == ()
    assert not plain.keep_expert_order


def test_an_address_fills_the_form_with_all_workloads(client: TestClient) -> None:
    """The page of statistics links there, and what stands in the form is taken as it is."""
    assert 'href="/plans/new?statistics=ours"' in client.get("/experts/ours").text
    text = client.get("/plans/new?statistics=ours").text
    assert '<option value="ours" selected>' in text
    assert "<details open>\n      <summary>How tokens are routed" in text
    weights = box(text, "routing_weights")
    problem = problem_of(client, ask(client, routing="ours", routing_weights=weights))
    assert [each.weight for each in problem.routing] == [1.0, 1.0]


@pytest.mark.parametrize("kept", [True, False])
def test_planning_again_starts_from_the_same_counts(client: TestClient, kept: bool) -> None:
    """By name while they are stored as they were, else with the counts themselves in the box."""
    answer = ask(client, routing="ours", routing_weights="c = 2")
    before = problem_of(client, answer)
    if not kept:
        rows = {name: [[2 * count + 1 for count in row] for row in table] for name, table in COUNTS.items()}
        workloads = [{"name": each, "logical_count": table} for each, table in rows.items()]
        assert client.put(f"{API}/routing/ours", json={"workloads": workloads}).status_code == 200
    text = client.get(f"/plans/new?again={answer.headers['location'].rpartition('/')[2]}").text
    assert ('<option value="ours" selected>' in text) == kept
    assert (box(text, "routing_text") == "") == kept
    fields = {name: box(text, name) for name in ("routing_weights", "routing_text")}
    again = problem_of(client, ask(client, **fields, routing="ours" if kept else ""))
    assert again.routing == before.routing


@pytest.mark.parametrize(
    ("fields", "anchor", "words"),
    [
        ({"routing": "nobody"}, "routing", "no stored statistics of this name"),
        ({"routing": "ours", "routing_weights": "d = 1"}, "routing_weights", "is not a workload of the routing"),
        ({"routing": "ours", "routing_weights": "c = -1"}, "routing_weights", "0"),
        ({"routing": "ours", "routing_weights": "c = 1e999"}, "routing_weights", "number"),
        ({"routing": "ours", "routing_weights": "c = much"}, "routing_weights", "number"),
        ({"routing": "ours", "routing_weights": "c\nc = 2"}, "routing_weights", "stands in two lines"),
        ({"routing_weights": "c = 1"}, "routing_weights", "give routing as well"),
        ({"routing": "other"}, "routing", "counts of this model"),
        ({"routing_text": '{"logical_count": [[1, 2]]}'}, "routing_text", "counts of this model"),
        ({"routing_text": '{"logical_count": [[1, NaN]]}'}, "routing_text", ""),
        ({"routing_text": "[[1"}, "routing_text", ""),
    ],
)
def test_what_is_wrong_with_routing_stands_at_its_field(
    client: TestClient, fields: dict[str, str], anchor: str, words: str
) -> None:
    """The form comes back open there, with everything that was typed."""
    store(client, "other", {"x": [[1, 2]]})
    answer = ask(client, **fields)
    assert answer.status_code == 422
    problem = re.search(rf'id="{anchor}-wrong-1">([^<]*)<', answer.text)
    assert problem is not None, answer.text
    assert words in html.unescape(problem[1])
    assert "<details open>\n      <summary>How tokens are routed" in answer.text
    for name in ("routing_weights", "routing_text"):
        assert box(answer.text, name) == fields.get(name, "")


def test_lines_of_weights_are_read_as_they_are_written() -> None:
    """Names may hold anything but line ends; one name in two lines is refused."""
    weights = {"prefill": 2.0, "a = b": 0.5, "x, y": 1.0}
    assert weights_of(weight_lines(weights), field="w") == weights
    assert weights_of("\n prefill \n decode=3\n", field="w") == {"prefill": 1, "decode": 3}
    with pytest.raises(InvalidInput, match="stands in two lines"):
        weights_of("a\na", field="w")
