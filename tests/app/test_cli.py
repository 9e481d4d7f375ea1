"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import solver.search
from app.cli import main
from app.cli.progress import progress_line
from app.documents.plan import PlanDocument, plan_from_text
from cluster_models.errors import SolverFailed
from cluster_models.plan import NoPlan, Plan
from solver.problem import PlanningProblem, Progress, SearchOptions
from tests.plans import small_no_plan, small_plan

CLUSTER = """
name: pair
nodes:
  - {name: n1, gpu_kind: H100-SXM5-80GB, gpu_count: 4, nics: {count: 4, rate_gbits_per_s: 400}}
  - {name: n2, gpu_kind: H100-SXM5-80GB, gpu_count: 4, nics: {count: 4, rate_gbits_per_s: 400}}
measurement_tables:
  - {tool: nccl-tests, collective: sendrecv, ranks_per_node: 4, message_bytes: [268435456], pairs: [[n1, n2, 40]]}
"""
WORKLOAD = "sequence_length: 2048\nglobal_batch_sequences: 8\n"

Search = Callable[..., Plan | NoPlan]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options that name a small cluster, model and workload, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "workload.yaml").write_text(WORKLOAD)
    return ["--cluster", "cluster.yaml", "--model", "llama-3-8b", "--workload", "workload.yaml"]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replaces the search by one that returns ``found["result"]`` and notes what it was asked.

    The search itself is tested with the solver; here the hand-made plan shows what the commands do with it.
    """
    seen: dict[str, Any] = {"result": small_plan(), "violations": ()}

    def search(problem: PlanningProblem, options: SearchOptions, **callbacks: Any) -> Plan | NoPlan:
        seen.update(problem=problem, options=options, **callbacks)
        callbacks["on_progress"](Progress(0.1, "placing", 10, 4, 0.5, 0.4, 0.2, "tp2"))
        if isinstance(seen["result"], BaseException):
            raise seen["result"]
        return seen["result"]  # type: ignore[no-any-return]  # what a test put in

    monkeypatch.setattr(solver.search, "plan", search)
    monkeypatch.setattr("app.cli.planning.check_plan", lambda *_: seen["violations"])
    return seen


def test_json_is_the_plan_and_nothing_else(
    files: list[str], found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output can be piped on; standard error is empty when it is no terminal."""
    assert main(["plan", *files, "--json"]) == 0
    out, err = capsys.readouterr()
    assert plan_from_text(out) == small_plan()
    assert err == ""


def test_options_reach_the_search(files: list[str], found: dict[str, Any]) -> None:
    """What was not given stays with the solver's own defaults."""
    options = ["--time-limit", "7", "--effort", "3", "--seed", "5", "--gap", "0.02", "--backend", "highs"]
    assert main(["plan", *files, *options]) == 0
    assert found["options"] == SearchOptions(time_limit_s=7, effort=3, seed=5, gap=0.02, backend="highs")
    assert main(["plan", *files]) == 0
    assert found["options"] == SearchOptions()
    assert found["problem"].architecture.name == "llama-3-8b"
    assert [node.name for node in found["problem"].snapshot.cluster.nodes] == ["n1", "n2"]


def test_plan_is_printed_for_an_engineer(
    files: list[str], found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Degrees, seats, memory, time, proof, warnings and what lost, all on the page."""
    assert main(["plan", *files]) == 0
    out = capsys.readouterr().out
    for words in (
        "tp2 pp2 dp2",
        "b:0-1",
        "63.5 of 75.00 GiB",
        "pipeline bubble",
        "At most 0.20 % from the best plan",
        "a-c was never measured",
        "waits longer on the slow link",
        "0123456789abcdef",
    ):
        assert words in out


def test_plan_is_written_to_a_file(files: list[str], found: dict[str, Any], tmp_path: Path) -> None:
    """The file holds the document that export reads."""
    assert main(["plan", *files, "--output", "plan.json"]) == 0
    assert plan_from_text((tmp_path / "plan.json").read_text()) == small_plan()


def test_no_plan_is_code_three_with_what_would_help(
    files: list[str], found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason, the missing memory and the remedies stand on standard error."""
    found["result"] = small_no_plan()
    assert main(["plan", *files]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "no plan fits" in err
    assert "misses 3.50 GiB" in err
    assert "remedy: allow full recomputation" in err
    assert main(["plan", *files, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["missing_gib"] == 3.5


def test_a_plan_that_breaks_its_rules_is_never_printed(
    files: list[str], found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The independent check stands between the search and the user."""
    found["violations"] = ("Two ranks share a GPU.",)
    assert main(["plan", *files, "--json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "Two ranks share a GPU." in err


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        (SolverFailed("cbc ended with code 7"), 1, "cbc ended with code 7"),
        (ZeroDivisionError("oops"), 1, "internal error: ZeroDivisionError: oops"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_failures_are_a_line_not_a_traceback(
    files: list[str],
    found: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    failure: BaseException,
    code: int,
    words: str,
) -> None:
    """Whatever breaks, the user reads one sentence."""
    found["result"] = failure
    assert main(["plan", *files]) == code
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


def test_interrupt_ends_the_search_with_its_best(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C asks the search to stop; its best plan is printed and the exit code says interrupted."""
    asked = []

    def search(_problem: PlanningProblem, _options: SearchOptions, **callbacks: Any) -> Plan:
        asked.append(callbacks["is_cancelled"]())
        os.kill(os.getpid(), signal.SIGINT)
        asked.append(callbacks["is_cancelled"]())
        return small_plan()

    monkeypatch.setattr(solver.search, "plan", search)
    monkeypatch.setattr("app.cli.planning.check_plan", lambda *_: ())
    assert main(["plan", *files, "--json"]) == 130
    assert asked == [False, True]
    assert plan_from_text(capsys.readouterr().out) == small_plan()


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
    """What breaks a rule is bad input, named by file and field."""
    (tmp_path / "c.yaml").write_text(text)
    assert main(["predict", *files, "--configuration", "c.yaml"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


def test_progress_line_says_what_matters_first() -> None:
    """Seconds, gap, best, candidates left, then the details that a narrow terminal cuts off."""
    line = progress_line(Progress(12.3, "placing", 72318, 2, 26.9, 26.7, 0.0067, "tp1 pp17")).plain
    assert line == "12 s  gap 0.67 %  best 26.90 s  2 of 72,318 candidates left  placing  (tp1 pp17)"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"--cluster": "nowhere.yaml"}, "cannot be read"),
        ({"--model": "nowhere.json"}, "cannot be read"),
        ({"--model": "llama-9"}, "llama-3-8b"),
        ({"--workload": "cluster.yaml"}, "cluster.yaml: sequence_length: is missing"),
        ({"--time-limit": "-1"}, "--time-limit: must be a positive number"),
        ({"--time-limit": "nan"}, "--time-limit: must be a positive number"),
        ({"--gap": "2"}, "--gap: must lie in"),
        ({"--backend": "gurobi"}, "use cbc or highs"),
    ],
)
def test_bad_input_is_code_two_and_a_clear_line(
    files: list[str],
    found: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    change: dict[str, str],
    words: str,
) -> None:
    """The line names the file or option, and nothing is printed as a plan."""
    options = dict(zip(files[::2], files[1::2], strict=True)) | change
    assert main(["plan", *(word for pair in options.items() for word in pair)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert "Traceback" not in err


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
        "2 nodes",
        "8 GPUs",
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
    assert "stored as version 1, 2 nodes, 8 GPUs, 1 measurements" in capsys.readouterr().out
    assert main(["cluster", "import", "cluster.yaml", "--database-url", url]) == 0
    assert "as version 2" in capsys.readouterr().out
    assert main(["cluster", "show", "pair", "--database-url", url]) == 0
    assert "8 GPUs" in capsys.readouterr().out
    assert main(["cluster", "show", "stranger", "--database-url", url]) == 2
    assert "There is no cluster 'stranger'" in capsys.readouterr().err


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
    assert main(["export", str(document), "--format", "torchrn"]) == 2
    assert "did you mean 'torchrun'?" in capsys.readouterr().err
    assert main(["export", str(document), "--format", "csv", "--output", str(tmp_path)]) == 2
    assert "cannot be written" in capsys.readouterr().err


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


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "examples" / "workloads").iterdir()))
def test_shipped_workloads_are_read(path: Path) -> None:
    """What a newcomer runs first must be right."""
    from app.cli.files import read_workload  # noqa: PLC0415 - only this test reads files itself

    assert read_workload(str(path)).global_batch > 0
