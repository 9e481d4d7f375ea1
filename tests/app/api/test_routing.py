"""Routing statistics over HTTP: read from files or JSON, stored packed, listed, replaced, forgotten."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.services.experts.packed_counts import packed, unpacked
from app.settings import Role
from cluster_models.routing.counts import RoutedWorkload
from tests.app.api_client import API, running
from tests.routing_counts import dump, in_full, sent, skewed

ADDRESS = f"{API}/routing"


@pytest.fixture
def client(tmp_path: Path, database_url: str) -> Iterator[TestClient]:
    """A client of an application whose solver is a stand-in."""
    with running(tmp_path, database_url, role=Role.WEB) as client:
        yield client


def test_files_of_an_engine_are_stored_listed_and_forgotten(client: TestClient) -> None:
    """Dense layers are left out, numbers of layers stay, counts come back as they were."""
    rows = {name: skewed(3, 16, seed) for seed, name in enumerate(("prefill", "decode"))}
    files = {f"{name}.json": dump(counts, dense=2) for name, counts in rows.items()}
    answer = client.post(ADDRESS, files=sent(files), data={"name": "ours"})
    assert answer.status_code == 201, answer.text
    assert answer.headers["Location"] == f"{ADDRESS}/ours"
    made = answer.json()
    assert [workload["name"] for workload in made["workloads"]] == ["prefill", "decode"]
    assert made["workloads"][0]["layers"] == [2, 3, 4]
    hottest = max(rows["prefill"][0]) * 16 / sum(rows["prefill"][0])
    assert made["workloads"][0]["hottest_expert_over_mean"][0] == pytest.approx(hottest, abs=1e-3)
    told = np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(rows["prefill"], rows["decode"], strict=True)])
    assert made["correlations"][0][1] == pytest.approx(told, abs=1e-3)
    assert [entry["name"] for entry in client.get(ADDRESS).json()["items"]] == ["ours"]
    plain = client.get(f"{ADDRESS}/ours").json()
    assert plain["counts"] is None
    counts = client.get(f"{ADDRESS}/ours", params={"counts": True}).json()["counts"]
    assert [each["logical_count"] for each in counts] == list(rows.values())
    assert client.delete(f"{ADDRESS}/ours").status_code == 204
    assert client.get(f"{ADDRESS}/ours").status_code == 404


def test_counts_in_json_come_back_with_their_pairs(client: TestClient) -> None:
    """The answer to ``?counts=true&pairs=true`` can be stored again and is the same."""
    body: dict[str, Any] = {"name": "ours", "workloads": in_full("a", experts=4)}
    table = [[0, 1, 2, 3.5], [1, 0, 0, 0], [2, 0, 0, 0], [3.5, 0, 0, 0]]
    body["workloads"][0] |= {
        "transitions": [{"layer": 1, "counts": table}],
        "coactivation": [{"layer": 2, "counts": table}],
        "tokens": 17.0,
    }
    assert client.post(ADDRESS, json=body).status_code == 201
    asked = {"counts": True, "pairs": True}
    counts = client.get(f"{ADDRESS}/ours", params=asked).json()["counts"]
    assert counts[0]["transitions"] == [{"layer": 1, "counts": table}]
    again = client.post(ADDRESS, json={"name": "again", "workloads": counts})
    assert again.status_code == 201, again.text
    assert client.get(f"{ADDRESS}/again", params=asked).json()["counts"] == counts
    bare = client.post(ADDRESS, json={"name": "bare", "workloads": counts, "pairs": False}).json()
    assert bare["workloads"][0]["transition_layers"] == 0


def test_replacing_heeds_the_version_and_may_add(client: TestClient) -> None:
    """An old ETag is refused with 412; ``add`` keeps workloads of other names."""
    client.post(ADDRESS, json={"name": "ours", "workloads": in_full("a", "b")})
    address = f"{ADDRESS}/ours"
    first = client.get(address).headers["ETag"]
    added = client.put(address, json={"workloads": in_full("c", "b"), "add": True}, headers={"If-Match": first})
    assert added.status_code == 200, added.text
    assert added.headers["ETag"] == '"2"'
    assert [workload["name"] for workload in added.json()["workloads"]] == ["a", "c", "b"]
    late = client.put(address, json={"workloads": in_full("x")}, headers={"If-Match": first})
    assert late.status_code == 412
    assert client.delete(address, headers={"If-Match": first}).status_code == 412
    replaced = client.put(address, files=sent({"x.json": dump(skewed(2, 8, 1))}))
    assert [workload["name"] for workload in replaced.json()["workloads"]] == ["x"]
    assert client.put(f"{ADDRESS}/other", json={"workloads": in_full("a")}).status_code == 404
    assert client.post(ADDRESS, json={"name": "ours", "workloads": in_full("a")}).status_code == 409


def test_what_is_wrong_is_refused_and_nothing_is_stored(client: TestClient) -> None:
    """Each problem names its field."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({"workloads": in_full("a")}, "name"),
        ({"name": "a b", "workloads": in_full("a")}, "name"),
        ({"name": "x"}, "files"),
        ({"name": "x", "logical_count": [[0, 0]]}, "logical_count"),
        ({"name": "x", "logical_count": [[1, 2], [3]]}, "logical_count"),
        ({"name": "x", "logical_count": [[1, -2]]}, "logical_count[0][1]"),
        ({"name": "x", "logical_count": []}, "logical_count"),
        ({"name": "x", "workloads": in_full("a", "a")}, "workloads"),
        ({"name": "x", "workloads": in_full("a") + in_full("b", experts=8)}, "workloads"),
        ({"name": "x", "workloads": [in_full("a")[0] | {"layers": [3, 2, 1]}]}, "workloads[0].layers"),
        ({"name": "x", "workloads": [in_full("a")[0] | {"layers": [1]}]}, "workloads[0].layers"),
        (
            {
                "name": "x",
                "workloads": [in_full("a")[0] | {"transitions": [{"layer": 2, "counts": [[1]]}]}],
            },
            "workloads[0].transitions[0].layer",
        ),
        ({"name": "x", "workloads": in_full("a"), "files": [{"name": "f", "text": "[[1, 2]]"}]}, "files"),
        ({"name": "x", "files": [{"name": "f.json", "text": '{"steps": 3}'}]}, "f.json"),
        ({"name": "x", "files": [{"name": "f", "text": "[[1, 2]]"}], "experts": 16}, "f"),
        ({"name": "x", "workloads": in_full("a"), "loads": 1}, "loads"),
    ]
    for body, field in cases:
        answer = client.post(ADDRESS, json=body)
        assert answer.status_code == 422, (body, answer.text)
        assert answer.json()["errors"][0]["field"].startswith(field), answer.text
    assert client.post(ADDRESS, content=b'{"name": "x", "logical_count": [[NaN, 1]]}').status_code in {415, 422}
    assert client.get(ADDRESS).json()["items"] == []


def test_one_bad_file_of_several_is_told_and_the_others_are_stored(client: TestClient) -> None:
    """A notice names it; an archive counts as its files."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a.json", dump(skewed(2, 8, 1)))
        archive.writestr("b.json", b'{"broken": ')
    answer = client.post(ADDRESS, files=sent({"all.zip": stream.getvalue()}), data={"name": "ours"})
    assert answer.status_code == 201, answer.text
    assert [workload["name"] for workload in answer.json()["workloads"]] == ["a"]
    assert any("b.json" in notice["file"] for notice in answer.json()["notices"])


def test_a_body_beyond_the_limit_is_refused(client: TestClient) -> None:
    """413, whether as a form or as JSON."""
    assert client.post(ADDRESS, files=sent({"x": b"9" * 3_000_000}), data={"name": "x"}).status_code == 413


def test_packed_counts_are_small_and_lossless() -> None:
    """Transitions of many layers take a small part of their JSON; shares keep every digit."""
    generator = np.random.default_rng(1)
    loads = generator.integers(1, 10**6, (8, 64)).astype(float)
    table = generator.poisson(3.0, (64, 64)).astype(float)
    whole = RoutedWorkload("whole", tuple(range(8)), loads, dict.fromkeys(range(7), table), {}, 12.0)
    shares = RoutedWorkload("shares", (4,), generator.dirichlet(np.ones(64), 1))
    data = packed([whole, shares])
    back = unpacked(data, pairs=True)
    assert len(data) < 8 * 64 * 4 + 7 * 64 * 64
    assert [(each.name, each.layers, each.tokens) for each in back] == [
        ("whole", tuple(range(8)), 12.0),
        ("shares", (4,), None),
    ]
    assert (back[0].loads == loads).all()
    assert (back[0].transitions[6] == table).all()
    assert (back[1].loads == shares.loads).all()
    assert not unpacked(data)[0].transitions
