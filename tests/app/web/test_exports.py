"""Files of a plan's page, and a cluster's page of what to measure next."""

from __future__ import annotations

import html
import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pytest
from fastapi.testclient import TestClient

from app.documents.cluster import ClusterDocument
from app.exports.contract import Export, why_not
from app.exports.launch_value import launch_of
from app.exports.options import DEFAULTS, Options, options_of
from app.exports.registry import EXPORTS
from app.web.planning.exports import TAKEN, exports_of, given_options
from tests.app.api_client import API, cluster_body, ended, plan_body, running
from tests.app.exports.plans import PLANS
from tests.plans import small_cluster, small_plan

OTHERS: Final = {
    "job": "other-job",
    "image": "registry.example/other:7",
    "command": "other.py --flag",
    "checkpoint": "/other/checkpoints",
    "port": "12345",
    "namespace": "other-space",
    "queue": "other-queue",
    "topology_label": "example.com/rack",
    "gpu_resource": "example.com/gpu",
    "rdma_resource": "example.com/rdma",
    "rdma_count": "4",
    "host_network": "yes",
    "ipc_lock": "no",
    "shared_memory": "64Gi",
    "cpus_per_gpu": "12",
    "cpu_bind": "cores",
    "model_path": "/other/model",
    "draft_path": "/other/draft",
    "report": "0f4d2c8e",
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application whose solver answers with the small plan."""
    with running(tmp_path, f"sqlite:///{tmp_path / 'meshwright.sqlite'}") as client:
        client.headers.update({"Accept": "text/html"})
        yield client


@pytest.fixture
def plan_page(client: TestClient) -> str:
    """Address of the page of a finished plan on a stored cluster."""
    client.post(f"{API}/clusters", json=cluster_body())
    answer = client.post(f"{API}/plans", json=plan_body(cluster=cluster_body()["name"]))
    plan = ended(client, answer.headers["location"])
    assert plan["status"] == "succeeded", plan
    return f"/plans/{plan['id']}"


def _links(page: str, part: str) -> list[str]:
    return [html.unescape(link) for link in re.findall(r'href="([^"]*)"', page) if part in link]


@pytest.mark.parametrize("name", sorted(EXPORTS))
def test_the_page_names_the_options_that_a_format_takes(name: str) -> None:
    """Another value changes the files exactly where the page says so."""
    export = EXPORTS[name]
    assert set(OTHERS) == {field.name for field in fields(Options)}
    if not isinstance(export, Export):
        assert name not in TAKEN
        return
    launches = [launch_of(plan) for plan in PLANS.values() if why_not(export, plan) is None]
    assert launches
    usual = [export.render(launch, options_of({})) for launch in launches]
    all_others = [export.render(launch, options_of(OTHERS)) for launch in launches]
    taken = {option: text for option, text in OTHERS.items() if option in TAKEN.get(name, ())}
    ignored = {option: text for option, text in OTHERS.items() if option not in taken}
    assert [export.render(launch, options_of(ignored)) for launch in launches] == usual
    assert [export.render(launch, options_of(taken)) for launch in launches] == all_others
    for option, text in taken.items():
        rest = {other: value for other, value in OTHERS.items() if other != option}
        assert any(
            export.render(launch, options_of({option: text})) != usual[number]
            or export.render(launch, options_of(rest)) != all_others[number]
            for number, launch in enumerate(launches)
        ), option


def test_formats_stand_by_family_with_reasons_for_those_that_do_not_fit() -> None:
    found = exports_of("p", small_plan(), {}, {})
    assert [family.title for family in found.families] == [
        "Training",
        "Kubernetes",
        "Inference engines",
        "For people and programs",
    ]
    assert sum(len(family.fits) + len(family.unfit) for family in found.families) == len(EXPORTS)
    reasons = {unfit.words: unfit.reason for family in found.families for unfit in family.unfit}
    deepspeed = reasons[EXPORTS["deepspeed"].description]
    assert deepspeed.startswith("DeepSpeed cannot take it:")
    assert deepspeed.endswith(".")


def test_only_options_that_differ_travel_with_a_link() -> None:
    assert given_options({"job": DEFAULTS.job, "image": " x:2 ", "queue": "", "zoom": "2"}) == {"image": "x:2"}


def test_downloads_carry_the_names_of_a_site(client: TestClient, plan_page: str) -> None:
    """An option typed once stands in every file that has a use for it."""
    answer = client.get(plan_page, params={"image": "registry.example/train:7", "queue": "team-a"})
    assert answer.status_code == 200
    assert 'value="registry.example/train:7"' in answer.text
    link = next(link for link in _links(answer.text, "/exports/") if "/volcano" in link)
    manifest = client.get(link).text
    assert "registry.example/train:7" in manifest
    assert "team-a" in manifest
    assert [link for link in _links(answer.text, "/exports/megatron") if "set=" in link] == []


def test_an_option_that_cannot_be_is_said_at_its_field(client: TestClient, plan_page: str) -> None:
    """The page comes back with it, and links without it."""
    answer = client.get(plan_page, params={"job": "<script>alert(1)</script>"})
    assert answer.status_code == 422
    assert "is not a DNS label" in answer.text
    assert "<script>alert" not in answer.text
    assert [link for link in _links(answer.text, "/exports/") if "set=" in link] == []


def test_what_to_measure_next_is_a_page_with_scripts(client: TestClient) -> None:
    """Pairs with reasons and a time; scripts for three launchers; the way back in."""
    client.post(f"{API}/clusters", json=cluster_body())
    page = client.get("/clusters/two-and-a-spare/measure").text
    for words in ("3 pairs in 3 rounds", "a test of it failed", "all to all (alltoall), 4 GPUs of each node"):
        assert words in page
    assert 'href="/clusters/import?cluster=two-and-a-spare"' in page
    contents = {link.rpartition("/")[2]: client.get(link).content for link in _links(page, "/measure/")}
    assert set(contents) == {"slurm", "mpi", "kubernetes"}
    assert b"#SBATCH --nodelist=a,b,c" in contents["slurm"]
    assert b"mpirun" in contents["mpi"]
    with zipfile.ZipFile(io.BytesIO(contents["kubernetes"])) as packed:
        assert packed.namelist()[0] == "measure.sh"


def test_measuring_is_bounded_and_made_for_a_plan(client: TestClient, plan_page: str) -> None:
    """One pair of those that the plan uses; the link to the script asks for the same."""
    plan = plan_page.rpartition("/")[2]
    page = client.get("/clusters/two-and-a-spare/measure", params={"plan": plan, "pairs": "1"}).text
    assert "1 pair in 1 round" in page
    assert "traffic crosses it" in page
    assert "more pair" in page
    slurm = next(link for link in _links(page, "/measure/slurm"))
    assert f"plan={plan}" in slurm
    assert client.get(slurm).text.count("pair a b") + client.get(slurm).text.count("pair b a") == 1


@pytest.mark.parametrize("query", [{"pairs": "many"}, {"minutes": "0"}, {"image": "two words"}])
def test_limits_that_are_none_are_said_at_their_fields(client: TestClient, query: dict[str, Any]) -> None:
    client.post(f"{API}/clusters", json=cluster_body())
    answer = client.get("/clusters/two-and-a-spare/measure", params=query)
    assert answer.status_code == 422
    (name,) = query
    assert f'href="#{name}"' in answer.text
    assert client.get("/clusters/two-and-a-spare/measure/slurm", params=query).status_code == 422


def test_names_that_no_script_can_hold_refuse_the_script_only(client: TestClient) -> None:
    """The pairs are shown all the same."""
    document = ClusterDocument.from_cluster(small_cluster()).model_dump(mode="json")
    document["nodes"][0]["name"] = "a b;reboot"
    client.post(f"{API}/clusters", json=document)
    page = client.get("/clusters/two-and-a-spare/measure").text
    assert "cannot stand in a script" in page
    assert "a b;reboot" in page
    assert _links(page, "/measure/") == []


def test_other_names_of_nodes_stand_beside_them(client: TestClient) -> None:
    client.post(f"{API}/clusters", json=cluster_body())
    aliases = [{"alias": "a.example.net", "kind": "fqdn", "node": "a"}]
    answer = client.put(f"{API}/clusters/two-and-a-spare/aliases", json={"aliases": aliases})
    assert answer.status_code == 200, answer.text
    assert "a.example.net" in client.get("/clusters/two-and-a-spare").text


@pytest.mark.parametrize("address", ["/clusters/none/measure", "/clusters/none/measure/slurm"])
def test_clusters_that_are_not_there_get_a_page(client: TestClient, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 404
    assert '<a href="/">Start page</a>' in answer.text
