"""Read launch scripts of inference engines, by the engines' own rules for their flags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from app.exports.claims import Claims
from app.exports.contract import Files, unreadable
from app.exports.readback.shell import claims_of_hostfile
from app.exports.readback.words import file_named, flag_number, flags, numbers, one, same, value, words
from app.exports.readback.yaml_files import refusing

Flags = Mapping[str, tuple[str, ...]]
_RANK: Final = "$NODE_RANK"


@refusing
def read_vllm(files: Files) -> Claims:
    """Hosts of ``vllm.sh``, and what its flags multiply to."""
    text = file_named(files, "vllm.sh")
    hosts, gpus = _cases(text)
    given, size = _command(text, "exec vllm serve "), _size(gpus)
    tensor, pipeline = (flag_number(given, f"--{name}-parallel-size") for name in ("tensor", "pipeline"))
    data = _optional(given, "--data-parallel-size", 1)
    first = hosts[0]
    if len(hosts) > 1 and data == 1:
        _check(given, {"--nnodes": str(len(hosts)), "--node-rank": _RANK})
        first = value(given, "--master-addr")
    elif len(hosts) > 1:
        local = flag_number(given, "--data-parallel-size-local")
        _check(given, {"--data-parallel-start-rank": f"$((NODE_RANK * {local}))"})
        if (local * len(hosts), local * tensor * pipeline) != (data, size):
            raise unreadable("exports.vllm.replicas", local, f"do not make {data} on hosts of {size} GPUs")
        first = value(given, "--data-parallel-address")
    if len(hosts) > 1 and '[[ "$NODE_RANK" == 0 ]] || set -- --headless "$@"' not in text:
        raise unreadable("exports.vllm.headless", "", "only the first host may listen")
    expert = tensor * data if "--enable-expert-parallel" in given else 1
    return _claims(hosts, gpus, first, (tensor, pipeline, data, expert), _partition(text, "VLLM"))


@refusing
def read_sglang(files: Files) -> Claims:
    """Hosts of ``sglang.sh``, and its degrees: with data parallel attention, replicas count in ``--tp-size``."""
    text = file_named(files, "sglang.sh")
    hosts, gpus = _cases(text)
    given = _command(text, "exec python3 -m sglang.launch_server ")
    tensor, pipeline, data, expert = (flag_number(given, f"--{name}-size") for name in ("tp", "pp", "dp", "ep"))
    if "--enable-dp-attention" in given:
        if tensor % data:
            raise unreadable("exports.sglang.dp-size", data, f"does not divide --tp-size {tensor}")
        tensor //= data
    elif data > 1 and len(hosts) > 1:
        raise unreadable("exports.sglang.dp-size", data, "cannot be on several hosts without dp attention")
    if (tensor * data) % expert:
        raise unreadable("exports.sglang.ep-size", expert, f"does not divide {tensor * data} GPUs")
    _check(given, {"--nnodes": str(len(hosts)), "--node-rank": _RANK})
    first = value(given, "--dist-init-addr").rpartition(":")[0]
    return _claims(hosts, gpus, first, (tensor, pipeline, data, expert), _partition(text, "SGLANG"))


@refusing
def read_trtllm(files: Files) -> Claims:
    """Script, hostfile and ``config.yaml``: all three must say the same."""
    text = file_named(files, "trtllm.sh")
    listed = claims_of_hostfile(file_named(files, "hostfile"))
    config = yaml.safe_load(file_named(files, "config.yaml"))
    joined = text.replace("\\\n", " ")
    (line,) = one(r"^exec (mpirun .*)$", joined, "mpirun")
    launcher, _, server = line.partition(" trtllm-llmapi-launch trtllm-serve serve ")
    given, mpi = flags(words(server)[1:-1]), flags(words(launcher))
    total, pipeline = flag_number(given, "--tp_size"), flag_number(given, "--pp_size")
    expert = _optional(given, "--ep_size", 1)
    size = flag_number(given, "--gpus_per_node")
    found = (
        config.get("tensor_parallel_size"),
        config.get("pipeline_parallel_size"),
        config.get("moe_expert_parallel_size", 1),
    )
    if found != (total, pipeline, expert):
        raise unreadable("exports.trtllm.config", found, "is not what the script says")
    if flag_number(mpi, "-n") != listed.world or size != listed.gpus_per_host:
        raise unreadable(
            "exports.trtllm.mpirun", value(mpi, "-n"), f"is not the {listed.world} slots of the hostfile"
        )
    gpus = (numbers(value(mpi, "-x").removeprefix("CUDA_VISIBLE_DEVICES="), "GPUS"),) * len(listed.hosts or ())
    tensor, data = (1, total) if config.get("enable_attention_dp") is True else (total, 1)
    hosts = listed.hosts or ()
    return _claims(hosts, gpus, hosts[0], (tensor, pipeline, data, expert), None)


def _claims(
    hosts: tuple[str, ...],
    gpus: tuple[tuple[int, ...], ...],
    first: str,
    degrees: tuple[int, int, int, int],
    stages: tuple[int, ...] | None,
) -> Claims:
    """The claims; refuses degrees that do not multiply to the GPUs of the hosts."""
    tensor, pipeline, data, expert = degrees
    size = _size(gpus)
    if tensor * pipeline * data != size * len(hosts):
        raise unreadable("exports.degrees", degrees, f"do not multiply to {len(hosts)} hosts x {size} GPUs")
    if stages is not None and len(stages) != pipeline:
        raise unreadable("exports.partition", stages, f"is not of {pipeline} stages")
    return Claims(
        world=tensor * pipeline * data,
        hosts=hosts,
        first_host=first,
        gpus_per_host=size,
        gpus=gpus,
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        expert=expert,
        layers=None if stages is None else sum(stages),
        stage_layers=None if stages is None else (stages,),
    )


def _cases(text: str) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    """Hosts and their GPUs, as the script looks them up."""
    cases = re.findall(r"^    (\S+)\) NODE_RANK=(\d+); GPUS=([\d,]+) ;;$", text, re.MULTILINE)
    hosts = tuple(host for host, _, _ in cases)
    if [int(slot) for _, slot, _ in cases] != list(range(len(cases))) or len(set(hosts)) != len(hosts) or not hosts:
        raise unreadable("exports.NODE_RANK", hosts, "must count up from 0, once a host")
    one(r'^export CUDA_VISIBLE_DEVICES="\$GPUS"$', text, "CUDA_VISIBLE_DEVICES")
    return hosts, tuple(numbers(listed, "GPUS") for _, _, listed in cases)


def _size(gpus: tuple[tuple[int, ...], ...]) -> int:
    if any(len(set(listed)) != len(listed) for listed in gpus):
        raise unreadable("exports.GPUS", gpus, "names a GPU twice")
    return same((len(listed) for listed in gpus), "GPUS")


def _command(text: str, start: str) -> Flags:
    """The flags of the one line that starts the engine, without the arguments of the caller."""
    joined = text.replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if line.startswith("exec ")]
    if len(lines) != 1 or not lines[0].startswith(start):
        raise unreadable("exports.exec", lines, f"must be one line, {start}")
    return flags(words(lines[0].removeprefix(start))[:-1])


def _partition(text: str, engine: str) -> tuple[int, ...] | None:
    found: list[Any] = re.findall(rf"^export {engine}_PP_LAYER_PARTITION=([\d,]+)$", text, re.MULTILINE)
    return numbers(found[0], "partition") if found else None


def _check(given: Flags, meant: Mapping[str, str]) -> None:
    for flag, text in meant.items():
        if value(given, flag) != text:
            raise unreadable(f"exports.{flag}", value(given, flag), f"must be {text}")


def _optional(given: Flags, flag: str, default: int) -> int:
    return flag_number(given, flag) if flag in given else default
