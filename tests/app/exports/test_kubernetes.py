"""Manifests for Kubernetes: pods x GPUs are the ranks, each host has its rank, and no changed figure leaves."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.exports.contract import Files, check_files, why_not
from app.exports.launch_value import launch_of
from app.exports.options import DEFAULTS, Options
from app.exports.registry import EXPORTS
from cluster_models.errors import InvalidConfiguration
from cluster_models.training.plan import Degrees, Plan
from tests.app.exports.fetch_tools import tool_sources
from tests.app.exports.plans import PLANS, export, shaped, under
from tests.plans import small_plan

FORMATS: Final = ("jobset", "kueue", "volcano", "lws", "trainjob")
SHAPES: Final = tuple(name for name in PLANS if name != "beside others")


WHOLE: Final = shaped(Degrees(data=8, expert=8), ((6,),), experts=8)
"""Every format takes it."""


def rendered(name: str, plan: Plan, options: Options = DEFAULTS) -> Files:
    """The files of a plan, read back on the way."""
    return export(name).files(plan, options)


def objects(files: Files) -> list[dict[str, Any]]:
    """Every object of every file."""
    return [document for file in files for document in yaml.safe_load_all(file.text)]


def gpus_asked(tree: Any, copies: int = 1) -> Iterator[int]:
    """GPUs of every pod spec below ``tree``, times the counts on the way: written apart from the read-back."""
    if isinstance(tree, list):
        for item in tree:
            yield from gpus_asked(item, copies)
    if not isinstance(tree, dict):
        return
    times = copies * tree.get("replicas", 1) * tree.get("parallelism", 1)
    for container in tree.get("containers", ()):
        yield times * sum(container["resources"]["limits"].values())
    for key, value in tree.items():
        if key != "containers":
            yield from gpus_asked(value, times)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", FORMATS)
def test_every_shape_is_read_back(name: str, shape: str) -> None:
    """Rendering checks itself, and the same plan gives the same bytes."""
    plan = PLANS[shape]
    assert rendered(name, plan) == rendered(name, plan)


@pytest.mark.parametrize("name", ["jobset", "kueue", "volcano"])
def test_limits_times_pods_are_the_ranks(name: str) -> None:
    """A worker of 32 GPUs asks for 32, whatever the structure of the object: counted without the read-back."""
    plan = shaped(Degrees(tensor=8, data=4), ((4,),), size=8)
    job = objects(rendered(name, plan))[0]
    assert sum(gpus_asked(job)) == plan.configuration.degrees.gpus == 32


def test_lws_and_trainjob_count_their_pods_by_size() -> None:
    """One pod a host: size and numNodes are hosts, limits are the GPUs of one."""
    plan = shaped(Degrees(tensor=8, data=4), ((4,),), size=8)
    group = objects(rendered("lws", plan))[0]["spec"]["leaderWorkerTemplate"]
    assert group["size"] * sum(gpus_asked(group["workerTemplate"])) == 32
    runtime, job = objects(rendered("trainjob", plan))
    trainer = job["spec"]["trainer"]
    assert trainer["numNodes"] * trainer["resourcesPerNode"]["limits"]["nvidia.com/gpu"] == 32
    assert runtime["spec"]["mlPolicy"]["numNodes"] * sum(gpus_asked(runtime)) == 32


MUTATIONS: Final = {
    "GPU limit doubled": (FORMATS, r"(nvidia\.com/gpu: )4", r"\g<1>8"),
    "another copy": (("jobset", "kueue", "volcano", "lws", "trainjob"), r"replicas: 1", "replicas: 2"),
    "more pods": (("jobset", "kueue"), r"completions: \d", "completions: 3"),
    "host swapped": (FORMATS, r"gpu-01", "gpu-99"),
    "ranks swapped": (("jobset", "volcano"), r"--node-rank=0", "--node-rank=1"),
    "rank of a host": (("kueue", "lws", "trainjob"), r"NODE_RANK=1 ", "NODE_RANK=0 "),
    "degree": (FORMATS, r"(tensor-model-parallel-size[ \n\-\"]+)2", r"\g<1>4"),
    "layers": (FORMATS, r"(--num-layers[ \n\-\"]+)4", r"\g<1>5"),
    "batch": (FORMATS, r"(--global-batch-size[ \n\-\"]+)8", r"\g<1>16"),
    "processes": (FORMATS, r"--nproc-per-node=4", "--nproc-per-node=2"),
    "nodes": (FORMATS, r"--nnodes=2", "--nnodes=3"),
    "size": (("lws",), r"size: 2", "size: 4"),
    "quota": (("kueue",), r"nominalQuota: 8", "nominalQuota: 1024"),
    "queue": (("kueue",), r"clusterQueue: train", "clusterQueue: other"),
    "number of nodes": (("trainjob",), r"numNodes: 2", "numNodes: 4"),
    "gang": (("volcano",), r"minAvailable: 2", "minAvailable: 1"),
    "master": (("kueue", "trainjob"), r'--master-addr="[^"]*"', '--master-addr="gpu-01"'),
    "master address": (("jobset", "volcano"), r"--master-addr=meshwright-n0", "--master-addr=meshwright-n7"),
    "own network": (("kueue", "trainjob"), r"hostNetwork: true", "hostNetwork: false"),
    "two containers": (("jobset",), r"containers:\n", "containers:\n                - {name: x, image: y}\n"),
    "not YAML": (FORMATS, r"metadata:", "metadata: ]["),
    "other kind": (FORMATS, r"kind: \w+", "kind: Pod"),
}


@pytest.mark.parametrize(("name", "mutation"), [(name, key) for key, row in MUTATIONS.items() for name in row[0]])
@pytest.mark.parametrize("everywhere", [False, True])
def test_a_changed_figure_never_leaves(name: str, mutation: str, everywhere: bool) -> None:
    """One figure changed, once or wherever it stands: the read-back refuses the files."""
    plan = shaped(Degrees(tensor=2, pipeline=2, data=2), ((2, 2),))
    _, pattern, becomes = MUTATIONS[mutation]
    files = rendered(name, plan)
    at = next(index for index, file in enumerate(files) if re.search(pattern, file.text))
    text = re.sub(pattern, becomes, files[at].text, count=0 if everywhere else 1)
    assert text != files[at].text
    changed = (*files[:at], replace(files[at], text=text), *files[at + 1 :])
    with pytest.raises(InvalidConfiguration):
        check_files(export(name), changed, launch_of(plan))


@given(
    name=st.sampled_from((*FORMATS, "vllm", "sglang", "trtllm")),
    at=st.integers(0, 9999),
    other=st.integers(0, 9999),
    copies=st.integers(0, 2),
)
def test_damaged_files_are_refused_in_a_sentence(name: str, at: int, other: int, copies: int) -> None:
    """A line lost, doubled or moved: the files are refused, or still say the same; nothing else is raised."""
    files = rendered(name, WHOLE)
    index = at % len(files)
    lines = files[index].text.splitlines(keepends=True)
    line = lines.pop(at % len(lines))
    for _ in range(copies):
        lines.insert(other % (len(lines) + 1), line)
    changed = (*files[:index], replace(files[index], text="".join(lines)), *files[index + 1 :])
    with suppress(InvalidConfiguration):
        check_files(export(name), changed, launch_of(WHOLE))


@pytest.mark.parametrize("name", FORMATS)
def test_gpus_that_others_hold_are_refused(name: str) -> None:
    """The device plugin would give any GPUs of the host."""
    with pytest.raises(InvalidConfiguration, match="device plugin") as refused:
        rendered(name, PLANS["beside others"])
    assert str(why_not(EXPORTS[name], PLANS["beside others"])) == str(refused.value)


@pytest.mark.parametrize("name", FORMATS)
def test_names_that_pods_cannot_have_are_refused(name: str) -> None:
    """Pods add to the name of their job; a label value is short; a host name carries no command."""
    with pytest.raises(InvalidConfiguration, match="leaves no room"):
        rendered(name, small_plan(), Options(job="j" * 60))
    for host, problem in (("h" * 64, "longer than a label"), ("$(reboot)", "is not a host name")):
        with pytest.raises(InvalidConfiguration, match=problem):
            rendered(name, renamed(small_plan(), host))


def renamed(plan: Plan, host: str) -> Plan:
    """The plan with another name for its first host."""
    old = plan.placement.hosts[0]
    ranks = tuple(replace(place, node=host if place.node == old else place.node) for place in plan.placement.ranks)
    return replace(plan, placement=replace(plan.placement, hosts=(host, *plan.placement.hosts[1:]), ranks=ranks))


@pytest.mark.parametrize("host", ["1e3", "y", "no", "0x1F", "123", "null"])
@pytest.mark.parametrize("name", FORMATS)
def test_host_names_stay_text_in_yaml(name: str, host: str) -> None:
    """Readers of YAML 1.1 take them for numbers and truth values where they stand bare."""
    text = rendered(name, renamed(small_plan(), host))[0].text
    values = re.findall(r"(?:hostname: |^ +- )(.*)$", text, re.MULTILINE)
    assert any(value in (f'"{host}"', f"'{host}'") for value in values)
    assert host not in values


def test_options_reach_the_manifests() -> None:
    """Image, namespace, queue, port, command, GPU resource and topology label."""
    options = Options(
        job="run-7",
        image="registry.example/train:2",
        namespace="team",
        queue="fast",
        port=12345,
        command=("train.py", "--data", "it's here; $HOME"),
        gpu_resource="amd.com/gpu",
        topology_label="example.com/leaf",
    )
    for name in FORMATS:
        files = rendered(name, small_plan(), options)
        text = "".join(file.text for file in files)
        assert "namespace: team" in text
        assert "--master-port=12345" in text
        assert "amd.com/gpu: 4" in text
        assert "registry.example/train:2" in text
        assert "run-7" in text
    job, topology, *_ = objects(rendered("kueue", small_plan(), options))
    levels = [level["nodeLabel"] for level in topology["spec"]["levels"]]
    assert levels == ["example.com/leaf", "kubernetes.io/hostname"]
    pods = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert pods["metadata"]["annotations"] == {"kueue.x-k8s.io/podset-required-topology": "example.com/leaf"}


@pytest.mark.parametrize("name", ["kueue", "lws", "trainjob"])
def test_scripts_give_each_node_its_rank(name: str, tmp_path: Path) -> None:
    """Bash itself runs the script with a stand-in for torchrun: rank, master and words are as planned."""
    plan = under(shaped(Degrees(tensor=2, pipeline=2, data=2), ((1, 3),)), "megatron-core-0.15")
    options = Options(command=("train.py", "it's; $HOME"))
    script = re.search(r"- \|\n((?: +.*\n)+?)(?= +env:)", rendered(name, plan, options)[0].text)
    assert script is not None
    stand_in = tmp_path / "torchrun"
    stand_in.write_text("#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done\nexit 3\n")
    stand_in.chmod(0o755)
    for slot, host in enumerate(plan.placement.hosts):
        seen = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "NODE_NAME": host,
            "LWS_LEADER_ADDRESS": "leader",
            "CHECKPOINT_PATH": "/ckpt",
        }
        done = subprocess.run(["bash", "-c", script[1]], env=seen, capture_output=True, text=True, check=False)
        words = done.stdout.splitlines()
        assert done.returncode == 3
        assert f"--node-rank={slot}" in words
        assert f"--master-addr={'leader' if name == 'lws' else plan.placement.hosts[0]}" in words
        assert "it's; $HOME" in words
        assert words[words.index("--pipeline-model-parallel-layout") + 1] == "Et|t*3,L"
    lost = subprocess.run(
        ["bash", "-c", script[1]], env=seen | {"NODE_NAME": "other"}, capture_output=True, check=False
    )
    assert lost.returncode == 2


SCHEMAS: Final = {
    "JobSet": "jobset.x-k8s.io_jobsets.yaml",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io_leaderworkersets.yaml",
    "TrainJob": "trainer.kubeflow.org_trainjobs.yaml",
    "TrainingRuntime": "trainer.kubeflow.org_trainingruntimes.yaml",
    "Job": "batch.volcano.sh_jobs.yaml",
    "Topology": "kueue.x-k8s.io_topologies.yaml",
    "ResourceFlavor": "kueue.x-k8s.io_resourceflavors.yaml",
    "ClusterQueue": "kueue.x-k8s.io_clusterqueues.yaml",
    "LocalQueue": "kueue.x-k8s.io_localqueues.yaml",
}
"""Custom resource definitions as their projects publish them, as ``make fetch-tools`` brings them."""


@pytest.mark.parametrize("name", FORMATS)
def test_objects_fit_the_published_schemas(name: str) -> None:
    """Each object is checked by the definition of its own project; unknown fields are refused."""
    there = {path.name: path for path in (tool_sources() / "crds").rglob("*.yaml")}
    validators = pytest.importorskip("jsonschema_rs")
    checked = 0
    for document in objects(rendered(name, small_plan(), Options(topology_label="example.com/leaf"))):
        file = there.get(SCHEMAS[document["kind"]])
        if file is None:
            continue
        versions = yaml.safe_load(file.read_text())["spec"]["versions"]
        version = document["apiVersion"].rpartition("/")[2]
        schema = next(item for item in versions if item["name"] == version)["schema"]["openAPIV3Schema"]
        validators.validator_for(closed(schema)).validate(json.loads(json.dumps(document)))
        checked += 1
    if not checked:
        pytest.skip("the definitions of other projects are not here: make fetch-tools")


def closed(schema: Any) -> Any:
    """The schema with no room for fields that it does not name, as the API server prunes them."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    tight = {key: closed(value) for key, value in schema.items() if not key.startswith("x-kubernetes")}
    if isinstance(tight.get("properties"), dict) and "kind" not in tight["properties"].get("kind", {}):
        keeps = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in tight
        if not keeps:
            tight["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        tight = {"type": ["integer", "string"]}
    return tight
