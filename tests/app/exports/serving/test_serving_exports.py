"""Serving plans for engines and orchestrators: files start what was planned, or one line says what they cannot."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from app.exports.contract import ExportFile
from app.exports.options import Options
from app.exports.serving.contract import serving_refusal
from app.exports.serving.deployment import deployment_of
from app.exports.serving.registry import SERVING_EXPORTS
from cluster_models.errors import InvalidConfiguration
from cluster_models.serving.adapters import ServedAdapters
from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.replicas import GpuPlace, Phase
from cluster_models.serving.workload import Speculation, WeightFormat, Worker
from tests.serving_plans import group, over_nodes, planned, replica, served, split_phases, two_models, two_replicas

ENGINES = {"vllm": "vllm-0.16", "sglang": "sglang-0.5.8", "trtllm": "trtllm-1.2"}
SPARSE = Worker(tensor=1, attention_data=8, expert=8)
SHAPES = {
    "two replicas": lambda engine: two_replicas(engine, weights=WeightFormat.BF16),
    "drafts": lambda engine: two_replicas(engine, speculation=Speculation(2, 1.25), memory_fraction=0.8),
    "stages over nodes": over_nodes,
    "experts over nodes": lambda engine: over_nodes(engine, SPARSE),
    "split": split_phases,
}
STARTED = [
    (family, shape, export)
    for family in ENGINES
    for shape in SHAPES
    for export in (family, "lws", "dynamo", *(("llm-d",) if family == "vllm" else ()))
    if (shape, export) != ("split", "lws") and not (family == "trtllm" and export == "lws" and "nodes" in shape)
]


def plan_of(family: str, shape: str) -> ServingPlan:
    """A plan of one shape for one engine."""
    return SHAPES[shape](ENGINES[family])


@pytest.mark.parametrize(("family", "flag"), [("vllm", "--max-loras"), ("sglang", "--max-loras-per-batch")])
def test_servers_have_room_for_the_adapters_planned(family: str, flag: str) -> None:
    """Eight on the GPUs at a time, of the rank given; another number in the file is found."""
    plan = two_replicas(ENGINES[family], adapters=ServedAdapters(40, 20, 8))
    (file,) = SERVING_EXPORTS[family].files(plan)
    assert f"{flag} 8 " in file.text
    assert ("--max-lora-rank 32" if family == "vllm" else "--max-lora-rank 20") in file.text
    changed = (ExportFile(file.name, file.text.replace(f"{flag} 8", f"{flag} 9")),)
    with pytest.raises(InvalidConfiguration, match="adapters"):
        SERVING_EXPORTS[family].check(changed, SERVING_EXPORTS[family].servers(deployment_of(plan, Options())))


@pytest.mark.parametrize(("family", "shape", "export"), STARTED)
def test_files_say_what_was_planned(family: str, shape: str, export: str) -> None:
    """They are read back before they leave; any other GPU, host, degree or limit in them is found."""
    plan = plan_of(family, shape)
    form = SERVING_EXPORTS[export]
    files = form.files(plan)
    servers = form.servers(deployment_of(plan, Options()))
    assert len(servers) == len(plan.replicas)
    for old, new in (("32", "33"), ("8192", "8191"), ("0.9", "0.7"), ("0.88", "0.7"), ("0.8", "0.7")):
        figure = re.compile(rf"^([^#\n]*(?<![\d.])){re.escape(old)}(?![\d.])", re.MULTILINE)
        changed = tuple(ExportFile(file.name, figure.sub(rf"\g<1>{new}", file.text, count=1)) for file in files)
        if [file.text for file in changed] != [file.text for file in files]:
            with pytest.raises(InvalidConfiguration, match="must never leave"):
                form.check(changed, servers)


@pytest.mark.parametrize("family", ENGINES)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_script_starts_each_process_on_its_host(family: str, shape: str, tmp_path: Path) -> None:
    """Run on every host with programs that only write down what they were given."""
    plan = plan_of(family, shape)
    folder = _written(family, plan, tmp_path)
    started = [words for host in ("a", "b") for words in _run(folder, family, host)]
    hosts_of = 1 if family == "trtllm" else None
    expected = sum(hosts_of or len(each.places) for each in plan.replicas)
    assert len(started) == expected
    gpus = sorted((host, visible) for host, visible, *_ in started)
    planned_gpus = sorted(
        (place.node, ",".join(map(str, place.gpus))) for each in plan.replicas for place in each.places[:hosts_of]
    )
    assert gpus == planned_gpus
    text = (folder / f"{family}.sh").read_text()
    only = _run(folder, family, plan.replicas[0].places[0].node, "0")
    assert len(only) == 1, text


def test_a_host_outside_of_the_plan_starts_nothing(tmp_path: Path) -> None:
    """Exit code 2, and what to set."""
    folder = _written("vllm", two_replicas(), tmp_path)
    done = _bash(folder, "vllm", "elsewhere")
    assert done.returncode == 2
    assert "elsewhere starts nothing of this plan" in done.stderr


def test_vllm_gets_the_planned_degrees_limits_and_formats() -> None:
    """Each word as its parser calls it."""
    text = SERVING_EXPORTS["vllm"].files(two_replicas())[0].text
    (first, second) = [shlex.split(line) for line in text.splitlines() if line.startswith("serve ")]
    assert first[:4] == ["serve", "0", "a", "0,1"]
    assert second[:4] == ["serve", "1", "a", "2,3"]
    expected = (
        "vllm serve /models/model --tensor-parallel-size 2 --pipeline-parallel-size 1 --max-num-seqs 32 "
        "--max-num-batched-tokens 8192 --gpu-memory-utilization 0.9 --quantization fp8 --host 0.0.0.0 --port 8000"
    )
    assert first[4:] == expected.split()
    assert second[-1] == "8001"


def test_vllm_numbers_attention_ranks_before_stages() -> None:
    """Plans number stages slowest: GPUs are given in the engine's order."""
    worker = Worker(tensor=1, pipeline=2, attention_data=2, expert=2)
    plan = planned([group(replica(0, worker, [("a", (0, 1, 2, 3))]))], [served(experts=8)])
    assert "serve 0 a 0,2,1,3 vllm" in SERVING_EXPORTS["vllm"].files(plan)[0].text
    sglang = planned([group(replica(0, worker, [("a", (0, 1, 2, 3))]))], [served("sglang-0.5.8", experts=8)])
    assert "serve 0 a 0,1,2,3 python3" in SERVING_EXPORTS["sglang"].files(sglang)[0].text


def test_hosts_of_a_replica_meet_on_the_first_of_the_plan() -> None:
    """Whatever their names; one of them answers, and attention ranks count up over them."""
    text = SERVING_EXPORTS["vllm"].files(over_nodes())[0].text
    assert "serve 0 b 0,1,2,3 vllm serve" in text
    assert text.count("--master-addr b --master-port 29500") == 2
    assert text.count("--headless") == 1
    ranks = SERVING_EXPORTS["vllm"].files(over_nodes(worker=SPARSE))[0].text
    assert ranks.count("--data-parallel-size 8 --enable-expert-parallel") == 2
    assert "--data-parallel-start-rank 4" in ranks


def test_sglang_counts_attention_ranks_in_its_tensor_degree() -> None:
    """Limits are of the whole server, which shares them out."""
    text = SERVING_EXPORTS["sglang"].files(over_nodes("sglang-0.5.8", SPARSE))[0].text
    assert "--tp-size 8 --pp-size 1 --dp-size 8 --enable-dp-attention --ep-size 8" in text
    assert f"--max-running-requests {32 * 8} --chunked-prefill-size {8192 * 8}" in text
    assert "--nnodes 2 --node-rank 1 --dist-init-addr b:29500" in text


def test_split_phases_hand_caches_over() -> None:
    """By each engine's own means, ports of their own included."""
    vllm = SERVING_EXPORTS["vllm"].files(split_phases())[0].text
    assert "VLLM_NIXL_SIDE_CHANNEL_HOST=a VLLM_NIXL_SIDE_CHANNEL_PORT=5600" in vllm
    assert vllm.count("NixlConnector") == 2
    sglang = SERVING_EXPORTS["sglang"].files(split_phases("sglang-0.5.8"))[0].text
    assert "--disaggregation-mode prefill --disaggregation-transfer-backend nixl" in sglang
    assert "--prefill http://a:8000 8998 --decode http://b:8000" in sglang
    files = {file.name: file.text for file in SERVING_EXPORTS["trtllm"].files(split_phases("trtllm-1.2"))}
    assert yaml.safe_load(files["replica-0.yaml"])["disable_overlap_scheduler"] is True
    assert yaml.safe_load(files["disaggregated.yaml"])["generation_servers"]["urls"] == ["b:8000"]


def test_one_mpirun_starts_all_hosts_of_tensorrt_llm() -> None:
    """With a rank on each GPU, and its sizes in the file beside the script."""
    script, settings = SERVING_EXPORTS["trtllm"].files(over_nodes("trtllm-1.2", SPARSE))
    assert "mpirun -n 8 -H b:4,a:4 -x CUDA_VISIBLE_DEVICES trtllm-llmapi-launch trtllm-serve" in script.text
    told = yaml.safe_load(settings.text)
    assert told["enable_attention_dp"] is True
    assert told["attention_dp_config"] == {"enable_balance": True, "timeout_iters": 60, "batching_wait_iters": 0}
    assert (told["max_batch_size"], told["max_num_tokens"]) == (32, 8192)
    assert told["kv_cache_config"] == {"free_gpu_memory_fraction": 0.9, "dtype": "fp8"}


def test_pods_run_on_their_hosts_with_the_engines_image() -> None:
    """A LeaderWorkerSet for each replica, as large as its hosts are many."""
    documents = list(yaml.safe_load_all(SERVING_EXPORTS["lws"].files(over_nodes())[0].text))
    assert [each["kind"] for each in documents] == ["LeaderWorkerSet", "Service"]
    template = documents[0]["spec"]["leaderWorkerTemplate"]
    assert template["size"] == 2
    leader = template["leaderTemplate"]["spec"]["containers"][0]
    assert leader["image"] == "vllm/vllm-openai:v0.16.0"
    assert leader["resources"]["limits"] == {"nvidia.com/gpu": 4}
    assert "b) exec vllm serve" in leader["command"][2]
    assert '--master-addr "$LWS_LEADER_ADDRESS"' in leader["command"][2]


def test_a_graph_has_a_service_for_each_replica() -> None:
    """With its phase, its host and its GPUs."""
    (graph,) = yaml.safe_load_all(SERVING_EXPORTS["dynamo"].files(split_phases())[0].text)
    services = graph["spec"]["services"]
    assert list(services) == ["Frontend", "prefill-0", "decode-1"]
    assert services["decode-1"]["subComponentType"] == "decode"
    assert services["decode-1"]["resources"]["limits"]["gpu"] == "4"
    assert "--is-decode-worker" in services["decode-1"]["extraPodSpec"]["mainContainer"]["args"]


def test_a_router_sends_split_requests_to_prefill_and_by_a_proxy_to_decode() -> None:
    """Each replica in the pool by the pod that answers, in its role, with the port that the router calls."""
    files = {file.name: file.text for file in SERVING_EXPORTS["llm-d"].files(split_phases())}
    prefill, decode = (
        each["spec"]["leaderWorkerTemplate"] for each in yaml.safe_load_all(files["model-servers.yaml"])
    )
    leaders = [each["leaderTemplate"] for each in (prefill, decode)]
    assert [each["metadata"]["labels"]["llm-d.ai/role"] for each in leaders] == ["prefill", "decode"]
    assert "--port 8000" in leaders[0]["spec"]["containers"][0]["command"][2]
    assert "--port 8001" in leaders[1]["spec"]["containers"][0]["command"][2]
    assert "--vllm-port=8001" in leaders[1]["spec"]["initContainers"][0]["args"]
    assert "llm-d.ai/inference-serving" not in decode["workerTemplate"]["metadata"]["labels"]
    router = yaml.safe_load(files["router-0.values.yaml"])["router"]
    assert router["modelServers"]["matchLabels"].items() <= leaders[0]["metadata"]["labels"].items()
    picker = yaml.safe_load(router["epp"]["pluginsCustomConfig"]["pd-config.yaml"])
    named = {each["type"] for each in picker["plugins"]}
    assert {ref["pluginRef"] for each in picker["schedulingProfiles"] for ref in each["plugins"]} <= named
    whole = {file.name: file.text for file in SERVING_EXPORTS["llm-d"].files(two_replicas())}
    assert "epp" not in yaml.safe_load(whole["router-0.values.yaml"])["router"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("llm-d.ai/role: prefill", "llm-d.ai/role: decode"),
        ("--vllm-port=8001", "--vllm-port=8200"),
        ("number: 8000", "number: 80"),
    ],
)
def test_a_router_that_does_not_fit_its_servers_never_leaves(old: str, new: str) -> None:
    """Another role, or a port at which nobody answers."""
    form, plan = SERVING_EXPORTS["llm-d"], split_phases()
    changed = tuple(ExportFile(each.name, each.text.replace(old, new)) for each in form.files(plan))
    with pytest.raises(InvalidConfiguration, match="must never leave"):
        form.check(changed, form.servers(deployment_of(plan, Options())))


def test_a_balancer_gives_shares() -> None:
    """In whole numbers, a port for each model."""
    plan = two_models()
    text = SERVING_EXPORTS["nginx"].files(plan)[0].text
    assert "server a:8000 weight=1000;" in text
    assert "listen 9001;" in text
    assert "weight=500" in SERVING_EXPORTS["nginx"].files(two_replicas())[0].text


def test_replicas_of_another_engine_are_left_to_its_own_export() -> None:
    """Each script says which are missing in it."""
    for family, number in (("vllm", 1), ("sglang", 0)):
        text = SERVING_EXPORTS[family].files(two_models())[0].text
        assert f"Replicas {number} of the plan are not in this file" in text
    assert json.loads(SERVING_EXPORTS["json"].files(two_models())[0].text)["result"] == "serving_plan"


MIXED = Worker(tensor=2, attention_data=4, expert=4)


@pytest.mark.parametrize(
    ("export", "plan", "said"),
    [
        ("sglang", two_replicas(), "the plan is for vLLM 0.15 to 0.19"),
        ("vllm", over_nodes(worker=MIXED), "experts lie on all 8 GPUs"),
        ("vllm", over_nodes("vllm-0.11"), "has no argument --nnodes"),
        ("vllm", two_replicas("vllm-0.6", speculation=Speculation(1, 0.5)), "no argument --speculative-config"),
        ("trtllm", over_nodes("trtllm-1.2", MIXED), "cut over all GPUs of a stage or over none"),
        ("lws", over_nodes("trtllm-1.2", SPARSE), "started by one mpirun"),
        ("lws", split_phases(), "use the export llm-d or dynamo"),
        ("llm-d", two_replicas("sglang-0.5.8"), "the plan is for SGLang"),
        ("nginx", split_phases(), "a balancer cannot do"),
        ("dynamo", two_models(), "a graph serves one model"),
        ("lws", two_replicas("atom-0.1"), "no words for this engine"),
    ],
)
def test_what_cannot_be_said_is_refused_in_a_line(export: str, plan: ServingPlan, said: str) -> None:
    """With a remedy."""
    error = serving_refusal(SERVING_EXPORTS[export], plan)
    assert error is not None
    assert said in str(error)
    assert error.remedy
    assert "\n" not in str(error)


def mixed_modes() -> ServingPlan:
    """A replica for both phases beside split ones, for one model."""
    both = group(replica(0, Worker(tensor=2), [("a", (2, 3))], share=0.25), share=0.25)
    prefill = replica(1, Worker(tensor=2), [("a", (0, 1))], phase=Phase.PREFILL, share=0.75)
    decode = replica(2, Worker(tensor=4), [("b", (0, 1, 2, 3))], phase=Phase.DECODE, share=0.75)
    return planned([both, group(prefill, decode, share=0.75)])


def test_modes_beside_each_other_are_told_apart() -> None:
    """The front is for split phases alone; a graph cannot have both."""
    text = SERVING_EXPORTS["vllm"].files(mixed_modes())[0].text
    assert "to replicas that do both phases: 0 (25.0 %)" in text
    error = serving_refusal(SERVING_EXPORTS["dynamo"], mixed_modes())
    assert error is not None
    assert "this plan does both" in str(error)


def test_broken_sums_do_not_leave() -> None:
    """A GPU twice, too few GPUs, a host name with a command in it, shares that are not the whole."""
    plan = two_replicas()
    one, two = plan.replicas
    for changed, said in (
        (replace(two, places=one.places), "used twice"),
        (replace(two, places=(GpuPlace("a", (2,)),)), "places of 1 GPUs"),
        (replace(two, places=(GpuPlace("a;reboot", (2, 3)),)), "not a host name"),
        (replace(two, share=0.25), "add up to 0.75"),
        (replace(two, number=7), "must be 1"),
    ):
        broken = replace(plan, groups=(plan.groups[0], replace(plan.groups[1], replicas=(changed,))))
        with pytest.raises(InvalidConfiguration, match=said):
            SERVING_EXPORTS["vllm"].files(broken)


def _written(family: str, plan: ServingPlan, folder: Path) -> Path:
    """The files of a plan beside programs that write down their words."""
    for file in SERVING_EXPORTS[family].files(plan):
        (folder / file.name).write_text(file.text)
    programs = folder / "programs"
    programs.mkdir()
    for name in ("vllm", "python3", "trtllm-serve", "mpirun"):
        (programs / name).write_text('#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES $0 $*"\n')
        (programs / name).chmod(0o755)
    return folder


def _bash(folder: Path, family: str, host: str, *more: str) -> subprocess.CompletedProcess[str]:
    path = f"{folder / 'programs'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", f"{family}.sh", *more],
        cwd=folder,
        env={"PATH": path, "MESHWRIGHT_HOST": host},
        capture_output=True,
        check=False,
        text=True,
    )


def _run(folder: Path, family: str, host: str, *more: str) -> list[list[str]]:
    """Host, visible GPUs and words of each process that the script starts on a host."""
    done = _bash(folder, family, host, *more)
    assert done.returncode in {0, 2}, done.stderr
    return [[host, *line.split()] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("export", ["vllm", "lws", "dynamo"])
def test_power_caps_are_set_before_anything_starts(export: str) -> None:
    """One line for each node of a capped replica, none for others."""
    plan = two_replicas(ENGINES["vllm"])
    first, *others = plan.groups
    capped = replace(first, replicas=tuple(replace(each, power_cap_watts=490.0) for each in first.replicas))
    texts = [file.text for file in SERVING_EXPORTS[export].files(replace(plan, groups=(capped, *others)))]
    place = first.replicas[0].places[0]
    line = f"# Before, as root on {place.node}: nvidia-smi -i {','.join(map(str, place.gpus))} -pl 490"
    assert sum(text.count(line) for text in texts) >= 1
    assert "nvidia-smi" not in "".join(file.text for file in SERVING_EXPORTS[export].files(plan))
