"""Node health checks (NHC): one line a check, some with what they measured."""

from __future__ import annotations

import itertools
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
    r"(?<![\w.])(\d{1,9}(?:\.\d{1,9})?)(?![\d:])"
    r"(?: {0,2}(GB/s(?:ec)?|Gbps|Gb/s(?:ec)?|GBps|MB/s(?:ec)?|MBps|Gbit/s)(?!\w))?",
    re.IGNORECASE,
)
"""A figure; without a unit it counts only behind one of the words below, and not as the number of a device."""
_NUMBERED: Final = re.compile(
    r"(?:GPUs?|devices?|ports?|links?|nodes?|and|to|NUMA|core|line)[ #:]{0,2}$", re.IGNORECASE
)
_LESS: Final = re.compile(r"^[^\d]{0,60}(?:<|\b(?:less|below|lower|under|vs|expected|at least)\b)", re.IGNORECASE)
"""Between two figures: the first was measured, the second asked for."""
_ABOUT: Final = re.compile(r"bandwidth|\bBW\b|threshold|expected", re.IGNORECASE)
_LIMIT: Final = re.compile(
    r"(?:threshold|expected|less than|below|lower than|at least|minimum|required|under)\W", re.IGNORECASE
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
    """Failed checks with the figure and the limit they print; of passed ones the figures that were measured."""
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
    return Contents(tuple(facts), refused_runs(odd, "the line is no result of a check", _SEND_NHC), doubts)


_SEND_NHC: Final = "send the health check's log with its lines of SUCCESS and ERROR"


def _measured(origin: Origin, host: str | None, gpus: int | None, check: str, text: str) -> Iterator[Fact]:
    rate = next((rate_of_figure(found[1], found[2]) for found in _FIGURE.finditer(text) if found[2]), None)
    if rate is None:
        return
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
    value, limit = _figures(check, text)
    return HealthFact(
        origin,
        host,
        _entity(check, text),
        NodeState.DEGRADED if warning else NodeState.FAILED,
        f"{check}: {text}"[:400],
        bytes_per_s=value,
        threshold_bytes_per_s=limit,
    )


def _entity(check: str, text: str) -> str:
    device, gpu = _DEVICE.search(text), _GPU.search(text)
    if device is not None:
        return f"nic:{device[1] or device[2]}"
    return f"gpu:{gpu[1]}" if gpu is not None and "count" not in check else "node"


def _figures(check: str, text: str) -> tuple[float | None, float | None]:
    """Measured figure and limit: the figure behind a word such as "threshold" is the limit.

    A figure without a unit has that of the others; checks of adapters count in Gb/s, of GPUs in GB/s.
    """
    about, limit_word = _ABOUT.search(text), _LIMIT.search(text)
    found = list(_FIGURE.finditer(text))
    usual = next((figure[2] for figure in found if figure[2]), "Gbps" if "ib" in check.split("_") else "GB/s")
    taken = [
        figure
        for figure in found
        if figure[2]
        or (
            about is not None
            and figure.start() > about.start()
            and _NUMBERED.search(text, max(0, figure.start() - 12), figure.start()) is None
        )
    ]
    figures = [(figure.start(), rate_of_figure(figure[1], figure[2] or usual)) for figure in taken]
    for one, other in itertools.pairwise(range(len(taken))):
        if _LESS.search(text[taken[one].end() : taken[other].start()]) is not None:
            return figures[one][1], figures[other][1]
    limits = [rate for at, rate in figures if limit_word is not None and at > limit_word.start()]
    values = [rate for at, rate in figures if limit_word is None or at < limit_word.start()]
    return (values[0] if values else limits[1] if len(limits) > 1 else None), (limits[0] if limits else None)
