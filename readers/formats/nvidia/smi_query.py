"""``nvidia-smi`` without a subcommand: its table, ``-q``, and ``--query-gpu`` as CSV: which GPUs a host has.

None of them says how the GPUs are joined.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from readers.frame.facts import HostFact, Origin
from readers.frame.findings import Finding, doubt, note, refused
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

_QUERY: Final = re.compile(r"^=+NVSMI LOG=+\s*$")
_GPU: Final = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
_PAIR: Final = re.compile(r"^(\s{1,40})([A-Za-z][\w .\-]{0,40}?)\s*: (\S.{0,200})$")
_HEADING: Final = re.compile(r"^(\s{1,40})([A-Z][\w .\-]{1,60})$")
_TABLE: Final = re.compile(r"^\|\s*NVIDIA-SMI\s+\d")
_ROW: Final = re.compile(
    r"^\|\s{1,4}(\d{1,3})\s+([A-Za-z]\S*(?: \S+){0,8}?)(?:\s+(?:On|Off|N/A|WDDM|TCC)\s*|\s{2,})\|\s*"
    r"([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s"
)
_SLICES: Final = re.compile(r"\|\s+Enabled\*?\s*\|\s*$")
_CSV: Final = re.compile(
    r"^(?:index|name|uuid|gpu_\w+|count|serial|driver_version|timestamp|memory\.\w+|pci\.[\w.]+|mig\.[\w.]+)"
    r"(?: \[\w+\])?,\s[a-z]"
)
_NO_DOMAIN: Final = re.compile(r"[0\-]*")
_REMEDY: Final = "send it as printed, with nvidia-smi topo -m for the links"


@dataclass(slots=True)
class _Host:
    """The GPUs of one call of the tool."""

    first: Line
    last: int
    products: list[str] = field(default_factory=list)
    sliced: bool = False
    announced: int | None = None
    listed: int = 0
    """GPUs that have a section, whether or not it names their product."""
    fabric: dict[str, str] = field(default_factory=dict)


def read_query(source: Source, lines: tuple[Line, ...]) -> Contents:
    """``nvidia-smi -q``: products, memory, MIG, and the NVLink domain of GPUs that have one beyond the host."""
    hosts: list[_Host] = []
    heading = ""
    for line in lines:
        if _QUERY.match(line.text):
            hosts.append(_Host(line, line.number))
        elif hosts and _GPU.match(line.text):
            hosts[-1].last = line.number
            hosts[-1].listed += 1
        elif hosts and (pair := _PAIR.match(" " + line.text)) is not None:
            _take(hosts[-1], heading, pair[2].strip(), pair[3].strip())
            hosts[-1].last = line.number
        elif (title := _HEADING.match(line.text)) is not None:
            heading = title[2].strip()
    return _understood(source, hosts)


def _take(host: _Host, heading: str, key: str, value: str) -> None:
    if key == "Attached GPUs" and value.isascii() and value.isdigit() and len(value) < 5:
        host.announced = int(value)
    elif key == "Product Name":
        host.products.append(value)
    elif heading == "MIG Mode" and key == "Current":
        host.sliced |= value == "Enabled"
    elif heading == "Fabric" and key in {"ClusterUUID", "CliqueId"}:
        host.fabric[key] = value


def read_table(source: Source, lines: tuple[Line, ...]) -> Contents:
    """The table of plain ``nvidia-smi``; names that it cut short ("...") are not taken."""
    hosts: list[_Host] = []
    for line in lines:
        if _TABLE.match(line.text):
            hosts.append(_Host(line, line.number))
        elif hosts and (row := _ROW.match(line.text)) is not None:
            hosts[-1].products.append("" if "..." in row[2] else row[2])
            hosts[-1].last = line.number
        elif hosts and hosts[-1].products and line.text.startswith("|"):
            hosts[-1].sliced |= _SLICES.search(line.text) is not None
    return _understood(source, hosts)


def read_csv(source: Source, lines: tuple[Line, ...]) -> Contents:
    """``nvidia-smi --query-gpu=name,... --format=csv``, with its header."""
    hosts: list[_Host] = []
    columns: list[str] = []
    for line in lines:
        cells = [cell.strip() for cell in line.text.split(",")]
        if _CSV.match(line.text):
            columns = [cell.split(" ")[0] for cell in cells]
            hosts.append(_Host(line, line.number))
        elif hosts and len(cells) == len(columns):
            host, said = hosts[-1], dict(zip(columns, cells, strict=True))
            host.products.append(said.get("name", ""))
            host.last = line.number
            host.sliced |= said.get("mig.mode.current") == "Enabled"
    return _understood(source, hosts)


def _understood(source: Source, hosts: list[_Host]) -> Contents:
    facts: list[HostFact] = []
    refusals: list[Finding] = []
    doubts: list[Finding] = []
    for host in hosts:
        described = len(host.products) or host.listed
        if not described:
            refusals.append(refused(host.first, "no GPU is listed here", _REMEDY, host.last))
            continue
        products = dict.fromkeys(filter(None, host.products))
        count = host.announced if host.announced is not None else described
        if count != described:
            sentence = f"{described} GPUs are described of the {count} that are attached"
            doubts.append(note("partial", host.first.number, sentence, "send the whole output"))
        if len(products) > 1:
            sentence = f"GPUs of several products in one host: {', '.join(products)}"
            remedy = "split the host into two nodes"
            doubts.append(doubt("mixed-gpus", host.first.number, sentence, remedy))
        facts.append(
            HostFact(
                Origin(source.name, host.first.number, host.last),
                source.names,
                gpu_product=next(iter(products)) if len(products) == 1 else None,
                gpu_count=None if host.sliced else count,
                gpu_in_slices=host.sliced,
                scale_up_domain=_domain(host.fabric),
            )
        )
    if len(facts) > 1:
        sentence = f"GPUs of {len(facts)} hosts stand in one file, and none is named"
        doubts.append(doubt("several-hosts", facts[0].origin.first_line, sentence, "send one file for each host"))
    return Contents(tuple(facts), tuple(refusals), tuple(doubts))


def _domain(fabric: dict[str, str]) -> str | None:
    """As the label nvidia.com/gpu.clique writes it; ``None`` where it ends with the host (zeros)."""
    uuid, clique = fabric.get("ClusterUUID", ""), fabric.get("CliqueId", "")
    if _NO_DOMAIN.fullmatch(uuid) or uuid == "N/A" or not clique.isdigit():
        return None
    return f"{uuid}.{clique}"


FORMATS: Final = (
    Format("nvidia-smi-query", "nvidia-smi -q", "inside a node", read_query, begins=(_QUERY,)),
    Format("nvidia-smi-table", "nvidia-smi (the table)", "inside a node", read_table, begins=(_TABLE,)),
    Format("nvidia-smi-csv", "nvidia-smi --query-gpu --format=csv", "inside a node", read_csv, begins=(_CSV,)),
)
