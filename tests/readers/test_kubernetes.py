"""Nodes of Kubernetes, in every form that people send."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.topology import NodeState
from readers.formats.kubernetes.formats import FORMATS
from readers.formats.kubernetes.labels import read_labels
from readers.frame.facts import HealthFact, NameKind
from readers.frame.reading import Format
from tests.readers.kubernetes_samples import GPU_LABELS, KEYS, NODES, codes, hosts, node, read_tree
from tests.readers.real_files import source_of, understood
from tests.readers.uploads import fields_of, report_of


def test_a_node_object_is_read_whole() -> None:
    """Names of every kind, GPUs, memory in MiB, domain, place, cards and state."""
    (host,) = hosts(read_tree({"kind": "List", "items": [node()]}))
    assert [(name.kind, name.text) for name in host.names] == [
        (NameKind.KUBERNETES, "gpu-17"),
        (NameKind.HOST, "gpu-17"),
        (NameKind.ADDRESS, "10.7.0.17"),
        (NameKind.INSTANCE, "i-00a1b2c3d4e5f6071"),
    ]
    assert (host.gpu_product, host.gpu_count) == ("NVIDIA-H100-80GB-HBM3", 8)
    assert host.scale_up_domain == GPU_LABELS["nvidia.com/gpu.clique"]
    assert dict(host.labels) == {"rack": "r07", "zone": "hall-2"}
    assert (host.nics[0].count, host.nics[0].fabric, host.nics[0].bytes_per_s) == (32, "efa", None)
    assert host.state is NodeState.READY
    assert host.origin.path == "items[0]"


@pytest.mark.parametrize("shape", [lambda n: n, lambda n: [n], lambda n: {"kind": "NodeList", "items": [n]}])
def test_one_node_several_documents_and_lists_are_the_same(shape: Any) -> None:
    """``kubectl get node x``, documents in a row, and a list."""
    read = read_tree(shape(node()))
    assert NODES.fits is not None
    assert NODES.fits(shape(node()))
    assert [host.gpu_count for host in hosts(read)] == [8]


@pytest.mark.parametrize(
    ("labels", "capacity"),
    [
        ({"nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/mig.config.state": "pending"}, {}),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "nvidia.com/gpu.count": "56"}, {}),
        ({"nvidia.com/mig-1g.10gb.count": "7"}, {}),
        ({}, {"nvidia.com/mig-3g.40gb": "16"}),
    ],
)
def test_slices_are_never_counted_as_gpus(labels: dict[str, str], capacity: dict[str, str]) -> None:
    """Whatever tells of MIG, the count is unknown and a doubt says so."""
    read = read_tree(node(labels=labels, capacity={"nvidia.com/gpu": "56"} | capacity))
    (host,) = hosts(read)
    assert host.gpu_in_slices
    assert host.gpu_count is None
    assert "mig" in codes(read)
    assert "MIG" not in (host.gpu_product or "")


def test_time_slices_are_not_gpus_either() -> None:
    """Four replicas of each GPU announce 32 of them; the node has eight."""
    labels = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.product": "NVIDIA-L4-SHARED"}
    counts = {"nvidia.com/gpu": "32"}
    read = read_tree(node(labels=labels, capacity=counts, allocatable=counts))
    (host,) = hosts(read)
    assert (host.gpu_product, host.gpu_count) == ("NVIDIA-L4", 8)
    assert codes(read) == []
    bare = node(capacity=counts, allocatable=counts)
    bare["metadata"]["labels"] = {"nvidia.com/gpu.replicas": "4"}
    assert hosts(read_tree(bare))[0].gpu_count == 8


def test_gpus_that_are_unhealthy_or_missing_are_doubted() -> None:
    """Allocatable below capacity, and an announced count that is not the label's."""
    assert codes(read_tree(node(allocatable={"nvidia.com/gpu": "6"}))) == ["gpus-unhealthy"]
    missing = {"nvidia.com/gpu": "7"}
    assert codes(read_tree(node(capacity=missing, allocatable=missing))) == ["gpu-count-differs"]


@pytest.mark.parametrize(
    ("ready", "spec", "state"),
    [
        ("True", {}, NodeState.READY),
        ("False", {}, NodeState.FAILED),
        ("Unknown", {"unschedulable": True}, NodeState.FAILED),
        ("True", {"unschedulable": True}, NodeState.UNKNOWN),
        ("True", {"taints": [{"key": "node.kubernetes.io/not-ready"}]}, NodeState.FAILED),
    ],
)
def test_state_follows_conditions_cordon_and_taints(ready: str, spec: dict[str, Any], state: NodeState) -> None:
    """A cordon keeps new ranks away; a node that answers no more has failed."""
    given_node = node(conditions=[{"type": "Ready", "status": ready, "message": "kubelet stopped"}])
    given_node["spec"] |= spec
    (host,) = hosts(read_tree(given_node))
    assert host.state is state


def test_a_broken_accelerator_is_a_health_fact() -> None:
    """The node is Ready, but its agent says that its GPUs are not."""
    conditions = [
        {"type": "Ready", "status": "True"},
        {"type": "AcceleratedHardwareReady", "status": "False", "reason": "XID79"},
        {"type": "MemoryPressure", "status": "False"},
    ]
    troubles = [fact for fact in read_tree(node(conditions=conditions)).facts if isinstance(fact, HealthFact)]
    assert [(trouble.host, trouble.state) for trouble in troubles] == [("gpu-17", NodeState.FAILED)]
    assert "XID79" in troubles[0].text


def test_what_is_no_gpu_node_is_refused_with_its_place() -> None:
    """A control plane node and a pod say why they are not taken."""
    plain = node("cp-1", capacity={"cpu": "16", "memory": "64Gi"}, allocatable={})
    plain["metadata"]["labels"] = {"kubernetes.io/hostname": "cp-1"}
    read = read_tree({"items": [plain, {"kind": "Pod", "metadata": {"name": "p"}}, 7]})
    assert read.facts == ()
    assert [refusal.shown for refusal in read.refusals] == ["items[0]", "items[1]", "items[2]"]
    assert "no GPU" in read.refusals[0].sentence
    assert "Pod" in read.refusals[1].sentence


@pytest.mark.parametrize(
    ("labels", "place"),
    [
        (
            {
                "oci.oraclecloud.com/rdma.host_id": "h9",
                "oci.oraclecloud.com/rdma.local_block_id": "lb",
                "oci.oraclecloud.com/rdma.network_block_id": "nb",
                "oci.oraclecloud.com/rdma.hpc_island_id": "is",
            },
            {"level1": "lb", "level2": "nb", "level3": "is", "leaf": "lb"},
        ),
        (
            {f"topology.k8s.aws/network-node-layer-{n}": f"nn{n}" for n in (1, 2, 3)},
            {"level1": "nn3", "level2": "nn2", "level3": "nn1", "leaf": "nn3"},
        ),
        (
            {
                "cloud.google.com/gce-topology-block": "b",
                "cloud.google.com/gce-topology-subblock": "s",
                "cloud.google.com/gce-topology-host": "h",
            },
            {"level1": "s", "level2": "b", "leaf": "s"},
        ),
        (
            {"fabric.topograph.run/tier-0": "t0", "fabric.topograph.run/tier-1": "t1"},
            {"level1": "t0", "level2": "t1", "leaf": "t0"},
        ),
        (
            {"network.topology.nvidia.com/leaf": "l", "network.topology.nvidia.com/spine": "s"},
            {"level1": "l", "level2": "s", "leaf": "l"},
        ),
    ],
)
def test_levels_count_from_the_host_up(labels: dict[str, str], place: dict[str, str]) -> None:
    """Every provider counts its own way; ours begins below."""
    assert dict(read_labels(labels).place) == place


@pytest.mark.parametrize("nothing", ["no-imds-data", "", "unknown", " "])
def test_unknown_places_make_no_neighbours(nothing: str) -> None:
    """All nodes without metadata would else share one block."""
    labels = {f"oci.oraclecloud.com/rdma.{part}_id": nothing for part in ("local_block", "network_block")}
    said = read_labels(labels)
    assert said.place == {}
    assert [note.code for note in said.notes] == ["unknown-place"]


@pytest.mark.parametrize("clique", ["", ".", ".0", "00000000-0000-0000-0000-000000000000.0", "abc", "abc.x"])
def test_a_clique_without_cluster_is_no_domain(clique: str) -> None:
    """Nodes whose NVLink ends in the node have an empty clique."""
    assert read_labels({"nvidia.com/gpu.clique": clique}).domain is None


JSON_VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), inner, max_size=5)
    ),
    max_leaves=30,
)


@given(JSON_VALUES)
def test_no_tree_breaks_the_reader(tree: Any) -> None:
    """Any value is read or refused, and every line named exists."""
    read = read_tree(tree)
    lines = json.dumps(tree, indent=2).count("\n") + 1
    assert all(1 <= fact.origin.first_line <= lines for fact in read.facts)
    if not read.facts:
        assert read.refusals or not tree


@given(st.sampled_from(FORMATS), st.text(max_size=400), st.integers(0, 3000), st.integers(0, 3000))
def test_no_text_breaks_a_reader(form: Format, noise: str, cut: int, at: int) -> None:
    """Damaged labels, tables and descriptions are read or refused."""
    whole = "\n".join(f'"{key}": "{value}",' for key, value in GPU_LABELS.items()) + "\nName:  n\nLabels:  a=b\n"
    text = whole[:at] + noise + whole[cut:]
    read = understood(form, source_of(text))
    lines = text.count("\n") + 1
    assert all(1 <= fact.origin.first_line <= fact.origin.last_line <= lines for fact in read.facts)


def test_an_instance_type_of_the_catalogue_tells_the_hardware() -> None:
    """Places come from the topology that AWS dumps, and from labels; other statements about the node go before."""
    dump = {
        "Instances": [
            {
                "InstanceId": f"i-0{at}",
                "InstanceType": "p4de.24xlarge",
                "NetworkNodes": ["nn-1", "nn-2", f"nn-{at + 3}"],
                "AvailabilityZone": "us-west-2a",
            }
            for at in range(2)
        ]
        + [{"InstanceId": "i-09", "InstanceType": "m5.large", "NetworkNodes": ["nn-1"]}]
    }
    report = report_of({"instances.json": json.dumps(dump)})
    assert {
        name: (f["gpu_kind"], f["gpu_count"], f["nics"].count) for name, f in fields_of(report.proposal).items()
    } == {
        "i-00": ("A100-SXM4-80GB", 8, 4),
        "i-01": ("A100-SXM4-80GB", 8, 4),
    }
    assert report.proposal.questions == ()
    azure = [node("a1", {"node.kubernetes.io/instance-type": "Standard_ND96isr_H100_v5"})]
    fields = fields_of(report_of({"nodes.json": json.dumps({"kind": "List", "items": azure})}).proposal)["a1"]
    assert fields["nics"].fabric == "infiniband"
    amsr = [node("a1", {"node.kubernetes.io/instance-type": "Standard_ND96amsr_A100_v4"})]
    fields = fields_of(report_of({"nodes.json": json.dumps({"kind": "List", "items": amsr})}).proposal)["a1"]
    assert (fields["gpu_kind"], fields["nics"].count) == ("H100-SXM5-80GB", 8)
