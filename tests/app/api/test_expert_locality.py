"""Placements by transitions over HTTP: what they keep, what that costs, other workloads, and precise refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.settings import Role
from solver.experts.layout import ExpertLayout
from solver.experts.transitions import node_stay_share, stay_share
from tests.app.api_client import API, running
from tests.routing_counts import in_full, traced

ADDRESS = f"{API}/expert-placements"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """An application with transitions of two workloads, and one without any; placements store nothing."""
    folder = tmp_path_factory.mktemp("service")
    with running(folder, f"sqlite:///{folder}/a.sqlite", role=Role.WEB) as client:
        plain = in_full("plain", layers=4)
        body = {"name": "ours", "workloads": [traced("chat", 1), traced("code", 2), *plain]}
        assert client.post(f"{API}/routing", json=body).status_code == 201
        yield client


def asked(**changes: Any) -> dict[str, Any]:
    """A placement by transitions of one of the stored workloads."""
    return {
        "routing": "ours",
        "ranks": 4,
        "nodes": 2,
        "objective": "locality",
        "workloads": ["chat"],
    } | changes


def placed(client: TestClient, **changes: Any) -> dict[str, Any]:
    """The answer to it."""
    answer = client.post(ADDRESS, json=asked(**changes))
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_tokens_stay_where_they_are_and_every_figure_is_that_of_the_map(stored: TestClient) -> None:
    """Shares are recomputed from the map; they lie above both other maps, and no bound is exceeded."""
    made = placed(stored)
    rows, layout = np.array(made["placement"]["physical_to_logical_map"]), ExpertLayout(4, 2, 16)
    for judged, seed in zip(made["workloads"][:2], (1, 2), strict=True):
        tables = {
            at: np.array(each["counts"], dtype=float) for at, each in enumerate(traced("", seed)["transitions"])
        }
        own = judged["locality"]["this_map"]
        assert own["on_gpu"] == pytest.approx(stay_share(rows, tables, layout))
        assert own["in_node"] == pytest.approx(node_stay_share(rows, tables, layout))
        for other in ("in_order", "balance_alone"):
            assert own["on_gpu"] > judged["locality"][other]["on_gpu"]
    assert made["workloads"][2]["locality"] is None
    assert "plain has no transitions: how much of it would stay is not known" in made["warnings"]
    kept = made["locality"]
    assert 0.98 * kept["most_worth"] <= kept["worth"] <= kept["most_worth"] <= kept["bound"]
    assert kept["kept"] == pytest.approx(kept["worth"] / kept["most_worth"])
    assert any("without copies" in sentence for sentence in made["assumptions"])
    assert placed(stored) == made


def test_what_need_not_be_kept_is_spent_on_balance(stored: TestClient) -> None:
    """With half of the locality to spend ranks are balanced better, and as much is kept as was asked for."""
    strict, loose = placed(stored, least_locality=1.0), placed(stored, least_locality=0.5)
    assert loose["balancedness"] > strict["balancedness"]
    assert strict["locality"]["kept"] == pytest.approx(1.0)
    assert 0.5 <= loose["locality"]["kept"] < 1.0
    assert loose["locality"]["least_locality"] == 0.5


def test_a_set_is_placed_for_its_mean(stored: TestClient) -> None:
    """Weights count: nearly all of it on one workload keeps what a map for it alone keeps."""
    both = placed(stored, workloads=["chat", "code"])
    assert any("the mean of their transitions" in sentence for sentence in both["assumptions"])
    pulled = placed(stored, workloads={"chat": 1e-6, "code": 1.0}, least_locality=1.0)
    alone = placed(stored, workloads=["code"], least_locality=1.0)
    own = [each["workloads"][1]["locality"]["this_map"]["on_gpu"] for each in (pulled, alone)]
    assert own[0] == pytest.approx(own[1], rel=0.03)


def test_links_say_what_staying_in_the_node_is_worth(stored: TestClient) -> None:
    """Slow links between nodes keep more transitions inside nodes than a price that is the same everywhere."""
    alike = placed(stored, least_locality=1.0)
    assert alike["locality"]["inside_node_price"] == 1.0
    assert any("nothing was said of the links" in sentence for sentence in alike["assumptions"])
    told = {"between_nodes_gbit_per_s_per_gpu": 100.0, "inside_node_gbit_per_s_per_gpu": 1000.0}
    apart = placed(stored, least_locality=1.0, **told)
    assert apart["locality"]["inside_node_price"] == pytest.approx(0.1)
    share = [each["workloads"][0]["locality"]["this_map"]["in_node"] for each in (alike, apart)]
    assert share[1] >= share[0]
    assert apart["assumptions"][-1].startswith("no GPU kind given")


def test_balance_stays_the_objective_and_says_what_it_leaves(stored: TestClient) -> None:
    """Counted transitions change no map that was not asked to follow them; the answer shows what stays."""
    plain = placed(stored, objective="balance")
    assert plain["objective"] == "balance"
    assert plain["locality"] is None
    assert plain["workloads"][0]["locality"]["this_map"] == plain["workloads"][0]["locality"]["balance_alone"]
    assert any("objective locality places by them" in sentence for sentence in plain["next_steps"])
    copied = placed(stored, objective="balance", slots=24)
    assert copied["workloads"][0]["locality"] is None


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"workloads": ["chat", "plain"]}, "objective", "no transitions between layers were counted in plain"),
        ({"slots": 24}, "slots", "take 16 slots"),
        ({"redundant_experts": 8}, "redundant_experts", "take 16 slots"),
        ({"objective": "balance", "least_locality": 0.9}, "least_locality", "objective locality"),
        ({"least_locality": 1.1}, "least_locality", ""),
        ({"objective": "local"}, "objective", "locality"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    stored: TestClient, changes: dict[str, Any], field: str, words: str
) -> None:
    """422 with the field, and what to do instead."""
    answer = stored.post(ADDRESS, json=asked(**changes))
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field
    assert words in answer.text
