"""Output of tools that say nothing a plan can use, known in order to say which tool to send instead."""

from __future__ import annotations

import re
from typing import Final

from readers.frame.findings import refused
from readers.frame.reading import Contents, Format, Reader
from readers.frame.sources import Line, Source

_TELLS: Final = (
    (
        "ibdev2netdev",
        "ibdev2netdev",
        (r"^\w{1,40} port \d+ ==> \S+ \((?:Up|Down)\)",),
        "it names network devices, not how fast they are",
        "send ibstat of this host",
    ),
    (
        "ibv-devinfo",
        "ibv_devinfo, ibv_devices",
        (r"^hca_id:\s+\S", r"^\s+device\s+node GUID\s*$"),
        "it lists adapters without the rate of their ports",
        "send ibstat of this host",
    ),
    (
        "opensm-files",
        "files of opensm",
        (r"^\{ (?:CA|SW) Ports:\w+ SystemGUID:", r"^# DEVICE ATTRIBUTES OPTIONS\s*$"),
        "files of the subnet manager are not read",
        "send ibnetdiscover or iblinkinfo, which say the same links",
    ),
    (
        "hosts-of-fabric",
        "ibhosts, ibswitches",
        (r"^(?:Ca|Switch)\s+: 0x[0-9a-f]{16} ports \d+ ",),
        "it lists devices without their links",
        "send ibnetdiscover or iblinkinfo",
    ),
    (
        "processors",
        "lscpu, numactl, lstopo",
        (r"^Architecture:\s+\S", r"^available: \d+ nodes? \(", r"^Machine \(\d+"),
        "it speaks of processors and memory, not of GPUs or links",
        "send nvidia-smi topo -m, or rocm-smi --showtopo",
    ),
    (
        "queues",
        "sinfo, squeue, sacct",
        (r"^PARTITION\s+AVAIL\s+TIMELIMIT\s", r"^\s*JOBID\s+PARTITION\s+NAME\s", r"^JobID\s+JobName\s+Partition\s"),
        "it lists queues and jobs, without the GPUs of nodes",
        "send scontrol show node, and scontrol show topology",
    ),
    (
        "nvidia-smi-xml",
        "nvidia-smi -q -x",
        (r"^<nvidia_smi_log\b", r"^<!DOCTYPE nvidia_smi_log\b"),
        "the XML of nvidia-smi is not read",
        "send nvidia-smi -q as text, and nvidia-smi topo -m",
    ),
    (
        "dcgm",
        "dcgmi, gpu_burn",
        (r"^Successfully ran diagnostic for group", r"^\d+ GPUs? found\.$", r"^GPU \d+: OK$"),
        "a diagnosis says whether GPUs are well, not how fast links are",
        "send nccl-tests, nvbandwidth or nvidia-smi topo -m",
    ),
    (
        "kubectl-tables",
        "kubectl get pods, kubectl top",
        (r"^(?:NAMESPACE\s+)?NAME\s+READY\s+STATUS\s+RESTARTS\s", r"^NAME\s+CPU\(cores\)\s"),
        "it lists pods or loads, without the GPUs of nodes",
        "send: kubectl get nodes -o json",
    ),
)


def _refuser(reason: str, remedy: str) -> Reader:
    def read(source: Source, lines: tuple[Line, ...]) -> Contents:
        first, last = (lines[0], lines[-1].number) if lines else (Line(1, source.text[:120]), 1)
        return Contents((), (refused(first, reason, remedy, last),))

    return read


FORMATS: Final = tuple(
    Format(
        name, known_as, "other", _refuser(reason, remedy), tuple(map(re.compile, begins)), refused_because=reason
    )
    for name, known_as, begins, reason, remedy in _TELLS
)
