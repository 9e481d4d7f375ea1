"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import main
from app.documents.plan import PlanDocument, plan_from_text
from tests.app.command_files import CLUSTER
from tests.plans import small_plan

CONFIGURATION = "degrees: {tensor: 4, data: 2}\nrecompute: selective\nsharding: optimizer\n"


def test_predict_prices_what_it_is_given(
    files: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The configuration comes back with its price, on the hosts in the order given."""
    (tmp_path / "c.yaml").write_text(CONFIGURATION + "hosts: [n2, n1]\ngpus_per_node: 4\n")
    code = main(["predict", *files, "--configuration", "c.yaml", "--json"])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    plan = plan_from_text(out)
    assert (plan.configuration.degrees.tensor, plan.configuration.degrees.data) == (4, 2)
    assert plan.placement.hosts == ("n2", "n1")
    assert plan.time.step_s > 0
    assert plan.certificate.stopped_by == "no_search"


def test_predict_says_by_how_much_it_does_not_fit(
    files: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A configuration too large for the memory is priced all the same, and the exit code tells."""
    (tmp_path / "c.yaml").write_text("degrees: {data: 8}\nrecompute: none\n")
    assert main(["predict", *files, "--configuration", "c.yaml"]) == 3
    out, err = capsys.readouterr()
    assert "tp1 pp1 dp8" in out
    assert "does not fit: stage 0 misses" in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CONFIGURATION + "stage_layers: [[31]]\n", "c.yaml: stage_layers: adds up to 31 layers"),
        (CONFIGURATION + "hosts: [n1, n2]\ngpus_per_node: 3\n", "c.yaml: gpus_per_node: 2 hosts x 3 GPUs"),
        (CONFIGURATION + "hosts: [n1, n9]\n", "n9"),
        ("degrees: {tensor: 3}\n", "c.yaml: "),
        ("degrees: {tensr: 4}\n", "did you mean 'tensor'?"),
    ],
)
def test_predict_refuses_what_cannot_run(
    files: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, words: str
) -> None:
    """A value that breaks a rule is bad input, named by file and field."""
    (tmp_path / "c.yaml").write_text(text)
    assert main(["predict", *files, "--configuration", "c.yaml"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


def test_every_problem_of_a_file_has_its_line(
    files: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Two mistakes are two lines, each with file and field."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("n2, 40", "n2, -40").replace("name: n2", "name: n1"))
    assert main(["plan", *files]) == 2
    assert "cluster.yaml: nodes[1].name: the node is listed twice" in capsys.readouterr().err
    (tmp_path / "cluster.yaml").write_bytes(b"\x89PNG\xff\x00")
    assert main(["cluster", "show", "cluster.yaml"]) == 2
    assert "is not UTF-8 text" in capsys.readouterr().err


def test_cluster_show_reads_like_the_cluster(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes, link classes and the matrix, for a file."""
    assert main(["cluster", "show", "cluster.yaml"]) == 0
    out = capsys.readouterr().out
    for words in (
        "2, 2 of them usable",
        "8: H100-SXM5-80GB",
        "4 x H100-SXM5-80GB",
        "40.00 GB/s",
        "Every pair of nodes was measured",
        "██",
    ):
        assert words in out


def test_cluster_import_stores_and_brings_up_to_date(
    files: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Stored twice, a cluster is one cluster in its second version, and is shown by name."""
    url = f"sqlite:///{tmp_path / 'meshwright.sqlite'}"
    assert main(["cluster", "import", "cluster.yaml", "--database-url", url]) == 0
    assert "stored as version 1, 2 nodes, 8 GPUs, 1 measurement" in capsys.readouterr().out
    assert main(["cluster", "import", "cluster.yaml", "--database-url", url]) == 0
    assert "as version 2" in capsys.readouterr().out
    assert main(["cluster", "show", "pair", "--database-url", url]) == 0
    assert "8: H100-SXM5-80GB" in capsys.readouterr().out
    assert main(["cluster", "show", "stranger", "--database-url", url]) == 2
    assert "is neither a file nor a stored cluster (got 'stranger')" in capsys.readouterr().err


def test_cluster_import_of_a_broken_file_stores_nothing(
    files: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The database is not even made."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("n2, 40", "n9, 40"))
    url = f"sqlite:///{tmp_path / 'meshwright.sqlite'}"
    assert main(["cluster", "import", "cluster.yaml", "--database-url", url]) == 2
    assert "known are n1, n2" in capsys.readouterr().err
    assert not (tmp_path / "meshwright.sqlite").exists()


def test_export_prints_or_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan document becomes a host file; an unknown format lists the known ones."""
    document = tmp_path / "plan.json"
    document.write_text(PlanDocument.from_plan(small_plan()).model_dump_json())
    assert main(["export", str(document), "--format", "hostfile"]) == 0
    assert capsys.readouterr().out == "b slots=4\na slots=4\n"
    target = tmp_path / "hosts"
    assert main(["export", str(document), "--format", "hostfile", "--output", str(target)]) == 0
    assert target.read_text() == "b slots=4\na slots=4\n"
    target = tmp_path / "missing" / "deeper" / "hosts"
    assert main(["export", str(document), "--format", "hostfile", "--output", str(target)]) == 0
    assert target.read_text() == "b slots=4\na slots=4\n"
    assert main(["export", str(document), "--format", "hostfile", "--output", str(target / "below")]) == 2
    assert "no folder" in capsys.readouterr().err
    assert main(["export", str(document), "--format", "torchrn"]) == 2
    assert "did you mean 'torchrun'?" in capsys.readouterr().err
    assert main(["export", str(document), "--format", "csv", "--output", str(tmp_path)]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_export_takes_options_of_the_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``--set`` replaces what a plan cannot know; a wrong one is named as it was typed."""
    document = tmp_path / "plan.json"
    document.write_text(PlanDocument.from_plan(small_plan()).model_dump_json())
    words = ["export", str(document), "--format", "jobset"]
    assert main([*words, "--set", "image=our/train:7", "--set", "namespace=lab"]) == 0
    out = capsys.readouterr().out
    assert "our/train:7" in out
    assert "namespace: lab" in out
    for given, said in (
        (["image"], "--set: is not NAME=VALUE"),
        (["colour=red"], "--set colour: unknown option"),
        (["port=many"], "--set port: cannot be read"),
        (["job=A B"], "--set job: is not a DNS label"),
        (["job=a", "job=b"], "gives job twice"),
    ):
        assert main([*words, *(word for text in given for word in ("--set", text))]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert said in captured.err


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["cluster", "show", "--help"]])
def test_help_says_how(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Help is code 0."""
    assert main(arguments) == 0
    assert "Usage" in capsys.readouterr().out


def test_version_is_the_products(capsys: pytest.CaptureFixture[str]) -> None:
    """The version comes from the installed package."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("meshwright 0.")


@pytest.mark.parametrize("arguments", [["plan"], ["fly"], ["plan", "--no-such"]])
def test_wrong_usage_is_code_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A missing option or an unknown command is bad input."""
    assert main(arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_wrong_settings_are_named_by_their_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operator reads which environment variable is wrong."""
    monkeypatch.setenv("MESHWRIGHT_PORT", "99999999")
    assert main(["serve"]) == 2
    assert "MESHWRIGHT_PORT: must be at most 65535" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[3] / "examples" / "workloads").iterdir()))
def test_shipped_workloads_are_read(path: Path) -> None:
    """The first commands of a newcomer must be right, for each kind."""
    from app.cli.files import (  # noqa: PLC0415 - only this test reads files
        read_reinforcement_workload,
        read_serving_workload,
        read_workload,
    )

    if path.name.startswith("reinforcement-"):
        assert read_reinforcement_workload(str(path)).to_value().responses > 0
    elif path.name.startswith("serving-"):
        assert read_serving_workload(str(path)).to_workload().output_tokens > 0
    else:
        assert read_workload(str(path)).global_batch > 0


def test_an_interrupt_while_modules_load_is_no_traceback() -> None:
    """Ctrl-C right after Enter ends as it does later."""
    code = (
        "import sys, importlib.abc\n"
        "class Interrupted(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'app.cli.commands':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "import app.cli\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "")
