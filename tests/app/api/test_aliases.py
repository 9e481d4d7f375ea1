"""Other names of nodes over HTTP and in the database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.db.engine import SessionFactory, transaction
from app.documents.cluster import ClusterDocument
from app.services.clusters import aliases, clusters
from app.services.clusters.aliases import StoredAlias
from app.settings import Role
from tests.app.api_client import API, cluster_body, running
from tests.plans import small_cluster

ADDRESS = f"{API}/clusters/two-and-a-spare/aliases"
A_HOST = {"alias": "a.cluster.example", "kind": "fqdn", "node": "a"}


@pytest.fixture
def client(tmp_path: Path, database_url: str) -> Iterator[TestClient]:
    """A client of an application that has the small cluster, on either database."""
    with running(tmp_path, database_url, role=Role.WEB) as client:
        assert client.post(f"{API}/clusters", json=cluster_body()).status_code == 201
        yield client


@pytest.fixture
def cluster_id(sessions: SessionFactory) -> str:
    """The id of the small cluster, nodes a, b and c."""
    with transaction(sessions) as session:
        return clusters.create_cluster(session, document=ClusterDocument.from_cluster(small_cluster())).id


def test_aliases_stored_are_those_read(client: TestClient) -> None:
    """They come by node and name; PUT replaces all; the cluster and its snapshots are what they were."""
    assert client.get(ADDRESS).json() == {"aliases": []}
    snapshot = client.post(f"{API}/clusters/two-and-a-spare/snapshots").json()["id"]
    other = {"alias": "10.0.0.2", "kind": "ip", "node": "b"}
    assert client.put(ADDRESS, json={"aliases": [other, A_HOST]}).json() == {"aliases": [A_HOST, other]}
    assert client.get(ADDRESS).json() == {"aliases": [A_HOST, other]}
    assert client.put(ADDRESS, json={"aliases": [{"alias": "x", "node": "c"}]}).status_code == 200
    assert client.get(ADDRESS).json() == {"aliases": [{"alias": "x", "kind": "host", "node": "c"}]}
    assert client.get(f"{API}/clusters/two-and-a-spare").headers["ETag"] == '"1"'
    assert client.post(f"{API}/clusters/two-and-a-spare/snapshots").json()["id"] == snapshot


@pytest.mark.parametrize(
    ("sent", "field", "problem"),
    [
        ([{"alias": "x", "node": "d"}], "aliases[0].node", "does not have"),
        ([A_HOST, {"alias": "A.cluster.example", "node": "b"}], "aliases[1].alias", "given twice"),
        ([{"alias": "B", "node": "a"}], "aliases[0].alias", "name of the node b"),
        ([{"alias": "localhost", "node": "a"}], "aliases[0].alias", "one host"),
        ([{"alias": "", "node": "a"}], "aliases[0].alias", "must not be empty"),
        ([{"alias": "x" * 201, "node": "a"}], "aliases[0].alias", "longer than 200"),
        ([{"alias": "x\x1b", "node": "a"}], "aliases[0].alias", "control character"),
        ([{"alias": "x\u202ey", "node": "a"}], "aliases[0].alias", "one host"),
        ([{"alias": "x", "node": "a", "kind": "nickname"}], "aliases[0].kind", "must be one of"),
        ([{"alias": "x"}], "aliases[0].node", "is missing"),
        ({}, "aliases", "must be a list"),
    ],
)
def test_wrong_aliases_are_named_and_none_is_stored(
    client: TestClient, sent: Any, field: str, problem: str
) -> None:
    client.put(ADDRESS, json={"aliases": [A_HOST]})
    answer = client.put(ADDRESS, json={"aliases": sent})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field
    assert problem in answer.json()["errors"][0]["problem"]
    assert client.get(ADDRESS).json() == {"aliases": [A_HOST]}


def test_aliases_of_no_cluster_are_not_found(client: TestClient) -> None:
    """404 to read and to write, 412 for another version."""
    other = f"{API}/clusters/none/aliases"
    assert client.get(other).status_code == 404
    assert client.put(other, json={"aliases": []}).status_code == 404
    assert client.put(ADDRESS, json={"aliases": []}, headers={"If-Match": '"5"'}).status_code == 412


def test_aliases_go_with_their_node_and_their_cluster(client: TestClient) -> None:
    """A node that is gone has no names; a deleted cluster leaves none behind for its successor."""
    client.put(ADDRESS, json={"aliases": [{"alias": "x", "node": "c"}, A_HOST]})
    body = cluster_body(samples=[])
    client.put(f"{API}/clusters/two-and-a-spare", json={**body, "nodes": body["nodes"][:2]})
    assert client.get(ADDRESS).json() == {"aliases": [A_HOST]}
    client.delete(f"{API}/clusters/two-and-a-spare")
    assert client.post(f"{API}/clusters", json=body).status_code == 201
    assert client.get(ADDRESS).json() == {"aliases": []}


def test_aliases_stored_resolve_names_in_files(sessions: SessionFactory, cluster_id: str) -> None:
    """Whatever the case; the first label of an FQDN too, unless two nodes share it."""
    wanted = [
        StoredAlias("gpu1.hall.example", "fqdn", "a"),
        StoredAlias("gpu2.hall.example", "fqdn", "b"),
        StoredAlias("gpu2.other.example", "fqdn", "c"),
        StoredAlias("0x00000000A1B2C3D4", "port_guid", "c"),
    ]
    with transaction(sessions) as session:
        aliases.replace_aliases(session, reference=cluster_id, aliases=wanted)
    with sessions() as session:
        table = aliases.read_aliases(session, cluster_id=cluster_id)
    assert [table.node(name) for name in ("GPU1.hall.example", "gpu1", "gpu2", "gpu2.other.example")] == [
        "a",
        "a",
        None,
        "c",
    ]
    assert table.node("a1b2c3d4") == "c"


def test_what_is_learned_contradicts_nothing(sessions: SessionFactory, cluster_id: str) -> None:
    """Names that are stored, that are a node's own, that two nodes claim or that no host has are left out."""
    learned = [
        StoredAlias("old", "host", "b"),
        StoredAlias("B", "host", "a"),
        StoredAlias("both", "host", "a"),
        StoredAlias("Both", "host", "b"),
        StoredAlias("localhost", "host", "a"),
        StoredAlias("x" * 300, "host", "a"),
        StoredAlias("gone", "host", "d"),
        StoredAlias("new", "host", "a"),
    ]
    with transaction(sessions) as session:
        aliases.replace_aliases(session, reference=cluster_id, aliases=[StoredAlias("old", "host", "a")])
        for added in (1, 0):
            found = aliases.learn(session, cluster_id=cluster_id, aliases=learned, cluster=small_cluster())
            assert found == added
    with sessions() as session:
        stored = aliases.list_aliases(session, reference=cluster_id)
    assert stored == (StoredAlias("new", "host", "a"), StoredAlias("old", "host", "a"))
