"""Routing with a plan: in requests and on the command line, in documents, exports and views."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from fastapi.testclient import TestClient

from app.cli import main
from app.cli.planning.plan_view import plan_view
from app.cli.terminal import console
from app.documents.model import ModelDocument
from app.documents.plan import PlanDocument, plan_from_text
from app.exports.registry import EXPORTS
from app.presentation.experts import expert_page
from app.serialization import jsonable, load
from app.settings import Role
from cluster_models.errors import InvalidInput
from cluster_models.training.plan import Plan
from solver.predict import predict
from solver.problem import PlanningProblem
from tests.app.api_client import API, ended, plan_body, running
from tests.app.command_files import CLUSTER, WORKLOAD
from tests.routing_counts import sent
from tests.solver.problems import SPARSE
from tests.solver.test_planned_experts import OTHER, SKEWED, asked, routed_plan

ROWS: Final = [list(row) for row in SKEWED.loads]
DEGREES: Final = {"degrees": {"data": 8, "expert": 2}}


@cache
def contiguous_plan() -> Plan:
    """The same configuration without counts."""
    plan = routed_plan()
    return predict(asked(), plan.configuration, hosts=plan.placement.hosts)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application that only answers, on SQLite."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        yield client


def _body(**changes: Any) -> dict[str, Any]:
    return plan_body(model=ModelDocument.from_architecture(SPARSE).model_dump(mode="json")) | changes


def test_a_plan_survives_its_document_and_the_database() -> None:
    """Maps and figures come back as they were."""
    plan = routed_plan()
    told = plan_from_text(PlanDocument.from_plan(plan).model_dump_json())
    assert (told.expert_slots, told.expert_balance) == (plan.expert_slots, plan.expert_balance)
    assert load(Plan, json.loads(json.dumps(jsonable(plan)))) == plan
    problem = asked(SKEWED, OTHER)
    assert load(PlanningProblem, json.loads(json.dumps(jsonable(problem)))) == problem


def test_layers_that_are_alike_stand_together() -> None:
    """One map for all layers without counts."""
    (group,) = PlanDocument.from_plan(contiguous_plan()).expert_slots
    assert group.layers == [0, 1, 2, 3]
    assert group.experts_of_rank == [[0, 1], [2, 3]]
    assert len(PlanDocument.from_plan(routed_plan()).expert_slots) > 1


def test_documents_of_before_maps_were_told_by_layer_are_read() -> None:
    """Their one map was contiguous; another one has no place any more."""
    document = PlanDocument.from_plan(contiguous_plan()).model_dump(mode="json")
    del document["expert_slots"]
    old = plan_from_text(json.dumps(document | {"expert_map": [[0, 1], [2, 3]]}))
    assert old.expert_slots is None
    assert old.configuration == contiguous_plan().configuration
    with pytest.raises(InvalidInput, match="expert_map: unknown field"):
        plan_from_text(json.dumps(document | {"expert_map": [[0, 2], [1, 3]]}))


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        ([{"layers": [0], "experts_of_rank": [[0, 1], [2]]}], "must be equally many on each rank"),
        ([{"layers": [0, 0], "experts_of_rank": [[0], [1]]}], "stands in two maps"),
        (
            [{"layers": [0], "experts_of_rank": [[0], [0]]}, {"layers": [1], "experts_of_rank": [[0], [1]]}],
            "no other",
        ),
    ],
)
def test_maps_that_cannot_be_are_refused(groups: list[dict[str, Any]], sentence: str) -> None:
    """Where a plan document was changed by hand."""
    document = PlanDocument.from_plan(routed_plan()).model_dump(mode="json")
    with pytest.raises(InvalidInput, match=sentence):
        plan_from_text(json.dumps(document | {"expert_slots": groups}))


def test_exports_say_the_order_of_moved_experts() -> None:
    """In the script by layer, and as JSON of all layers; files with another order do not leave."""
    plan = routed_plan()
    assert plan.expert_slots is not None
    (script,) = EXPORTS["megatron"].files(plan)
    natural = (0, 1, 2, 3)
    for layer, row in enumerate(plan.expert_slots.slots):
        line = f'[{layer}]="{" ".join(map(str, row))}"'
        assert (line in script.text) == (row != natural)
    (order,) = EXPORTS["experts-megatron"].files(plan)
    told = {int(layer): tuple(row) for layer, row in json.loads(order.text)["order"].items()}
    assert told == dict(enumerate(plan.expert_slots.slots))
    assert "EXPERT_ORDER" not in EXPORTS["megatron"].files(contiguous_plan())[0].text


def test_people_are_told_what_the_map_is_worth() -> None:
    """In a sentence on the terminal, and by workload and layer on the page."""
    terminal = console()
    with terminal.capture() as shown:
        terminal.print(plan_view(routed_plan()))
    words = " ".join(shown.get().split())
    assert "Slowest expert rank 1.04 times the mean; in contiguous blocks 1.40 times" in words
    page = expert_page(routed_plan())
    assert page is not None
    assert [(row.name, row.weight) for row in page.workloads] == [("prefill", "100.0 %"), ("decode", "0.0 %")]
    assert [row.imbalance for row in page.layers] == ["1.10", "1.05", "1.00", "1.00"]
    assert page.ranks == ()
    plain = expert_page(contiguous_plan())
    assert plain is not None
    assert (plain.summary, plain.alike) == ("", "0\N{EN DASH}3")
    assert plain.ranks == ("0\N{EN DASH}1", "2\N{EN DASH}3")


def test_a_prediction_takes_counts(client: TestClient) -> None:
    """In full or stored under a name, with weights; the balance is in the answer."""
    plain = client.post(f"{API}/predictions", json=_body(configuration=DEGREES)).json()["result"]
    assert plain["expert_balance"] is None
    routing = {"workloads": [{"name": "prefill", "logical_count": ROWS}, {"name": "decode", "logical_count": ROWS}]}
    body = _body(configuration=DEGREES, routing=routing, routing_weights={"prefill": 2.0})
    found = client.post(f"{API}/predictions", json=body)
    assert found.status_code == 200, found.text
    balance = found.json()["result"]["expert_balance"]
    assert [(each["name"], each["weight"]) for each in balance["workloads"]] == [("prefill", 1.0), ("decode", 0.0)]
    assert balance["imbalance"] < balance["contiguous"]
    kept = client.post(f"{API}/predictions", json=body | {"keep_expert_order": True}).json()["result"]
    assert kept["time"]["step_time_s"] == pytest.approx(balance["contiguous_step_time_s"])
    dump = json.dumps({"logical_count": ROWS}).encode()
    stored = client.post(f"{API}/routing", files=sent({"prefill.json": dump}), data={"name": "ours"})
    assert stored.status_code == 201, stored.text
    by_name = client.post(f"{API}/predictions", json=_body(configuration=DEGREES, routing="ours")).json()
    assert by_name["result"]["expert_balance"]["layers"] == balance["layers"]


WRONG: Final[dict[str, tuple[dict[str, Any], str, str]]] = {
    "weights alone": ({"routing_weights": {"prefill": 1.0}}, "routing_weights", "give routing as well"),
    "unknown workload": (
        {"routing": {"logical_count": ROWS}, "routing_weights": {"prefill": 1.0}},
        "routing_weights.prefill",
        "known are inline",
    ),
    "unknown name": ({"routing": "nobody"}, "routing", "GET /api/v1/routing"),
    "other experts": ({"routing": {"logical_count": [[1, 2]] * 4}}, "routing.inline.loads", "counts of this model"),
    "too many layers": ({"routing": {"logical_count": ROWS * 2}}, "routing.inline.layers", "number decoder layers"),
}


@pytest.mark.parametrize("what", WRONG)
def test_counts_that_do_not_fit_are_refused_at_their_field(client: TestClient, what: str) -> None:
    """With what is wrong and what helps."""
    given, field, remedy = WRONG[what]
    answer = client.post(f"{API}/predictions", json=_body(configuration=DEGREES, **given))
    assert answer.status_code == 422, answer.text
    (error,) = answer.json()["errors"]
    assert error["field"] == field
    assert remedy in json.dumps(error)


def test_a_stored_plan_was_searched_with_its_counts(tmp_path: Path) -> None:
    """They reach the solver's own process, and its answer passes the check there."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", real_solver=True) as client:
        body = _body(routing={"logical_count": ROWS}, options={"time_limit_s": 10.0})
        body["workload"] |= {"pinned": {"expert": 2, "pipeline": 1, "tensor": 1}}
        answer = client.post(f"{API}/plans", json=body)
        assert answer.status_code == 202, answer.text
        done = ended(client, answer.headers["Location"])
        assert done["status"] == "succeeded", done
        assert done["result"]["expert_balance"]["workloads"][0]["name"] == "inline"
        page = client.get(f"/plans/{done['id']}")
        assert "Slowest expert rank" in page.text
        assert "Expert balance by layer" in page.text


def test_the_command_line_takes_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files of any engine, and weights of what they hold."""
    texts = {
        "cluster.yaml": CLUSTER,
        "workload.yaml": WORKLOAD,
        "model.json": json.dumps(ModelDocument.from_architecture(SPARSE).model_dump(mode="json")),
        "configuration.json": json.dumps(DEGREES),
        "counts.json": json.dumps({"logical_count": ROWS}),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    named = ["cluster.yaml", "model.json", "workload.yaml", "configuration.json"]
    given = [word for name in named for word in (f"--{name.partition('.')[0]}", str(tmp_path / name))]
    routed = ["predict", *given, "--routing", str(tmp_path / "counts.json")]
    assert main([*routed, "--json"]) == 0
    plan = plan_from_text(capsys.readouterr().out)
    assert plan.expert_balance is not None
    assert plan.expert_balance.imbalance == pytest.approx(1.0375)
    assert main([*routed, "--keep-expert-order", "--json"]) == 0
    kept = plan_from_text(capsys.readouterr().out)
    assert kept.time.step_s == pytest.approx(plan.expert_balance.contiguous_step_s)
    assert main([*routed, "--routing-weight", "counts"]) == 2
    assert "write it like prefill=2" in capsys.readouterr().err
    assert main(["predict", *given, "--routing-weight", "counts=1"]) == 2
    assert "give --routing as well" in capsys.readouterr().err
    (tmp_path / "counts.json").write_text(json.dumps({"logical_count": [[9, 0, 0, 0]] * 4}))
    assert main(routed) == 2
    assert "expert 0 of layer 0 got 100.0% of the selections" in capsys.readouterr().err
