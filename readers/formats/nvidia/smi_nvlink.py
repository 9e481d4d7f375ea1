"""``nvidia-smi nvlink``: status (``-s``), capabilities (``-c``), far ends (``-R``), error counters (``-e``).

A list of GPUs with no word on links is what ``nvidia-smi -L`` prints: how many GPUs there are, of what product.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from cluster_models.cluster.topology import NodeState
from readers.frame.facts import (
    Fact,
    HealthFact,
    HostFact,
    Joint,
    JointKind,
    Origin,
    WiringFact,
)
from readers.frame.findings import Finding, doubt, note, refused
from readers.frame.numbers import finite
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

SWITCH: Final = "switch"
"""The far end of a link in a table that does not name it."""

_GPU: Final = re.compile(r"^\s*GPU (\d{1,4}): (\S.{0,200}?)\s*\(UUID: *([^)]{1,80})", re.ASCII)
_LINK: Final = re.compile(r"^\s*Link (\d{1,3})[:,]\s*(\S.*)$", re.ASCII)
_RATE: Final = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) GB/s", re.ASCII)
_ERRORS: Final = re.compile(r"\bErrors?: *(\d{1,15})$", re.ASCII)
_INACTIVE: Final = re.compile(r"links are in-?active|Unable to retrieve NVLink", re.IGNORECASE)
_SLICE: Final = re.compile(r"^\s*MIG \S", re.ASCII)
_BOARD: Final = re.compile(r"SXM|HBM3|HGX|DGX|H20\b|H200\b|H800\b|GB[23]00\b|B[23]00\b")
"""Products whose NVLinks are wired on the board; on PCIe cards a bridge may simply not be fitted."""
_CARD: Final = re.compile(r"PCIe|NVL\b|RTX")
_GIGA: Final = 1e9
"""nvidia-smi's GB/s is 10^9 bytes per second of one link and direction (25 for NVLink 3: 4 lanes of 50 Gbit/s)."""


@dataclass(slots=True)
class _Gpu:
    index: int
    product: str
    uuid: str
    line: int
    last: int
    links: dict[int, float | None] = field(default_factory=dict)
    inactive: set[int] = field(default_factory=set)
    all_inactive: bool = False
    errors: int = 0
    sliced: bool = False

    @property
    def name(self) -> str:
        return f"GPU{self.index}"

    @property
    def active(self) -> int:
        return 0 if self.all_inactive else len(self.links.keys() - self.inactive)

    @property
    def spoken_of(self) -> bool:
        return bool(self.links or self.inactive or self.all_inactive)


def _take(gpu: _Gpu, line: Line) -> bool:
    """Takes what a line says of a GPU's links; whether it says anything."""
    if _INACTIVE.search(line.text) is not None:
        gpu.all_inactive, gpu.last = True, line.number
        return True
    link = _LINK.match(line.text)
    if link is None:
        return False
    number, said = int(link.group(1)), link.group(2)
    gpu.last = line.number
    if "inactive" in said.casefold():
        gpu.inactive.add(number)
        return True
    rate = _RATE.match(said)
    figure = finite(rate.group(1)) if rate is not None else None
    gpu.links[number] = gpu.links.get(number) if figure is None else figure * _GIGA
    errors = _ERRORS.search(said)
    gpu.errors += int(errors.group(1)) if errors is not None else 0
    return True


def read(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Links of every GPU listed, and which GPUs lack some; a bare list of GPUs gives the host's GPUs."""
    hosts: list[dict[int, _Gpu]] = []
    refusals: list[Finding] = []
    gpu: _Gpu | None = None
    for line in lines:
        header = _GPU.match(line.text)
        if header is not None:
            gpu = _begun(hosts, header, line)
        elif gpu is not None and not _take(gpu, line):
            gpu.sliced = gpu.sliced or _SLICE.match(line.text) is not None
            if line.text.strip().startswith("Link "):
                reason = "this line on a link says no number of the link"
                refusals.append(refused(line, reason, "send the output as printed"))
    facts: list[Fact] = []
    doubts: list[Finding] = []
    for gpus in hosts:
        more, about = _host(source, [gpus[index] for index in sorted(gpus)])
        facts += more
        doubts += about
    if len(hosts) > 1:
        sentence = f"GPUs of {len(hosts)} hosts stand in one file, and none is named"
        number = facts[0].origin.first_line
        doubts.append(doubt("several-hosts", number, sentence, "send one file for each host"))
    return Contents(tuple(facts), tuple(refusals), tuple(doubts))


def _begun(hosts: list[dict[int, _Gpu]], header: re.Match[str], line: Line) -> _Gpu:
    """The GPU of this header; a number that comes again with another UUID begins another host."""
    index, product, uuid = int(header.group(1)), header.group(2), header.group(3).rstrip()
    if not hosts or (index in hosts[-1] and hosts[-1][index].uuid != uuid):
        hosts.append({})
    gpu = hosts[-1].setdefault(index, _Gpu(index, product, uuid, line.number, line.number))
    gpu.last = line.number
    return gpu


def _host(source: Source, gpus: list[_Gpu]) -> tuple[list[Fact], list[Finding]]:
    if not any(gpu.spoken_of for gpu in gpus):
        return _list_of_gpus(source, gpus)
    faults, doubts = _faults(source, gpus)
    return [_wiring(source, gpus), *faults], doubts


def _span(source: Source, gpus: list[_Gpu]) -> Origin:
    return Origin(source.name, min(gpu.line for gpu in gpus), max(gpu.last for gpu in gpus))


def _wiring(source: Source, gpus: list[_Gpu]) -> WiringFact:
    joints = []
    for gpu in gpus:
        rates = [rate for number, rate in gpu.links.items() if number not in gpu.inactive and rate is not None]
        if gpu.active:
            slowest = min(rates, default=None)
            joints.append(Joint(gpu.name, SWITCH, JointKind.NVLINK, gpu.active, slowest))
    expected = max(gpu.index for gpu in gpus) + 1
    return WiringFact(
        _span(source, gpus),
        source.host,
        tuple(gpu.name for gpu in gpus),
        (),
        tuple(joints),
        expected,
        gpu_products=tuple(gpu.product for gpu in gpus),
        partial=expected > len(gpus) or not all(gpu.spoken_of for gpu in gpus),
    )


def _list_of_gpus(source: Source, gpus: list[_Gpu]) -> tuple[list[Fact], list[Finding]]:
    products = dict.fromkeys(gpu.product for gpu in gpus)
    whole = [gpu.index for gpu in gpus] == list(range(len(gpus)))
    fact = HostFact(
        _span(source, gpus),
        source.names,
        gpu_product=next(iter(products)) if len(products) == 1 else None,
        gpu_count=len(gpus) if whole else None,
        gpu_in_slices=any(gpu.sliced for gpu in gpus),
    )
    doubts = []
    if len(products) > 1:
        sentence = f"GPUs of several products in one host: {', '.join(products)}"
        doubts.append(doubt("mixed-gpus", gpus[0].line, sentence, "split the host into two nodes"))
    return [fact], doubts


def _faults(source: Source, gpus: list[_Gpu]) -> tuple[list[HealthFact], list[Finding]]:
    """GPUs with fewer links than their like have, or none on a board that wires them.

    PCIe cards that all lack links have no bridge: nothing is broken.
    """
    most: dict[str, int] = {}
    for gpu in gpus:
        most[gpu.product] = max(most.get(gpu.product, 0), gpu.active, len(gpu.links.keys() | gpu.inactive))
    unbridged = {
        product
        for product in most
        if not (_BOARD.search(product) and not _CARD.search(product))
        and not any(gpu.active for gpu in gpus if gpu.product == product)
    }
    faults: list[HealthFact] = []
    doubts: list[Finding] = []
    for gpu in gpus:
        expected = most[gpu.product]
        if gpu.errors:
            sentence = f"{gpu.name} counts {gpu.errors} errors on its NVLinks since the driver was loaded"
            doubts.append(note("nvlink-errors", gpu.line, sentence, "watch whether they grow"))
        if gpu.product in unbridged or not gpu.spoken_of:
            continue
        if gpu.active < expected or not gpu.active:
            of = f"{gpu.active} of {expected}" if expected else "none"
            sentence = f"{of} of the NVLinks of {gpu.name} are active"
            origin = Origin(source.name, gpu.line, gpu.last)
            faults.append(HealthFact(origin, source.host, f"gpu:{gpu.index}", NodeState.DEGRADED, sentence))
            doubts.append(doubt("links-missing", gpu.line, sentence, "leave this GPU out or have it repaired"))
    if unbridged:
        sentence = f"no NVLink is active on {', '.join(sorted(unbridged))}: the cards have no bridge"
        doubts.append(note("nvlink-unused", gpus[0].line, sentence))
    return faults, doubts


FORMAT: Final = Format(
    name="nvidia-smi-nvlink",
    known_as="nvidia-smi nvlink -s, or nvidia-smi -L",
    family="inside a node",
    read=read,
    begins=(_GPU,),
)
