"""``scontrol show node``: free text, typed GPUs, MIG, states and reasons, nodes without GPUs, JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.topology import NodeState
from readers import registry
from readers.formats.slurm.nodes import FORMATS
from readers.frame.facts import HostFact, Name, NameKind
from readers.frame.reading import Contents
from tests.readers.damage import damaged, sound
from tests.readers.real_files import real, source_of, understood

TEXT, JSON = FORMATS
FOLDER = "topology/slurm"


def lines_of(name: str, gres: str = "gpu:h100:8(S:0-1)", state: str = "IDLE", reason: str = "") -> str:
    block = (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=32 \n   CPUAlloc=0 CPUTot=64 CPULoad=N/A\n"
        f"   AvailableFeatures=h100,rack_b2,ib-i2l3s04 ActiveFeatures=h100,rack_b2,ib-i2l3s04\n   Gres={gres}\n"
        f"   NodeAddr=10.0.0.7 NodeHostName={name}.cluster.example Version=24.05.1\n"
        "   OS=Linux 6.1 #1 SMP A=1 B=2 Mon Jan 5 \n   RealMemory=1000 Sockets=2 Boards=1\n"
        f"   State={state} ThreadsPerCore=2 Weight=1 Owner=N/A MCS_label=N/A\n"
        "   CfgTRES=cpu=64,mem=1000M,billing=64\n   AllocTRES=\n"
    )
    return block + (f"   Reason={reason}\n" if reason else "") + "\n"


def hosts(found: Contents) -> list[HostFact]:
    return [fact for fact in found.facts if isinstance(fact, HostFact)]


def one(text: str) -> HostFact:
    (host,) = hosts(understood(TEXT, source_of(text)))
    return host


@pytest.mark.parametrize(
    ("file", "product", "count", "state", "kind"),
    [
        ("scontrol_show_node_b200_mig_excerpt.txt", "nvidia_b200", None, NodeState.READY, ""),
        ("scontrol_show_node_g7e_cloud.txt", "rtxproserver6000", 1, NodeState.READY, "g7e.8xlarge"),
        ("scontrol_show_node_oneliner_a40.txt", "a40", 1, NodeState.READY, ""),
    ],
)
def test_real_nodes_have_their_gpus(
    file: str, product: str, count: int | None, state: NodeState, kind: str
) -> None:
    """The sum over whole GPUs and MIG slices is not a number of GPUs."""
    source = real(f"{FOLDER}/{file}")
    found = understood(TEXT, source)
    (host,) = hosts(found)
    assert (host.gpu_product, host.gpu_count, host.state, host.instance_type) == (product, count, state, kind)
    assert host.gpu_in_slices is (count is None)
    assert [doubt.code for doubt in found.doubts] == (["mig"] if count is None else [])
    assert host.origin.first_line == 1
    assert [section.format for section in registry.recognise(source)] == ["slurm-nodes"]


def test_a_real_cloud_node_has_three_names() -> None:
    """Its own, its address, and that of the instance behind the reason."""
    host = one(real(f"{FOLDER}/scontrol_show_node_g7e_cloud.txt").text)
    assert host.names == (
        Name(NameKind.SLURM, "gpu-st-ml-1"),
        Name(NameKind.ADDRESS, "10.0.10.160"),
        Name(NameKind.INSTANCE, "i-0cba89ff05359cd2f"),
    )


def test_a_real_node_without_gpus_is_refused() -> None:
    """Other generic resources are not GPUs."""
    found = understood(TEXT, real(f"{FOLDER}/scontrol_show_node_ib_leaf_in_features.txt"))
    assert found.facts == ()
    assert [refusal.sentence.split()[0] for refusal in found.refusals] == ["p0685"]
    assert "no GPU" in found.refusals[0].sentence


def test_features_hide_leaf_and_rack() -> None:
    """They become labels; the FQDN becomes a name."""
    host = one(lines_of("gpu07"))
    assert host.labels == {"leaf": "ib-i2l3s04", "rack": "rack_b2"}
    assert Name(NameKind.FQDN, "gpu07.cluster.example") in host.names
    assert (host.gpu_product, host.gpu_count) == ("h100", 8)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("IDLE+CLOUD", NodeState.READY),
        ("MIXED", NodeState.READY),
        ("ALLOCATED+COMPLETING", NodeState.READY),
        ("IDLE+DRAIN", NodeState.DRAINING),
        ("MIXED+DRAIN+MAINT", NodeState.DRAINING),
        ("DOWN*+DRAIN", NodeState.FAILED),
        ("IDLE*", NodeState.FAILED),
        ("DOWN", NodeState.FAILED),
        ("FUTURE", NodeState.UNKNOWN),
    ],
)
def test_states_are_base_and_flags(state: str, expected: NodeState) -> None:
    """A star means that the node does not answer; a reason holds words with "="."""
    host = one(lines_of("n1", state=state, reason="NHC: GPU count=7 want=8, rc=3 [root@2026-01-05T01:02:03]"))
    assert host.state is expected


@pytest.mark.parametrize(
    ("gres", "product", "count", "sliced"),
    [
        ("gpu:8", None, 8, False),
        ("gpu:a100:4(S:0,2),gpu:v100:2(IDX:0-1)", None, 6, False),
        ("gpu:gb200:4,nic:2", "gb200", 4, False),
        ("gpu:h100:6,gpu:1g.10gb:14", "h100", None, True),
        ("gpu:a100_1g.5gb:7", None, None, True),
    ],
)
def test_entries_of_gres(gres: str, product: str | None, count: int | None, sliced: bool) -> None:
    """Types, sockets and indices in brackets, slices."""
    host = one(lines_of("n1", gres=gres))
    assert (host.gpu_product, host.gpu_count, host.gpu_in_slices) == (product, count, sliced)


def test_one_line_a_node_says_the_same() -> None:
    """``-o`` joins the lines of a node with blanks."""
    block = lines_of("n1", state="DOWN*", reason="dead, code=5 [x@2026-01-05T01:02:03]")
    flat, tall = one(" ".join(block.split("\n")) + "\n"), one(block)
    assert (flat.names, flat.gpu_count, flat.state) == (tall.names, tall.gpu_count, tall.state)


def test_a_line_of_slurm_conf_names_many_nodes() -> None:
    """Each gets a fact; the file says nothing of their state."""
    found = understood(TEXT, source_of("NodeName=n[01-03] CPUs=64 Gres=gpu:h200:8 RealMemory=1000\n"))
    assert [host.names[0].text for host in hosts(found)] == ["n01", "n02", "n03"]
    assert {host.state for host in hosts(found)} == {None}


def node(**changes: Any) -> dict[str, Any]:
    plain = {"name": "n1", "gres": "gpu:h100:8(S:0-1)", "tres": "cpu=64,gres/gpu=8", "state": ["IDLE"]}
    return {**plain, "address": "n1", "hostname": "n1", "active_features": ["rack_c1"], "reason": "", **changes}


def test_json_gives_the_same() -> None:
    """States and features are lists there; the place is a path and a line."""
    text = json.dumps({"nodes": [node(), node(name="n2", state=["DOWN", "DRAIN"], reason="x=1")]}, indent=1)
    source = source_of(text, "nodes.json")
    first, second = hosts(understood(JSON, source))
    assert (first.gpu_product, first.gpu_count, first.labels, first.origin.path) == (
        "h100",
        8,
        {"rack": "rack_c1"},
        "nodes[0]",
    )
    assert second.state is NodeState.FAILED
    assert '"n2"' in text.split("\n")[second.origin.first_line - 1]
    assert [section.format for section in registry.recognise(source)] == ["slurm-nodes-json"]


def test_json_without_gpus_is_refused() -> None:
    """By name."""
    found = understood(JSON, source_of(json.dumps({"nodes": [node(gres="", tres="cpu=4")]}), "nodes.json"))
    assert found.facts == ()
    assert "n1 has no GPU" in found.refusals[0].sentence


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(("name", "gres", "tres", "state", "reason", "active_features")),
            st.none() | st.integers() | st.text(max_size=9) | st.lists(st.text(max_size=5), max_size=2),
        ),
        max_size=3,
    )
)
def test_any_json_is_taken(nodes: list[dict[str, Any]]) -> None:
    """Values of any type give facts or refusals."""
    found = understood(JSON, source_of(json.dumps({"nodes": nodes}), "nodes.json"))
    assert found.facts or found.refusals


@given(damaged(lines_of("n1") + lines_of("n2", state="DOWN*", reason="x=1 y")))
def test_damage_never_stops_the_reader(text: str) -> None:
    """A host has always a name."""
    assert all(host.names and host.names[0].text for host in hosts(sound(TEXT, text)))
