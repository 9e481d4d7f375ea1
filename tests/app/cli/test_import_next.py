"""The command that an import prints to be typed next: what files support, or words that it refuses."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.app.cli_imports import NICS, run
from tests.readers.nccl_logs import log
from tests.readers.uploads import slurm_nodes

BOXES = log(["genoa-06"], 2, program="all_reduce").replace("NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 5090")
IBSTAT = (
    "CA 'mlx5_0'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n"
    "\t\tPhysical state: LinkUp\n\t\tRate: 400\n\t\tBase lid: 9\n\t\tLink layer: InfiniBand\n"
)

IBSTATUS = (
    "Infiniband device 'mlx5_0' port 1 status:\n\tstate:\t\t 4: ACTIVE\n\trate:\t\t 400 Gb/sec (4X NDR)\n"
    "\tlink_layer:\t InfiniBand\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")


def next_words(out: str) -> list[str]:
    """The words behind "meshwright import" of the last command that is shown."""
    line = [line.strip() for line in out.splitlines() if line.strip().startswith("meshwright import ")][-1]
    return shlex.split(line)[2:]


@pytest.mark.parametrize(
    "text",
    [
        BOXES,
        BOXES.replace("NVIDIA GeForce RTX 5090", "Tesla V100-SXM2-16GB"),
        BOXES.replace("NVIDIA GeForce RTX 5090", "AMD Instinct MI300X"),
        log(["n1", "n2"], 8),
        slurm_nodes("n1", "n2"),
        slurm_nodes("n1", "n2", gpus="gpu:8"),
        slurm_nodes("n1", gpus="gpu:a10:2"),
        "SwitchName=s1 Nodes=n[1-2]\n",
    ],
)
def test_the_next_command_pasted_as_printed_invents_no_hardware(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with code 2, and nothing is written."""
    Path("a.txt").write_text(text)
    code, out, _ = run(capsys, "a.txt")
    words = next_words(out)
    assert (code, words[0]) == (0, "a.txt")
    assert not any("DGX" in word or "H100-SXM5" in word or "400" in word for word in words)
    code, _, err = run(capsys, *words, "--output", "new.yaml")
    assert code == 2
    assert err.startswith("meshwright: ")
    assert not Path("new.yaml").exists()


def test_node_kinds_with_these_gpus_are_named_and_the_choice_is_left_open(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where a node kind answers more than one question, it goes into the command as a word to replace."""
    Path("nodes.txt").write_text(slurm_nodes("n1", "n2", gpus="gpu:h100:8"))
    _, out, _ = run(capsys, "nodes.txt")
    assert "DGX H100/H200, p5.48xlarge" in out
    assert "*.nics=CARDS x GBITS FABRIC" in next_words(out)
    Path("top.conf").write_text("SwitchName=s1 Nodes=n[1-2]\n")
    _, out, _ = run(capsys, "top.conf")
    assert next_words(out)[1:] == ["--set", "node_kind=NODE_KIND"]


def test_what_files_say_of_all_other_nodes_is_proposed(capsys: pytest.CaptureFixture[str]) -> None:
    Path("nodes.txt").write_text(slurm_nodes("n1", "n2") + slurm_nodes("n3", gpus="gpu:8"))
    _, out, _ = run(capsys, "nodes.txt", *NICS)
    assert "*.gpu_kind=H100-SXM5-80GB" in next_words(out)


@pytest.mark.parametrize("text", [BOXES, slurm_nodes("n1", gpus="gpu:h100:2"), slurm_nodes("n1", gpus="gpu:2")])
def test_node_kinds_with_other_gpus_are_not_offered(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither of more GPUs than the files show, nor for a product that the catalogue does not have."""
    Path("a.txt").write_text(text)
    _, out, _ = run(capsys, "a.txt")
    assert "A node kind of the catalogue" not in out
    assert "node_kind=" not in out


def test_a_product_that_is_not_known_is_what_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """By its name, once, and not again as the GPU kind of its node."""
    Path("a.txt").write_text(BOXES)
    _, out, _ = run(capsys, "a.txt")
    words = next_words(out)
    assert "gpu_kind:NVIDIA GeForce RTX 5090=GPU_KIND" in words
    assert not any(word.startswith("*.gpu_kind") for word in words)


def test_a_run_on_one_node_asks_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Not for "1 nodes", nor for two names."""
    Path("run.log").write_text(log(["localhost"], 8))
    _, out, _ = run(capsys, "run.log")
    assert "On which node was" in out
    assert "1 nodes" not in out
    assert any(word.startswith("nodes:run.log:") and word.endswith("=NODE") for word in next_words(out))


@pytest.mark.parametrize("text", [IBSTAT, IBSTATUS])
def test_a_host_that_is_named_for_a_file_is_a_node(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the file shows no GPU: the question is answered, and the next one is another."""
    Path("ports.txt").write_text(text)
    _, out, _ = run(capsys, "ports.txt")
    assert "--host ports.txt=NODE" in out
    code, out, _ = run(capsys, "ports.txt", "--host", "ports.txt=gpu-7")
    assert code == 0
    assert "gpu-7" in out
    words = next_words(out)
    assert words[:3] == ["ports.txt", "--host", "ports.txt=gpu-7"]
    assert sum(word == "--host" for word in words) == 1
    kind = ("--set", "*.gpu_kind=H100-SXM5-80GB", "--set", "*.gpu_count=8")
    assert run(capsys, "ports.txt", "--host", "ports.txt=gpu-7", *kind, "--output", "new.yaml")[0] == 0


def test_a_health_log_alone_makes_no_node(capsys: pytest.CaptureFixture[str]) -> None:
    """Logs of every host of a site come from storage and login hosts, too."""
    Path("n1.log").write_text(log(["n1", "n2"], 8))
    Path("dmesg.txt").write_text("[  12.345678] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n")
    _, out, _ = run(capsys, "n1.log", "dmesg.txt", *NICS, "--host", "dmesg.txt=login-1")
    assert "2 nodes" in out
    assert "login-1" in out


def test_more_hosts_than_a_cluster_may_have_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is worked out for each of them, and no question is asked that could not help."""
    Path("topology.conf").write_text("SwitchName=a Nodes=n[0001-1500]\nSwitchName=b Nodes=n[1501-3000]\n")
    _, out, _ = run(capsys, "topology.conf")
    told = " ".join(out.split())
    assert "nodes: a cluster has at most 2,048 nodes (got 3000); plan a part of it" in told
    assert "What only you know" not in told
    assert told.endswith("Nothing is stored. See above for why.")


def test_a_node_kind_is_offered_below_what_it_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """It answers questions of hardware, not how many ranks a run had: that is asked below and next."""
    Path("mpigraph_MBps.csv").write_text("node,n1,n2\nn1,,19000\nn2,18000,\n")
    _, out, _ = run(capsys, "mpigraph_MBps.csv")
    cards, kind, ranks = (
        out.index(text)
        for text in ("'*.nics=CARDS x GBITS FABRIC'", "answers all of these", "How many ranks per node")
    )
    assert cards < kind < ranks
    assert next_words(out)[-4:] == ["--set", "node_kind=NODE_KIND", "--set", "ranks:mpigraph_MBps.csv:1=RANKS"]
