"""``meshwright import``: what it reads, what it says of it, what it writes and stores, and how it ends."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.cli import main
from app.cli.files import read_snapshot
from app.documents.plan import plan_from_text
from tests.app.cli_imports import HOSTS, NICS, ONE_RANK, WIRING, plain, run, write_logs
from tests.app.command_files import CLUSTER, WORKLOAD
from tests.readers.nccl_logs import log


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the log of each pair of three nodes, inside the folder we work in."""
    monkeypatch.chdir(tmp_path)
    return write_logs(tmp_path)


def test_a_folder_of_logs_becomes_a_cluster_that_plan_takes(
    logs: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The whole way: logs in, cluster file, plan out; the command to type next is printed."""
    code, out, err = run(capsys, "logs", *NICS, "--output", "c.yaml")
    assert (code, err) == (0, "")
    assert "3 files  3 nodes  9 measurements" in out
    assert "meshwright plan --cluster c.yaml" in out
    snapshot = read_snapshot("c.yaml")
    assert (snapshot.cluster.name, [node.name for node in snapshot.cluster.nodes]) == ("c", list(HOSTS))
    assert {(sample.source, sample.destination) for sample in snapshot.samples} == {
        ("n1", "n2"),
        ("n1", "n3"),
        ("n2", "n3"),
    }
    (tmp_path / "w.yaml").write_text(WORKLOAD)
    words = ["plan", "--cluster", "c.yaml", "--model", "llama-3-8b", "--workload", "w.yaml", "--time-limit", "5"]
    assert main([*words, "--effort", "1", "--json"]) == 0
    plan = plan_from_text(capsys.readouterr().out)
    assert set(plan.placement.hosts) <= set(HOSTS)


def test_a_dry_run_writes_nothing_and_asks_with_the_option_that_answers(
    logs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question comes with its option, the last line is the same command with it, and no database is made."""
    home = logs.parent / "home"
    monkeypatch.setenv("HOME", str(home))
    code, out, err = run(capsys, "logs")
    assert (code, err) == (0, "")
    assert "3 sizes of alltoall among 16 GPUs of n1 and n2" in plain(out)
    assert "--set '*.nics=CARDS x GBITS FABRIC'" in out
    assert "1 question above must be answered first" in plain(out)
    assert out.rstrip().splitlines()[-1].strip() == "meshwright import logs --set '*.nics=CARDS x GBITS FABRIC'"
    assert not home.exists()
    assert sorted(path.name for path in logs.parent.iterdir()) == ["logs"]


def test_what_is_printed_to_be_copied_works(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command of the last line, its words in capitals replaced, goes on to the next, until there is a file."""
    line = "meshwright import logs"
    for _ in range(2):
        assert main(shlex.split(line.replace("CARDS x GBITS FABRIC", "8 x 400 infiniband"))[1:]) == 0
        line = capsys.readouterr().out.rstrip().splitlines()[-1].strip()
    assert line.endswith("--output cluster.yaml")
    assert main(shlex.split(line)[1:]) == 0
    assert Path("cluster.yaml").exists()


def test_an_output_that_cannot_be_written_ends_with_code_two(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script's ``&&`` stops where a question is open; nothing is written."""
    code, _, err = run(capsys, "logs", "--output", "c.yaml")
    assert code == 2
    assert "nothing can be stored: no file says the network cards of n1, n2, n3" in err
    assert err.count("\n") == 1
    assert not Path("c.yaml").exists()
    code, _, err = run(capsys, "logs", "--output", "nowhere/c.yaml")
    assert code == 2
    assert "there is no folder nowhere" in err


def test_files_go_into_a_cluster_file_once(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Known nodes stay, new ones are added, and the same files again change nothing."""
    Path("pair.yaml").write_text(CLUSTER.replace("gpu_count: 4", "gpu_count: 16"))
    code, out, _ = run(capsys, "logs", "--into", "pair.yaml", *NICS, "--output", "more.yaml")
    assert code == 0
    assert "3 nodes (1 new)" in out
    first = read_snapshot("more.yaml")
    assert (first.cluster.name, len(first.cluster.nodes), len(first.samples)) == ("pair", 3, 10)
    assert first.cluster.nodes[0].gpu_count == 16, "the file's own figure stays"
    code, out, _ = run(capsys, "logs", "--into", "more.yaml", "--output", "more.yaml")
    assert code == 0
    assert "9 measurements are stored already" in out
    assert read_snapshot("more.yaml") == first


def test_files_are_stored_with_the_service_and_added_to(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Storing twice adds nothing; a dry run against what is stored proposes to store."""
    url = ("--database-url", f"sqlite:///{logs.parent / 'meshwright.sqlite'}")
    one = "logs/nccl_n1_n2.log"
    code, out, _ = run(capsys, one, *NICS, "--cluster", "lab", "--store", *url)
    assert code == 0
    assert "lab is stored as version 1, with 3 new measurements." in out
    code, out, _ = run(capsys, one, "--into", "lab", "--store", *url)
    assert (code, "lab is stored as version 1, with 0 new measurements." in out) == (0, True)
    code, out, _ = run(capsys, "logs", "--into", "lab", *NICS, *url)
    assert code == 0
    assert "3 nodes (1 new)" in out
    assert out.rstrip().endswith("--store")
    assert main(["cluster", "show", "lab", *url]) == 0
    assert "2, 2 of them usable" in capsys.readouterr().out
    code, _, err = run(capsys, one, "--into", "lbb", *url)
    assert code == 2
    assert "is neither a file nor a stored cluster" in err


def test_json_is_the_report_and_nothing_else(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs get files, questions, documents and the digest; a file is written all the same."""
    code, out, err = run(capsys, "logs", *NICS, "--json", "--output", "c.json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert [file["name"] for file in answer["files"]] == [f"nccl_{p}.log" for p in ("n1_n2", "n1_n3", "n2_n3")]
    assert answer["can_be_stored"]
    assert len(answer["measurements"]["samples"]) == answer["sample_count"] == 9
    assert json.loads(Path("c.json").read_text())["name"] == "c"
    assert len(read_snapshot("c.json").samples) == 9


def test_a_file_of_one_node_and_a_file_of_all(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file is named by its path, its name or the end of it; ``*`` is every node."""
    (logs / "n1").mkdir()
    (logs / "n1" / "topo.txt").write_text(WIRING)
    code, out, _ = run(capsys, "logs", *NICS)
    assert code == 0
    assert "--host topo.txt=NODE\n" in out
    assert "--host 'topo.txt=*'\n" in out
    for written in ("topo.txt", "n1/topo.txt", "logs/n1/topo.txt", "./logs/n1/topo.txt"):
        code, out, _ = run(capsys, "logs", *NICS, "--host", f"{written}=n1")
        assert code == 0
        assert "1 node: 2 x H100-SXM5-80GB" in out
        assert "2 nodes: 8 x H100-SXM5-80GB" in out
    code, out, _ = run(capsys, "logs", *NICS, "--host", "topo.txt=*")
    assert "3 nodes: 2 x H100-SXM5-80GB" in out


def test_a_conflict_shows_both_places_and_the_option_to_choose(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The value taken, the other one, and what to type for the other."""
    Path("pair.yaml").write_text(CLUSTER)
    Path("topo.txt").write_text(WIRING)
    words = ("topo.txt", "--into", "pair.yaml", "--host", "topo.txt=n1")
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert "n1.gpu_count: 2 (topo.txt:1) is taken, not 4 (cluster pair:0); to choose:" in plain(out)
    assert "--set n1.gpu_count=4\n" in out
    code, out, _ = run(capsys, *words, "--set", "n1.gpu_count=4")
    assert "Where files differ" not in out


def test_a_run_without_a_list_of_ranks_is_placed_by_answers(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report asks for its nodes by file and line; the answer makes measurements of it."""
    Path("run.log").write_text(log(["n1", "n2"], 8, with_ranks=False))
    code, out, _ = run(capsys, "logs", "run.log", *NICS)
    assert code == 0
    key = next(line.split()[-1] for line in out.splitlines() if "nodes:run.log" in line)
    assert key.endswith("=NODE,NODE")
    code, out, _ = run(capsys, "run.log", *NICS, "--set", key.replace("NODE,NODE", "a1,a2"), "--json")
    assert code == 0
    answer = json.loads(out)
    assert [node["name"] for node in answer["nodes"]] == ["a1", "a2"]
    assert answer["sample_count"] == 3 or answer["questions"][0]["key"].startswith("ranks:run.log:")


def test_a_name_that_several_nodes_begin_with_is_asked_for(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The option names the node, and only nodes that may be meant are shown."""
    Path("long.log").write_text(log(["n1.east.example", "n1.west.example"], 8))
    Path("short.log").write_text(log(["n1", "n2"], 8))
    code, out, _ = run(capsys, "long.log", "short.log", *NICS)
    assert code == 0
    assert "(n1.east.example, n1.west.example)" in plain(out)
    assert "--set alias:n1=NODE\n" in out
    code, out, _ = run(capsys, "long.log", "short.log", *NICS, "--set", "alias:n1=n1.west.example", "--json")
    assert code == 0
    ends = {(one["source"], one["destination"]) for one in json.loads(out)["measurements"]["samples"]}
    assert ends == {("n1.east.example", "n1.west.example"), ("n1.west.example", "n2")}


def test_figures_that_mean_nothing_are_used_only_when_accepted(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One rank alone measures nothing; its key, or its code for all of them, takes the figures all the same."""
    for name in ("a.log", "b.log"):
        Path(name).write_text(ONE_RANK)
    code, out, _ = run(capsys, "a.log", *NICS)
    assert code == 0
    key = next(line.split()[-1] for line in out.splitlines() if "--accept" in line)
    code, out, _ = run(capsys, "a.log", "b.log", *NICS)
    assert "--accept one-rank\n" in out
    code, out, _ = run(capsys, "a.log", *NICS, "--accept", key)
    assert (code, "accepted: the figures are used" in out) == (0, True)
    code, out, _ = run(capsys, "a.log", "b.log", *NICS, "--accept", "one-rank")
    assert (code, "accepted: the figures are used" in out) == (0, True)


def test_refusals_name_the_line_and_alike_ones_are_told_once(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten reasons at most, however many files have them."""
    for number in range(30):
        Path(f"junk{number}.txt").write_text("nothing that any tool prints\n")
    code, out, _ = run(capsys, ".", *NICS)
    assert code == 0
    refused = out.partition("What was not taken")[2].partition("\n\n")[0]
    assert "junk0.txt:1" in refused
    assert "and 28 more" in plain(refused)
    assert refused.count("•") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nope.log"], "nope.log"),
        (["logs", "--set", "nics"], "is not KEY=VALUE"),
        (["logs", "--set", "n9.gpu_count=4"], "names no node of these files"),
        (["logs", "--set", "speed=4"], "write NODE.FIELD"),
        (["logs", "--set", "alias:zzz=n1"], "stands in none of the files"),
        (["logs", "--set", "gpu_kind:H900=H100-SXM5-80GB"], "stands in none of the files"),
        (["logs", "--set", "gpu_kind=H9000"], "unknown GPU kind"),
        (["logs", "--set", "*.gpu_count=8", "--set", "*.gpu_count=4"], "is answered twice"),
        (["logs", "--set", "ranks:nccl_n1_n2.log:1=many"], "must be a whole number"),
        (["logs", "--set", "ranks:other.log:1=4"], "is not one of the files given"),
        (["logs", "--set", "ranks:nccl_n1_n2.log=4"], "write FILE:LINE"),
        (["logs", "--set", "ranks:nccl_n1_n2.log:999=4"], "is not where a run begins"),
        (["logs", "--set", "measured_at=yesterday"], "is not a time"),
        (["logs", "--set", "node_kind=DGX Z9"], "unknown node kind"),
        (["logs", "--set", "*.colour=red"], "unknown field"),
        (["logs", "--cluster", "a b"], "name: "),
        (["logs", "--host", "topo.txt"], "is not FILE=NODE"),
        (["logs", "--host", "topo.txt=n1"], "is not one of the files given"),
        (["logs", "--accept", "tcp-fallback"], "is not a doubt of these files"),
        (["logs", "--accept", "x.log:1:tcp-fallback"], "is not one of the files given"),
        (["logs", "--store"], "add --cluster NAME"),
        (["logs", "--cluster", "new", "--store"], "choose another name"),
        (["logs", "--into", "missing.yaml"], "cannot be read"),
        (["logs", "--into", "logs/nccl_n1_n2.log"], "nccl_n1_n2.log: "),
        (["logs", "--into", "missing.yaml", "--cluster", "x"], "--into"),
    ],
)
def test_a_wrong_option_is_one_line_and_code_two(
    logs: Path, capsys: pytest.CaptureFixture[str], words: Sequence[str], said: str
) -> None:
    """The option, what is wrong with it, what to do."""
    code, _, err = run(capsys, *words)
    assert code == 2
    assert said in err
    assert err.startswith("meshwright: ")
    assert err.count("\n") == 1


def test_the_next_command_keeps_every_word_that_was_typed(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All files by their names, and the database."""
    files = sorted(str(path.relative_to(logs.parent)) for path in logs.iterdir())
    (logs / "nccl n4.log").write_text(log(["n3", "n4"], 8))
    url = f"sqlite:///{logs.parent / 'own.sqlite'}"
    _, out, _ = run(capsys, *files, "logs/nccl n4.log", "--cluster", "lab", "--database-url", url, "--store")
    line = next(line for line in out.splitlines() if "meshwright import" in line)
    words = shlex.split(line.strip().removeprefix("$ "))
    assert words[2:6] == [*files, "logs/nccl n4.log"]
    assert words[words.index("--database-url") + 1] == url
    assert words[-1] == "--store"
