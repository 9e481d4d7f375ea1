"""Node health checks (NHC): one line a check, some with what they measured."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from cluster_models.cluster.topology import NodeState
from readers.formats.infiniband.fabric import FABRIC
from readers.frame.facts import Fact, HealthFact, Operation, Origin, Point, PortFact, RunFact
from readers.frame.findings import Finding, note, refused_runs
from readers.frame.reading import Contents
from readers.frame.sources import Line, Source, origin_of

_CHECK: Final = re.compile(r"\b(SUCCESS|ERROR|WARNING|FAILURE):\s+nhc:\s+Health check (\w+):\s*([\w\-]*):?\s*(.*)")
_FIGURE: Final = re.compile(
    r"(?<![\w.])(\d{1,9}(?:\.\d{1,9})?) {0,2}(GB/s(?:ec)?|Gbps|Gb/s(?:ec)?|GBps|MB/s(?:ec)?|MBps|Gbit/s)(?!\w)",
    re.IGNORECASE,
)
_DEVICE: Final = re.compile(r"\bIB\s?=\s?([\w\-]+)|\b((?:mlx\d|bnxt|irdma)_\w+)")
_GPU: Final = re.compile(r"\bGPU(?:\s+id|\s+index)?[\s:#_]{0,2}(\d{1,2})\b", re.IGNORECASE)
_COUNT: Final = re.compile(r"[Ee]xpected (\d{1,3}) and found (\d{1,3})")
_END: Final = re.compile(r"Health checks completed with exit code: (\d+)")
_HOST: Final = re.compile(
    r"(?:Hostname|Node(?: ?name)?|Running health checks on)(?:\s*[:=]\s*|\s+)([A-Za-z0-9][\w.\-]*)", re.IGNORECASE
)


def rate_of_figure(value: str, unit: str) -> float:
    """Bytes per second: "GB/s" counts bytes, "Gbps" and "Gb/s" bits."""
    scale = 1e6 if unit[0] in "mM" else 1e9
    bits = unit[1] == "b"
    return float(value) * scale / (8 if bits else 1)


def read_nhc(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Failed checks as they print them; of passed ones the figures that were measured."""
    host = source.host
    facts: list[Fact] = []
    odd: list[Line] = []
    gpus: int | None = None
    for line in lines:
        found = _CHECK.search(line.text)
        if found is None:
            named = _HOST.match(line.text)
            host = host or (named[1] if named else None)
            if named is None and line.text.strip() and _END.search(line.text) is None:
                odd.append(line)
            continue
        check, text = found[3], found[4]
        count = _COUNT.search(text)
        gpus = int(count[2]) if count and "gpu" in check else gpus
        origin = origin_of(source, line.number)
        if found[2].lower() == "passed":
            facts.extend(_measured(origin, host, gpus, check, text))
        else:
            facts.append(_failed(origin, host, check, text, found[1] == "WARNING"))
    doubts: tuple[Finding, ...] = ()
    if facts and host is None:
        sentence, remedy = "the checks do not say on which node they ran", "name the node that the file is from"
        doubts = (note("host-unknown", lines[0].number, sentence, remedy),)
    return Contents(tuple(facts), refused_runs(odd, "the line is not a result of a check", _SEND_NHC), doubts)


_SEND_NHC: Final = "send the health check's log with its lines of SUCCESS and ERROR"


def _measured(origin: Origin, host: str | None, gpus: int | None, check: str, text: str) -> Iterator[Fact]:
    if (found := _FIGURE.search(text)) is None:
        return
    rate = rate_of_figure(found[1], found[2])
    device = _DEVICE.search(text)
    if device is not None:
        name = device[1] or device[2]
        yield PortFact(origin, host, name, "", True, rate, FABRIC, state=f"measured by {check}")
    elif "allreduce" in check.replace("_", ""):
        point = Point(origin.first_line, None, rate)
        hosts = (host,) if host else ()
        operation = Operation.ALL_REDUCE
        yield RunFact(origin, f"nhc {check}", operation, (), gpus, hosts, (point,), nodes=1, ranks_per_node=gpus)


def _failed(origin: Origin, host: str | None, check: str, text: str, warning: bool) -> HealthFact:
    """A failed check takes the node out, as it does in Slurm; a warning leaves it degraded."""
    return HealthFact(
        origin,
        host,
        _entity(check, text),
        NodeState.DEGRADED if warning else NodeState.FAILED,
        f"{check}: {text}"[:400],
    )


def _entity(check: str, text: str) -> str:
    device, gpu = _DEVICE.search(text), _GPU.search(text)
    if device is not None:
        return f"nic:{device[1] or device[2]}"
    return f"gpu:{gpu[1]}" if gpu is not None and "count" not in check else "node"
