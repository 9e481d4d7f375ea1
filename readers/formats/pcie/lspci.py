"""``lspci``, flat (``-nn``, ``-D``) or as a tree (``-tv``): GPUs and network cards of one host, by product.

It shows no NVLinks and no rates of ports.  Sockets are not told apart either: in a tree, devices below one host
bridge are joined by their bridges, and nothing is said of the others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from readers.formats.pcie.pci_tree import joint_kind
from readers.frame.facts import Fact, HostFact, Joint, Nics, Origin, WiringFact
from readers.frame.findings import doubt, note, refusal
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

_FLAT: Final = re.compile(
    r"^\s*((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) "
    r"([A-Z3][\w /.-]{2,60}?)(?: \[([0-9a-f]{4})\])?: (\S.*)$",
    re.ASCII,
)
_ROOT: Final = re.compile(r"\[([0-9a-f]{4,8}:[0-9a-f]{2})\]", re.ASCII)
_TREE_ANCHOR: Final = re.compile(r"^[\s|\\+-]{0,40}\[[0-9a-f]{4,8}:[0-9a-f]{2}\]-", re.ASCII)
_FUNCTION: Final = re.compile(r"(?<![0-9a-f.:])[0-9a-f]{2}\.[0-7](?![0-9a-f])", re.ASCII)
_DESCRIBED: Final = re.compile(r"(?<![0-9a-f.:])([0-9a-f]{2}\.[0-7])  (\S.*)$", re.ASCII)

_NVIDIA: Final = re.compile(r"^NVIDIA Corporation \S{1,12} \[([^\]]{1,60})\]", re.ASCII)
_NVIDIA_OTHER: Final = re.compile(
    r"Audio|USB|NVSwitch|Bridge|Switch|UCSI|BlueField|Mellanox|ConnectX|PCIe Root", re.IGNORECASE
)
_AMD: Final = re.compile(
    r"^Advanced Micro Devices, Inc\. \[AMD/ATI\] .{0,60}?\[((?:AMD )?(?:Radeon )?Instinct [^\]]{1,40})\]"
)
_CARD: Final = re.compile(
    r"ConnectX|BlueField|Infiniband|Elastic Fabric Adapter|BCM57\d|Omni-Path|Ethernet|Pensando|Network",
    re.IGNORECASE,
)
_GPU_WORDS: Final = ("3D controller", "VGA compatible controller", "Display controller", "Processing accelerators")
_CARD_WORDS: Final = {
    "Infiniband controller": "infiniband",
    "Ethernet controller": "ethernet",
    "Network controller": "",
}
_LIMIT: Final = 128
"""GPUs and cards of one host that are joined to each other; no host has more."""


@dataclass(frozen=True, slots=True)
class _Device:
    line: int
    address: str
    is_gpu: bool
    product: str
    fabric: str = ""
    root: str = ""
    bridges: tuple[str, ...] = ()


def _product(described: str) -> str | None:
    """The product of a GPU as lspci describes it: what stands in the last brackets of the name."""
    nvidia = _NVIDIA.match(described)
    if nvidia is not None and _NVIDIA_OTHER.search(described) is None:
        return nvidia.group(1)
    amd = _AMD.match(described)
    return amd.group(1) if amd is not None else None


def _without_revision(described: str) -> str:
    return re.sub(r" \(rev [0-9a-f]{2}\)$", "", described)


def _flat(line: Line) -> _Device | None:
    """The GPU or card of a line of the flat list; other devices give ``None``."""
    found = _FLAT.match(line.text)
    if found is None:
        return None
    address, device_class, _, described = found.groups()
    described = _without_revision(described)
    if device_class in _GPU_WORDS:
        product = _product(described)
        vendor = described.startswith(("NVIDIA Corporation", "Advanced Micro Devices"))
        if product is None and not (vendor and device_class != "VGA compatible controller"):
            return None
        return _Device(line.number, address, is_gpu=True, product=product or "")
    if device_class in _CARD_WORDS:
        fabric = "efa" if "Elastic Fabric Adapter" in described else _CARD_WORDS[device_class]
        return _Device(line.number, address, is_gpu=False, product=described[:80], fabric=fabric)
    return None


class _Tree:
    """Bridges that lead to the device of each line: those left of a branch lead to it."""

    def __init__(self) -> None:
        self._root = ""
        self._path: list[tuple[int, str]] = []

    def device(self, line: Line) -> _Device | None:
        text = line.text[:400]
        root = _ROOT.search(text)
        if root is not None:
            self._root, self._path = root.group(1), []
        described = _DESCRIBED.search(text)
        drawn = text if described is None else text[: described.end(1)]
        places = [(found.start(), found.group()) for found in _FUNCTION.finditer(drawn)]
        if not places:
            return None
        self._path = [step for step in self._path if step[0] < places[0][0]] + places
        if described is None:
            return None
        name = _without_revision(described.group(2))
        # The port of the switch that the device hangs on is its own: devices of one switch share what is above it.
        bridges = tuple("/".join(word for _, word in self._path[:depth]) for depth in range(1, len(self._path) - 1))
        product = _product(name)
        if product is not None:
            return _Device(line.number, "", is_gpu=True, product=product, root=self._root, bridges=bridges)
        if _CARD.search(name) is not None:
            fabric = "efa" if "Elastic Fabric Adapter" in name else ""
            return _Device(
                line.number, "", is_gpu=False, product=name[:80], fabric=fabric, root=self._root, bridges=bridges
            )
        return None


def read(source: Source, lines: tuple[Line, ...]) -> Contents:
    """GPUs and cards of a host, and in a tree the bridges that join them."""
    devices: list[_Device] = []
    tree: _Tree | None = None
    seen: set[str] = set()
    repeated = 0
    for line in lines:
        if _TREE_ANCHOR.match(line.text) is not None and tree is None:
            tree = _Tree()
        device = _flat(line) or (tree.device(line) if tree is not None else None)
        if device is None:
            continue
        if device.address and device.address in seen:
            repeated = repeated or line.number
            continue
        seen.add(device.address)
        devices.append(device)
    if not devices or len(devices) > _LIMIT:
        first, last = (lines[0].number, lines[-1].number) if lines else (1, 1)
        reason = f"lspci shows {len(devices)} GPUs and network cards here; from 1 to {_LIMIT} are taken for a host"
        remedy = "send the whole of lspci -nn of one host with GPUs"
        return Contents(refusals=(refusal(first, last, reason, remedy),))
    found = _understood(source, devices)
    if not repeated:
        return found
    sentence = "addresses come again: where that is another host, its devices were not taken"
    again = doubt("several-hosts", repeated, sentence, "send one file for each host")
    return replace(found, doubts=(*found.doubts, again))


def _understood(source: Source, devices: list[_Device]) -> Contents:
    gpus = {f"GPU{index}": gpu for index, gpu in enumerate(device for device in devices if device.is_gpu)}
    cards = {f"NIC{index}": card for index, card in enumerate(device for device in devices if not device.is_gpu)}
    joints: list[Joint] = []
    joined = list({**gpus, **cards}.items())
    for index, (first, one) in enumerate(joined):
        for second, other in joined[index + 1 :]:
            if one.root and one.root == other.root:
                kind = joint_kind(one.bridges, other.bridges, same_host_bridge=True)
                joints.append(Joint(first, second, kind))
    origin = Origin(source.name, devices[0].line, devices[-1].line)
    products = dict.fromkeys(gpu.product for gpu in gpus.values())
    wiring = WiringFact(
        origin,
        source.host,
        tuple(gpus),
        tuple(cards),
        tuple(joints),
        len(gpus),
        gpu_products=tuple(gpu.product for gpu in gpus.values()) if all(products) else (),
        hides_nvlink=True,
    )
    host = HostFact(
        origin,
        source.names,
        gpu_product=next(iter(products)) if len(products) == 1 and all(products) else None,
        gpu_count=len(gpus) or None,
        nics=_nics(cards),
    )
    facts: tuple[Fact, ...] = (host, wiring)
    sentence = "lspci shows no NVLinks and no rates of ports: nothing follows from their absence"
    remedy = "send nvidia-smi topo -m and ibstat as well"
    return Contents(facts, (), (note("nvlink-hidden", devices[0].line, sentence, remedy),))


def _nics(cards: dict[str, _Device]) -> tuple[Nics, ...]:
    """The cards for traffic between hosts: InfiniBand where there is any, else EFA, else all."""
    for fabric in ("infiniband", "efa"):
        chosen = [name for name, card in cards.items() if card.fabric == fabric]
        if chosen:
            return (Nics(len(chosen), None, fabric, tuple(chosen)),)
    fabrics = {card.fabric for card in cards.values()}
    return (Nics(len(cards), None, fabrics.pop() if len(fabrics) == 1 else "", tuple(cards)),) if cards else ()


FORMAT: Final = Format(
    name="lspci",
    known_as="lspci -nn or lspci -tv",
    family="inside a node",
    read=read,
    begins=(_FLAT, _TREE_ANCHOR),
)
