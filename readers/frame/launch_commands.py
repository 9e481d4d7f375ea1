"""Command lines of srun and mpirun: nodes, ranks, hosts, and where the buffers of OSU lie."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from readers.frame.host_lists import expand

_LAUNCHERS: Final = re.compile(r"(?:^|[\s/$>;])(srun|mpirun|mpiexec|orterun)\b(.*)$")
_NODES: Final = re.compile(r"(?:^|\s)(?:-N[ =]?|--nodes[ =])(\d{1,6})(?=\s|$)")
_RANKS: Final = re.compile(r"(?:^|\s)(?:-n[ =]?|-np |--ntasks[ =]|--np[ =])(\d{1,7})(?=\s|$)")
_TASKS_PER_NODE: Final = re.compile(r"(?:^|\s)--ntasks-per-node[ =](\d{1,5})(?=\s|$)")
_RANKS_PER_NODE: Final = re.compile(r"(?:^|\s)(?:--?npernode |--?ppn |-N )(\d{1,5})(?=\s|$)")
_HOSTS: Final = re.compile(
    r"(?:^|\s)(?:-w ?|--nodelist[ =]|--host[ =]|-host |-H |--hosts[ =]|-hosts )([^\s-]\S{0,4000})"
)
_BENCHMARK: Final = re.compile(r"\bosu_\w{1,30}(.*)$")
_DEVICE: Final = re.compile(r"\s(?:-d[ =]?|--accelerator[ =])(?:cuda|rocm|managed|sycl)\b")
_PLACES: Final = {"D": "D", "M": "D", "MD": "D", "H": "H", "MH": "H"}
_LONGEST: Final = 4_000


@dataclass(frozen=True, slots=True)
class Launch:
    """``None`` and empty where the command does not say; ``buffers`` is "D" on devices, "H" on hosts."""

    nodes: int | None = None
    ranks: int | None = None
    hosts: tuple[str, ...] = ()
    buffers: str = ""


def launch_of(command: str) -> Launch:
    """Nodes, ranks, hosts and buffers that a command line names."""
    command = command[:_LONGEST]
    found = _LAUNCHERS.search(command)
    launcher, words = (found[1], found[2]) if found else ("", command)
    hosts = _hosts(words)
    slurm = launcher == "srun"
    nodes = (_number(_NODES, words) if slurm else None) or len(hosts) or None
    ranks = _number(_RANKS, words)
    per_node = _number(_TASKS_PER_NODE if slurm else _RANKS_PER_NODE, words)
    if ranks is None and nodes and per_node:
        ranks = nodes * per_node
    elif nodes is None and ranks and per_node and ranks % per_node == 0:
        nodes = ranks // per_node
    if ranks is None and nodes and slurm:
        ranks = nodes  # srun starts one task a node unless told otherwise
    return Launch(nodes, ranks, hosts, _buffers(command))


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return int(found[1]) or None if found else None


def _hosts(text: str) -> tuple[str, ...]:
    found = _HOSTS.search(text)
    if found is None:
        return ()
    try:
        names = expand(re.sub(r":\d{1,5}(?=,|$)", "", found[1]))
    except ValueError:
        return ()
    return tuple(dict.fromkeys(name for name in names if not name.startswith("$")))


def _buffers(command: str) -> str:
    found = _BENCHMARK.search(command)
    if found is None:
        return ""
    words = re.split(r"[>|]", found[1], maxsplit=1)[0].split()
    places = [_PLACES[word] for word in words[-2:] if word in _PLACES]
    if len(places) == 2:
        return "D" if places == ["D", "D"] else "H"
    return "D" if _DEVICE.search(found[1]) else ""
