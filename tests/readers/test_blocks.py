"""Blocks of schedulers: labels, unless NVLink can join their nodes."""

from __future__ import annotations

import pytest

from readers.proposal.values import Answers
from tests.readers.uploads import codes_of, fields_of, report_of, slurm_nodes

TOPOLOGY_YAML = """\
- topology: fabric
  cluster_default: true
  tree:
    switches:
      - switch: island-x3k
        children: lb-9qq
      - switch: lb-9qq
        nodes: gpu-[1-2]
- topology: blocks
  block:
    block_sizes: [2]
    blocks:
      - block: lb-9qq
        nodes: gpu-[1-2]
"""
TRAYS = "".join(f"BlockName=rack{rack} Nodes=t{rack}[01-18]\n" for rack in (1, 2))
RACK = tuple(f"t{rack}{tray:02d}" for rack in (1, 2) for tray in range(1, 19))
UUID = "7d1f0c52-4cc1-4f6c-9a39-0d6d1c0f5e11"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("topology.yaml", TOPOLOGY_YAML),
        ("topology.conf", "BlockName=lb-9qq Nodes=gpu-[1-2]\nBlockSizes=2\n"),
    ],
)
def test_a_block_of_gpus_whose_nvlink_ends_with_the_node_is_a_label(name: str, text: str) -> None:
    """The local block of an RDMA network is not an NVLink domain of eight-GPU nodes."""
    report = report_of({name: text, "nodes.txt": slurm_nodes("gpu-1", "gpu-2")})
    for fields in fields_of(report.proposal).values():
        assert "nvlink_domain" not in fields
        assert fields["labels.block"] == "lb-9qq"
    (doubt,) = [doubt for doubt in report.proposal.doubts if doubt.code == "block-is-label"]
    assert "lb-9qq" in doubt.sentence
    assert "H100-SXM5-80GB" in doubt.sentence


def test_a_block_of_trays_whose_gpus_form_domains_over_nodes_is_one() -> None:
    report = report_of({"topology.conf": TRAYS, "nodes.txt": slurm_nodes(*RACK, gpus="gpu:gb200:4")})
    domains = {name: fields.get("nvlink_domain") for name, fields in fields_of(report.proposal).items()}
    assert domains == {name: f"rack{name[1]}" for name in RACK}
    assert "block-is-label" not in codes_of(report.proposal)


def test_a_block_of_more_gpus_than_nvlink_joins_is_a_label() -> None:
    """Two racks of 72 GPUs in one block are not one domain of 144."""
    block = "BlockName=hall Nodes=t1[01-18],t2[01-18]\n"
    report = report_of({"topology.conf": block, "nodes.txt": slurm_nodes(*RACK, gpus="gpu:gb200:4")})
    assert not any("nvlink_domain" in fields for fields in fields_of(report.proposal).values())
    (doubt,) = [doubt for doubt in report.proposal.doubts if doubt.code == "block-is-label"]
    assert "144" in doubt.sentence
    assert "72" in doubt.sentence


def test_blocks_wait_for_the_gpu_kind_where_no_file_says_it() -> None:
    """A kind that is answered counts as one that a file names."""
    untyped = slurm_nodes(*RACK, gpus="gpu:4")
    files = {"topology.conf": TRAYS, "nodes.txt": untyped}
    unknown = report_of(files)
    assert not any("nvlink_domain" in fields for fields in fields_of(unknown.proposal).values())
    (doubt,) = [doubt for doubt in unknown.proposal.doubts if doubt.code == "block-is-label"]
    assert "2 blocks" in doubt.sentence
    for answers in (
        Answers(gpu_kind="GB200"),
        Answers(chosen={"*.gpu_kind": "GB200"}),
        Answers(node_kind="GB200 NVL72 tray"),
    ):
        told = fields_of(report_of(files, answers).proposal)
        assert {fields.get("nvlink_domain") for fields in told.values()} == {"rack1", "rack2"}


def test_a_cluster_uuid_beside_a_block_is_no_conflict() -> None:
    """The UUID names the domain of every GPU kind, the block its label: one line of one file, nothing differs."""
    text = f"# ClusterUUID and CliqueID: {UUID}.7\nBlockName=block1 Nodes=t1[01-18]\n"
    for gpus in ("gpu:gb300:4", "gpu:4"):
        report = report_of({"topology.conf": text, "nodes.txt": slurm_nodes(*RACK[:18], gpus=gpus)})
        assert report.proposal.conflicts == ()
        assert {fields["nvlink_domain"] for fields in fields_of(report.proposal).values()} == {f"{UUID}.7"}
        assert {fields["labels.block"] for fields in fields_of(report.proposal).values()} == {"block1"}
        assert "block-is-label" not in codes_of(report.proposal)


def test_a_list_of_cluster_uuids_counts_for_nodes_that_are_stored_already() -> None:
    """The output of a node tool is believed before the default of a node: a domain of its own."""
    nodes = {"nodes.txt": slurm_nodes("t101", "t102", gpus="gpu:gb200:4")}
    answers = Answers(chosen={"*.nics": "4 x 400 infiniband"})
    before = report_of(nodes, answers).cluster
    assert before is not None
    lists = {"uuids.txt": f"t101 {UUID}\nt102 {UUID}\n"}
    after = report_of(lists, known=before.to_cluster())
    assert after.cluster is not None
    assert {node.nvlink_domain for node in after.cluster.nodes} == {UUID}
    assert after.proposal.conflicts == ()
