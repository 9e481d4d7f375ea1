"""Pages of routing statistics and of where experts should lie."""

from __future__ import annotations

import html
import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.settings import Role
from app.web.experts.layer_balance import LayerPair, layer_drawing
from app.web.experts.load_map import load_map
from app.web.experts.rank_curve import rank_curve
from cluster_models.routing.counts import RoutedWorkload
from tests.app.api_client import API, running
from tests.routing_counts import dump, in_full, sent, skewed

BROWSER: Final = {"Accept": "text/html"}
EXPERTS, LAYERS = 16, 3
HOSTILE: Final = "<script>alert('x')</script> & \"so\""


@pytest.fixture
def either(tmp_path: Path, database_url: str) -> Iterator[TestClient]:
    """A client of an application that only answers, on either database."""
    with running(tmp_path, database_url, role=Role.WEB) as client:
        yield client


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """The same on SQLite."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        yield client


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """One application with statistics of two workloads, for placements, which store nothing."""
    folder = tmp_path_factory.mktemp("service")
    with running(folder, f"sqlite:///{folder}/a.sqlite", role=Role.WEB) as client:
        store(client, "a", "b")
        yield client


def upload(client: TestClient, name: str, files: Mapping[str, bytes], **data: str) -> Any:
    """The answer to files dropped on the form."""
    return client.post("/experts", data={"name": name, **data}, files=sent(files), headers=BROWSER)


def store(client: TestClient, *names: str) -> None:
    """Statistics called ``ours`` with workloads of these names."""
    body = {"name": "ours", "workloads": in_full(*names, layers=LAYERS, experts=EXPERTS)}
    assert client.post(f"{API}/routing", json=body).status_code == 201


def place(client: TestClient, **fields: Any) -> Any:
    """The answer to the form of a placement."""
    return client.post("/experts/ours", data={"nodes": "1", "counts": "worst", **fields}, headers=BROWSER)


def carried(text: str) -> dict[str, str]:
    """The hidden fields that bring the map back."""
    found = dict(re.findall(r'name="(carried|model_layers)" value="([^"]*)"', text))
    assert len(found) == 2
    return {name: html.unescape(value) for name, value in found.items()}


def test_dropped_files_become_a_page_and_a_line_of_the_list(either: TestClient) -> None:
    """Each file is a workload; the page tells layers, skew and likeness in words."""
    rows = {name: skewed(LAYERS, EXPERTS, seed) for seed, name in enumerate(("prefill", "decode"))}
    answer = upload(either, "ours", {f"{name}.json": dump(counts, dense=2) for name, counts in rows.items()})
    assert answer.status_code == 200, answer.text
    assert answer.url.path == "/experts/ours"
    layers = [EXPERTS * max(row) / sum(row) for row in rows["prefill"]]
    assert f"{sorted(layers)[1]:.1f}</td>" in answer.text
    assert f"{max(layers):.1f} (layer {2 + layers.index(max(layers))})" in answer.text
    assert "prefill and decode differ widely" in answer.text
    line = either.get("/experts").text
    assert '<a href="/experts/ours">ours</a>' in line
    assert "prefill, decode" in line
    gone = either.post("/experts/ours/delete", headers=BROWSER)
    assert gone.url.path == "/experts"
    assert either.get("/experts/ours", headers=BROWSER).status_code == 404


def test_files_that_cannot_be_used_are_named_one_by_one(client: TestClient) -> None:
    """Beside files that can be used they are told on the page; alone, at the field, and nothing is stored."""
    bad = {"steps.json": b'{"steps": 3}', "broken.json": b"{not"}
    alone = upload(client, "ours", bad)
    assert alone.status_code == 422
    assert alone.text.count('<a href="#files">Files</a>') == 2
    assert "steps.json" in alone.text
    assert "broken.json" in alone.text
    assert 'value="ours"' in alone.text
    assert client.get(f"{API}/routing").json()["items"] == []
    some = upload(client, "ours", {"a.json": dump(skewed(LAYERS, EXPERTS, 1)), **bad})
    assert some.status_code == 200
    for words in ("Stored, but not all of it", "<strong>steps.json</strong>", "<strong>broken.json</strong>"):
        assert words in some.text
    assert [each["name"] for each in client.get(f"{API}/routing/ours").json()["workloads"]] == ["a"]


@pytest.mark.parametrize(
    ("name", "files", "anchor"),
    [
        ("", {"a.json": dump(skewed(2, 8, 1))}, "name"),
        ("a b", {"a.json": dump(skewed(2, 8, 1))}, "name"),
        ("x", {}, "files"),
        ("x", {"a.json": dump(skewed(2, 8, 1)), "b.json": dump(skewed(2, 4, 1))}, "files"),
    ],
)
def test_what_is_wrong_with_an_upload_stands_at_its_field(
    client: TestClient, name: str, files: dict[str, bytes], anchor: str
) -> None:
    """No name, none that can be one, no file, files of two models."""
    answer = upload(client, name, files)
    assert answer.status_code == 422
    assert f'<a href="#{anchor}">' in answer.text
    assert client.get(f"{API}/routing").json()["items"] == []


def test_a_name_that_is_taken_changes_only_what_is_asked_for(either: TestClient) -> None:
    """Refused as it is; workloads are added or everything is replaced where that was chosen."""
    store(either, "a", "b")
    files = {"c.json": dump(skewed(LAYERS, EXPERTS, 9))}

    def names() -> list[str]:
        return [each["name"] for each in either.get(f"{API}/routing/ours").json()["workloads"]]

    refused = upload(either, "ours", files)
    assert refused.status_code == 422
    assert '<a href="#name">Name</a>: is taken' in refused.text
    assert names() == ["a", "b"]
    assert upload(either, "ours", files, existing="add").url.path == "/experts/ours"
    assert names() == ["a", "b", "c"]
    assert upload(either, "ours", files, existing="replace").url.path == "/experts/ours"
    assert names() == ["c"]


def test_the_page_tells_what_the_api_answers(client: TestClient) -> None:
    """Balance before, after and at most, also of the workload that was not planned for, and its warning."""
    store(client, "prefill", "decode")
    text = place(client, ranks="4", redundant_experts="4", planned=["prefill"]).text
    asked = {"routing": "ours", "ranks": 4, "redundant_experts": 4, "workloads": ["prefill"]}
    told = client.post(f"{API}/expert-placements", json=asked).json()
    for each in told["workloads"]:
        for field in ("in_order", "balancedness", "bound"):
            assert f"{each[field]:.3f}" in text, (each["name"], field)
    assert f"<b>{told['balancedness']:.3f}</b>" in text
    assert '<span class="badge warn">not planned for</span>' in text
    assert told["warnings"]
    assert all(html.escape(warning, quote=False) in html.unescape(text) for warning in told["warnings"])
    assert text.count("<svg role=") == 5, "loads, and of each workload layers and ranks"
    first = told["workloads"][0]["layers"][0]
    row = f'<td class="number">{1 / first["in_order"]:.3f}</td><td class="number">{1 / first["balancedness"]:.3f}'
    assert row in text
    assert 'value="decode">' in text, "the box that was cleared stays cleared"
    assert 'value="prefill" checked>' in text


def test_nodes_and_links_bring_times_and_what_crosses(client: TestClient) -> None:
    """With a speed between nodes the page tells predicted times beside those of the contiguous order."""
    store(client, "prefill")
    fields = {"ranks": "4", "nodes": "2", "planned": "prefill", "router_active": "4"}
    text = place(client, **fields, between_nodes_gbit_per_s_per_gpu="100").text
    asked = {"routing": "ours", "ranks": 4, "nodes": 2, "router": {"active": 4}}
    asked["between_nodes_gbit_per_s_per_gpu"] = 100.0
    told = client.post(f"{API}/expert-placements", json=asked).json()["workloads"][0]
    times = told["times"]
    assert f"{times['in_order_nodes_crossed']:.2f} → {times['nodes_crossed']:.2f}" in text
    assert f"{100 * told['in_order_node_local_share']:.1f} % → {100 * told['node_local_share']:.1f} %" in text
    assert f"{times['layers_ms']:.3g} ms instead of {times['in_order_ms']:.3g} ms" in text
    assert "100 Gb/s per GPU between nodes" in text
    for title, crossed in (("contiguous order", "in_order_nodes_crossed"), ("new map", "nodes_crossed")):
        picture = f"Tokens from node to node, {title}, prefill. Rows send, columns receive."
        assert f"{picture} A token goes to {times[crossed]:.2f} other nodes" in text
    assert "<details open>\n      <summary>Router" in text


def test_the_choice_of_copies_is_that_of_the_engine(client: TestClient) -> None:
    """The choice goes into the search and stays chosen; unsaid, the map guards against both."""
    store(client, "prefill")
    fields = {"ranks": "4", "nodes": "2", "planned": "prefill", "router_active": "4", "redundant_experts": "4"}
    fields["between_nodes_gbit_per_s_per_gpu"] = "100"
    asked: dict[str, Any] = {"routing": "ours", "ranks": 4, "nodes": 2, "redundant_experts": 4}
    asked |= {"router": {"active": 4}, "between_nodes_gbit_per_s_per_gpu": 100.0}
    for choice in ("nearest", "any"):
        text = place(client, **fields, copy_choice=choice).text
        told = client.post(f"{API}/expert-placements", json=asked | {"copy_choice": choice}).json()
        assert f'value="{choice}" selected' in text
        assert client.post("/experts/ours/map", data=carried(text) | {"format": "json"}).json() == told["placement"]
        assert "guards against both" not in text
        times = told["workloads"][0]["times"]
        assert f"{times['nearest_ms']:.3g}, {times['any_ms']:.3g} ms</td>" in text
    assert "guards against both" in place(client, **fields).text


def test_locality_is_offered_where_transitions_were_counted(client: TestClient) -> None:
    """With what stays from layer to layer, as the API tells it; without transitions neither field is there."""
    store(client, "plain")
    assert 'id="objective"' not in client.get("/experts/ours").text
    table = skewed(EXPERTS, EXPERTS, 5)
    (counted,) = in_full("told", layers=LAYERS, experts=EXPERTS)
    counted["transitions"] = [{"layer": layer, "counts": table} for layer in range(LAYERS - 1)]
    assert client.put(f"{API}/routing/ours", json={"workloads": [counted]}).status_code == 200
    fields = {"ranks": "4", "nodes": "2", "planned": "told", "objective": "locality", "least_locality": "0.9"}
    text = place(client, **fields).text
    asked = {"routing": "ours", "ranks": 4, "nodes": 2, "objective": "locality", "least_locality": 0.9}
    told = client.post(f"{API}/expert-placements", json=asked).json()
    stays = told["workloads"][0]["locality"]["this_map"]
    assert f"<strong>{100 * stays['on_gpu']:.1f} %, {100 * stays['in_node']:.1f} %</strong>" in text
    assert f"This map keeps {100 * told['locality']['worth']:.1f} %" in text
    wrong = place(client, **(fields | {"least_locality": "2"}))
    assert wrong.status_code == 422
    assert 'id="least_locality-wrong-1"' in wrong.text
    assert 'value="locality" selected' in wrong.text


def test_weights_count_where_the_mean_was_chosen(client: TestClient) -> None:
    """The weighted mean is asked for with the weights beside the workloads, whatever their order."""
    store(client, "prefill", "decode")
    weights = {"about-0": "prefill", "weight-0": "3", "about-1": "decode", "weight-1": "1"}
    text = place(client, ranks="4", counts="mean", planned=["decode", "prefill"], **weights).text
    asked = {"routing": "ours", "ranks": 4, "workloads": {"decode": 1.0, "prefill": 3.0}}
    told = client.post(f"{API}/expert-placements", json=asked).json()
    assert f"<b>{told['balancedness']:.3f}</b>" in text
    assert "weight 3" in text


@pytest.mark.parametrize(
    ("fields", "anchor"),
    [
        ({"ranks": ""}, "ranks"),
        ({"ranks": "many"}, "ranks"),
        ({"ranks": "4", "nodes": "3"}, "nodes"),
        ({"ranks": "4", "slots": "15"}, "slots"),
        ({"ranks": "4", "slots": "20", "redundant_experts": "4"}, "redundant_experts"),
        ({"ranks": "4", "planned": []}, "planned"),
        ({"ranks": "4", "counts": "mean", "about-1": "b", "weight-1": "-1"}, "weight-1"),
        ({"ranks": "4", "model": "no-such-model"}, "model"),
        ({"ranks": "4", "cluster": "nowhere"}, "cluster"),
        (
            {"ranks": "4", "nodes": "2", "between_nodes_gbit_per_s_per_gpu": "-2"},
            "between_nodes_gbit_per_s_per_gpu",
        ),
        ({"ranks": "4", "router_groups": "4"}, "router_active"),
        ({"ranks": "4", "copy_choice": "farthest"}, "copy_choice"),
        ({"ranks": "4", "nodes": "2", "cluster": "", "gpu_kind": "Abacus", "router_active": "2"}, "gpu_kind"),
    ],
)
def test_what_is_wrong_with_a_placement_stands_at_its_field(
    stored: TestClient, fields: dict[str, Any], anchor: str
) -> None:
    """The form comes back with what was typed, the problem beside the field and in the summary."""
    answer = place(stored, **{"planned": ["a", "b"], **fields})
    assert answer.status_code == 422
    assert f'<a href="#{anchor}">' in answer.text, answer.text
    assert f'id="{anchor}-wrong-1"' in answer.text
    assert re.search(rf'id="{anchor}"[^>]* aria-invalid="true"', answer.text)
    for name, value in fields.items():
        if value and isinstance(value, str) and name in ("ranks", "slots"):
            assert f'value="{value}"' in answer.text


def test_maps_come_as_files_of_engines(client: TestClient) -> None:
    """The page carries the map of the answer; a format that cannot say it is named instead of offered."""
    store(client, "prefill")
    text = place(client, ranks="4", redundant_experts="4", planned="prefill").text
    asked = {"routing": "ours", "ranks": 4, "redundant_experts": 4}
    told = client.post(f"{API}/expert-placements", json=asked).json()["placement"]
    assert 'name="format" value="sglang"' in text
    assert 'name="format" value="megatron"' not in text
    assert "Order of experts in Megatron-LM: " in text
    fields = carried(text)
    plain = client.post("/experts/ours/map", data={**fields, "format": "json"})
    assert plain.json() == told
    packed = client.post("/experts/ours/map", data={**fields, "format": "sglang"})
    assert packed.headers["content-disposition"] == 'attachment; filename="experts-sglang.zip"'
    with zipfile.ZipFile(io.BytesIO(packed.content)) as archive:
        location = json.loads(archive.read("expert_location.json"))
    assert told["physical_to_logical_map"] == location["physical_to_logical_map"][-LAYERS:]
    for damaged in (
        {"carried": "x", "format": "json"},
        {"format": "cuneiform"},
        {"format": "sglang", "model_layers": "1"},
        {"format": "sglang", "model_layers": "1e999"},
    ):
        assert client.post("/experts/ours/map", data=fields | damaged, headers=BROWSER).status_code == 422


def test_names_of_workloads_are_words_and_no_markup(client: TestClient) -> None:
    """A name that looks like a script is shown as it is and still counts when it is sent back."""
    store(client, HOSTILE, "b")
    weights = {"about-0": HOSTILE, "weight-0": "7", "about-1": "b", "weight-1": "1"}
    answer = place(client, ranks="4", counts="mean", planned=[HOSTILE, "b"], **weights)
    assert answer.status_code == 200
    assert "<script>" not in answer.text
    assert "weight 7" in answer.text


def test_forms_of_other_sites_do_nothing(client: TestClient) -> None:
    """Neither storing, placing, taking files nor forgetting."""
    store(client, "a")
    foreign = {**BROWSER, "Sec-Fetch-Site": "cross-site"}
    for address in ("/experts", "/experts/ours", "/experts/ours/map", "/experts/ours/delete"):
        assert client.post(address, data={"ranks": "2"}, headers=foreign).status_code == 403
    assert client.get(f"{API}/routing/ours").status_code == 200


def test_the_pages_are_linked(client: TestClient) -> None:
    """In the navigation of every page, and on the home page."""
    home = client.get("/").text
    assert '<a href="/experts">Experts</a>' in home
    assert 'href="/experts">Place experts</a>' in home
    assert "No routing statistics stored" in client.get("/experts").text
    assert client.get("/experts/none", headers=BROWSER).status_code == 404


def test_the_hottest_expert_stands_out_in_the_map_of_loads(client: TestClient) -> None:
    """Any workload can be drawn; of more experts than cells, each cell has the heaviest of its neighbours."""
    store(client, "a", "b")
    assert "Load of experts by layer, b" in client.get("/experts/ours?workload=b").text
    loads = np.ones((2, 130))
    loads[1, 100] = 261.0
    drawing = load_map(RoutedWorkload("w", (3, 7), loads))
    assert len(drawing.boxes) == 2 * 44
    hot = max(drawing.boxes, key=lambda box: box.style)
    assert (hot.style, hot.tip) == ("heat-6", "Layer 7, expert 100: 87.00")
    assert "Hottest: expert 100 of layer 7 with 87.00 times the mean." in drawing.description


def test_ranks_fall_from_the_heaviest_to_the_lightest() -> None:
    """Sorted within each layer, so that layers whose heavy ranks differ do not even each other out."""
    drawing = rank_curve("w", np.array([[1.0, 3.0], [6.0, 2.0]]), np.ones((2, 2)))
    assert "carries 1.50 in contiguous order and 1.00 with the new map, the lightest 0.50" in drawing.description


def test_bars_are_as_high_as_the_slowest_rank() -> None:
    """Heights are in proportion to maximum over mean, both bars of a layer stand side by side, and all fit."""
    drawing = layer_drawing("w", [LayerPair(3, 0.25, 0.8), LayerPair(4, 0.5, 1.0)], ("old map", "new map"))
    heights = [box.height for box in drawing.boxes]
    assert heights == pytest.approx([heights[3] * ratio for ratio in (4.0, 1.25, 2.0, 1.0)])
    assert drawing.boxes[0].x + drawing.boxes[0].width == pytest.approx(drawing.boxes[1].x)
    assert all(box.y >= 0 and box.x + box.width <= drawing.width for box in drawing.boxes)
    assert "worst layer with the old map is 3 with 4.00" in drawing.description
    assert "with the new map it is 3 with 1.25" in drawing.description
