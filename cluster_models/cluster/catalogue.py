"""The shipped GPU and node kinds, read once from ``data/*.toml`` and turned into SI values."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from statistics import median
from types import MappingProxyType
from typing import Any, Final

from cluster_models.cluster.gpus import CLOCK_POWER, UNTHROTTLED_SHARE, GpuKind, Precision
from cluster_models.cluster.topology import NicGroup
from cluster_models.errors import InvalidCluster
from cluster_models.units import GBIT, GBYTE, MIB, TFLOP

PCIE_X16_BYTES_PER_S: Final = {
    generation: lanes_gt_per_s * 16 / 8 * 128 / 130 * 1e9
    for generation, lanes_gt_per_s in ((3, 8), (4, 16), (5, 32), (6, 64))
}
"""One direction: transfers per second of 16 lanes after the 128b/130b line code (PCI Express base spec. 3.0);
generation 6 has no line code and is taken with the same factor, 1.5 % low."""


@dataclass(frozen=True, slots=True)
class NodeKind:
    """A node as a vendor or cloud sells it.  ``gpu_kinds`` are the kinds sold under this name."""

    name: str
    provider: str
    gpu_kinds: tuple[str, ...]
    gpu_count: int
    scale_up_domain_gpus: int
    nics: NicGroup
    price_usd_per_hour: float | None
    source: str
    verified: bool
    notes: str = ""


def _table(name: str) -> dict[str, Any]:
    text = resources.files("cluster_models").joinpath("data", name).read_text(encoding="utf-8")
    return tomllib.loads(text)


def _peak_flops(entry: Mapping[str, Any]) -> dict[Precision, float]:
    return {precision: entry[key] * TFLOP for precision in Precision if (key := f"{precision}_tflops") in entry}


def _measured_fraction(entry: Mapping[str, Any]) -> float | None:
    measured = entry.get("measured_bf16_tflops")
    return None if measured is None else measured / entry["bf16_tflops"]


def _own_fraction(entry: Mapping[str, Any]) -> float | None:
    sustained = entry.get("sustained_tflops")
    return _measured_fraction(entry) if sustained is None else sustained / entry["fp16_tflops"]


def _vendor_medians(entries: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Median measured share of peak per vendor; all vendors together stand under ``""``."""
    fractions: dict[str, list[float]] = {"": []}
    for entry in entries:
        fraction = _measured_fraction(entry)
        if fraction is not None:
            fractions[""].append(fraction)
            fractions.setdefault(entry["vendor"], []).append(fraction)
    return {vendor: median(values) for vendor, values in fractions.items()}


def _achievable(table: Mapping[str, Any], name: str, medians: Mapping[str, float]) -> tuple[float, str]:
    """Share of peak that large products of a kind reach, and where that is from.

    A kind that its power limit decides, or a graphics chip, has the share that it sustained when measured, which
    says nothing about others of the vendor. A kind that nobody measured, made in the process of one that was, has
    that one's share times the clock that its power for each peak FLOP allows, as far as clocks go.
    """
    entry = table[name]
    if (fraction := _measured_fraction(entry)) is not None:
        return fraction, "measured: largest published BF16 matrix product over the dense peak"
    if (fraction := _own_fraction(entry)) is not None:
        return fraction, f"measured: {entry['sustained_source']}"
    if (like := entry.get("process_of")) is not None:
        measured = _own_fraction(table[like])
        assert measured is not None
        room = _watts_per_tflops(entry) / _watts_per_tflops(table[like])
        fraction = min(measured * room ** (1.0 / CLOCK_POWER), UNTHROTTLED_SHARE)
        return fraction, f"estimated: from {like} and the power for each peak FLOP"
    vendor = entry["vendor"]
    return medians.get(vendor, medians[""]), f"estimated: median of the measured {vendor} kinds"


def _watts_per_tflops(entry: Mapping[str, Any]) -> float:
    return float(entry["power_watts"] / entry["bf16_tflops"])


def _gpu_kind(name: str, table: Mapping[str, Any], medians: Mapping[str, float]) -> GpuKind:
    entry = table[name]
    fraction, achievable_source = _achievable(table, name, medians)
    memory = entry["memory_mib"] * MIB if "memory_mib" in entry else entry["memory_gbytes"] * GBYTE
    return GpuKind(
        name=name,
        vendor=entry["vendor"],
        memory_bytes=float(memory),
        memory_bytes_per_s=entry["memory_bandwidth_gbytes_per_s"] * GBYTE,
        peak_flops=_peak_flops(entry),
        achievable_fraction=fraction,
        scale_up_link=entry["scale_up_link"],
        scale_up_bytes_per_s=entry["scale_up_gbytes_per_s"] * GBYTE,
        scale_up_domain_gpus=entry["scale_up_domain_gpus"],
        power_watts=float(entry["power_watts"]),
        price_usd_per_hour=entry.get("price_usd_per_hour"),
        source=f"{entry['source']}; memory: {entry['memory_source']}",
        achievable_source=achievable_source,
        verified=entry["verified"],
        pcie_bytes_per_s=PCIE_X16_BYTES_PER_S[entry["pcie_generation"]],
        multiprocessors=entry.get("multiprocessors"),
    )


@cache
def gpu_kinds() -> Mapping[str, GpuKind]:
    """All shipped GPU kinds by name."""
    table = _table("gpu_kinds.toml")
    medians = _vendor_medians(table.values())
    return MappingProxyType({name: _gpu_kind(name, table, medians) for name in table})


@cache
def node_kinds() -> Mapping[str, NodeKind]:
    """All shipped node kinds by name."""
    return MappingProxyType(
        {
            name: NodeKind(
                name=name,
                provider=entry["provider"],
                gpu_kinds=tuple(entry["gpu_kinds"]),
                gpu_count=entry["gpu_count"],
                scale_up_domain_gpus=entry["scale_up_domain_gpus"],
                nics=NicGroup(
                    count=entry["nic_count"],
                    bytes_per_s=entry["nic_rate_gbits_per_s"] * GBIT,
                    fabric=entry["fabric"],
                ),
                price_usd_per_hour=entry.get("price_usd_per_hour"),
                source=entry["source"],
                verified=entry["verified"],
                notes=entry.get("notes", ""),
            )
            for name, entry in _table("node_kinds.toml").items()
        }
    )


def _plain(name: str) -> str:
    """``name`` without what people write differently: case, blanks, dashes, underscores."""
    return "".join(character for character in name.casefold() if character not in " -_")


@cache
def _gpu_aliases() -> Mapping[str, str]:
    """Plain spelling of every name and alias -> catalogue name."""
    aliases = {_plain(name): name for name in gpu_kinds()}
    for name, entry in _table("gpu_kinds.toml").items():
        for alias in entry["aliases"]:
            aliases.setdefault(_plain(alias), name)
    return MappingProxyType(aliases)


def _unknown(field: str, name: str, what: str, spellings: Mapping[str, str]) -> InvalidCluster:
    """The error for ``name``; ``spellings`` maps plain spellings to catalogue names."""
    plain = _plain(name)
    close = [spelling for spelling in spellings if plain and plain in spelling]
    close += difflib.get_close_matches(plain, spellings, n=6, cutoff=0.5)
    names = list(dict.fromkeys(spellings[match] for match in close))[:6]
    if names:
        return InvalidCluster(field, name, f"unknown {what}", f"close names: {', '.join(names)}")
    known = dict.fromkeys(spellings.values())
    return InvalidCluster(field, name, f"unknown {what}", f"known names: {', '.join(known)}")


def gpu_kind(name: str, *, field: str = "gpu_kind") -> GpuKind:
    """The shipped GPU kind called ``name``: a catalogue name, a usual short name or a driver's product name.

    Raises ``InvalidCluster`` on ``field`` with close names when there is none.
    """
    found = _gpu_aliases().get(_plain(name))
    if found is None:
        raise _unknown(field, name, "GPU kind", _gpu_aliases())
    return gpu_kinds()[found]


def node_kind(name: str, *, field: str = "node_kind") -> NodeKind:
    """The shipped node kind called ``name``; raises ``InvalidCluster`` on ``field`` with close names."""
    by_plain = {_plain(known): known for known in node_kinds()}
    found = by_plain.get(_plain(name))
    if found is None:
        raise _unknown(field, name, "node kind", by_plain)
    return node_kinds()[found]
