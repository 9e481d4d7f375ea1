"""Clusters, nodes, measurements and models over HTTP, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from app.documents.workload import WorkloadDocument
from app.serialization import jsonable
from app.settings import Role
from cluster_models.training.frameworks import frameworks
from tests.app.api_client import API, cluster_body, running

CLUSTERS = f"{API}/clusters"
CLUSTER = f"{CLUSTERS}/two-and-a-spare"
SAMPLE = {
    "source": "b",
    "destination": "c",
    "tool": "nccl-tests",
    "collective": "sendrecv",
    "message_bytes": 1e8,
    "bandwidth_gbytes_per_s": 33.0,
}


@pytest.fixture
def client(tmp_path: Path, database_url: str) -> Iterator[TestClient]:
    """A client of an application that only answers."""
    with running(tmp_path, database_url, role=Role.WEB) as client:
        yield client


@pytest.fixture
def stored(client: TestClient) -> TestClient:
    """The same, with the small cluster stored."""
    assert client.post(CLUSTERS, json=cluster_body()).status_code == 201
    return client


def test_a_cluster_comes_back_as_it_was_given(client: TestClient) -> None:
    """Nodes and figures are the same; measurements have their own address; name and id both find it."""
    answer = client.post(CLUSTERS, json=cluster_body())
    assert answer.headers["Location"] == CLUSTER
    assert answer.headers["ETag"] == '"1"'
    body = answer.json()
    assert body["cluster"] == cluster_body(samples=[])
    assert (body["node_count"], body["gpu_count"], body["measurement_count"]) == (3, 12, 2)
    for reference in (body["name"], body["id"]):
        assert client.get(f"{CLUSTERS}/{reference}").json() == body
    samples = client.get(f"{CLUSTER}/measurements").json()["items"]
    assert samples == cluster_body()["samples"]


def test_the_topology_joins_every_gpu_to_its_node_and_to_the_fabric(stored: TestClient) -> None:
    """A vertex for each GPU, node and domain; each GPU reaches the fabric through its node's cards."""
    graph = stored.get(f"{CLUSTER}/topology").json()
    kinds = [vertex["kind"] for vertex in graph["vertices"]]
    assert (kinds.count("node"), kinds.count("gpu"), kinds.count("fabric")) == (3, 12, 1)
    joined = {frozenset((edge["source"], edge["target"])) for edge in graph["edges"]}
    assert all(frozenset((f"a/gpu{index}", "a")) in joined for index in range(4))
    rates = [edge["nominal_bandwidth_gbytes_per_s"] for edge in graph["edges"] if edge["source"] == "a/gpu0"]
    assert all(rate > 0 for rate in rates)


def test_a_name_is_taken_once(stored: TestClient) -> None:
    """A second cluster of the name is refused, and the first stays."""
    answer = stored.post(CLUSTERS, json=cluster_body(source="another"))
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/conflict")
    assert stored.get(CLUSTER).json()["cluster"]["source"] == "built for tests"


def test_a_change_needs_the_version_it_was_made_from(stored: TestClient) -> None:
    """With If-Match, the second of two writers learns that it was too late; without, the last one wins."""
    tag = {"If-Match": stored.get(CLUSTER).headers["ETag"]}
    assert stored.put(CLUSTER, json=cluster_body(source="first"), headers=tag).headers["ETag"] == '"2"'
    late = stored.put(CLUSTER, json=cluster_body(source="second"), headers=tag)
    assert (late.status_code, late.json()["type"]) == (412, "/problems/version-mismatch")
    assert stored.patch(f"{CLUSTER}/nodes/a", json={"state": "failed"}, headers=tag).status_code == 412
    assert stored.post(f"{CLUSTER}/measurements", json={"samples": [SAMPLE]}, headers=tag).status_code == 412
    assert stored.delete(CLUSTER, headers=tag).status_code == 412
    assert stored.get(CLUSTER).json()["cluster"]["source"] == "first"
    assert stored.put(CLUSTER, json=cluster_body(source="third")).json()["version"] == 3
    assert stored.put(CLUSTER, json=cluster_body(), headers={"If-Match": "3"}).status_code == 422


def test_a_put_keeps_measurements_and_adds_new_ones(stored: TestClient) -> None:
    """Storing what was read changes nothing measured; a new sample is added once."""
    stored.put(CLUSTER, json=cluster_body())
    stored.put(CLUSTER, json=cluster_body(samples=[]))
    assert stored.get(CLUSTER).json()["measurement_count"] == 2
    stored.put(CLUSTER, json=cluster_body(samples=[SAMPLE]))
    assert stored.get(CLUSTER).json()["measurement_count"] == 3


def test_a_put_does_not_rename(stored: TestClient) -> None:
    """A document of another name under this address is a mistake."""
    answer = stored.put(CLUSTER, json=cluster_body(name="other"))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "name"


def test_a_node_changes_in_place(stored: TestClient) -> None:
    """State, slowdown, labels and GPUs in use change, the version counts up, and nothing else moves."""
    before = stored.get(f"{CLUSTER}/nodes").json()
    patch = {"state": "degraded", "compute_slowdown": 1.25, "labels": {"rack": "r1"}, "gpus_in_use": [1, 2]}
    answer = stored.patch(f"{CLUSTER}/nodes/b", json=patch)
    assert answer.json() == before[1] | patch
    assert answer.headers["ETag"] == '"2"'
    assert stored.get(f"{CLUSTER}/nodes/b").json() == answer.json()
    assert stored.get(f"{CLUSTER}/nodes").json() == [before[0], answer.json(), before[2]]
    assert stored.patch(f"{CLUSTER}/nodes/b", json=patch).headers["ETag"] == '"2"'
    assert stored.patch(f"{CLUSTER}/nodes/z", json=patch).status_code == 404
    for wrong in ({"compute_slowdown": 0.5}, {"gpus_in_use": [64]}, {"gpus_in_use": [1, 1]}):
        assert stored.patch(f"{CLUSTER}/nodes/b", json=wrong).status_code == 422


@pytest.mark.parametrize(
    "patch",
    [
        {"labels": {"leaf": "z" * 5000}},
        {"labels": {"leaf": "a\nb"}},
        {"labels": {str(index): "" for index in range(200)}},
        {"compute_slowdown": 1e300},
    ],
)
def test_a_patch_cannot_store_what_no_document_may_hold(stored: TestClient, patch: dict[str, Any]) -> None:
    """The cluster stays readable."""
    assert stored.patch(f"{CLUSTER}/nodes/b", json=patch).status_code == 422
    assert stored.get(CLUSTER).headers["ETag"] == '"1"'


def test_a_node_is_found_whatever_its_name(client: TestClient) -> None:
    """Slashes are no reason to lose a node."""
    body = cluster_body()
    names = ["rack 1/node/2", "n?#", "a%b"]
    nodes = [body["nodes"][0] | {"name": name, "nvlink_domain": name} for name in names]
    client.post(f"{API}/clusters", json=body | {"name": "odd", "nodes": nodes, "samples": []})
    for name in names:
        assert client.get(f"{API}/clusters/odd/nodes/{quote(name, safe='')}").json()["name"] == name


def test_measurements_come_one_by_one_or_as_tables(stored: TestClient) -> None:
    """Both spellings are added, and a repeated request adds nothing."""
    table = {
        "tool": "nccl-tests",
        "collective": "alltoall",
        "message_bytes": [1e6, 1e8],
        "pairs": [["a", "b", 5.0, 20.0], ["a", "c", None, 21.0], ["b", "c", "failed"]],
    }
    body = {"samples": [SAMPLE], "measurement_tables": [table]}
    answer = stored.post(f"{CLUSTER}/measurements", json=body)
    assert answer.status_code == 201, answer.text
    first = answer.json()
    assert first["added"] >= 5
    assert first["version"] == 2
    again = stored.post(f"{CLUSTER}/measurements", json=body).json()
    assert again == {"added": 0, "already_known": first["added"], "version": 2}
    assert stored.get(CLUSTER).json()["version"] == 2
    failed = stored.get(f"{CLUSTER}/measurements?status=failed&since_version=1").json()["items"]
    assert {(sample["source"], sample["destination"]) for sample in failed} == {("b", "c")}
    of_c = stored.get(f"{CLUSTER}/measurements?node=c&limit=200").json()["items"]
    assert all("c" in (sample["source"], sample["destination"]) for sample in of_c)


@pytest.mark.parametrize(
    "wrong",
    [
        {"destination": "nowhere"},
        {"bandwidth_gbytes_per_s": -1.0},
        {"bandwidth_gbytes_per_s": 0.0},
        {"bandwidth_gbytes_per_s": 1e9},
        {"bandwidth_gbytes_per_s": None},
        {"bandwidth_gbytes_per_s": "fast"},
        {"latency_us": -3.0},
        {"bandwith": 3.0},
    ],
)
def test_one_wrong_measurement_keeps_all_out(stored: TestClient, wrong: dict[str, Any]) -> None:
    """The problem names the sample by its place in the request."""
    answer = stored.post(f"{CLUSTER}/measurements", json={"samples": [SAMPLE, SAMPLE | wrong]})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].startswith("samples[1]")
    assert stored.get(CLUSTER).json()["measurement_count"] == 2
    assert stored.get(CLUSTER).json()["version"] == 1


def test_measurements_come_in_pages(stored: TestClient) -> None:
    """Following ``next`` yields every sample once, in the order they came."""
    samples = [SAMPLE | {"message_bytes": float(size)} for size in range(1, 8)]
    stored.post(f"{CLUSTER}/measurements", json={"samples": samples})
    seen: list[float] = []
    address: str | None = f"{CLUSTER}/measurements?limit=3&since_version=1"
    while address is not None:
        page = stored.get(address).json()
        seen += [sample["message_bytes"] for sample in page["items"]]
        address = page["next"]
    assert seen == [sample["message_bytes"] for sample in samples]
    assert stored.get(f"{CLUSTER}/measurements?cursor=nonsense").json()["errors"][0]["field"] == "cursor"


def test_a_deleted_cluster_is_gone_and_its_name_free(stored: TestClient) -> None:
    """Its snapshots stay readable."""
    snapshot = stored.post(f"{CLUSTER}/snapshots").json()["id"]
    assert stored.delete(CLUSTER).status_code == 204
    assert stored.get(CLUSTER).status_code == 404
    assert stored.get(f"{API}/snapshots/{snapshot}").status_code == 200
    assert stored.post(CLUSTERS, json=cluster_body()).json()["measurement_count"] == 2


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"nodes": []}, "nodes"),
        ({"nodes": cluster_body()["nodes"] * 2}, "nodes[3].name"),
        ({"nodes": [cluster_body()["nodes"][0] | {"gpu_kind": "H1000"}], "samples": []}, "nodes[0].gpu_kind"),
        ({"name": "a b"}, "name"),
        ({"knodes": []}, "knodes"),
    ],
)
def test_a_wrong_cluster_is_not_stored(client: TestClient, changes: dict[str, Any], field: str) -> None:
    """The problem names the field, and the list of clusters stays empty."""
    answer = client.post(CLUSTERS, json=cluster_body(**changes))
    assert answer.status_code == 422
    assert field in [error["field"] for error in answer.json()["errors"]]
    assert client.get(CLUSTERS).json()["items"] == []


def test_a_character_that_no_database_stores_does_no_harm(client: TestClient) -> None:
    """NUL in an address or a name is an error of the request, on PostgreSQL, too."""
    assert client.get(f"{CLUSTERS}/a%00b").status_code in {404, 422}
    nodes = [node | {"name": f"{node['name']}\0"} for node in cluster_body()["nodes"]]
    assert client.post(CLUSTERS, json=cluster_body(nodes=nodes, samples=[])).status_code in {201, 422}
    assert client.get(CLUSTERS).status_code == 200


def test_models_are_stored_listed_and_forgotten(client: TestClient) -> None:
    """A stored model is found by its name, beside the catalogue, whose names cannot be taken."""
    config = client.get(f"{API}/models/llama-3-70b").json()
    model = {"architecture": config["architecture"] | {"layers": 4}}
    answer = client.post(f"{API}/models", json={"name": "our-own", "model": model})
    assert answer.status_code == 201, answer.text
    assert answer.json()["parameters"] < config["parameters"]
    assert client.get(answer.headers["Location"]).json() == answer.json()
    assert [entry["name"] for entry in client.get(f"{API}/models").json()["items"]] == ["our-own"]
    for taken in ("our-own", "llama-3-70b"):
        assert client.post(f"{API}/models", json={"name": taken, "model": model}).status_code == 409
    assert client.delete(f"{API}/models/our-own").status_code == 204
    assert client.delete(f"{API}/models/our-own").status_code == 404
    assert client.get(f"{API}/models/our-own").status_code == 404


def test_the_catalogues_are_listed(client: TestClient) -> None:
    """Models and GPU kinds that can be used by name, each kind with its source."""
    assert "llama-3-70b" in [entry["name"] for entry in client.get(f"{API}/model-catalogue").json()]
    kinds = client.get(f"{API}/gpu-kinds").json()
    assert all(kind["source"] for kind in kinds)
    assert "H100-SXM5-80GB" in [kind["name"] for kind in kinds]


def test_every_listed_framework_can_be_planned_with(client: TestClient) -> None:
    """The list holds all generations with every fact, and a workload takes each name."""
    listed = client.get(f"{API}/frameworks").json()
    assert [each["name"] for each in listed] == list(frameworks())
    for each in listed:
        document = WorkloadDocument(sequence_length=1, global_batch_sequences=1, framework=each["name"])
        assert jsonable(document.to_value().framework) == each | {"like": ""}


@pytest.mark.parametrize("name", ["import", "new"])
def test_a_cluster_may_not_be_called_as_a_page(client: TestClient, name: str) -> None:
    """Its own page could not be reached."""
    answer = client.post(CLUSTERS, json={**cluster_body(), "name": name})
    assert answer.status_code == 422
    assert f"/clusters/{name}" in answer.text
    assert client.get(f"{CLUSTERS}/{name}").status_code == 404
