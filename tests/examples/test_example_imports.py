"""The shipped outputs of tools, taken in as a newcomer does."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import main
from app.documents.plan import plan_from_text
from app.imports.dry_run import Report, dry_run
from app.imports.sources import SentFile
from cluster_models.cluster.measurements import Collective, Sample, SampleStatus
from readers.frame.findings import Severity
from readers.proposal.aliases import AliasTable
from readers.proposal.values import EVERY_NODE, Answers

FOLDER = Path(__file__).parents[2] / "examples" / "imports"
NODES = ("node-1", "node-2", "node-3", "node-4")
FORMATS = {
    "all_reduce-node-1-node-2.log": "nccl-tests",
    "iblinkinfo.txt": "iblinkinfo",
    "iperf3-node-1-node-3.txt": "iperf3",
    "nodes.json": "kubernetes-nodes",
    "pairs.csv": "own-table",
    "sendrecv-node-3-node-4-tcp.log": "nccl-tests",
    "topo-node-1.txt": "nvidia-smi-topo",
    "topology.conf": "slurm-topology",
}
FALLBACK = "sendrecv-node-3-node-4-tcp.log:21:tcp-fallback"


def report(answers: Answers) -> Report:
    """Report of an import of all files of the folder."""
    files = [SentFile(path.name, path.read_bytes()) for path in sorted(FOLDER.iterdir())]
    return dry_run(files, name="demo", known=None, known_samples=(), aliases=AliasTable(), answers=answers)


@pytest.fixture(scope="module")
def untold() -> Report:
    """The report before the sender answers anything."""
    return report(Answers())


def samples_of(found: Report, *nodes: str) -> list[Sample]:
    """The samples of one pair."""
    return [one.sample for one in found.proposal.samples if {one.sample.source, one.sample.destination} == {*nodes}]


def test_every_file_is_known_and_taken_whole(untold: Report) -> None:
    """One section a file, of the kind it is, and no line refused."""
    kinds = {reading.file: [section.format for section, _ in reading.sections] for reading in untold.readings}
    assert kinds == {file: [form] for file, form in FORMATS.items()}
    refused = [reading.refusals for reading in untold.readings]
    refused += [understood.refusals for reading in untold.readings for _, understood in reading.sections]
    assert set(refused) == {()}


def test_the_files_make_a_cluster_without_an_answer(untold: Report) -> None:
    """Kubernetes gives nodes and GPUs, iblinkinfo the cards, Slurm the leaves; one question is left open."""
    assert untold.cluster is not None
    assert untold.problems == ()
    nodes = {node.name: node for node in untold.cluster.to_cluster().nodes}
    assert tuple(nodes) == NODES
    assert {(node.gpu_kind, node.gpu_count) for node in nodes.values()} == {("H100-SXM5-80GB", 8)}
    assert {(node.nics.count, node.nics.bytes_per_s, node.nics.fabric) for node in nodes.values()} == {
        (8, 50e9, "infiniband")
    }
    assert [nodes[name].labels["leaf"] for name in NODES] == ["leaf-1", "leaf-1", "leaf-2", "leaf-2"]
    assert [question.key for question in untold.proposal.questions] == ["host:topo-node-1.txt"]
    assert untold.proposal.conflicts == ()


def test_figures_are_those_of_the_files(untold: Report) -> None:
    """Out-of-place bus bandwidth of the log's last row, and the table's largest all-to-all."""
    reduced = [one for one in samples_of(untold, "node-1", "node-2") if one.collective is Collective.ALL_REDUCE]
    largest = max(reduced, key=lambda one: one.message_bytes)
    assert (largest.message_bytes, largest.ranks_per_node) == (2**32, 8)
    assert largest.bytes_per_s == pytest.approx(433.78e9)
    exchanged = [one for one in samples_of(untold, "node-1", "node-3") if one.collective is Collective.ALL_TO_ALL]
    assert [one.bytes_per_s for one in exchanged] == pytest.approx([53.21e9, 72.05e9, 79.31e9])
    failed = [one for one in samples_of(untold, "node-2", "node-4") if one.status is SampleStatus.FAILED]
    assert [(one.collective, one.ranks_per_node) for one in failed] == [(Collective.ALL_TO_ALL, 8)]


def test_a_fallback_to_tcp_stays_out_until_it_is_accepted(untold: Report) -> None:
    """2.2 GB/s over cards of 50 GB/s are rejected with their line; accepting the doubt lets all rows in."""
    doubts = {doubt.key: doubt.severity for doubt in untold.proposal.doubts}
    assert doubts == {FALLBACK: Severity.REJECT}
    accepted = report(Answers(accepted=frozenset({FALLBACK})))
    before, after = (len(samples_of(one, "node-3", "node-4")) for one in (untold, accepted))
    assert (before, after) == (6, 15)
    assert accepted.digest != untold.digest


def test_figures_between_host_memories_are_kept_aside(untold: Report) -> None:
    """iperf3 names its hosts by address, which the node list knows, and says nothing of GPUs."""
    aside = [(type(fact).__name__, reason) for fact, reason in untold.proposal.kept_aside]
    assert aside == [("RunFact", "measured between host memories: says nothing of GPUs")]


def test_one_answer_leaves_no_question() -> None:
    """The drawing of one node is taken for all equal nodes."""
    told = report(Answers(hosts={"topo-node-1.txt": EVERY_NODE}))
    assert told.proposal.questions == ()
    assert told.proposal.conflicts == ()
    assert told.cluster is not None


def test_a_newcomer_plans_on_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands that README and manual print, one after another: import, measure, plan, export."""
    cluster, plan, scripts = tmp_path / "demo.yaml", tmp_path / "plan.json", tmp_path / "measure"
    files = [str(path) for path in sorted(FOLDER.iterdir())]
    assert main(["import", *files, "--cluster", "demo", "--output", str(cluster)]) == 0
    said = capsys.readouterr().out
    assert "tcp-fallback" in said
    assert "2 nodes: 8 x H100-SXM5-80GB, 8 x 400 Gb/s infiniband" in said
    assert main(["measure", str(cluster), "--for", "slurm", "--output", str(scripts)]) == 0
    assert "pair node-2 node-4" in (scripts / "measure.sh").read_text("utf-8").partition("# round 2")[0]
    workload = FOLDER.parent / "workloads" / "llama-3-8b-small.yaml"
    asked = ["--cluster", str(cluster), "--model", "llama-3-8b", "--workload", str(workload), "--output", str(plan)]
    assert main(["plan", *asked]) == 0
    found = plan_from_text(plan.read_text("utf-8"), what="plan")
    assert set(found.placement.hosts) <= set(NODES)
    assert (
        main(["export", str(plan), "--format", "kueue", "--set", "queue=research", "--output", str(tmp_path)]) == 0
    )
    assert "research" in (tmp_path / "jobset.yaml").read_text("utf-8")
