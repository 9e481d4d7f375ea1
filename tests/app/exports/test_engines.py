"""Inference engines: what a plan's degrees become, what an engine cannot do, and that no changed figure leaves."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import yaml

from app.exports.claims import Claims, claims_of
from app.exports.contract import Files, check_files
from app.exports.launch_value import launch_of
from app.exports.options import Options
from cluster_models.errors import InvalidConfiguration
from cluster_models.training.plan import Degrees, Plan, RankOrder
from tests.app.exports.plans import PLANS, export, shaped

ENGINES: Final = ("vllm", "sglang", "trtllm")
SHAPES: Final = PLANS | {
    "whole experts": shaped(Degrees(tensor=2, data=4, expert=8), ((6,),), experts=8),
    "experts cut in two": shaped(Degrees(tensor=8, expert_tensor=2), ((6,),), experts=8),
    "experts cut as the rest": shaped(Degrees(tensor=8, expert_tensor=8), ((6,),), experts=8),
    "attention replicas": shaped(Degrees(data=8, expert=8), ((6,),), experts=8),
    "attention replicas, stages": shaped(Degrees(pipeline=2, data=4, expert=4), ((3, 3),), experts=8),
    "attention replicas, stages first": shaped(
        Degrees(pipeline=2, data=4, expert=4), ((3, 3),), experts=8, order=RankOrder.PIPELINE_BEFORE_DATA
    ),
    "one replica": shaped(Degrees(tensor=4, pipeline=2), ((3, 3),)),
    "one uneven replica": shaped(Degrees(tensor=4, pipeline=3), ((2, 3, 2),)),
    "wide replica": shaped(Degrees(tensor=8), ((6,),)),
    "three stages, two hosts": shaped(Degrees(tensor=4, pipeline=3), ((2, 2, 2),), size=6),
    "replicas of stages": shaped(
        Degrees(tensor=2, pipeline=2, data=2), ((3, 3),), order=RankOrder.PIPELINE_BEFORE_DATA
    ),
}
REFUSED_BY_ALL: Final = {
    "virtual": "one run of layers",
    "uneven virtual": "one run of layers",
    "larger groups": "one run of layers",
    "any stages": "one run of layers",
    "whole model": "one run of layers",
    "empty stage": "has no layer",
    "experts": "experts lie on all 8",
    "few experts": "experts lie on all 16",
    "cut experts": "experts lie on all 16",
    "experts cut in two": "cut over all 8 GPUs",
    "context": "context parallel",
}
REFUSED: Final = {
    "vllm": {
        "dense": "spreads each replica",
        "uneven": "hold no whole replicas",
        **REFUSED_BY_ALL,
        "attention replicas, stages": "spreads each replica",
    },
    "sglang": {
        "dense": "several hosts need experts",
        "uneven": "several hosts need experts",
        **REFUSED_BY_ALL,
        "pipeline first": "several hosts need experts",
        "beside others": "several hosts need experts",
        "replicas": "several hosts need experts",
        "shards": "several hosts need experts",
        "attention replicas, stages first": "must be neighbours",
        "three stages, two hosts": "do not divide",
        "replicas of stages": "several hosts need experts",
    },
    "trtllm": {
        "dense": "replicas exist only",
        "uneven": "cuts stages evenly",
        **REFUSED_BY_ALL,
        "pipeline first": "replicas exist only",
        "beside others": "replicas exist only",
        "replicas": "replicas exist only",
        "shards": "replicas exist only",
        "whole experts": "replicas exist only",
        "attention replicas, stages first": "must be neighbours",
        "one uneven replica": "cuts stages evenly",
        "replicas of stages": "replicas exist only",
    },
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_does_what_the_plan_says_or_says_why_not(name: str, shape: str) -> None:
    """Every figure is found again, and the file says that the degrees are those of a training plan."""
    plan = SHAPES[shape]
    reason = REFUSED[name].get(shape)
    if reason:
        with pytest.raises(InvalidConfiguration, match=f"cannot take it: .*{reason}"):
            export(name).files(plan)
        return
    files = export(name).files(plan)
    found, meant = export(name).read_back(files), claims_of(launch_of(plan))
    said = {field for field in Claims.__slots__ if getattr(found, field) is not None}
    assert said >= export(name).says
    assert found.world == meant.world
    assert files == export(name).files(plan)
    assert "a plan for TRAINING" in files[0].text
    done = subprocess.run(["bash", "-n"], input=files[0].text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def run_on(host: str, files: Files, folder: Path, program: str) -> list[str]:
    """The words that the stand-in for ``program`` is started with on a host, its GPUs first."""
    stand_in = folder / program
    stand_in.write_text('#!/bin/sh\nprintf \'%s\\n\' "$CUDA_VISIBLE_DEVICES" "$@"\n')
    stand_in.chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "MESHWRIGHT_HOST": host}
    done = subprocess.run(
        ["bash", "-s", "--", "--extra", "a b"],
        input=files[0].text,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def after(words: list[str], flag: str) -> str:
    """The word behind a flag."""
    return words[words.index(flag) + 1]


def test_vllm_fills_hosts_with_replicas(tmp_path: Path) -> None:
    """Bash itself computes the first replica of each host; only the first host listens."""
    files = export("vllm").files(PLANS["shards"], Options(port=13345))
    for slot, host in enumerate(PLANS["shards"].placement.hosts):
        words = run_on(host, files, tmp_path, "vllm")
        assert words[0] == "0,1,2,3"
        assert after(words, "--data-parallel-size") == "8"
        assert after(words, "--data-parallel-size-local") == "2"
        assert after(words, "--data-parallel-start-rank") == str(2 * slot)
        assert after(words, "--data-parallel-rpc-port") == "13345"
        assert ("--headless" in words) == (slot > 0)
        assert words[-2:] == ["--extra", "a b"]


def test_vllm_joins_the_hosts_of_one_replica(tmp_path: Path) -> None:
    """Node ranks are slots, and uneven stages are given in full."""
    plan = SHAPES["one uneven replica"]
    files = export("vllm").files(plan)
    words = run_on(plan.placement.hosts[2], files, tmp_path, "vllm")
    assert (after(words, "--nnodes"), after(words, "--node-rank")) == ("3", "2")
    assert after(words, "--master-addr") == plan.placement.hosts[0]
    assert "export VLLM_PP_LAYER_PARTITION=2,3,2\n" in files[0].text


def test_experts_on_all_gpus_of_a_stage(tmp_path: Path) -> None:
    """VLLM has a flag without a number; SGLang counts replicas among the tensor ranks."""
    plan = SHAPES["whole experts"]
    words = run_on(plan.placement.hosts[1], export("vllm").files(plan), tmp_path, "vllm")
    assert "--enable-expert-parallel" in words
    words = run_on(plan.placement.hosts[1], export("sglang").files(plan), tmp_path, "python3")
    sizes = [after(words, f"--{name}-size") for name in ("tp", "pp", "dp", "ep")]
    assert sizes == ["8", "1", "4", "8"]
    assert "--enable-dp-attention" in words
    assert (after(words, "--nnodes"), after(words, "--node-rank")) == ("2", "1")
    assert after(words, "--dist-init-addr") == f"{plan.placement.hosts[0]}:29500"


def test_trtllm_counts_replicas_of_attention_as_tensor_ranks() -> None:
    """Eight ranks over two hosts, all in one server."""
    files = export("trtllm").files(SHAPES["attention replicas, stages"])
    assert yaml.safe_load(files[2].text) == {
        "tensor_parallel_size": 4,
        "pipeline_parallel_size": 2,
        "moe_expert_parallel_size": 4,
        "enable_attention_dp": True,
    }
    assert "mpirun -n 8 " in files[0].text
    dense = yaml.safe_load(export("trtllm").files(SHAPES["one replica"])[2].text)
    assert "moe_expert_parallel_size" not in dense


def test_gpus_beside_others_are_given_to_the_engine(tmp_path: Path) -> None:
    """GPUs that other jobs hold stay hidden."""
    plan = PLANS["beside others"]
    assert run_on(plan.placement.hosts[1], export("vllm").files(plan), tmp_path, "vllm")[0] == "6,7"
    one = shaped(Degrees(tensor=2), ((6,),), size=2, first_gpu=6)
    assert "CUDA_VISIBLE_DEVICES=6,7" in export("trtllm").files(one)[0].text


def test_key_value_heads_must_go_with_the_tensor_degree() -> None:
    """Four heads cannot be shared by six ranks."""
    plan = shaped(Degrees(tensor=4), ((6,),))
    assert plan.architecture is not None
    odd = replace(plan, architecture=replace(plan.architecture, heads=12, kv_heads=6))
    with pytest.raises(InvalidConfiguration, match="6 key-value heads"):
        export("vllm").files(odd)


MUTATIONS: Final = (
    ("vllm", "shards", 0, r"--tensor-parallel-size 2", "--tensor-parallel-size 4"),
    ("vllm", "shards", 0, r"--data-parallel-size 8", "--data-parallel-size 16"),
    ("vllm", "shards", 0, r"-local 2", "-local 4"),
    ("vllm", "shards", 0, r"NODE_RANK \* 2", "NODE_RANK * 4"),
    ("vllm", "shards", 0, r"--data-parallel-address \S+", "--data-parallel-address gpu-99"),
    ("vllm", "shards", 0, r"gpu-01\) NODE_RANK=1", "gpu-01) NODE_RANK=2"),
    ("vllm", "shards", 0, r"gpu-01\)", "gpu-98)"),
    ("vllm", "shards", 0, r"GPUS=0,1,2,3", "GPUS=0,1,2,2"),
    ("vllm", "shards", 0, r"GPUS=0,1,2,3", "GPUS=4,5,6,7"),
    ("vllm", "shards", 0, r"\[\[ ..NODE_RANK.*", ""),
    ("vllm", "shards", 0, r"export CUDA_VISIBLE.*", ""),
    ("vllm", "shards", 0, r"exec vllm serve", "exec other serve"),
    ("vllm", "whole experts", 0, r" *--enable-expert-parallel .\n", ""),
    ("vllm", "one replica", 0, r"--nnodes 2", "--nnodes 3"),
    ("vllm", "one replica", 0, r"--pipeline-parallel-size 2", "--pipeline-parallel-size 1"),
    ("vllm", "one replica", 0, r"--master-addr \S+", "--master-addr gpu-01"),
    ("vllm", "one uneven replica", 0, r"PARTITION=2,3,2", "PARTITION=3,2,2"),
    ("vllm", "one uneven replica", 0, r"PARTITION=2,3,2", "PARTITION=2,5"),
    ("sglang", "whole experts", 0, r"--tp-size 8", "--tp-size 2"),
    ("sglang", "whole experts", 0, r"--dp-size 4", "--dp-size 2"),
    ("sglang", "whole experts", 0, r"--ep-size 8", "--ep-size 4"),
    ("sglang", "whole experts", 0, r"--ep-size 8", "--ep-size 3"),
    ("sglang", "whole experts", 0, r" *--enable-dp-attention .\n", ""),
    ("sglang", "whole experts", 0, r"--nnodes 2", "--nnodes 1"),
    ("sglang", "whole experts", 0, r"--dist-init-addr [^:]+", "--dist-init-addr gpu-01"),
    ("trtllm", "attention replicas", 0, r"-n 8", "-n 1024"),
    ("trtllm", "attention replicas", 0, r"--tp_size 8", "--tp_size 4"),
    ("trtllm", "attention replicas", 0, r"--ep_size 8", "--ep_size 4"),
    ("trtllm", "attention replicas", 0, r"--gpus_per_node 4", "--gpus_per_node 8"),
    ("trtllm", "attention replicas", 0, r"DEVICES=0,1", "DEVICES=1,0"),
    ("trtllm", "attention replicas", 1, r"slots=4", "slots=8"),
    ("trtllm", "attention replicas", 1, r"gpu-01", "gpu-02"),
    ("trtllm", "attention replicas", 2, r"enable_attention_dp: true", "enable_attention_dp: false"),
    ("trtllm", "attention replicas", 2, r"moe_expert_parallel_size: 8", "moe_expert_parallel_size: 4"),
)


@pytest.mark.parametrize(("name", "shape", "at", "pattern", "becomes"), MUTATIONS)
def test_a_changed_figure_never_leaves(name: str, shape: str, at: int, pattern: str, becomes: str) -> None:
    """One figure changed: the read-back refuses the files."""
    plan: Plan = SHAPES[shape]
    files = export(name).files(plan)
    text = re.sub(pattern, becomes, files[at].text, count=1)
    assert text != files[at].text
    changed = (*files[:at], replace(files[at], text=text), *files[at + 1 :])
    with pytest.raises(InvalidConfiguration):
        check_files(export(name), changed, launch_of(plan))


@pytest.mark.parametrize("name", ENGINES)
def test_host_names_cannot_carry_commands(name: str) -> None:
    """Names come from a file somebody uploaded."""
    plan = SHAPES["one replica"]
    host, old = "$(id)", plan.placement.hosts[0]
    ranks = tuple(replace(place, node=host if place.node == old else place.node) for place in plan.placement.ranks)
    hostile = replace(plan, placement=replace(plan.placement, hosts=(host, *plan.placement.hosts[1:]), ranks=ranks))
    with pytest.raises(InvalidConfiguration, match="not a host name"):
        export(name).files(hostile)
