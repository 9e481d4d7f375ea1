"""Exported scripts as they run, with stand-ins for the launchers."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from app.cli import main
from app.documents.plan import PlanDocument
from app.exports.options import options_of
from tests.app.exports.plans import PLANS, export

BESIDE = PLANS["beside others"]


def written(name: str, shape: str, folder: Path) -> Path:
    """The files of one export in a folder, with a stand-in for Python that prints its rank."""
    for file in export(name).files(PLANS[shape]):
        (folder / file.name).write_text(file.text)
    stand_in = folder / "python"
    stand_in.write_text('#!/bin/sh\necho "$RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $CUDA_VISIBLE_DEVICES $*"\n')
    stand_in.chmod(0o755)
    return folder


def run(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run bash text in the folder, whose programs come first."""
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "CHECKPOINT_PATH": "/ckpt", **variables}
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("rank", range(4))
def test_open_mpi_ranks_find_their_gpus(rank: int, tmp_path: Path) -> None:
    """Each rank gets its host's GPUs; on the wrong host it stops."""
    folder = written("openmpi", "beside others", tmp_path)
    host = BESIDE.placement.hosts[rank // 2]
    there = run("bash rank.sh train.py", folder, OMPI_COMM_WORLD_RANK=str(rank), MESHWRIGHT_HOST=host)
    assert there.stdout == f"{rank} {rank % 2} 4 {BESIDE.placement.hosts[0]} 6,7 train.py\n"
    astray = run("bash rank.sh train.py", folder, OMPI_COMM_WORLD_RANK=str(rank), MESHWRIGHT_HOST="other")
    assert astray.returncode == 2
    assert f"rank {rank} is on other" in astray.stderr


def test_open_mpi_is_started_once_for_all(tmp_path: Path) -> None:
    """The launcher is told the number of ranks, the host list and what to run."""
    folder = written("openmpi", "dense", tmp_path)
    done = run('exec() { "$@"; }; mpirun() { echo "$@"; }; . ./mpirun.sh --lr 1', folder)
    words = done.stdout.split()
    assert words[words.index("-np") + 1] == "8"
    assert Path(words[words.index("--hostfile") + 1]).read_text().splitlines() == [
        "gpu-7.rack2 slots=4",
        "gpu-01 slots=4",
    ]
    assert words[words.index("pretrain_gpt.py") + 1] == "--num-layers"
    assert words[-2:] == ["--lr", "1"]


@pytest.mark.parametrize("rank", [0, 5, 7])
def test_slurm_tasks_find_their_gpus(rank: int, tmp_path: Path) -> None:
    """The order comes from the host file; each task gets the GPUs of its host."""
    folder = written("slurm-hostfile", "dense", tmp_path)
    stand_in = (
        'srun() { grep -c . "$SLURM_HOSTFILE"; while [[ "$1" != bash ]]; do shift; done; '
        f'SLURM_PROCID={rank} "$@"; }}\n'
    )
    done = run(stand_in + (folder / "slurm_hostfile.sh").read_text(), folder, SLURM_SUBMIT_DIR=str(folder))
    count, said = done.stdout.splitlines()
    assert count == "8"
    assert said.startswith(f"{rank} {rank % 4} 8 gpu-7.rack2 0,1,2,3 pretrain_gpt.py --num-layers 6 ")
    assert " --load /ckpt --save /ckpt --save-interval 500" in said
    (folder / "tasks.hosts").unlink()
    missing = run(stand_in + (folder / "slurm_hostfile.sh").read_text(), folder, SLURM_SUBMIT_DIR=str(folder))
    assert (missing.returncode, "is missing" in missing.stderr) == (2, True)


def test_deepspeed_is_told_hosts_and_gpus(tmp_path: Path) -> None:
    """The launcher gets the GPUs by host, the script the settings; the product of the batch holds."""
    folder = written("deepspeed", "beside others", tmp_path)
    done = run('exec() { "$@"; }; deepspeed() { echo "$@"; }; . ./deepspeed.sh', folder)
    words = done.stdout.split()
    assert words[words.index("--include") + 1] == "gpu-7.rack2:6,7@gpu-01:6,7"
    settings = json.loads(Path(words[words.index("--deepspeed_config") + 1]).read_text())
    assert settings["tensor_parallel"] == {"autotp_size": 2}
    assert settings["zero_optimization"]["stage"] == 1
    product = settings["train_micro_batch_size_per_gpu"] * settings["gradient_accumulation_steps"] * 2
    assert settings["train_batch_size"] == product == 8


def test_each_line_starts_one_node() -> None:
    """Lines are commands as they stand; options with blanks stay one word."""
    options = options_of({"command": "train.py --name 'a b'"})
    lines = export("torchrun-nodes").files(BESIDE, options)[0].text.splitlines()
    commands = [line for line in lines if not line.startswith("#")]
    assert len(commands) == 2
    for slot, line in enumerate(commands):
        words = shlex.split(line)
        assert words[:2] == ["CUDA_DEVICE_MAX_CONNECTIONS=1", "CUDA_VISIBLE_DEVICES=6,7"]
        assert words[words.index("--node-rank") + 1] == str(slot)
        assert words[words.index("train.py") + 2] == "a b"


def test_torchtitan_is_told_degrees_that_multiply() -> None:
    """The TOML is TOML, and a pipeline is fed its whole share at once."""
    text = export("torchtitan").files(PLANS["uneven"])[1].text
    settings = tomllib.loads(text)
    assert settings["training"]["local_batch_size"] == 4
    assert settings["parallelism"]["pipeline_parallel_microbatch_size"] == 1
    assert settings["activation_checkpoint"] == {"mode": "full"}
    degrees = [value for name, value in settings["parallelism"].items() if name.endswith("_degree")]
    assert sorted(degrees) == [1, 1, 1, 2, 2, 4]


def test_ray_pins_bundles_in_host_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bundle k is on host k, found by its name or the first part of it; a host that is gone is named."""
    ray, groups = ModuleType("ray"), ModuleType("ray.util.placement_group")
    asked: list[Any] = []
    nodes = [("gpu-01.cluster", "id-b", True), ("gpu-7.rack2", "id-a", True), ("gpu-5", "id-c", False)]
    ray.nodes = lambda: [  # type: ignore[attr-defined]
        {"NodeManagerHostname": name, "NodeID": found, "Alive": alive} for name, found, alive in nodes
    ]
    groups.placement_group = lambda bundles, **options: asked.append((bundles, options))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.util", ModuleType("ray.util"))
    monkeypatch.setitem(sys.modules, "ray.util.placement_group", groups)
    names: dict[str, Any] = {}
    exec(export("ray").files(PLANS["dense"])[0].text, names)  # noqa: S102 - our own file
    names["launch_group"]()
    bundles, options = asked[0]
    assert [bundle["GPU"] for bundle in bundles] == [4, 4]
    assert options["strategy"] == "STRICT_SPREAD"
    assert options["bundle_label_selector"] == [{"ray.io/node-id": "id-a"}, {"ray.io/node-id": "id-b"}]
    assert names["place"](5) == (1, (0, 1, 2, 3))
    exec(export("ray").files(PLANS["shards"])[0].text, names)  # noqa: S102
    with pytest.raises(RuntimeError, match="no live node called gpu-5, gpu-02"):
        names["launch_group"]()


def test_the_page_has_the_plan_s_figures() -> None:
    """Step, memory, proof and warnings stand on the page as the plan has them; nothing comes from elsewhere."""
    page = export("report").files(PLANS["dense"])[0].text
    for words in (
        "500.0 ms a step",
        "63.5 of 75.0 GiB",
        "Gap 0.20%",
        "links that the plan uses were not measured",
        "450.0 and 625.0 ms",
    ):
        assert words in page
    assert "<script" not in page
    assert "http" not in page
    assert page.count("<svg") == 3


def test_the_command_line_writes_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A format of several files goes into a folder, scripts ready to run; without a folder there is a remedy."""
    plan = tmp_path / "plan.json"
    plan.write_text(PlanDocument.from_plan(PLANS["dense"]).model_dump_json())
    assert main(["export", str(plan), "--format", "openmpi", "--output", str(tmp_path / "out")]) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"hostfile", "rankfile", "mpirun.sh", "rank.sh"}
    assert os.access(tmp_path / "out" / "rank.sh", os.X_OK)
    assert main(["export", str(plan), "--format", "openmpi"]) == 2
    assert "name a folder" in capsys.readouterr().err
    assert main(["export", str(plan), "--format", "openmpi", "--output", str(plan / "x")]) == 2
    assert main(["export", str(plan), "--format", "deepspeed", "--output", str(tmp_path / "ds")]) == 2
    assert "PipelineModule" in capsys.readouterr().err
