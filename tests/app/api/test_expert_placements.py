"""Placements of experts over HTTP: planned, judged in and out of sample, exported, and refused precisely."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.exports.expert_maps import EXPERT_MAPS
from app.settings import Role
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice, layer_balancedness
from tests.app.api_client import API, cluster_body, running
from tests.routing_counts import in_full, skewed

ADDRESS = f"{API}/expert-placements"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of one application for all tests: placements store nothing."""
    folder = tmp_path_factory.mktemp("service")
    with running(folder, f"sqlite:///{folder}/a.sqlite", role=Role.WEB) as client:
        yield client


@pytest.fixture(scope="module")
def stored(client: TestClient) -> TestClient:
    """The same with statistics of two unlike workloads."""
    return store(client)


@pytest.fixture
def on_both(tmp_path: Path, database_url: str) -> Iterator[TestClient]:
    """The same statistics in a database of its own, for what depends on how they were stored."""
    with running(tmp_path, database_url, role=Role.WEB) as client:
        yield store(client)


def store(client: TestClient) -> TestClient:
    """Store statistics of two unlike workloads."""
    body = {"name": "ours", "workloads": in_full("prefill", "decode")}
    assert client.post(f"{API}/routing", json=body).status_code == 201
    return client


def asked(**changes: Any) -> dict[str, Any]:
    """A placement of the stored statistics."""
    return {"routing": "ours", "ranks": 4, "nodes": 2, "slots": 24} | changes


def test_the_worst_of_a_set_is_planned_for_and_every_figure_is_that_of_the_map(on_both: TestClient) -> None:
    """Balancedness is recomputed from the map; no bound is exceeded; the same request gives the same map."""
    answer = on_both.post(ADDRESS, json=asked())
    assert answer.status_code == 200, answer.text
    made = answer.json()
    rows = np.array(made["placement"]["physical_to_logical_map"])
    layout = ExpertLayout(4, 2, 24)
    for workload, seed in zip(made["workloads"], (1, 2), strict=True):
        own = layer_balancedness(rows, np.array(skewed(3, 16, seed), dtype=float), layout)
        assert workload["balancedness"] == pytest.approx(own.mean())
        assert workload["in_order"] < workload["balancedness"] <= workload["bound"] + 1e-12
        assert [layer["balancedness"] for layer in workload["layers"]] == pytest.approx(list(own))
    assert made["balancedness"] == min(each["balancedness"] for each in made["workloads"])
    assert made["bound"] >= made["balancedness"]
    assert made["warnings"] == []
    assert not made["nodes_weighed"]
    assert "nodes were not weighed" in made["assumptions"][0]
    assert on_both.post(ADDRESS, json=asked()).json() == made


def test_a_plan_for_one_phase_warns_of_the_other(stored: TestClient) -> None:
    """The workload that is stored and was not planned for is judged, and named where it is left behind."""
    alone = stored.post(ADDRESS, json=asked(workloads=["prefill"])).json()
    own, other = alone["workloads"]
    assert (own["planned"], other["planned"]) == (True, False)
    assert other["balancedness"] < own["balancedness"]
    assert alone["warnings"][0].startswith("planned for prefill; decode would run at 0.")
    both = stored.post(ADDRESS, json=asked()).json()
    assert both["workloads"][1]["balancedness"] > other["balancedness"]
    quiet = stored.post(ADDRESS, json=asked(workloads=["prefill"], judge_others=False)).json()
    assert [each["name"] for each in quiet["workloads"]] == ["prefill"]


def test_weights_pull_towards_their_workload(stored: TestClient) -> None:
    """A workload with nearly all the weight is served as if it were alone."""
    pulled = stored.post(ADDRESS, json=asked(workloads={"prefill": 1.0, "decode": 99.0})).json()
    pushed = stored.post(ADDRESS, json=asked(workloads={"prefill": 99.0, "decode": 1.0})).json()
    assert pulled["workloads"][1]["balancedness"] > pushed["workloads"][1]["balancedness"]
    assert pulled["workloads"][1]["weight"] == 99.0
    mean = (pulled["workloads"][0]["balancedness"] + 99 * pulled["workloads"][1]["balancedness"]) / 100
    assert pulled["balancedness"] == pytest.approx(mean)


def test_links_make_nodes_count(stored: TestClient) -> None:
    """With a speed the predicted time is never worse than of the balance alone, nor better than the bound."""
    told = asked(router={"active": 4}, between_nodes_gbit_per_s_per_gpu=50.0, workloads=["prefill"])
    made = stored.post(ADDRESS, json=told).json()
    assert made["nodes_weighed"]
    assert made["between_nodes_gbit_per_s_per_gpu"] == 50.0
    own = made["workloads"][0]["times"]
    assert own["layers_ms"] <= min(own["balance_alone_ms"], own["in_order_ms"]) * (1 + 1e-9)
    for each in made["workloads"]:
        parts = each["times"]["compute_ms"] + each["times"]["between_nodes_ms"] + each["times"]["inside_node_ms"]
        assert each["times"]["layers_ms"] == pytest.approx(parts)
        assert each["times"]["least_ms"] <= each["times"]["layers_ms"]
    assert any("DeepSeek-V3" in sentence for sentence in made["assumptions"])


@pytest.mark.parametrize("choice", ["nearest", "any", "both"])
def test_the_choice_of_copies_is_weighed_and_said(stored: TestClient, choice: str) -> None:
    """Times are those under the choice that was named, else under the slower one; any is never the faster."""
    told = asked(router={"active": 4}, between_nodes_gbit_per_s_per_gpu=50.0, workloads=["prefill"])
    made = stored.post(ADDRESS, json=told | {"copy_choice": choice}).json()
    assert made["copy_choice"] == choice
    times = made["workloads"][0]["times"]
    assert times["any_ms"] > times["nearest_ms"] >= times["least_ms"]
    assert times["copy_choice"] == ("any" if choice == "both" else choice)
    assert times["layers_ms"] == times[f"{times['copy_choice']}_ms"]
    assert any("guards against both" in sentence for sentence in made["assumptions"]) == (choice == "both")


def test_a_choice_of_copies_without_effect_is_said(stored: TestClient) -> None:
    """Without copies all choices come to the same map; with copies any is what is taken where nothing was said."""
    told = asked(router={"active": 4}, slots=16, copy_choice="any", workloads=["prefill"])
    alone = stored.post(ADDRESS, json=told).json()
    assert alone["copy_choice"] is None
    times = alone["workloads"][0]["times"]
    assert times["any_ms"] == pytest.approx(times["nearest_ms"])
    assert "the choice of copies, any, changes nothing without copies" in alone["assumptions"]
    unweighed = stored.post(ADDRESS, json=asked(copy_choice="any")).json()
    assert unweighed["copy_choice"] == "any"
    plain = stored.post(ADDRESS, json=asked()).json()
    assert plain["copy_choice"] == "both"
    assert plain["placement"] == unweighed["placement"]


def test_balance_is_that_of_the_choice_of_copies(stored: TestClient) -> None:
    """A map for the nearest copy runs better there, and an answer for any says what it loses."""
    wanted = asked(workloads=["prefill"], slots=32)
    even, near = (
        stored.post(ADDRESS, json=wanted | {"copy_choice": choice}).json() for choice in ("any", "nearest")
    )
    for made, choice in ((even, "any"), (near, "nearest")):
        one = made["workloads"][0]
        assert one["balancedness"] == one[f"{choice}_balancedness"] == made["balancedness"] <= made["bound"]
    assert near["balancedness"] > even["workloads"][0]["nearest_balancedness"] + 0.01
    plain = stored.post(ADDRESS, json=wanted).json()
    assert any("copy choice nearest plans for that" in sentence for sentence in plain["next_steps"])


def test_a_stored_cluster_gives_its_links(on_both: TestClient) -> None:
    """The speed is what its nodes reach, and nobody has to type it."""
    name = on_both.post(f"{API}/clusters", json=cluster_body()).json()["name"]
    made = on_both.post(ADDRESS, json=asked(cluster=name)).json()
    assert made["nodes_weighed"]
    assert made["between_nodes_gbit_per_s_per_gpu"] > 0
    assert not any("GPU kind" in sentence for sentence in made["assumptions"])


def test_counts_in_full_need_nothing_stored(client: TestClient) -> None:
    """One workload as plain rows; slots default to the experts."""
    made = client.post(ADDRESS, json={"routing": {"logical_count": skewed(2, 8, 1)}, "ranks": 4}).json()
    assert made["slots"] == 8
    assert made["balancedness"] == pytest.approx(made["bound"])
    assert any("the bound is reached" in sentence for sentence in made["next_steps"])


@pytest.mark.parametrize("form", ["sglang", "trtllm", "vllm-ascend"])
def test_the_answer_comes_as_files_of_an_engine(stored: TestClient, form: str) -> None:
    """Directly, or from the map of an answer before: the same bytes, and they say the map.

    Directly copies serve as in the engine of the format: in SGLang the nearest, in the others any.
    """
    choice = "nearest" if form == "sglang" else "any"
    direct = stored.post(ADDRESS, json=asked(), params={"format": form})
    assert direct.headers["Content-Type"] == "application/zip", direct.text
    placement = stored.post(ADDRESS, json=asked(copy_choice=choice)).json()["placement"]
    later = stored.post(f"{ADDRESS}/export", json={"placement": placement, "format": form})
    assert later.content == direct.content
    with zipfile.ZipFile(io.BytesIO(later.content)) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    rows = placement["physical_to_logical_map"]
    if form == "sglang":
        assert json.loads(texts["expert_location.json"])["physical_to_logical_map"] == rows
    listed = {entry["name"] for entry in stored.get(f"{API}/expert-map-formats").json()}
    assert listed == {name.removeprefix("experts-") for name in EXPERT_MAPS}


def test_dense_layers_have_rows_where_the_format_wants_them(client: TestClient) -> None:
    """SGLang reads a row for every decoder layer of the model."""
    body = {
        "placement": {"layers": [1], "experts": 4, "ranks": 2, "physical_to_logical_map": [[3, 1, 0, 2]]},
        "format": "sglang",
        "model_layers": 3,
    }
    answer = client.post(f"{ADDRESS}/export", json=body)
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        table = json.loads(archive.read("expert_location.json"))["physical_to_logical_map"]
    assert table == [[0, 1, 2, 3], [3, 1, 0, 2], [0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"routing": "theirs"}, "routing"),
        ({"routing": {"logical_count": [[1, 2], [3]]}}, "routing.logical_count"),
        ({"routing": {"logical_count": [[1, "2"]]}}, "routing.logical_count"),
        ({"routing": {}}, "routing"),
        ({"routing": {"workloads": in_full("a") + in_full("b", experts=8)}}, "routing.workloads"),
        ({"ranks": 5}, "nodes"),
        ({"ranks": 0}, "ranks"),
        ({"nodes": 3}, "nodes"),
        ({"slots": 25}, "slots"),
        ({"slots": 12}, "slots"),
        ({"slots": 10**6}, "slots"),
        ({"slots": 4 * 17}, "slots"),
        ({"slots": None, "redundant_experts": 3}, "slots"),
        ({"redundant_experts": 8}, "redundant_experts"),
        ({"workloads": ["prefil"]}, "workloads[0]"),
        ({"workloads": {"chat": 1.0}}, "workloads.chat"),
        ({"workloads": {"prefill": -1.0}}, "workloads.prefill"),
        ({"workloads": {"prefill": 1e308, "decode": 1e308}}, "workloads.prefill"),
        ({"workloads": ["prefill", "prefill"]}, "workloads"),
        ({"workloads": []}, "workloads"),
        ({"speeds": [1.0, 2.0]}, "speeds"),
        ({"speeds": [1.0, 2.0, 0.0, 1.0]}, "speeds[2]"),
        ({"speeds": [1e-300, 1.0, 1.0, 1e300]}, "speeds[0]"),
        ({"routing": {"logical_count": [[1e308, 1e308]]}}, "routing.workloads"),
        ({"routing": {"logical_count": [[1e-300, 0.0]]}}, "routing.workloads"),
        ({"model": "llama-3-8b"}, "model"),
        ({"model": "no-such-model"}, "model"),
        ({"router": {"active": 17}}, "router.active"),
        ({"router": {"active": 2, "groups": 3}}, "router.groups"),
        ({"cluster": "nowhere"}, "cluster"),
        ({"cluster": None, "gpu_kind": "abacus", "router": {"active": 2}}, "gpu_kind"),
        ({"between_nodes_gbit_per_s_per_gpu": 0.0}, "between_nodes_gbit_per_s_per_gpu"),
        ({"effort": 50}, "effort"),
        ({"seed": -1}, "seed"),
        ({"copy_choice": "near"}, "copy_choice"),
    ],
)
def test_what_is_wrong_is_named(stored: TestClient, changes: dict[str, Any], field: str) -> None:
    """422 with the field of the request, whatever found the mistake."""
    answer = stored.post(ADDRESS, json=asked(**changes))
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"].startswith(field), answer.text


def test_numbers_that_are_none_are_refused(client: TestClient) -> None:
    """NaN and infinite counts, which JSON does not know and some writers write."""
    for text in ("NaN", "Infinity", "1e999"):
        content = f'{{"routing": {{"logical_count": [[1, {text}]]}}, "ranks": 1}}'
        answer = client.post(ADDRESS, content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422
        assert "finite" in answer.json()["errors"][0]["problem"]


@pytest.mark.parametrize("counts", [[1, 0, 0, 0], [1, 1, 0, 0], [7, 7, 7, 7], [9, 1, 0, 0]])
def test_experts_that_nothing_selected_are_placed_too(client: TestClient, counts: list[int]) -> None:
    """Short records leave experts without counts, or one with more than a token can select."""
    told = {"router": {"active": 2}, "between_nodes_gbit_per_s_per_gpu": 100.0}
    body = {"routing": {"logical_count": [counts]}, "ranks": 2, "nodes": 2, "slots": 6} | told
    answer = client.post(ADDRESS, json=body)
    assert answer.status_code == 200, answer.text
    assert set(answer.json()["placement"]["physical_to_logical_map"][0]) == {0, 1, 2, 3}
    times = answer.json()["workloads"][0]["times"]
    assert times["layers_ms"] >= times["least_ms"] > 0


def test_sizes_that_take_minutes_are_refused_at_once(client: TestClient) -> None:
    """Nothing is begun that nobody waits for."""
    counts = {"logical_count": [[1] * 2048] * 100}
    answer = client.post(ADDRESS, json={"routing": counts, "ranks": 64, "slots": 8192})
    assert answer.status_code == 422
    assert "minutes" in answer.json()["errors"][0]["problem"]


def test_a_map_that_a_format_cannot_say_is_refused(client: TestClient) -> None:
    """Unknown formats, copies for Megatron-LM, broken maps: named, never a broken file."""
    good = {"layers": [0], "experts": 2, "ranks": 2, "physical_to_logical_map": [[0, 1, 1, 0]]}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"placement": good, "format": "sglan"}, "format"),
        ({"placement": good, "format": "megatron"}, "experts.slots"),
        ({"placement": good | {"ranks": 3}, "format": "sglang"}, "experts.slots"),
        ({"placement": good | {"experts": 3}, "format": "sglang"}, "experts.slots"),
        ({"placement": good | {"experts": 10**11}, "format": "sglang"}, "placement.experts"),
        ({"placement": good | {"layers": [5]}, "format": "sglang", "model_layers": 3}, "experts.layers"),
    ]
    for body, field in cases:
        answer = client.post(f"{ADDRESS}/export", json=body)
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["field"].startswith(field), answer.text


RUNNING = [[slot % 16 for slot in range(24)] for _ in range(3)]


def moving(**changes: Any) -> dict[str, Any]:
    """A rebalancing of experts in their order for the stored statistics."""
    return {
        "routing": "ours",
        "workloads": ["decode"],
        "physical_to_logical_map": RUNNING,
        "ranks": 4,
        "expert_bytes": 1e6,
        "balanced_layer_ms": 1.0,
    } | changes


def test_moves_lead_from_the_running_map_to_the_target(on_both: TestClient) -> None:
    """Made one after the other they give the new map; every figure is that of the map."""
    made = on_both.post(f"{ADDRESS}/rebalance", json=moving(target_balancedness=0.9)).json()
    rows = [list(row) for row in RUNNING]
    for move in made["moves"]:
        assert rows[move["layer"]][move["slot"]] == move["old"]
        rows[move["layer"]][move["slot"]] = move["new"]
    assert rows == made["placement"]["physical_to_logical_map"]
    layout, counts = ExpertLayout(4, 1, 24), np.array(skewed(3, 16, 2), dtype=float)
    for name, table in (("balancedness_before", RUNNING), ("balancedness", rows)):
        assert made[name] == pytest.approx(layer_balancedness(np.array(table), counts, layout).mean())
    for name, table in (("nearest_balancedness_before", RUNNING), ("nearest_balancedness", rows)):
        near = layer_balancedness(np.array(table), counts, layout, CopyChoice.NEAREST)
        assert made[name] == pytest.approx(near.mean())
    assert made["reached"]
    assert made["balancedness"] >= 0.9 > made["balancedness_before"]
    assert made["least_moves"] <= len(made["moves"])
    assert made["bytes_inside_nodes"] == len(made["moves"]) * 1e6
    assert made["workloads"]["decode"] == pytest.approx([made["balancedness_before"], made["balancedness"]])
    assert set(made["workloads"]) == {"prefill", "decode"}
    assert [each["layer"] for each in made["layers"]] == [0, 1, 2]
    for name, table in (("balancedness_before", RUNNING), ("balancedness", rows)):
        by_layer = layer_balancedness(np.array(table), counts, layout)
        assert [each[name] for each in made["layers"]] == pytest.approx(by_layer)
    moved = [sum(move["layer"] == layer for move in made["moves"]) for layer in range(3)]
    assert [each["moves"] for each in made["layers"]] == moved
    assert all(each["moves_between_nodes"] == 0 for each in made["layers"])


def test_it_is_left_alone_where_moves_do_not_pay(stored: TestClient) -> None:
    """Few steps and large experts: no moves; the same map is reached at once, too."""
    slow = stored.post(f"{ADDRESS}/rebalance", json=moving(steps_until_next=1, expert_bytes=1e12)).json()
    assert slow["moves"] == []
    assert not slow["pays"]
    assert slow["verdict"].startswith("leave it alone")
    fast = stored.post(f"{ADDRESS}/rebalance", json=moving(expert_bytes=1.0)).json()
    assert fast["pays"]
    assert fast["verdict"].startswith("move: ")
    again = moving(physical_to_logical_map=fast["placement"]["physical_to_logical_map"], target_balancedness=0.5)
    assert stored.post(f"{ADDRESS}/rebalance", json=again).json()["moves"] == []


def test_decoding_is_not_taken_for_prefill(stored: TestClient) -> None:
    """Few tokens gain less than many, by the name of the workloads or as told; the answer says what it assumed."""

    def gain(**changes: Any) -> tuple[float, str]:
        fields = moving(balanced_layer_ms=None, target_balancedness=0.9) | {"expert_bytes": 1e5} | changes
        made = stored.post(f"{ADDRESS}/rebalance", json=fields).json()
        return made["gain_ms_per_step"], " ".join(made["assumptions"])

    decode, said = gain()
    assert "128 in a step, as the workloads are named decode" in said
    assert gain(tokens_per_gpu=128.0)[0] == decode
    assert decode == pytest.approx(gain(tokens_per_gpu=4096.0)[0] / 32)
    assert "4096 in a step, as in prefill" in gain(workloads=["prefill", "decode"])[1]
    assert gain(expert_bytes=1e9)[0] == 0.0


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"expert_bytes": None}, "expert_bytes"),
        ({"target_balancedness": 1.5}, "target_balancedness"),
        ({"ranks": 5}, "physical_to_logical_map"),
        ({"nodes": 3}, "nodes"),
        ({"layers": [0, 1]}, "layers"),
        ({"layers": [7, 8, 9]}, "layers"),
        ({"physical_to_logical_map": []}, "physical_to_logical_map"),
        ({"physical_to_logical_map": [list(range(20))] * 3}, "physical_to_logical_map"),
        ({"physical_to_logical_map": [[0] * 24] * 3}, "physical_to_logical_map"),
        ({"physical_to_logical_map": [RUNNING[0], RUNNING[0][:20], RUNNING[0]]}, "physical_to_logical_map"),
        ({"physical_to_logical_map": [[-1] * 24] * 3}, "physical_to_logical_map"),
        ({"workloads": ["chat"]}, "workloads[0]"),
        ({"steps_until_next": 0}, "steps_until_next"),
    ],
)
def test_what_is_wrong_with_a_rebalancing_is_named(stored: TestClient, changes: dict[str, Any], field: str) -> None:
    """422 with the field of the request."""
    answer = stored.post(f"{ADDRESS}/rebalance", json=moving(**changes))
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"].startswith(field), answer.text
