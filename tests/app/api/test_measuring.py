"""Measurements to make next, over HTTP, and exports with the options of a launch."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.settings import Role
from tests.app.api_client import API, cluster_body, ended, plan_body, running

ADDRESS = f"{API}/clusters/two-and-a-spare/measuring-plan"


@pytest.fixture
def client(tmp_path: Path, database_url: str) -> Iterator[TestClient]:
    """A client of an application that has the small cluster, on either database."""
    with running(tmp_path, database_url, role=Role.WEB) as client:
        assert client.post(f"{API}/clusters", json=cluster_body()).status_code == 201
        yield client


@pytest.fixture
def small(tmp_path: Path) -> Iterator[TestClient]:
    """The same on SQLite."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite") as client:
        assert client.post(f"{API}/clusters", json=cluster_body()).status_code == 201
        yield client


def test_pairs_that_are_unsure_come_with_a_reason_and_a_script(client: TestClient) -> None:
    """Rounds share no node; the script runs every pair; the cluster is what it was."""
    found = client.post(ADDRESS, json={"for": "slurm"}).json()
    pairs = [tuple(pair["nodes"]) for pair in found["pairs"]]
    assert ("b", "c") in pairs
    assert all(pair["why"] and pair["trials"][0]["sizes_bytes"] for pair in found["pairs"])
    for number in range(1, found["rounds"] + 1):
        nodes = [node for pair in found["pairs"] if pair["round"] == number for node in pair["nodes"]]
        assert len(nodes) == len(set(nodes))
    assert found["expected_s"] > 0
    (script,) = found["scripts"]
    assert script["executable"]
    for a, b in pairs:
        assert f"pair {a} {b} " in script["text"]
    assert client.get(f"{API}/clusters/two-and-a-spare").headers["ETag"] == '"1"'


@pytest.mark.parametrize(("launcher", "word"), [("mpi", "mpirun"), ("kubernetes", "kubectl"), ("none", None)])
def test_scripts_are_written_for_the_launcher(small: TestClient, launcher: str, word: str | None) -> None:
    found = small.post(ADDRESS, json={"for": launcher, "options": {"namespace": "bench"}}).json()
    assert found["pairs"]
    text = "".join(script["text"] for script in found["scripts"])
    assert (word in text) if word else not text
    assert ("bench" in text) == (launcher == "kubernetes")


def test_a_plan_says_which_pairs_matter(small: TestClient) -> None:
    """With a finished plan, the pairs it uses come first; an unknown plan is not found."""
    plan = ended(small, small.post(f"{API}/plans", json=plan_body()).headers["Location"])
    found = small.post(ADDRESS, json={"plan_id": plan["id"], "most_pairs": 1}).json()
    assert len(found["pairs"]) == 1
    assert found["left_out"] > 0
    assert small.post(ADDRESS, json={"plan_id": "none"}).status_code == 404
    assert small.post(f"{API}/clusters/none/measuring-plan", json={}).status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"most_pairs": 0}, "most_pairs"),
        ({"most_pairs": 10**9}, "most_pairs"),
        ({"most_seconds": 0.5}, "most_seconds"),
        ({"most_seconds": "1"}, "most_seconds"),
        ({"for": "torque"}, "for"),
        ({"launcher": "slurm"}, "launcher"),
        ({"for": "kubernetes", "options": {"colour": "red"}}, "options.colour"),
        ({"for": "kubernetes", "options": {"image": "a b"}}, "options.image"),
    ],
)
def test_wrong_limits_are_named(small: TestClient, body: dict[str, Any], field: str) -> None:
    answer = small.post(ADDRESS, json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field


def test_exports_take_the_options_of_a_launch(tmp_path: Path) -> None:
    """Options that are set stand in the files; a wrong one is refused by its name; others keep their defaults."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.ALL) as client:
        address = ended(client, client.post(f"{API}/plans", json=plan_body()).headers["Location"])["links"][
            "exports"
        ]
        given = [("set", "image=registry.example/train:7"), ("set", "namespace=team-a")]
        answer = client.get(f"{address}/jobset", params=given)
        assert answer.status_code == 200
        text = answer.text
        if answer.headers["content-type"] == "application/zip":
            with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
                text = "".join(archive.read(name).decode() for name in archive.namelist())
        assert "registry.example/train:7" in text
        assert "namespace: team-a" in text
        for wrong, field in (
            (["colour=red"], "options.colour"),
            (["image"], "query.set"),
            (["image=a b"], "options.image"),
            (["port=0"], "options.port"),
            (["port=x"], "options.port"),
            (["command='"], "options.command"),
            (["job=a", "job=b"], "options.job"),
        ):
            refused = client.get(f"{address}/jobset", params=[("set", entry) for entry in wrong])
            assert refused.status_code == 422
            assert refused.json()["errors"][0]["field"] == field
