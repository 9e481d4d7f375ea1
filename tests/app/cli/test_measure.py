"""``meshwright measure``: the pairs to measure next, and the scripts that measure them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from app.cli import main
from app.cli.clusters.measuring import SHOWN_PAIRS
from app.documents.plan import PlanDocument
from readers.frame.host_lists import expand
from tests.app.command_files import CLUSTER
from tests.plans import small_plan

THREE = CLUSTER.replace(
    "measurement_tables",
    "  - {name: n3, gpu_kind: H100-SXM5-80GB, gpu_count: 4, nics: {count: 4, rate_gbits_per_s: 400}}\n"
    "measurement_tables",
)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three nodes of which one pair was measured, in the folder we work in."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "three.yaml"
    path.write_text(THREE)
    return path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of ``meshwright measure``."""
    code = main(["measure", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_pairs_come_in_rounds_with_a_reason_and_the_time(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pairs that were never measured are named, with the time it takes and the tests that run."""
    code, out, err = run(capsys, "three.yaml")
    assert (code, err) == (0, "")
    assert "in 3 rounds, about" in out
    for pair in ("n1 - n3", "n2 - n3"):
        assert pair in out
    assert "never measured" in out
    assert "(sendrecv), 1 GPU of each node, 8 bytes to 8 KiB" in out
    assert "(alltoall), 4 GPUs of each node" in out


def test_scripts_are_written_to_be_run(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with scripts that bash reads, the executable bit set, and the commands that come next."""
    for launcher in ("slurm", "mpi", "kubernetes"):
        code, out, err = run(capsys, "three.yaml", "--for", launcher, "--output", f"out/{launcher}")
        assert (code, err) == (0, "")
        script = Path("out") / launcher / "measure.sh"
        assert os.access(script, os.X_OK)
        assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
        assert f"out/{launcher}/measure.sh\n" in out
        assert "meshwright import measured --into three.yaml --output three.yaml\n" in out
    assert (Path("out") / "kubernetes" / "round-001.yaml").exists()
    assert not os.access(Path("out") / "kubernetes" / "round-001.yaml", os.X_OK)


def test_a_script_of_one_file_is_printed(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As an export is: into a pipe or a file; several files need a folder."""
    code, out, _ = run(capsys, "three.yaml", "--for", "mpi")
    assert code == 0
    assert out.startswith("#!/usr/bin/env bash\n")
    assert "pair n1 n3" in out
    code, _, err = run(capsys, "three.yaml", "--for", "kubernetes")
    assert code == 2
    assert "name a folder: --output DIR" in err


def test_options_reach_the_manifests(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Image and namespace are those that were given."""
    words = ("--for", "kubernetes", "--output", "k", "--set", "image=tests:7", "--set", "namespace=lab")
    code, _, _ = run(capsys, "three.yaml", *words)
    assert code == 0
    manifest = Path("k/round-001.yaml").read_text()
    assert "tests:7" in manifest
    assert "namespace: lab" in manifest


def test_json_holds_pairs_tests_and_scripts(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rounds, why each pair, what it takes, and the text of the scripts."""
    code, out, _ = run(capsys, "three.yaml", "--for", "slurm", "--json")
    assert code == 0
    answer = json.loads(out)
    assert [pair["round"] for pair in answer["pairs"]] == [1, 2, 3]
    assert answer["expected_s"] > 0
    assert all(pair["why"] and pair["reasons"] and pair["trials"] for pair in answer["pairs"])
    assert [script["name"] for script in answer["scripts"]] == ["measure.sh"]


def test_a_plan_says_which_pairs_matter(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pairs that the plan's traffic crosses come with that reason; a plan of another cluster is refused."""
    names = {"a": "n1", "b": "n2", "c": "n3"}
    text = PlanDocument.from_plan(small_plan()).model_dump_json()
    Path("other.json").write_text(text)
    for old, new in names.items():
        text = text.replace(f'"{old}"', f'"{new}"')
    Path("plan.json").write_text(text)
    code, out, err = run(capsys, "three.yaml", "--plan", "plan.json")
    assert (code, err) == (0, "")
    assert "the plan's" in " ".join(out.split())
    code, _, err = run(capsys, "three.yaml", "--plan", "other.json")
    assert code == 2
    assert "is not a node of the cluster" in err


def test_a_stored_cluster_is_measured_by_name(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The next step is an import into it; a plan that is not stored is an error."""
    url = ("--database-url", f"sqlite:///{cluster.parent / 'meshwright.sqlite'}")
    assert main(["cluster", "import", "three.yaml", *url]) == 0
    capsys.readouterr()
    code, out, _ = run(capsys, "pair", "--for", "slurm", "--output", "s", *url)
    assert code == 0
    assert "meshwright import measured --into pair --store\n" in out
    code, _, err = run(capsys, "pair", "--plan", "p1", *url)
    assert code == 2
    assert "is neither a file nor a stored plan" in err


def test_limits_bound_what_is_asked(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rest is counted; a large cluster is a table of so many rows."""
    code, out, _ = run(capsys, "three.yaml", "--most-pairs", "1")
    assert code == 0
    assert "1 pair in 1 round" in out
    assert "2 more pairs would be worth it" in out
    code, out, _ = run(capsys, "three.yaml", "--most-minutes", "0.1")
    assert code == 0
    assert "allow more minutes" in out
    nodes = "\n".join(
        f"  - {{name: {name}, gpu_kind: H100-SXM5-80GB, gpu_count: 4, nics: {{count: 4, rate_gbits_per_s: 400}}}}"
        for name in expand("m[01-20]")
    )
    Path("many.yaml").write_text(f"name: many\nnodes:\n{nodes}\n")
    code, out, _ = run(capsys, "many.yaml")
    assert code == 0
    assert f"and {190 - SHOWN_PAIRS} more pairs; --json for all" in out


@pytest.mark.parametrize("state", ["failed", "draining"])
def test_one_usable_node_has_no_pair(cluster: Path, capsys: pytest.CaptureFixture[str], state: str) -> None:
    """It is said so, instead of that all is measured."""
    Path("one.yaml").write_text(CLUSTER.replace("name: n2,", f"name: n2, state: {state},"))
    code, out, _ = run(capsys, "one.yaml")
    assert code == 0
    assert "fewer than two nodes are ready or degraded" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["three.yaml", "--for", "slrm"], "did you mean 'slurm'?"),
        (["three.yaml", "--output", "x"], "add --for slurm|mpi|kubernetes"),
        (["three.yaml", "--set", "image=x"], "add --for slurm|mpi|kubernetes"),
        (["three.yaml", "--for", "mpi", "--set", "image"], "is not NAME=VALUE"),
        (["three.yaml", "--for", "mpi", "--set", "colour=red"], "--set colour: unknown option"),
        (["three.yaml", "--most-minutes", "nan"], "--most-minutes"),
        (["three.yaml", "--plan", "missing.json"], "cannot be read"),
        (["missing.yaml"], "cannot be read"),
    ],
)
def test_a_wrong_option_is_one_line_and_code_two(
    cluster: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    """The option, what is wrong with it, what to do."""
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
