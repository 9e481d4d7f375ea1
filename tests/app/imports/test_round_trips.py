"""Measurements come back as they were: logs of a whole cluster, and logs of the scripts that ask for more."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import yaml

from app.documents.cluster import ClusterDocument, samples_of
from app.exports.contract import Files
from app.exports.measuring import render_kubernetes, render_mpi, render_slurm
from app.imports.dry_run import Report, dry_run
from app.imports.sources import SentFile
from cluster_models.cluster.measurements import Sample, SampleStatus
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.links.model import effective_links
from readers.proposal.aliases import AliasTable
from readers.proposal.values import Answers
from solver.measuring.choose import MeasuringPlan, what_to_measure
from tests.app.test_measuring_scripts import STAND_IN
from tests.readers.nccl_logs import measured

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "clusters" / "h100-17-nodes.yaml"
MOMENT = datetime(2025, 11, 15, tzinfo=UTC)
Key = tuple[str, str, int, str]


def imported(files: Sequence[SentFile], before: ClusterSnapshot, answers: Answers) -> Report:
    """The report of logs sent to a stored cluster."""
    return dry_run(
        files,
        name=before.cluster.name,
        known=before.cluster,
        known_samples=before.samples,
        aliases=AliasTable(),
        answers=answers,
    )


@pytest.fixture(scope="module")
def example() -> ClusterSnapshot:
    """The 17-node cluster as it is shipped."""
    document = ClusterDocument.model_validate(yaml.safe_load(EXAMPLE.read_text("utf-8")))
    cluster = document.to_cluster()
    return ClusterSnapshot("example", cluster, document.to_samples(cluster))


@pytest.fixture(scope="module")
def returned(example: ClusterSnapshot) -> Report:
    """Samples from a log for each pair and number of GPUs, sent to the cluster without its samples."""
    return imported(list(logs(example)), replace(example, samples=()), Answers(measured_at=MOMENT))


def key_of(sample: Sample) -> Key:
    """The test that a sample is a row of."""
    return sample.source, sample.destination, sample.ranks_per_node, sample.collective.value


def logs(snapshot: ClusterSnapshot) -> Iterator[SentFile]:
    """The logs from which the samples could have come: all collectives of a pair and a number of GPUs in one."""
    ordered = sorted(snapshot.samples, key=key_of)
    for (a, b, gpus), of_pair in itertools.groupby(ordered, key=lambda one: key_of(one)[:3]):
        texts = []
        for program, rows in itertools.groupby(of_pair, key=lambda one: one.collective.value):
            good = {int(one.message_bytes): one.bytes_per_s for one in rows if one.bytes_per_s is not None}
            texts.append(measured((a, b), gpus, program, dict(sorted(good.items()))))
        yield SentFile(f"nccl_N2_G{gpus}_{a}_{b}.log", "".join(texts).encode())


def test_every_sample_of_the_example_comes_back(example: ClusterSnapshot, returned: Report) -> None:
    """Figures have two digits after the point in the log and in the example: they are equal.

    The doubts are right: the bandwidth of some pairs fell while their messages grew.
    """
    assert returned.problems == ()
    assert returned.proposal.questions == ()
    assert {doubt.code for doubt in returned.proposal.doubts} == {"unstable"}
    found = {one.sample for one in returned.proposal.samples if one.sample.status is SampleStatus.OK}
    meant = {one for one in example.samples if one.status is SampleStatus.OK}
    assert len(found) > 2500
    assert {rounded(one) for one in found} == {rounded(one) for one in meant}


def rounded(sample: Sample) -> Sample:
    """The sample with its figure in steps of 10 MB/s, of which the log's are whole multiples."""
    return replace(sample, tool="", bytes_per_s=round((sample.bytes_per_s or 0.0) / 1e7) * 1e7)


def test_failed_tests_come_back_as_failed(example: ClusterSnapshot, returned: Report) -> None:
    """A test that died printed no size: one failure a test, where the example notes one for each size."""
    found = [key_of(one.sample) for one in returned.proposal.samples if one.sample.status is SampleStatus.FAILED]
    meant = {key_of(one) for one in example.samples if one.status is SampleStatus.FAILED}
    assert sorted(found) == sorted(meant)
    assert len(meant) == 32


def test_links_are_those_of_the_example(example: ClusterSnapshot, returned: Report) -> None:
    """A plan is made on the same links, estimated pairs included."""
    samples = tuple(samples_of(returned.measurements, example.cluster))
    links, meant = (effective_links(one) for one in (replace(example, samples=samples), example))
    for gpus in (1, 8):
        assert (links.estimated(gpus) == meant.estimated(gpus)).all()
        np.testing.assert_allclose(links.transfer_s(2.0**26, gpus), meant.transfer_s(2.0**26, gpus), rtol=1e-9)


def test_sending_the_logs_again_adds_nothing(example: ClusterSnapshot, returned: Report) -> None:
    """All of it is known."""
    stored = replace(example, samples=tuple(samples_of(returned.measurements, example.cluster)))
    again = imported(list(logs(example)), stored, Answers(measured_at=MOMENT))
    failed = sum(sample.status is SampleStatus.FAILED for sample in stored.samples)
    assert again.changes == (
        f"{len(stored.samples) - failed:,} measurements are stored already.",
        f"{failed} failed tests are stored already.",
    )


@pytest.mark.parametrize(
    "render", [render_slurm, render_mpi, render_kubernetes], ids=["slurm", "mpi", "kubernetes"]
)
def test_the_measuring_loop_closes(
    render: Callable[[MeasuringPlan], Files], example: ClusterSnapshot, tmp_path: Path
) -> None:
    """Pairs are chosen, the script runs, its logs are sent: exactly these pairs are measured, at these sizes."""
    bare = replace(example, samples=())
    asked = what_to_measure(bare, at=MOMENT, most_pairs=6)
    wanted = {tuple(sorted(one.pair)): one for group in asked.rounds for one in group}
    assert len(wanted) == 6
    report = imported(run(render(asked), tmp_path), bare, Answers())
    assert report.problems == ()
    assert report.proposal.questions == ()
    assert {(one.sample.source, one.sample.destination) for one in report.proposal.samples} == wanted.keys()
    for pair, one in wanted.items():
        of_pair = [it.sample for it in report.proposal.samples if (it.sample.source, it.sample.destination) == pair]
        large = {
            (trial.collective, trial.ranks_per_node, float(size))
            for trial in one.trials
            for size in trial.sizes
            if size > 8192
        }
        assert {(it.collective, it.ranks_per_node, it.message_bytes) for it in of_pair if it.bytes_per_s} == large
        assert [it.ranks_per_node for it in of_pair if it.latency_s] == [1]
        assert {it.measured_at is None for it in of_pair} == {False}


def test_what_was_measured_is_not_asked_for_again(example: ClusterSnapshot, tmp_path: Path) -> None:
    """With the logs of the first pairs stored, other pairs come next."""
    bare = replace(example, samples=())
    first = what_to_measure(bare, at=MOMENT, most_pairs=6)
    report = imported(run(render_slurm(first), tmp_path), bare, Answers())
    stored = replace(example, samples=tuple(samples_of(report.measurements, example.cluster)))
    second = what_to_measure(stored, at=max(one.measured_at or MOMENT for one in stored.samples), most_pairs=6)
    asked, next_asked = ({one.pair for group in plan.rounds for one in group} for plan in (first, second))
    assert len(next_asked) == 6
    assert not asked & next_asked


def run(files: Files, folder: Path) -> list[SentFile]:
    """The logs that a script leaves where ``srun``, ``mpirun`` and ``kubectl`` are stand-ins."""
    programs = folder / "bin"
    programs.mkdir()
    for name in ("srun", "mpirun"):
        (programs / name).write_text(STAND_IN.format(python=sys.executable, root=str(ROOT)))
    (programs / "kubectl").write_text(KUBECTL.format(python=sys.executable))
    for program in programs.iterdir():
        program.chmod(0o755)
    for file in files:
        (folder / file.name).write_text(file.text)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "OUT": str(folder / "measured"),
        "ROUNDS": str(folder),
    }
    subprocess.run(
        ["bash", str(folder / "measure.sh")], env=environment, check=True, capture_output=True, timeout=300
    )
    return [SentFile(path.name, path.read_bytes()) for path in sorted((folder / "measured").iterdir())]


KUBECTL = """\
#!{python}
import os, pathlib, subprocess, sys, yaml
words = sys.argv[1:]
if words[0] == "logs":
    chosen = words[words.index("--selector") + 1]
    job = dict(part.split("=") for part in chosen.split(","))["training.kubeflow.org/job-name"]
    for file in sorted(pathlib.Path(os.environ["ROUNDS"]).glob("round-*.yaml")):
        for found in yaml.safe_load_all(file.read_text()):
            if found["metadata"]["name"] == job:
                (container,) = found["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
                sys.exit(subprocess.run(container["command"], check=False).returncode)
    sys.exit("no such job")
"""
