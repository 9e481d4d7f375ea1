"""Read the servers out of launch files again, by the engines' own rules for their arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import yaml

from app.exports.contract import Files, unreadable
from app.exports.readback.words import file_named, number, numbers, words
from app.exports.serving.claims import ServerClaims
from app.exports.serving.deployment import Server
from cluster_models.serving.engines import ServingEngine
from cluster_models.serving.flags import engine_program, flag_problems
from cluster_models.serving.replicas import Phase

Flags = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a server as a file has it; ``gpus`` by number, or empty with their ``count``."""

    host: str
    gpus: tuple[int, ...]
    count: int
    words: tuple[str, ...]


def read_script(files: Files, servers: Sequence[Server], *, name: str) -> tuple[ServerClaims, ...]:
    """The servers of the script called ``name``."""
    lines = [words(line) for line in file_named(files, name).splitlines() if line.startswith("serve ")]
    processes = [
        (number(line[1], "replica"), Process(line[2], gpus := numbers(line[3], "gpus"), len(gpus), tuple(line[4:])))
        for line in lines
    ]
    engines = {server.number: server.engine for server in servers}
    return tuple(
        claims_of(replica, engines[replica], [process for _, process in run], files)
        for replica, run in groupby(processes, key=lambda each: each[0])
    )


def claims_of(replica: int, engine: ServingEngine, processes: Sequence[Process], files: Files) -> ServerClaims:
    """The claims of the processes of one server; refuses arguments that its engine does not know."""
    read = {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm}[engine.family]
    program = engine_program(engine)
    parsed = []
    for process in processes:
        at = _begin(process.words, program)
        path, *rest = process.words[at + len(program) :]
        given = argument_values(rest)
        if problems := list(flag_problems(engine, given.items())):
            raise unreadable(f"exports.replicas[{replica}]", rest, "; ".join(problems))
        parsed.append((process, process.words[:at], path, given))
    if len({path for _, _, path, _ in parsed}) != 1:
        raise unreadable(f"exports.replicas[{replica}]", [path for _, _, path, _ in parsed], "serve several models")
    hosts, given = _joined(replica, engine, parsed)
    first = processes[0]
    return ServerClaims(
        number=replica,
        model_path=parsed[0][2],
        hosts=hosts,
        gpus=(first.gpus,) * len(hosts)
        if engine.family == "trtllm" and first.gpus
        else tuple(process.gpus for process in processes if process.gpus),
        gpus_per_host=first.count,
        **read(given, _config(given, files)),
    )


def argument_values(given: Sequence[str]) -> Flags:
    """Arguments with their values; refuses one that stands twice."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in given:
        if word.startswith("--"):
            if word in found:
                raise unreadable(f"exports.{word}", word, "is given twice")
            name = word
            found[name] = []
        else:
            found[name].append(word)
    return {flag: tuple(values) for flag, values in found.items()}


def _begin(given: Sequence[str], program: Sequence[str]) -> int:
    for at in range(len(given) - len(program)):
        if tuple(given[at : at + len(program)]) == tuple(program):
            return at
    raise unreadable("exports.command", list(given[:4]), f"does not start {' '.join(program)}")


def _joined(
    replica: int, engine: ServingEngine, parsed: Sequence[tuple[Process, Sequence[str], str, Flags]]
) -> tuple[tuple[str, ...], Flags]:
    """The hosts of a server in the order in which its processes count themselves, and its arguments."""
    first, before, _, given = parsed[0]
    if engine.family == "trtllm":
        listed = before[before.index("-H") + 1].split(",") if "-H" in before else []
        hosts = tuple(each.partition(":")[0] for each in listed) or (first.host,)
        if listed and before[before.index("-n") + 1] != str(len(hosts) * first.count):
            raise unreadable(f"exports.replicas[{replica}]", list(before), "counts other ranks than GPUs")
        return hosts, given
    for slot, (_, _, _, here) in enumerate(parsed):
        if _slot(here, slot, len(parsed)) != slot:
            raise unreadable(f"exports.replicas[{replica}]", slot, "hosts do not count up from 0")
        leader = _value(here, "--master-addr") or _value(here, "--data-parallel-address")
        leader = leader or _value(here, "--dist-init-addr").rpartition(":")[0]
        if len(parsed) > 1 and leader not in {first.host, "$(LWS_LEADER_ADDRESS)"}:
            raise unreadable(f"exports.replicas[{replica}]", leader, f"is not the first host, {first.host}")
    return tuple(process.host for process, *_ in parsed), given


def _slot(given: Flags, slot: int, hosts: int) -> int:
    """The place of a process among those of its server, by its own arguments."""
    if hosts == 1:
        return slot
    if "--node-rank" in given:
        if int(_value(given, "--nnodes")) != hosts:
            raise unreadable("exports.--nnodes", _value(given, "--nnodes"), f"are not {hosts} hosts")
        return int(_value(given, "--node-rank"))
    local = int(_value(given, "--data-parallel-size-local"))
    if local * hosts != int(_value(given, "--data-parallel-size")):
        raise unreadable("exports.--data-parallel-size-local", local, f"does not fill {hosts} hosts")
    return int(_value(given, "--data-parallel-start-rank", "0")) // local


def _config(given: Flags, files: Files) -> Mapping[str, Any]:
    name = _value(given, "--extra_llm_api_options").rpartition("/")[2]
    return yaml.safe_load(file_named(files, name)) if name else {}


def _value(given: Flags, flag: str, default: str = "") -> str:
    return given[flag][0] if flag in given else default


def _vllm(given: Flags, config: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - the shape of every reader
    tensor, data = int(_value(given, "--tensor-parallel-size")), int(_value(given, "--data-parallel-size", "1"))
    drafts = json.loads(_value(given, "--speculative-config", "{}"))
    transfer = json.loads(_value(given, "--kv-transfer-config", "{}"))
    return {
        "phase": _vllm_phase(transfer),
        "tensor": tensor,
        "pipeline": int(_value(given, "--pipeline-parallel-size")),
        "attention_data": data,
        "expert": tensor * data if "--enable-expert-parallel" in given else 1,
        "sequence_limit": int(_value(given, "--max-num-seqs")),
        "token_limit": int(_value(given, "--max-num-batched-tokens")),
        "memory_fraction": float(_value(given, "--gpu-memory-utilization")),
        "float8_weights": _value(given, "--quantization") == "fp8",
        "narrow_cache": _value(given, "--kv-cache-dtype", "auto") != "auto",
        "drafts": drafts.get("num_speculative_tokens", 0),
        "adapters": int(_value(given, "--max-loras", "0")) if "--enable-lora" in given else 0,
    }


def _vllm_phase(transfer: Mapping[str, str]) -> Phase:
    """Both ends of a transfer are alike to vLLM, but for what the front sends them: roles tell them apart."""
    return {"": Phase.BOTH, "kv_producer": Phase.PREFILL, "kv_consumer": Phase.DECODE}[transfer.get("kv_role", "")]


def _sglang(given: Flags, config: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - likewise
    data = int(_value(given, "--dp-size", "1"))
    if (data > 1) != ("--enable-dp-attention" in given):
        raise unreadable("exports.--dp-size", data, "goes with --enable-dp-attention")
    total = int(_value(given, "--tp-size"))
    return {
        "phase": Phase(_value(given, "--disaggregation-mode", "both")),
        "tensor": total // data,
        "pipeline": int(_value(given, "--pp-size")),
        "attention_data": data,
        "expert": int(_value(given, "--ep-size", "1")),
        "sequence_limit": int(_value(given, "--max-running-requests")) // data,
        "token_limit": int(_value(given, "--chunked-prefill-size")) // data,
        "memory_fraction": float(_value(given, "--mem-fraction-static")),
        "float8_weights": _value(given, "--quantization") == "fp8",
        "narrow_cache": _value(given, "--kv-cache-dtype", "auto") != "auto",
        "drafts": int(_value(given, "--speculative-num-steps", "0")),
        "adapters": int(_value(given, "--max-loras-per-batch", "0")) if "--enable-lora" in given else 0,
    }


def _trtllm(given: Flags, config: Mapping[str, Any]) -> dict[str, Any]:
    total = int(_value(given, "--tp_size"))
    data = total if config["enable_attention_dp"] else 1
    drafts = config.get("speculative_config", {})
    split = Phase.PREFILL if config.get("disable_overlap_scheduler") else Phase.DECODE
    return {
        "phase": split if "cache_transceiver_config" in config else Phase.BOTH,
        "tensor": total // data,
        "pipeline": int(_value(given, "--pp_size")),
        "attention_data": data,
        "expert": int(_value(given, "--ep_size", "1")),
        "sequence_limit": config["max_batch_size"],
        "token_limit": config["max_num_tokens"],
        "memory_fraction": config["kv_cache_config"]["free_gpu_memory_fraction"],
        "float8_weights": None,
        "narrow_cache": config["kv_cache_config"].get("dtype", "auto") != "auto",
        "drafts": drafts.get("num_nextn_predict_layers", drafts.get("max_draft_len", 0)),
        "adapters": 0,
    }
