"""The hardware of a row of a table of measured steps: GPU kinds, node size, NVLink domain and network."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from benchmarks.rows import Assumed, Row, Skipped, text, whole
from cluster_models.calibration.training_run import NodeGroup
from cluster_models.cluster.catalogue import gpu_kind, node_kinds
from cluster_models.cluster.gpus import GpuKind
from cluster_models.errors import InvalidCluster
from cluster_models.units import GBIT

SHORT_NAMES: Final = {
    "A100": "A100-SXM4-80GB",
    "A100-80": "A100-SXM4-80GB",
    "A800": "A100-SXM4-80GB",
    "A800-80": "A100-SXM4-80GB",
    "A100-40": "A100-SXM4-40GB",
    "V100-32": "V100-SXM2-32GB",
    "V100-16": "V100-SXM2-16GB",
    "T4-16": "T4",
    "GH200": "GH200-96GB",
    "GH200-96": "GH200-96GB",
    "GH200-144": "GH200-144GB",
    "H100-80": "H100-SXM5-80GB",
    "H100-96": "H100-SXM5-96GB-HBM2e",
    "H100-94": "H100-NVL-94GB",
    "H200-141": "H200-SXM-141GB",
    "B200-180": "B200-SXM-180GB",
    "B300-288": "B300-SXM-288GB",
}
"""How tables write kinds, beside the catalogue's own names; an A800 is an A100 with fewer NVLinks."""
USUAL_NODE: Final = {"GB200": 4, "GB300": 4, "GH200-96GB": 4, "GH200-144GB": 4, "T4": 4}
USUAL_NODE_GPUS: Final = 8
LARGE_DOMAINS: Final = {"GB200": 72, "GB300": 72}
"""GPUs joined by NVLink beyond a node (NVL72 racks)."""
USUAL_CARD: Final = {
    "A100-SXM4-40GB": 200.0,
    "A100-SXM4-80GB": 200.0,
    "B200-SXM-180GB": 400.0,
    "B300-SXM-288GB": 800.0,
    "GB200": 400.0,
    "GB300": 800.0,
    "GH200-96GB": 200.0,
    "H100-SXM5-80GB": 400.0,
    "H200-SXM-141GB": 400.0,
}
"""Gb/s per GPU of the kind's reference system (DGX A100, H100, B200, B300, NVL72 trays; Alps for GH200)."""
SLOW_ETHERNET_GBIT: Final = 10.0
"""Bandwidth of a node, where a source only says that its Ethernet is slow."""
FABRICS: Final = (
    (r"omni-?path", "omni-path"),
    (r"slingshot", "slingshot"),
    (r"\befa\b", "efa"),
    (r"roce", "roce"),
    (r"infiniband|\bib\b|\b[enh]dr\b|cx-?\d|\bxdr\b", "infiniband"),
    (r"\btcp\b|ethernet|\baws\b|g4dn|\bp3\b", "tcp"),
)
NUMBER: Final = r"(\d+(?:\.\d+)?)"


@dataclass(frozen=True, slots=True)
class Network:
    """The network between nodes; raises ``Skipped`` where it has no speed.

    ``gpu_bytes_per_s``: a GPU's share of its node's network; ``flow_bytes_per_s``: the most that a single flow
    gets.  ``measured``: collectives were measured to reach the rate, which is not nominal then.
    """

    gpu_bytes_per_s: float
    flow_bytes_per_s: float
    fabric: str
    measured: bool = False

    def __post_init__(self) -> None:
        if min(self.gpu_bytes_per_s, self.flow_bytes_per_s) <= 0:
            raise Skipped("network without speed")


@dataclass(frozen=True, slots=True)
class Hardware:
    """GPUs in rank order, all of one kind where ``groups`` is empty; ``gpu`` is the most frequent kind."""

    gpu: GpuKind
    groups: tuple[NodeGroup, ...]
    gpus_per_node: int
    gpus_per_domain: int


def read_hardware(row: Row, assumed: Assumed) -> Hardware:
    """The GPUs of ``row``; raises ``Skipped`` where a kind is unknown."""
    groups = []
    for part in text(row, "gpu").split("+"):
        found = re.fullmatch(r"(.*?)\s+x\s*(\d+)", part.strip())
        groups.append((_kind(found[1] if found else part), int(found[2]) if found else 0))
    gpu = max(groups, key=lambda group: group[1])[0]
    mixed = len(groups) > 1
    if mixed:
        assumed.take("GPU kinds in rank order", " + ".join(f"{kind.name} x {count}" for kind, count in groups))
    node = whole(row, "gpus_per_node") or assumed.take("GPUs per node", USUAL_NODE.get(gpu.name, USUAL_NODE_GPUS))
    domain = max(LARGE_DOMAINS.get(gpu.name, node), node)
    return Hardware(
        gpu=gpu.in_domains_of(domain),
        groups=tuple(NodeGroup(kind.in_domains_of(domain), count) for kind, count in groups) if mixed else (),
        gpus_per_node=node,
        gpus_per_domain=domain,
    )


def _kind(written: str) -> GpuKind:
    """The kind behind what a table writes: ``H100-96(HBM2e,500W)``, ``RTX-3090``, ``A100-80``."""
    plain = re.sub(r"\(.*?\)", "", written).strip()
    for name in (SHORT_NAMES.get(plain), plain, f"{plain}GB", re.sub(r"-\d+$", "", plain)):
        try:
            if name:
                return gpu_kind(name)
        except InvalidCluster:
            continue
    raise Skipped("GPU kind without a data sheet")


def read_network(row: Row, hardware: Hardware, gpus: int, assumed: Assumed) -> Network:
    """The network of ``row``, or the usual one of its GPU kind."""
    written, node = text(row, "interconnect"), hardware.gpus_per_node
    fabric = next((name for pattern, name in FABRICS if re.search(pattern, written, re.IGNORECASE)), "infiniband")
    if found := re.search(rf"measured \d+-node all-reduce {NUMBER}-{NUMBER} Gb/s", written):
        rate = (float(found[1]) * float(found[2])) ** 0.5 * GBIT
        assumed.take("network", f"{rate / GBIT:.0f} Gb/s per node", "middle of the measured range")
        return Network(rate / node, rate, fabric, measured=True)
    cards = re.search(rf"(\d+) ?x ?{NUMBER} Gb/s", written)
    if found := re.search(rf"{NUMBER} Gb/s(?:/| per )GPU", written):
        share = float(found[1]) * GBIT
        return Network(share, max(share, float(cards[2]) * GBIT) if cards else share, fabric)
    if cards:
        return Network(int(cards[1]) * float(cards[2]) * GBIT / node, float(cards[2]) * GBIT, fabric)
    if found := re.search(rf"{NUMBER} Gb/s inter-node \(per GPU assumed", written):
        share = float(found[1]) / node**0.5 * GBIT
        assumed.take(
            "network", f"{share / GBIT:.0f} Gb/s per GPU", "between the printed rate for a GPU and for a node"
        )
        return Network(share, share, fabric)
    if found := re.search(rf"{NUMBER} Gb/s (?:node-to-node|inter|per node)", written):
        rate = float(found[1]) * GBIT
        return Network(rate / node, rate, fabric)
    return _usual_network(written, hardware, gpus, fabric, assumed)


def _usual_network(written: str, hardware: Hardware, gpus: int, fabric: str, assumed: Assumed) -> Network:
    node = hardware.gpus_per_node
    if "slow ethernet" in written.casefold():
        rate = SLOW_ETHERNET_GBIT * GBIT
        assumed.take("network", f"{SLOW_ETHERNET_GBIT:g} Gb/s per node", written)
        return Network(rate / node, rate, "tcp")
    share = USUAL_CARD.get(hardware.gpu.name) or _catalogue_gbit(hardware.gpu)
    if gpus > hardware.gpus_per_domain:
        assumed.take("network", f"{share:g} Gb/s per GPU", f"usual for {hardware.gpu.name}")
    return Network(share * GBIT, share * GBIT, fabric)


def _catalogue_gbit(gpu: GpuKind) -> float:
    """Gb/s per GPU of the first shipped node kind with ``gpu``; a tenth of a data centre's usual 400 otherwise."""
    for node in node_kinds().values():
        if gpu.name in node.gpu_kinds:
            return node.nics.count * node.nics.bytes_per_s / node.gpu_count / GBIT
    return 40.0
