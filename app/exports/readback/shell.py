"""Read host lists and launch scripts from their text alone."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import Final

from app.exports.claims import Claims
from app.exports.contract import Files, unreadable
from app.exports.readback.megatron import MEGATRON_SAYS, claims_of_arguments, connections_said
from app.exports.readback.words import array, file_named, flags, number, numbers, one, same, value, words

HOSTS_SAY: Final = frozenset({"world", "hosts", "gpus_per_host"})
TORCHRUN_SAYS: Final = HOSTS_SAY | {"gpus", "first_host"}
SLURM_SAYS: Final = TORCHRUN_SAYS | MEGATRON_SAYS - {"expert_order"}
"""The order of experts is the checkpoint's, not the launch script's."""

_START: Final = 11
"""Words of torchrun's command before the program: its name and five flags with a value."""


def read_hostfile(files: Files) -> Claims:
    """Hosts in the order of the lines, and the slots of each."""
    return claims_of_hostfile(file_named(files, "hostfile"))


def claims_of_hostfile(text: str) -> Claims:
    """Hosts, slots and ranks of ``host slots=n`` lines."""
    rows = []
    for line in text.splitlines():
        match = re.fullmatch(r"(\S+) slots=(\d+)", line)
        if match is None:
            raise unreadable("exports.hostfile", line, "is not a host with its slots")
        rows.append((match[1], int(match[2])))
    return Claims(
        world=sum(slots for _, slots in rows),
        hosts=tuple(host for host, _ in rows),
        gpus_per_host=same((slots for _, slots in rows), "slots"),
    )


def read_torchrun(files: Files) -> Claims:
    """The cases of the script, and what its torchrun line multiplies to."""
    text = file_named(files, "torchrun.sh")
    cases = re.findall(r"^    (\S+)\) NODE_RANK=(\d+); GPUS=([\d,]+) ;;$", text, re.MULTILINE)
    if [int(slot) for _, slot, _ in cases] != list(range(len(cases))):
        raise unreadable("exports.NODE_RANK", [slot for _, slot, _ in cases], "must count up from 0")
    hosts = tuple(host for host, _, _ in cases)
    gpus = tuple(numbers(listed, "GPUS") for _, _, listed in cases)
    return with_arguments(checked_start(text, hosts, gpus), text)


def with_arguments(claims: Claims, *texts: str) -> Claims:
    """The claims of where ranks are, with those of the arguments that the first text holds, if it does.

    The order of experts is the checkpoint's, not the launch script's.
    """
    found = replace(claims, connections=connections_said("\n".join(texts)))
    if not re.search(r"^MEGATRON_ARGS=", texts[0], re.MULTILINE):
        return found
    return joined(claims_of_arguments(texts[0]), found)


def joined(arguments: Claims, ranks: Claims) -> Claims:
    """The claims of arguments, with those of ``ranks`` wherever it has one; without an order of experts."""
    said = {name: told for name in Claims.__slots__ if (told := getattr(ranks, name)) is not None}
    return replace(arguments, expert_order=None, **said)


def read_slurm(files: Files) -> Claims:
    """The batch script: its header, the host list it puts ranks by, torchrun's line and Megatron's arguments."""
    text = file_named(files, "slurm.sh")
    hosts = tuple(one(r'^export HOSTS="([^"]*)"', text, "HOSTS")[0].split())
    gpus = tuple(numbers(part, "GPUS") for part in one(r'^export GPUS="([^"]*)"', text, "GPUS")[0].split())
    claims = checked_start(text.replace("MASTER_ADDR=", "--master-addr "), hosts, gpus)
    check_header(text, claims, tasks=1)
    if one(r"^srun --ntasks-per-node=(\d+) ", text, "srun") != ("1",):
        raise unreadable("exports.srun", text, "must start one torchrun a node")
    return with_arguments(claims, text)


def checked_start(text: str, hosts: tuple[str, ...], gpus: tuple[tuple[int, ...], ...]) -> Claims:
    """The claims of a script with one torchrun for all hosts; refuses counts that are not those of the lists."""
    nodes, size = one(r"--nnodes (\d+) --nproc-per-node (\d+) ", text, "torchrun")
    first = one(r"--master-addr ([^\"\s]+)", text, "--master-addr")[0]
    return start_claims(hosts, gpus, nodes=int(nodes), size=int(size), first=first)


def start_claims(
    hosts: tuple[str, ...], gpus: tuple[tuple[int, ...], ...], *, nodes: int, size: int, first: str
) -> Claims:
    """The claims of hosts with their GPUs; refuses where the counts given beside them differ."""
    if len(hosts) != nodes or len(gpus) != nodes or len(set(hosts)) != nodes:
        raise unreadable(
            "exports.nodes", nodes, f"conflicts with {len(hosts)} hosts with {len(gpus)} lists of GPUs"
        )
    if any(len(set(listed)) != size or len(listed) != size for listed in gpus):
        raise unreadable("exports.gpus", gpus, f"are not {size} different ones on each host")
    return Claims(world=nodes * size, hosts=hosts, first_host=first, gpus_per_host=size, gpus=gpus)


def check_header(text: str, claims: Claims, *, tasks: int) -> None:
    """Refuse a batch script whose ``#SBATCH`` lines ask for other nodes or GPUs than ``claims`` has.

    ``tasks`` is how many each node must start.
    """
    lines = re.findall(r"^#SBATCH (.*)$", text, re.MULTILINE)
    header = flags(word for line in lines for word in words(line))
    listed = tuple(value(header, "--nodelist").split(","))
    if number(value(header, "--nodes"), "--nodes") != len(listed) or listed != claims.hosts:
        raise unreadable("exports.--nodelist", listed, "is not the host list of the script")
    if number(value(header, "--gpus-per-node"), "--gpus-per-node") != claims.gpus_per_host:
        raise unreadable("exports.--gpus-per-node", header["--gpus-per-node"], "is not what ranks are placed on")
    if number(value(header, "--ntasks-per-node"), "--ntasks-per-node") != tasks:
        raise unreadable("exports.--ntasks-per-node", header["--ntasks-per-node"], f"must be {tasks}")


def read_torchrun_nodes(files: Files) -> Claims:
    """Each node's command: node ranks must count up, all else must be the same on every line."""
    lines = file_named(files, "torchrun_nodes.sh").splitlines()
    hosts = tuple(line.removeprefix("# node ") for line in lines if line.startswith("# node "))
    commands = [words(line) for line in lines if not line.startswith("#")]
    starts = [command.index("torchrun") if "torchrun" in command else 0 for command in commands]
    variables = [
        dict(word.split("=", 1) for word in command[:at]) for command, at in zip(commands, starts, strict=True)
    ]
    given = [flags(command[at + 1 :]) for command, at in zip(commands, starts, strict=True)]
    gpus = tuple(numbers(each["CUDA_VISIBLE_DEVICES"], "GPUS") for each in variables)
    ranks = [number(value(each, "--node-rank"), "--node-rank") for each in given]
    if ranks != list(range(len(hosts))):
        raise unreadable("exports.--node-rank", ranks, f"do not count {len(hosts)} nodes")
    firsts = {value(each, "--master-addr") for each in given}
    if len(firsts) != 1:
        raise unreadable("exports.--master-addr", sorted(firsts), "must be the same everywhere")
    nodes, size = (
        same((number(value(each, flag), flag) for each in given), flag) for flag in ("--nnodes", "--nproc-per-node")
    )
    claims = start_claims(hosts, gpus, nodes=nodes, size=size, first=firsts.pop())
    queues = {each.get("CUDA_DEVICE_MAX_CONNECTIONS") for each in variables}
    ends = {shlex.join(command[at + _START :]) for command, at in zip(commands, starts, strict=True)}
    if len(queues) != 1 or len(ends) != 1:
        raise unreadable("exports.command", sorted(ends), "must be the same on every node")
    queue, end = queues.pop(), ends.pop()
    claims = replace(claims, connections=number(queue, "CUDA_DEVICE_MAX_CONNECTIONS") if queue else None)
    return joined(claims_of_arguments(f"MEGATRON_ARGS=({end})"), claims) if "--hidden-size" in end else claims


def read_openmpi(files: Files) -> Claims:
    """The four files: host list, rank file and both scripts must say the same."""
    listed = claims_of_hostfile(file_named(files, "hostfile"))
    script = file_named(files, "rank.sh")
    gpus = tuple(numbers(word, "GPUS") for word in array(script, "GPUS"))
    size = int(one(r"^GPUS_PER_HOST=(\d+)$", script, "GPUS_PER_HOST")[0])
    first = one(r"^export MASTER_ADDR=(\S+) ", script, "MASTER_ADDR")[0]
    hosts = tuple(array(script, "HOSTS"))
    claims = start_claims(hosts, gpus, nodes=len(listed.hosts or ()), size=size, first=first)
    worlds = {
        int(one(r"^export WORLD_SIZE=(\d+) ", script, "WORLD_SIZE")[0]),
        int(one(r"mpirun -np (\d+) ", file_named(files, "mpirun.sh"), "-np")[0]),
    }
    rows = [
        re.fullmatch(r"rank (\d+)=(\S+) slot=(\d+)", line) for line in file_named(files, "rankfile").splitlines()
    ]
    said = [(int(row[1]), row[2], int(row[3])) for row in rows if row]
    meant = [(rank, hosts[rank // size], rank % size) for rank in range(len(hosts) * size)]
    if worlds != {claims.world} or len(said) != len(rows) or said != meant:
        raise unreadable("exports.rankfile", said, f"is not one rank for each of {claims.world} GPUs")
    if listed.hosts != hosts or listed.gpus_per_host != size:
        raise unreadable("exports.hostfile", listed.hosts, "is not the host list of rank.sh")
    return with_arguments(claims, file_named(files, "mpirun.sh"), script)


def read_slurm_hostfile(files: Files) -> Claims:
    """The batch script and the task list that orders its ranks."""
    text = file_named(files, "slurm_hostfile.sh")
    tasks = file_named(files, "tasks.hosts").splitlines()
    size = int(one(r" LOCAL_WORLD_SIZE=(\d+)$", text, "LOCAL_WORLD_SIZE")[0])
    hosts = tuple(tasks[::size])
    if tasks != [host for host in hosts for _ in range(size)]:
        raise unreadable("exports.tasks.hosts", tasks, f"does not name each host {size} times in a row")
    gpus = tuple(numbers(part, "GPUS") for part in one(r'^export GPUS="([^"]*)"$', text, "GPUS")[0].split())
    first = one(r"^export MASTER_ADDR=(\S+) ", text, "MASTER_ADDR")[0]
    claims = start_claims(hosts, gpus, nodes=len(hosts), size=size, first=first)
    check_header(text, claims, tasks=size)
    worlds = {int(found) for found in re.findall(r"(?:--ntasks=|WORLD_SIZE=(?<!LOCAL_WORLD_SIZE=))(\d+)", text)}
    if worlds != {claims.world} or "--distribution=arbitrary" not in text:
        raise unreadable("exports.--ntasks", sorted(worlds), f"is not one task for each of {claims.world} GPUs")
    return with_arguments(claims, text)
