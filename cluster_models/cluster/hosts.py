"""Processors and memory of a node, which hold and update what GPUs offload."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from cluster_models.errors import InvalidCluster
from cluster_models.units import GBYTE, GIB

_OTHER: Final = "other server"
_SLOT_BYTES_PER_S: Final = 31.5e9
"""PCIe 4 x16, for GPU kinds whose slot is not known."""


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Host figures that an owner states of a node; ``None`` where nothing is stated.

    ``memory_bytes`` of the node, its bandwidth ``memory_bytes_per_s``, and ``link_bytes_per_s`` of each GPU to it,
    nominal, one direction, while all GPUs of the node transfer.  ``disk_bytes`` that states may fill on the node's
    disks, and what these read and write a second for all its GPUs together, as measured.
    """

    memory_bytes: float | None = None
    memory_bytes_per_s: float | None = None
    link_bytes_per_s: float | None = None
    disk_bytes: float | None = None
    disk_read_bytes_per_s: float | None = None
    disk_write_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if value is not None and not value > 0:
                raise InvalidCluster(f"host.{part.name}", value, "must be positive")
        disk = (self.disk_bytes, self.disk_read_bytes_per_s, self.disk_write_bytes_per_s)
        if None in disk and any(disk):
            remedy = "give disk_gib, disk_read_gbytes_per_s and disk_write_gbytes_per_s, or none of them"
            raise InvalidCluster("host", disk, "states a part of room, read and write rate of its disks", remedy)


@dataclass(frozen=True, slots=True)
class HostShare:
    """Memory, links and disks that a node has for each of its GPUs, in the terms of ``HostMemory``.

    ``is_estimated``: some figure is that of the nodes in which the GPU kind is usually sold.  Disks are those that
    nodes state, with no room where one states none.
    """

    memory_bytes: float
    memory_bytes_per_s: float
    link_bytes_per_s: float
    source: str
    is_estimated: bool = True
    disk_bytes: float = 0.0
    disk_read_bytes_per_s: float = math.inf
    disk_write_bytes_per_s: float = math.inf

    def as_stated(self, stated: Sequence[tuple[HostMemory, int]]) -> HostShare:
        """The least that nodes have, of so many GPUs each; this share for what one of them does not say."""
        memory = _least([(host.memory_bytes, gpus) for host, gpus in stated])
        rate = _least([(host.memory_bytes_per_s, gpus) for host, gpus in stated])
        link = _least([(host.link_bytes_per_s, 1) for host, _ in stated])
        read = _least([(host.disk_read_bytes_per_s, gpus) for host, gpus in stated])
        write = _least([(host.disk_write_bytes_per_s, gpus) for host, gpus in stated])
        return HostShare(
            memory_bytes=memory or self.memory_bytes,
            memory_bytes_per_s=rate or self.memory_bytes_per_s,
            link_bytes_per_s=link or self.link_bytes_per_s,
            source=self.source,
            is_estimated=None in (memory, rate, link),
            disk_bytes=_least([(host.disk_bytes, gpus) for host, gpus in stated]) or 0.0,
            disk_read_bytes_per_s=read or math.inf,
            disk_write_bytes_per_s=write or math.inf,
        )


def _least(figures: Sequence[tuple[float | None, int]]) -> float | None:
    """The least figure a GPU; ``None`` where one is not stated."""
    shares = [figure / gpus for figure, gpus in figures if figure is not None]
    return min(shares) if shares and len(shares) == len(figures) else None


def usual_host(gpu_kind: str, pcie_bytes_per_s: float | None) -> HostShare:
    """The share of a GPU in the node in which its kind is usually sold (``data/hosts.toml``)."""
    hosts = _hosts()
    name, entry = hosts.get(gpu_kind, hosts[_OTHER])
    slot = (pcie_bytes_per_s or _SLOT_BYTES_PER_S) / entry.get("gpus_per_link", 1)
    return HostShare(
        memory_bytes=entry["memory_gib"] * GIB / entry["gpus"],
        memory_bytes_per_s=entry["memory_bandwidth_gbytes_per_s"] * GBYTE / entry["gpus"],
        link_bytes_per_s=entry["link_gbytes_per_s"] * GBYTE if "link_gbytes_per_s" in entry else slot,
        source=f"{name}: {entry['source']}",
    )


@cache
def _hosts() -> Mapping[str, tuple[str, dict[str, Any]]]:
    """Name and entry of the usual host by GPU kind, and of the other servers by their name."""
    text = resources.files("cluster_models").joinpath("data", "hosts.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    found = {kind: (name, entry) for name, entry in tables.items() for kind in entry["gpu_kinds"]}
    return MappingProxyType(found | {_OTHER: (_OTHER, tables[_OTHER])})
