"""Placement rules and shared switches between their documents, their values and the answers of the service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from app.documents.cluster import ClusterDocument
from app.documents.placement_rules import PlacementRulesDocument
from app.documents.plan import PlanDocument
from app.documents.reading import problems_of, read_document
from app.documents.switches import SwitchDocument
from app.documents.workload import WorkloadDocument
from app.presentation.switches import shared_uplinks
from app.serialization import jsonable, load, snapshot_id
from app.settings import Role
from app.web.planning.form import at_fields, blank, filled, workload_data
from app.web.planning.placement_form import placement_data, placement_filled
from cluster_models.cluster.switches import Figure, Switch
from cluster_models.cluster.topology import Cluster
from cluster_models.errors import InvalidCluster, InvalidInput
from cluster_models.training.placement_rules import KeepTogether, PlacementRules, RankGroup, Spares, Spread
from cluster_models.training.workload import TrainingWorkload
from cluster_models.units import GBYTE
from tests.app.api_client import API, cluster_body, plan_body, running
from tests.app.cluster_documents import document
from tests.plans import small_plan

LABELS = st.sampled_from(["leaf", "rack", "zone", "node", "power feed"])
GROUPS = st.sampled_from(RankGroup)
COUNTS = st.integers(1, 9)
RULES = st.builds(
    PlacementRules,
    spread=st.lists(st.builds(Spread, GROUPS, LABELS, st.none() | COUNTS), max_size=3, unique=True).map(tuple),
    keep_together=st.lists(st.builds(KeepTogether, GROUPS, LABELS, COUNTS), max_size=3, unique=True).map(tuple),
    spares=st.lists(st.builds(Spares, COUNTS, st.none() | LABELS), max_size=2, unique=True).map(tuple),
    require_nodes=st.lists(st.sampled_from(["n1", "n2", "n3"]), max_size=2, unique=True).map(tuple),
)


@given(RULES)
def test_rules_survive_the_document_the_database_and_the_form(rules: PlacementRules) -> None:
    """Each way out and back gives rules that ask the same."""
    workload = TrainingWorkload(sequence_length=8, global_batch=8, placement=rules)
    written = WorkloadDocument.from_value(workload).model_dump(mode="json")
    assert read_document(WorkloadDocument, written, what="workload").to_value() == workload
    assert load(TrainingWorkload, jsonable(workload)) == workload
    typed = placement_data(placement_filled(written["placement"]))
    again = read_document(PlacementRulesDocument, typed, what="placement").to_value()
    assert {name: set(getattr(again, name)) for name in again.__slots__} == {
        name: set(getattr(rules, name)) for name in rules.__slots__
    }


@pytest.mark.parametrize(
    ("placement", "path", "words"),
    [
        ({"spread": [{"group": "replica", "over": "leaf"}]}, "placement.spread[0].group", "data, pipeline"),
        ({"spread": [{"group": "data"}]}, "placement.spread[0].over", "is missing"),
        (
            {"spread": [{"group": "data", "over": "leaf", "at_least": 0}]},
            "placement.spread[0].at_least",
            "at least 1",
        ),
        ({"keep_together": [{"group": "job", "within": ""}]}, "placement.keep_together[0].within", "empty"),
        ({"spares": [{"count": 1.5}]}, "placement.spares[0].count", "whole number"),
        ({"spares": {"count": 1}}, "placement.spares", "must be a list"),
        ({"spead": []}, "placement.spead", "did you mean 'spread'"),
        ({"require_nodes": "n1"}, "placement.require_nodes", "must be a list"),
    ],
)
def test_wrong_rules_are_named(placement: object, path: str, words: str) -> None:
    """Field, value and remedy, as for every other part of a workload."""
    value = {"sequence_length": 8, "global_batch_sequences": 8, "placement": placement}
    with pytest.raises(InvalidInput) as caught:
        read_document(WorkloadDocument, value, what="workload")
    (problem,) = problems_of(caught.value)
    assert problem.field == path
    assert words in str(problem)


def test_a_node_cannot_be_required_and_avoided() -> None:
    """The contradiction is told before any cluster is looked at."""
    value = {"sequence_length": 8, "global_batch_sequences": 8, "avoid_nodes": ["n1"]}
    found = read_document(WorkloadDocument, value | {"placement": {"require_nodes": ["n1"]}}, what="workload")
    with pytest.raises(InvalidInput, match="avoided at once"):
        found.to_value()


SWITCHES = (Switch("leaf", "a", 100 * GBYTE, None, Figure.MEASURED), Switch("leaf", None, None, 4.0))


def read(**changes: Any) -> Cluster:
    """The three nodes, each with a leaf."""
    nodes = [dict(node, labels={"leaf": leaf}) for node, leaf in zip(document()["nodes"], "abb", strict=True)]
    return read_document(ClusterDocument, document(nodes=nodes, **changes), what="cluster").to_cluster()


def test_switches_survive_the_document_and_the_database() -> None:
    """Named before unnamed, the rate and the ratio both as they were given."""
    cluster = read(switches=[SwitchDocument.from_value(switch).model_dump() for switch in SWITCHES])
    assert cluster.switches == SWITCHES
    assert ClusterDocument.from_cluster(cluster).to_cluster() == cluster
    assert load(Cluster, jsonable(cluster)) == cluster


def test_the_uplink_follows_from_the_ratio_and_the_cards() -> None:
    """Two nodes with eight cards of 25 GB/s each at 4:1 share 100 GB/s."""
    uplinks = read(switches=[{"label": "leaf", "oversubscription": 4}]).uplinks()["leaf"]
    assert uplinks["b"].bytes_per_s == pytest.approx(2 * 8 * 25 * GBYTE / 4)


def test_switches_are_part_of_a_snapshot_and_of_the_graph() -> None:
    """Other uplinks, another snapshot; the graph has them on the way up."""
    plain, shared = read(), read(switches=[{"label": "leaf", "name": "a", "uplink_gbytes_per_s": 7}])
    assert snapshot_id(plain, ()) != snapshot_id(shared, ())
    assert shared.graph().edges["leaf:a", "fabric"]["bytes_per_s"] == 7 * GBYTE
    assert "bytes_per_s" not in shared.graph().edges["leaf:b", "fabric"]
    assert shared_uplinks(shared) == "leaf a: 7.000 GB/s (nominal)"
    assert not shared_uplinks(plain)


@pytest.mark.parametrize(
    ("switches", "words"),
    [
        ([{"label": "leaf"}], "switches[0]: needs either its uplink or its oversubscription"),
        ([{"label": "leaf", "uplink_gbytes_per_s": 1, "oversubscription": 1}], "not both"),
        ([{"label": "leaf", "uplink_gbytes_per_s": 1e-30}], "at least 1e-06"),
        ([{"label": "rack", "oversubscription": 2}], "no node has that label"),
        ([{"label": "leaf", "name": "z", "oversubscription": 2}], "known are a, b"),
        ([{"label": "leaf", "oversubscription": 2}] * 2, "listed twice"),
        ([{"label": "leaf", "oversubscription": 0}], "greater than 0"),
    ],
)
def test_wrong_switches_are_named(switches: object, words: str) -> None:
    """A figure too few or too many, a switch over no node, one listed twice."""
    with pytest.raises(InvalidInput) as caught:
        read(switches=switches)
    assert words in str(caught.value)


def test_a_switch_needs_a_positive_figure() -> None:
    """Infinity is not a rate."""
    with pytest.raises(InvalidCluster, match="positive, finite"):
        Switch("leaf", None, float("inf"))


def test_spares_survive_the_document_of_a_plan() -> None:
    """Apart from the unused nodes."""
    plan = replace(small_plan(), spare_nodes=("s1", "s2"))
    assert PlanDocument.from_plan(plan).to_value().spare_nodes == ("s1", "s2")


def test_problems_with_rules_stand_at_their_fields_of_the_form() -> None:
    """Rules of the fields come first, so that index 0 is theirs; all others are in the box."""
    values = blank(time_limit_s=60) | {"spread_at_least": "2", "spares": "many", "spares_per": "leaf"}
    with pytest.raises(InvalidInput) as caught:
        read_document(WorkloadDocument, workload_data(values), what="workload")
    anchors = {problem.anchor for problem in at_fields(problems_of(caught.value))}
    assert {"spread_over", "spares"} <= anchors
    with pytest.raises(InvalidInput) as caught:
        workload_data(blank(time_limit_s=60) | {"placement_text": "- a list"})
    assert [problem.anchor for problem in at_fields(problems_of(caught.value))] == ["placement_text"]


def test_a_filled_form_shows_the_usual_rules_in_fields_and_others_in_the_box() -> None:
    """Rules come back where they were typed."""
    placement = {
        "spread": [{"group": "data", "over": "leaf", "at_least": 2}, {"group": "stage", "over": "rack"}],
        "spares": [{"count": 2, "per": "zone"}],
    }
    values = filled(blank(time_limit_s=60), {"placement": placement})
    assert (values["spread_over"], values["spread_at_least"]) == ("leaf", "2")
    assert (values["spares"], values["spares_per"]) == ("2", "zone")
    assert "rack" in values["placement_text"]
    assert workload_data(values)["placement"]["spread"] == placement["spread"]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application on SQLite."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        yield client


def test_the_service_refuses_rules_that_the_cluster_contradicts(client: TestClient) -> None:
    """422 with the field, before anything is queued."""
    for placement, field in (
        ({"spread": [{"group": "data", "over": "row"}]}, "workload.placement.spread[0].over"),
        ({"require_nodes": ["nobody"]}, "workload.placement.require_nodes[0]"),
        ({"spares": [{"count": 2000}]}, "workload.placement.spares"),
    ):
        body = plan_body()
        body["workload"] = body["workload"] | {"placement": placement}
        answer = client.post(f"{API}/plans", json=body)
        assert answer.status_code == 422, answer.text
        assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_the_service_keeps_switches_with_the_cluster(client: TestClient) -> None:
    """Stored, answered, drawn; a cluster with a switch over no node is refused."""
    body = cluster_body()
    body["nodes"] = [node | {"labels": {"leaf": "a"}} for node in body["nodes"]]
    body["switches"] = [{"label": "leaf", "oversubscription": 2.0}]
    assert client.post(f"{API}/clusters", json=body).status_code == 201
    stored = client.get(f"{API}/clusters/{body['name']}").json()["cluster"]
    assert stored["switches"][0]["oversubscription"] == 2.0
    edges = client.get(f"{API}/clusters/{body['name']}/topology").json()["edges"]
    (way_up,) = [edge for edge in edges if {edge["source"], edge["target"]} == {"leaf:a", "fabric"}]
    assert way_up["nominal_bandwidth_gbytes_per_s"] > 0
    assert "shared uplinks" in client.get(f"/clusters/{body['name']}").text
    refused = client.post(
        f"{API}/clusters", json=body | {"name": "b", "switches": [{"label": "x", "oversubscription": 2}]}
    )
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "switches[0].label"
