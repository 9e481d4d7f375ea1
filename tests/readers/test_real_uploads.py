"""Uploads of files that other tools printed on real machines, from bytes to documents."""

from __future__ import annotations

from typing import Final

import pytest

from app.imports.dry_run import Report, dry_run
from app.imports.sources import SentFile
from readers.frame.findings import Severity
from readers.proposal.aliases import AliasTable
from readers.proposal.values import Answers
from readers.registry import read
from tests.readers.real_files import DATA, source_of

TOPOLOGY: Final = DATA / "topology"
FILES: Final = sorted(str(path.relative_to(TOPOLOGY)) for path in TOPOLOGY.glob("*/*") if path.is_file())
KINDS: Final = {
    "failure_signals": {"nhc", "kernel-log", "fabric-manager"},
    "iperf3": {"iperf3", "iperf3-json"},
    "kubernetes": {"kubernetes-nodes", "kubernetes-labels"},
    "nccl_tests": {"nccl-tests", "nccl-sweep-table", "nccl-sweep-failures"},
    "nccl_topo_xml": {"nccl-topology", "nccl-graph"},
    "nvbandwidth": {"nvbandwidth", "nvbandwidth-json"},
    "nvidia_smi_nvlink": {"nvidia-smi-nvlink"},
    "nvidia_smi_topo": {"nvidia-smi-topo"},
    "osu": {"osu"},
    "p2p": {"p2p-test", "gpu-copy"},
    "pci": {"lspci"},
    "rccl_tests": {"nccl-tests"},
    "rocm_smi_topo": {"rocm-smi-topo"},
    "slurm": {"slurm-topology", "slurm-topology-yaml", "slurm-nodes", "port-guids", "nvlink-cluster-uuids"},
    "taccl_profiles": {"taccl-profile"},
    "topograph_models": {"topograph-model"},
}
"""Formats that the files of a folder may be of; folders of many kinds are not here."""


def upload(*names: str, answers: Answers) -> Report:
    files = []
    for name in names:
        path = TOPOLOGY / name
        if not path.exists():
            pytest.skip(f"{name} is not here")
        files.append(SentFile(path.name, path.read_bytes()))
    return dry_run(files, name="new", known=None, known_samples=(), aliases=AliasTable(), answers=answers)


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_recognised_as_one_kind(name: str) -> None:
    """Each is the output of one tool: one section, of a format of its folder, and facts or a reason for none."""
    found = read(source_of((TOPOLOGY / name).read_text(encoding="utf-8", errors="replace"), name))
    assert len(found.sections) == 1
    section, understood = found.sections[0]
    assert section.format in KINDS.get(name.partition("/")[0], {section.format})
    assert understood.facts or understood.refusals


def test_a_sweep_of_17_nodes_becomes_a_cluster() -> None:
    """Pairs that failed in one test and succeeded in others keep both."""
    report = upload(
        "nccl_tests/pairwise_h100_17node_summary.csv",
        "nccl_tests/pairwise_h100_failures_list.txt",
        answers=Answers(node_kind="DGX H100/H200", gpu_kind="H100-SXM5-80GB"),
    )
    assert report.problems == ()
    assert report.cluster is not None
    assert len(report.cluster.to_cluster().nodes) == 17
    assert len({sample.source for sample in report.measurements.samples}) >= 16


def test_the_template_of_a_cloud_node_gives_the_cards_of_all() -> None:
    """p5: 8 GPUs and 32 cards of 100 Gb/s; the log of two nodes without a rank list waits for their names."""
    log, template = "aws_p5_2node_16gpu_allreduce_srun_prefix.txt", "aws_p5.48xl-topo.xml"
    answers = Answers(nodes={f"{log}:1": ("p5-a", "p5-b")}, hosts={template: "*"}, gpu_kind="H100-SXM5-80GB")
    report = upload(f"nccl_tests/{log}", f"nccl_topo_xml/{template}", answers=answers)
    assert report.problems == ()
    cards = {node.fields["nics"].value for node in report.proposal.nodes}
    assert {(nics.count, nics.bytes_per_s) for nics in cards} == {(32, 12.5e9)}
    assert report.measurements.samples[-1].bandwidth_gbytes_per_s == pytest.approx(479.28)


def test_a_fallback_to_tcp_is_rejected_beside_the_good_run_of_the_same_pair() -> None:
    good, slow = "cscs_gh200_internode_osu_bw_DD.txt", "cscs_gh200_internode_osu_bw_DD_fallback.txt"
    answers = Answers(
        nodes={f"{good}:1": ("a", "b"), f"{slow}:1": ("a", "b")},
        gpu_kind="GH200-96GB",
        chosen={"*.gpu_count": "4", "*.nics": "4 x 200 slingshot"},
    )
    report = upload(f"osu/{good}", f"osu/{slow}", answers=answers)
    rejected = {
        (doubt.place.file, doubt.code) for doubt in report.proposal.doubts if doubt.severity is Severity.REJECT
    }
    assert (slow, "tcp-fallback") in rejected
    assert {one.origin.file for one in report.proposal.samples} == {good}
