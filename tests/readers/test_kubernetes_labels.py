"""Labels of nodes as people paste them: fragments, tables, columns and descriptions."""

from __future__ import annotations

import json
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.topology import NodeState
from readers.frame.facts import NameKind
from readers.registry import read as read_file
from tests.readers.kubernetes_samples import GPU_LABELS, LABELS, codes, hosts, node
from tests.readers.real_files import source_of, understood

STYLES: Final = {
    "equals": "{key}={value}",
    "yaml": "  {key}: {value}",
    "quoted": '      "{key}": "{value}",',
}


@pytest.mark.parametrize("style", STYLES)
def test_fragments_of_labels_are_read_in_any_style(style: str) -> None:
    """Equal signs, YAML or JSON without its braces say the same; a key that comes again is the next node."""
    second = GPU_LABELS | {"kubernetes.io/hostname": "gpu-18", "nvidia.com/gpu.count": "4"}
    text = "\n".join(
        STYLES[style].format(key=key, value=value)
        for labels in (GPU_LABELS, second)
        for key, value in labels.items()
    )
    first, other = hosts(understood(LABELS, source_of(text)))
    assert (first.names[0].text, first.gpu_count) == ("gpu-17", 8)
    assert (other.names[0].text, other.gpu_count) == ("gpu-18", 4)
    assert other.origin.first_line == len(GPU_LABELS) + 1
    assert any(LABELS.begins[-1].match(line) for line in text.split("\n"))


def test_a_fragment_takes_its_name_from_the_sender() -> None:
    """A file of one node need not name it; what is not a label is refused by line."""
    text = "$ kubectl get node\nnvidia.com/gpu.count=8\nhello\nworld\n"
    read = understood(LABELS, source_of(text, host="gpu-3"))
    assert [name.text for name in hosts(read)[0].names] == ["gpu-3"]
    assert [(refusal.first_line, refusal.last_line) for refusal in read.refusals] == [(1, 1), (3, 4)]


def test_show_labels_table() -> None:
    """A row a node: status, cordon and labels."""
    labels = ",".join(f"{key}={value}" for key, value in GPU_LABELS.items())
    text = (
        "NAME     STATUS                     ROLES    AGE   VERSION   LABELS\n"
        f"gpu-17   Ready                      <none>   91d   v1.33.2   {labels}\n"
        f"gpu-18   Ready,SchedulingDisabled   <none>   91d   v1.33.2   {labels}\n"
        f"gpu-19   NotReady                   <none>   91d   v1.33.2   {labels}\n"
        "Error from server\n"
    )
    read = understood(LABELS, source_of(text))
    assert [(host.names[0].text, host.state) for host in hosts(read)] == [
        ("gpu-17", NodeState.READY),
        ("gpu-18", NodeState.UNKNOWN),
        ("gpu-19", NodeState.FAILED),
    ]
    assert hosts(read)[0].gpu_count == 8
    assert [refusal.first_line for refusal in read.refusals] == [5]


def test_described_nodes() -> None:
    """Sections of ``kubectl describe nodes`` become the same node."""
    text = (
        "Name:               gpu-17\n"
        "Roles:              <none>\n"
        "Labels:             nvidia.com/gpu.count=8\n"
        "                    nvidia.com/gpu.product=NVIDIA-H200\n"
        "Taints:             node.kubernetes.io/unschedulable:NoSchedule\n"
        "Unschedulable:      true\n"
        "Conditions:\n"
        "  Type             Status  Reason\n"
        "  Ready            True    KubeletReady\n"
        "Addresses:\n"
        "  InternalIP:  10.7.0.17\n"
        "Capacity:\n"
        "  cpu:             192\n"
        "  nvidia.com/gpu:  8\n"
        "Allocatable:\n"
        "  nvidia.com/gpu:  7\n"
        "\n"
        "Name:               cp-1\n"
        "Capacity:\n"
        "  cpu:             8\n"
    )
    read = understood(LABELS, source_of(text))
    (host,) = hosts(read)
    assert (host.gpu_product, host.gpu_count, host.state) == ("NVIDIA-H200", 8, NodeState.FAILED)
    assert host.names[1].kind is NameKind.ADDRESS
    assert codes(read) == ["gpus-unhealthy"]
    assert [refusal.shown for refusal in read.refusals] == ["cp-1"]


def test_a_paste_of_all_forms_is_cut_where_each_begins() -> None:
    """The registry gives all of it to one reader, which takes the parts apart; a cut list keeps what it told."""
    cut = json.dumps({"items": [node("gpu-1"), node("gpu-2")]}, indent=1)[:-400]
    table = "NAME  STATUS  ROLES  AGE  VERSION  LABELS\ngpu-3  Ready  <none>  9d  v1.33  nvidia.com/gpu.count=4\n"
    described = "Name:               gpu-4\nLabels:             nvidia.com/gpu.count=2\n"
    source = source_of(f"{cut}\n{table}{described}{described.replace('gpu-4', 'gpu-5')}")
    ((section, read),) = read_file(source).sections
    assert section.format == "kubernetes-labels"
    assert [host.gpu_count for host in hosts(read)] == [8, 8, 4, 2, 2]
    assert [host.names[0].text for host in hosts(read)[2:]] == ["gpu-3", "gpu-4", "gpu-5"]


def test_columns_of_labels_are_read_by_their_headings() -> None:
    """``kubectl get nodes -L``: empty cells are not labels."""
    rows = [
        ("NAME", "STATUS", "ROLES", "AGE", "VERSION", "GPU.PRODUCT", "GPU.COUNT", "GPU.CLIQUE", "LEAFGROUP"),
        (
            "oak1",
            "Ready",
            "<none>",
            "9d",
            "v1.32.1",
            "NVIDIA-GB200",
            "4",
            "7d3b5c1e-0000-4000-8000-000000000001.7",
            "12",
        ),
        ("oak2", "Ready,SchedulingDisabled", "<none>", "9d", "v1.32.1", "NVIDIA-GB200", "4", "", "13"),
    ]
    text = "".join("".join(f"{cell:<40}" for cell in row) + "\n" for row in rows)
    ((section, found),) = read_file(source_of(text)).sections
    assert section.format == "kubernetes-labels"
    one, other = hosts(found)
    assert (one.gpu_product, one.gpu_count, one.labels["leaf"]) == ("NVIDIA-GB200", 4, "12")
    assert one.scale_up_domain == "7d3b5c1e-0000-4000-8000-000000000001.7"
    assert (other.scale_up_domain, other.labels["leaf"]) == (None, "13")


def test_a_list_of_nodes_without_labels_is_refused_with_what_to_send() -> None:
    text = (
        "NAME   STATUS   ROLES    AGE   VERSION   INTERNAL-IP\noak1   Ready    <none>   9d    v1.32.1   10.9.9.9\n"
    )
    ((_, found),) = read_file(source_of(text)).sections
    assert found.facts == ()
    (refusal,) = found.refusals
    assert "-o json" in refusal.remedy


@pytest.mark.parametrize("columns", ["LABELS", "GPU.COUNT   LEAFGROUP", "AGE"])
@given(st.text(max_size=80))
def test_any_rows_below_the_heading_of_a_list_are_taken(columns: str, rows: str) -> None:
    read_file(source_of(f"NAME   STATUS   ROLES    AGE   VERSION   {columns}\n\n{rows}\n"))
