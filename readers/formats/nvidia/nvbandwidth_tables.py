"""Titles and figures of nvbandwidth, whether printed as text or as JSON.

Tables are turned so that ``values[i][j]`` is always from ``rows[i]``.  Between host and GPU the arrow of a title is
the way of the bytes.  Between GPUs it is the other way round, by the tool's source (DeviceToDevice*::run in
testcases_ce.cpp, testcases_sm.cu and multinode_testcases_ce.cpp): the GPU of the row runs the copy; a read,
"GPU(row) -> GPU(column)", brings bytes from the column, and a write, "GPU(row) <- GPU(column)", sends them to it.

In two-way tests Read1, Write2 and the like are one of two streams, the first from the column to the row by the same
source, and Total is their sum.  Without such a word, copy engines time one stream (one way, with the other way
busy) and kernels add up both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from cluster_models.cluster.measurements import Direction
from readers.formats.gpu_matrices import (
    GIGA,
    Table,
    Values,
    cut_short,
    scaled,
    turned,
    warm_up,
    without_diagonal,
)
from readers.frame.facts import MatrixFact, Memory, Origin, Quantity
from readers.frame.findings import Finding, reject

TOOL: Final = "nvbandwidth"
_TITLE: Final = re.compile(
    r"(GPU|CPU)\((row|column)s?\) (<->|->|<-) (GPU|CPU)\((row|column)s?\)(?: (Read1|Read2|Write1|Write2|Total))?"
    r"(?: (?:bandwidth|latency))? ?\((GB/s|ns|us)\)"
)
_UNITS: Final = {"GB/s": GIGA, "us": 1e-6, "ns": 1e-9}
_ONE_TO_MANY: Final = ("all_to", "one_to", "to_all", "to_one")
_SUM_OFF: Final = 0.01
WAIVED: Final = (
    "the tool waived this test: no peer, or not supported here",
    "none, unless the GPUs should reach peers",
)
NO_PAIR: Final = "totals of one GPU against many: of no pair"
SEND_PAIRS: Final = "send device_to_device_memcpy_read_ce or _write_ce"


@dataclass(frozen=True, slots=True)
class Title:
    """Contents of a table's title and of the name of its test."""

    test: str
    from_rows: bool
    one_way: bool
    ends: tuple[str, str]
    """Kinds of device of rows and columns: "GPU" or "CPU"."""
    unit: str

    @property
    def method(self) -> str:
        """Means of copying, as "copy engine read" or "sm write"."""
        engine = "sm" if re.search(r"(?:^|_)sm(?:_|$)", self.test) else "copy engine"
        how = next((word for word in ("read", "write") if f"_{word}_" in f"_{self.test}_"), "")
        ways = " bidirectional" if "bidirectional" in self.test else ""
        return f"{engine} {how}".rstrip() + ways


def title_of(text: str, test: str) -> Title | None:
    """The title in a line, or ``None``; where no test was named, the title itself says the engine."""
    found = _TITLE.search(text)
    if found is None or found[2] == found[5]:
        return None
    kinds = {found[2]: found[1], found[5]: found[4]}
    arrow = found[3]
    if not test:
        test = "memcpy_sm" if " SM " in text else "memcpy_ce"
    by_kernel = " SM " in text
    between_gpus = "CPU" not in kinds.values()
    if arrow == "<->":
        from_rows = found[6] not in {"Read1", "Write1"}
    else:
        from_rows = ((arrow == "->") == (found[2] == "row")) != between_gpus
    return Title(
        test,
        from_rows=from_rows,
        one_way=arrow != "<->" or found[7] != "GB/s" or (found[6] != "Total" if found[6] else not by_kernel),
        ends=(kinds["row"], kinds["column"]),
        unit=found[7],
    )


@dataclass(frozen=True, slots=True)
class Machine:
    """Header of a run: the tool's version, the devices, and where processes are on several hosts."""

    tool: str
    host: str | None
    devices: int
    processes: dict[str, str]

    def place(self, labels: Sequence[str]) -> tuple[str | None, dict[str, str]]:
        """The one host of these rows, or the host of each."""
        hosts = {label: self.processes[label] for label in labels if label in self.processes}
        if len(set(hosts.values())) > 1:
            return None, hosts
        return (next(iter(hosts.values())) if hosts else self.host), {}


def matrix_of(table: Table, title: Title, machine: Machine, origin: Origin) -> MatrixFact | None:
    """The fact of a table; ``None`` for totals of one device against many, which are of no pair."""
    of_host = "CPU" in title.ends
    if not of_host and (
        len(table.rows) == 1 < len(table.columns) or any(word in title.test for word in _ONE_TO_MANY)
    ):
        return None
    named = replace(table, rows=_names(table.rows, title.ends[0]), columns=_names(table.columns, title.ends[1]))
    values = scaled(named.values, _UNITS[title.unit])
    named = replace(named, values=values if of_host else without_diagonal(values))
    if not title.from_rows:
        named = turned(named)
    host, hosts = machine.place(table.columns if "GPU" in title.ends else ())
    return MatrixFact(
        origin,
        machine.tool,
        "gpus",
        host,
        named.rows,
        named.columns,
        hosts,
        Quantity.BANDWIDTH if title.unit == "GB/s" else Quantity.LATENCY,
        named.values,
        named.lines,
        Direction.FORWARD if title.one_way else Direction.BOTH,
        memory=Memory.HOST if of_host else Memory.GPU,
        method=title.method,
        cut=table.cut,
    )


def _names(labels: tuple[str, ...], kind: str) -> tuple[str, ...]:
    return labels if kind == "GPU" else tuple(f"cpu{label}" for label in labels)


def doubts_of(fact: MatrixFact, table: Table, machine: Machine) -> list[Finding]:
    """Findings about one table."""
    doubts = list(cut_short(table, f"the table on line {fact.origin.first_line}"))
    if machine.devices and len(table.columns) > machine.devices:
        listed = f"{machine.devices} GPU" + "s" * (machine.devices > 1)
        sentence = f"a table of {len(table.columns)} columns where the run lists {listed}: it was edited or mixed"
        doubts.append(reject("impossible-shape", fact.origin.first_line, sentence, "send the tool's own output"))
    if fact.quantity is Quantity.BANDWIDTH and fact.memory is Memory.GPU:
        doubts.extend(warm_up(fact.values, table.header))
    return doubts


def sum_is_off(values: Values, stated: float) -> bool:
    """Whether the figures of a table add up to something else than the tool says."""
    total = sum(value for row in values for value in row if value is not None)
    return abs(total - stated) > _SUM_OFF * max(abs(stated), 1e-9)
