"""NCCL and RCCL topology files (``NCCL_TOPO_DUMP_FILE``, and those that clouds ship): what one host consists of.

A file for ``NCCL_TOPO_FILE`` may list bare PCIe devices only; GPUs and cards are then told by their PCIe class, and
the absence of NVLinks says nothing.  Elements as in NCCL's src/graph/xml.cc: system > cpu > pci > gpu | nic > net.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from readers.formats.pcie.pci_tree import GPU_CLASSES, NIC_CLASSES, PRODUCTS, joint_kind
from readers.frame.facts import (
    Fact,
    HostFact,
    Joint,
    JointKind,
    Nics,
    Origin,
    WiringFact,
)
from readers.frame.findings import Finding, doubt, note, refusal
from readers.frame.numbers import whole
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source
from readers.frame.xml_events import documents

_START: Final = re.compile(r"<(?:system\b|\?xml\b|!DOCTYPE\b|!ENTITY\b)")
_ANCHOR: Final = re.compile(r"^\s*(?:<[!?].*>|-->)?\s*<system[\s>]")
MOST_DEVICES: Final = 128
"""GPUs and cards of one host that are joined to each other; no host has more."""
MOST_HOSTS: Final = 64
"""Hosts of one upload that are drawn."""
_FASTEST_MBIT: Final = 3_200_000
_SLOWEST_MBIT: Final = 10_000
"""Below ten Gbit/s a card is for management and not for the traffic of training."""


@dataclass(slots=True)
class _Device:
    """A PCIe device, or a card that hangs on no PCIe device."""

    line: int
    bus_id: str
    numa: str
    bridges: tuple[str, ...]
    device_class: str = ""
    product: str = ""
    vendor: str = ""
    gpu: Mapping[str, str] | None = None
    nets: list[Mapping[str, str]] = field(default_factory=list)
    links: list[tuple[JointKind, str, int, str]] = field(default_factory=list)
    """Kind, target, count and PCIe class of the target."""

    @property
    def is_gpu(self) -> bool:
        return self.gpu is not None or self.device_class in GPU_CLASSES

    @property
    def is_nic(self) -> bool:
        return not self.is_gpu and (bool(self.nets) or self.device_class in NIC_CLASSES)


class _Tree:
    """Elements of the tree while they come in."""

    def __init__(self) -> None:
        self.hosts: dict[str, list[_Device]] = {}
        self.root = ""
        self._open: list[tuple[str, _Device | None]] = []
        self._numa = ""
        self._host = ""

    def opened(self, name: str, attributes: Mapping[str, str], line: int) -> None:
        device: _Device | None = None
        if not self._open:
            self.root = name
        if name == "cpu":
            self._numa = attributes.get("numaid", "")
            self._host = attributes.get("host_hash", "")
            self.hosts.setdefault(self._host, [])
        elif name == "pci":
            device = self._new(line, attributes)
        elif name == "net":
            device = self._parent() or self._new(line, {})
            device.nets.append(attributes)
        elif name in {"gpu", "nvlink", "xgmi", "c2c"} and (parent := self._parent()) is not None:
            if name == "gpu":
                parent.gpu = attributes
            else:
                parent.links.append(_link(name, attributes))
        self._open.append((name, device))

    def closed(self, _: str) -> None:
        self._open.pop()

    def _parent(self) -> _Device | None:
        return next((device for _, device in reversed(self._open) if device is not None), None)

    def _new(self, line: int, attributes: Mapping[str, str]) -> _Device:
        bridges = tuple(above.bus_id for _, above in self._open if above is not None)
        key = (_hex(attributes.get("vendor", "")), _hex(attributes.get("device", "")))
        device = _Device(
            line,
            attributes.get("busid", "").casefold(),
            self._numa,
            bridges,
            _hex(attributes.get("class", ""))[:4],
            PRODUCTS.get(key, ""),
            key[0],
        )
        self.hosts.setdefault(self._host, []).append(device)
        return device


def _hex(text: str) -> str:
    return text.strip().casefold().removeprefix("0x")


def _link(name: str, attributes: Mapping[str, str]) -> tuple[JointKind, str, int, str]:
    kind = {"nvlink": JointKind.NVLINK, "xgmi": JointKind.XGMI, "c2c": JointKind.C2C}[name]
    count = whole(attributes.get("count", "1"), 9)
    target_class = _hex(attributes.get("tclass", ""))
    return kind, attributes.get("target", "").casefold(), 1 if count is None else count, target_class[:4]


def _named(gpus: list[_Device]) -> dict[str, _Device]:
    """Names as nvidia-smi gives them, from the device number; by order where the file has none or repeats one."""
    numbers = [whole(gpu.gpu.get("dev", ""), 9) if gpu.gpu is not None else None for gpu in gpus]
    given = [number for number in numbers if number is not None]
    if len(given) == len(gpus) == len(set(given)):
        named = {f"GPU{number}": gpu for number, gpu in zip(given, gpus, strict=True)}
        return dict(sorted(named.items(), key=lambda item: int(item[0][3:])))
    return {f"GPU{index}": gpu for index, gpu in enumerate(gpus)}


def _direct(gpus: Mapping[str, _Device]) -> dict[tuple[str, str], Joint]:
    """NVLink and XGMI joints, both ways; GPUs on one NVSwitch are joined by as many links as the lesser has."""
    by_bus = {gpu.bus_id: name for name, gpu in gpus.items()}
    joints: dict[tuple[str, str], Joint] = {}
    to_switch: dict[str, int] = {}
    for name, gpu in gpus.items():
        for kind, target, count, target_class in gpu.links:
            other = by_bus.get(target)
            if other is None and kind is JointKind.NVLINK and target_class not in GPU_CLASSES:
                to_switch[name] = to_switch.get(name, 0) + count
            elif other is not None and other != name and kind is not JointKind.C2C and count > 0:
                joints[name, other] = Joint(name, other, kind, count)
    for name, links in to_switch.items():
        for other, links_there in to_switch.items():
            if name != other:
                joints[name, other] = Joint(name, other, JointKind.NVLINK, min(links, links_there))
    return joints


def _joints(devices: Mapping[str, _Device], gpus: Mapping[str, _Device]) -> tuple[Joint, ...]:
    direct = _direct(gpus)
    names = list(devices)
    joints: list[Joint] = []
    for index, first in enumerate(names):
        one = devices[first]
        for second in names[index + 1 :]:
            there, back = direct.get((first, second)), direct.get((second, first))
            if there is not None or back is not None:
                taken = min(
                    (joint for joint in (there, back) if joint is not None), key=lambda joint: joint.links or 0
                )
                joints.append(Joint(first, second, taken.kind, taken.links))
                continue
            other = devices[second]
            kind = joint_kind(one.bridges, other.bridges, same_host_bridge=one.numa == other.numa)
            joints.append(Joint(first, second, kind))
    return tuple(joints)


def _rate(net: Mapping[str, str]) -> tuple[float | None, str]:
    """Bytes per second of a card, and the code of a doubt; NCCL writes Mbit/s."""
    speed = whole(net.get("speed", "").strip(), 9)
    if not speed or speed > _FASTEST_MBIT:
        return None, "nic-speed-unit"
    return speed * 1e6 / 8, "slow-nic" if speed < _SLOWEST_MBIT else ""


@dataclass(frozen=True, slots=True)
class _Card:
    name: str
    device: _Device
    bytes_per_s: float | None
    doubt: str
    shown: str

    @property
    def fabric(self) -> str:
        """InfiniBand by its PCIe class, EFA by Amazon's number of vendor; Ethernet may be RoCE or not."""
        efa = self.device.vendor == "1d0f" or self.name.startswith("rdmap")
        return "efa" if efa else NIC_CLASSES.get(self.device.device_class, "")


def _cards(devices: list[_Device]) -> list[_Card]:
    cards: list[_Card] = []
    taken: set[str] = set()
    for device in devices:
        if not device.is_nic:
            continue
        for net in device.nets or [{}]:
            name = net.get("name", "")[:40] or f"NIC{len(cards)}"
            name = name if name not in taken else f"{name}#{len(cards)}"
            taken.add(name)
            rate, doubt = _rate(net) if net else (None, "")
            cards.append(_Card(name, device, rate, doubt, net.get("speed", "")[:20]))
    return cards


def _to_itself(gpu: _Device) -> int:
    """NVLinks whose far end is said to be the GPU itself, as in a template filled in for all GPUs alike."""
    return sum(count for kind, target, count, _ in gpu.links if kind is JointKind.NVLINK and target == gpu.bus_id)


def _doubts(cards: list[_Card], gpus: Mapping[str, _Device]) -> list[Finding]:
    doubts: list[Finding] = []
    for card in cards:
        if card.doubt == "slow-nic":
            sentence = (
                f"{card.name} has {card.shown} Mbit/s: a card for management; it is not counted among the NICs"
            )
            doubts.append(doubt("slow-nic", card.device.line, sentence, "state the NICs of the host"))
        elif card.doubt:
            sentence = f"the speed {card.shown!r} of {card.name} is not a number of Mbit/s; its rate is left open"
            doubts.append(doubt(card.doubt, card.device.line, sentence, "state the rate of the NIC"))
    alone = [name for name, gpu in gpus.items() if _to_itself(gpu)]
    if alone:
        links = sorted({_to_itself(gpus[name]) for name in alone})
        sentence = (
            f"{' '.join(alone)} have {' or '.join(map(str, links))} NVLinks to themselves: "
            "which GPU is at the other end is not said"
        )
        remedy = "send nvidia-smi topo -m of such a host"
        doubts.append(doubt("nvlink-to-itself", gpus[alone[0]].line, sentence, remedy))
    return doubts


def _host(source: Source, devices: list[_Device], last: int, *, partial: bool) -> tuple[list[Fact], list[Finding]]:
    gpus = _named([device for device in devices if device.is_gpu])
    cards = _cards(devices)
    joined = {**gpus, **{card.name: card.device for card in cards}}
    shows_links = any(
        kind is not JointKind.C2C and target != gpu.bus_id
        for gpu in gpus.values()
        for kind, target, *_ in gpu.links
    )
    origin = Origin(source.name, devices[0].line, last)
    wiring = WiringFact(
        origin,
        source.host,
        tuple(gpus),
        tuple(card.name for card in cards),
        _joints(joined, gpus),
        len(gpus),
        gpu_products=tuple(gpu.product for gpu in gpus.values())
        if all(gpu.product for gpu in gpus.values())
        else (),
        hides_nvlink=len(gpus) > 1 and not shows_links,
        partial=partial,
    )
    kinds: dict[tuple[float | None, str], list[str]] = {}
    for card in cards:
        if card.doubt != "slow-nic":
            kinds.setdefault((card.bytes_per_s, card.fabric), []).append(card.name)
    products = set(wiring.gpu_products)
    host = HostFact(
        origin,
        source.names,
        gpu_product=products.pop() if len(products) == 1 else None,
        gpu_count=None if partial else len(gpus),
        nics=tuple(Nics(len(names), rate, fabric, tuple(names)) for (rate, fabric), names in kinds.items()),
    )
    doubts = _doubts(cards, gpus)
    if wiring.hides_nvlink and not any(map(_to_itself, gpus.values())):
        sentence = (
            "no NVLink or XGMI link is listed: files that clouds ship leave them out, so nothing follows from it"
        )
        doubts.append(note("nvlink-hidden", devices[0].line, sentence, "send nvidia-smi topo -m"))
    return [host, wiring], doubts


def read(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Host and wiring of every topology in these lines; of a damaged one what stands before the damage."""
    facts: list[Fact] = []
    refusals: list[Finding] = []
    doubts: list[Finding] = []
    for first, tree, outcome in documents(lines, _START, _Tree):
        if len(facts) >= 2 * MOST_HOSTS:
            reason = f"more than {MOST_HOSTS} hosts in one upload"
            refusals.append(refusal(first, lines[-1].number, reason, "send one file for each kind of host"))
            break
        more, about = _document(source, tree, outcome.last_line, partial=bool(outcome.problem))
        if outcome.problem:
            remedy = "send the whole file as NCCL wrote it"
            refusals.append(refusal(outcome.last_line, outcome.last_line, outcome.problem, remedy))
        elif not more:
            reason = "this XML lists no GPU and no network card, or more than any host has"
            remedy = "send the file that NCCL_TOPO_DUMP_FILE names"
            refusals.append(refusal(first, outcome.last_line, reason, remedy))
        facts += more
        doubts += about
    return Contents(tuple(facts), tuple(refusals), tuple(doubts))


def _document(source: Source, tree: _Tree, last: int, *, partial: bool) -> tuple[list[Fact], list[Finding]]:
    facts: list[Fact] = []
    doubts: list[Finding] = []
    if tree.root != "system":
        return facts, doubts
    for devices in list(tree.hosts.values())[:MOST_HOSTS]:
        shown = sum(max(1, len(device.nets)) for device in devices if device.is_gpu or device.is_nic)
        if 0 < shown <= MOST_DEVICES:
            more, about = _host(source, devices, last, partial=partial)
            facts += more
            doubts += about
    if len(facts) > 2:
        sentence = "the file describes several hosts and names none of them"
        doubts.append(doubt("several-hosts", last, sentence, "send one file for each host"))
    return facts, doubts


FORMAT: Final = Format(
    name="nccl-topology",
    known_as="NCCL or RCCL topology XML",
    family="inside a node",
    read=read,
    begins=(_ANCHOR,),
)
