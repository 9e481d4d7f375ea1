"""Scripts that measure pairs, run with stand-ins for the launchers, and their logs read back."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from app.exports.contract import Files
from app.exports.measuring import render_kubernetes, render_mpi, render_slurm
from app.exports.options import Options
from cluster_models.errors import InvalidConfiguration
from readers.formats.nccl.nccl_tests import FORMAT
from readers.frame.facts import Operation, RunEnd, RunFact
from solver.measuring.choose import MeasuringPlan, what_to_measure
from tests.readers.nccl_logs import bus_bandwidth
from tests.readers.real_files import source_of, understood
from tests.solver.problems import nodes, problem

STAND_IN = """\
#!{python}
import sys
sys.path.insert(0, {root!r})
from tests.readers.nccl_logs import log
words = sys.argv[1:]
program = next(word for word in words if word.endswith("_perf")).rpartition("/")[2].removesuffix("_perf")
flag = dict(zip(words, words[1:]))
said = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
if "nodelist" in said:
    hosts, gpus = said["nodelist"].split(","), int(said["ntasks-per-node"])
elif "--host" in flag:
    hosts = [entry.rpartition(":")[0] for entry in flag["--host"].split(",")]
    gpus = int(flag["--map-by"].split(":")[1])
else:
    hosts, gpus = ["job-worker-0", "job-worker-1"], int(flag["--map-by"].split(":")[1])
if "n3" in hosts and program == "alltoall":
    sys.exit("connection refused")
sizes, size = [], int(flag["-b"])
while size <= int(flag["-e"]):
    sizes.append(size)
    size *= int(flag["-f"])
sys.stdout.write(log(hosts, gpus, program=program, sizes=sizes))
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Where ``srun`` and ``mpirun`` are stand-ins that print the log of a fabric of equal links."""
    root = str(Path(__file__).parents[2])
    for name in ("srun", "mpirun"):
        stand_in = tmp_path / "bin" / name
        stand_in.parent.mkdir(exist_ok=True)
        stand_in.write_text(STAND_IN.format(python=sys.executable, root=root))
        stand_in.chmod(0o755)
    return {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "OUT": str(tmp_path / "measured")}


def _plan(count: int = 4) -> MeasuringPlan:
    return what_to_measure(problem(nodes(count, gpus=2)).snapshot, at=datetime(2026, 5, 1, tzinfo=UTC))


def _run(files: Files, folder: Path, environment: dict[str, str]) -> None:
    for file in files:
        (folder / file.name).write_text(file.text)
    subprocess.run(
        ["bash", str(folder / "measure.sh")], env=environment, check=True, capture_output=True, timeout=120
    )


def _read(text: str) -> list[RunFact]:
    found = understood(FORMAT, source_of(text))
    assert not found.refusals
    assert not found.doubts
    return [fact for fact in found.facts if isinstance(fact, RunFact)]


@pytest.mark.parametrize("render", [render_slurm, render_mpi], ids=["slurm", "mpi"])
def test_logs_of_the_script_are_read_back(render: object, tmp_path: Path, environment: dict[str, str]) -> None:
    """Every trial of every pair is a run with its nodes, its load, its moment and its figures; failures too."""
    plan = _plan()
    assert callable(render)
    _run(render(plan), tmp_path, environment)
    for group in plan.rounds:
        for wanted in group:
            a, b = wanted.pair
            runs = _read((tmp_path / "measured" / f"nccl_N2_{a}_{b}.log").read_text())
            for run, trial in zip(runs, wanted.trials, strict=True):
                assert run.operation == Operation(trial.collective.value)
                assert (set(run.hosts), run.ranks_per_node) == ({a, b}, trial.ranks_per_node)
                assert run.pairs_active == len(group)
                assert run.measured_at is not None
                if "n3" in wanted.pair and run.operation is Operation.ALL_TO_ALL:
                    assert (run.end, run.end_reason) == (RunEnd.FAILED, "the test ended with exit code 1")
                    continue
                assert run.end is RunEnd.COMPLETE
                assert [point.message_bytes for point in run.points] == list(trial.sizes)
                last = run.points[-1].bytes_per_s
                if trial.largest_bytes > 1 << 20:
                    expected = bus_bandwidth(trial.collective.value, 2 * trial.ranks_per_node, trial.sizes[-1])
                    assert last == pytest.approx(expected, rel=1e-3)


def test_jobs_of_kubernetes_pin_their_pairs_and_their_logs_name_the_nodes(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """The launcher's own script is run; its pods have names of their own."""
    plan = _plan(3)
    files = render_kubernetes(plan, Options(image="nccl-tests:2", namespace="lab"))
    script, *manifests = files
    assert len(manifests) == len(plan.rounds) == 3
    for group, file in zip(plan.rounds, manifests, strict=True):
        jobs = list(yaml.safe_load_all(file.text))
        assert len(jobs) == len(group)
        for wanted, job in zip(group, jobs, strict=True):
            assert job["metadata"]["namespace"] == "lab"
            assert f"mpijob/{job['metadata']['name']}" in script.text
            worker = job["spec"]["mpiReplicaSpecs"]["Worker"]
            affinity = worker["template"]["spec"]["affinity"]
            (term,) = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
                "nodeSelectorTerms"
            ]
            assert term["matchExpressions"][0]["values"] == list(wanted.pair)
            (container,) = worker["template"]["spec"]["containers"]
            assert container["resources"]["limits"] == {"nvidia.com/gpu": 2}
            (launcher,) = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
            printed = subprocess.run(
                launcher["command"], env=environment, capture_output=True, text=True, check=True
            )
            runs = _read(printed.stdout)
            assert [run.hosts for run in runs] == [wanted.pair] * 3
            assert [run.end for run in runs] == [RunEnd.COMPLETE] * 3


@pytest.mark.parametrize("render", [render_slurm, render_mpi, render_kubernetes])
def test_scripts_are_bash(render: object) -> None:
    """And the same plan gives the same files."""
    assert callable(render)
    files = render(_plan(6))
    assert files == render(_plan(6))
    subprocess.run(["bash", "-n"], input=files[0].text, text=True, check=True)


@pytest.mark.parametrize("name", ["n0; rm -rf x", "$(x)", "-n", "a\nb", "a,b", ""])
@pytest.mark.parametrize("render", [render_slurm, render_mpi, render_kubernetes])
def test_names_that_could_carry_a_command_are_refused(render: object, name: str) -> None:
    """No file is made."""
    plan = _plan(2)
    (group,) = plan.rounds
    hostile = replace(plan, rounds=((replace(group[0], pair=("n0", name)),),))
    assert callable(render)
    with pytest.raises(InvalidConfiguration, match="host names"):
        render(hostile)


def test_a_plan_without_pairs_makes_no_script() -> None:
    """There would be nothing in it."""
    with pytest.raises(InvalidConfiguration, match="no pair"):
        render_mpi(_plan(1))
