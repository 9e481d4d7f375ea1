"""Time and bus bandwidth of collectives among GPUs of one scale-up (NVLink) domain.

Tables of published measurements (``data/collective_curves.toml``) per GPU kind, collective and number of ranks;
where there is none, the closest table scaled to the nominal speed of the kind's links.  Message sizes and bus
bandwidth are those of nccl-tests (its PERFORMANCE page).  Derivations: ``docs/links.md``.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

import numpy as np
import numpy.typing as npt

from cluster_models.cluster.catalogue import gpu_kinds
from cluster_models.cluster.gpus import GpuKind
from cluster_models.cluster.measurements import Collective
from cluster_models.units import MICROSECOND

FloatArray = npt.NDArray[np.float64]

_RING: Final = frozenset({Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER})
"""Ring algorithms that load the links alike: an all-reduce is a reduce-scatter and an all-gather."""


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Measured times ``time_s`` of one collective at increasing ``message_bytes``, both shape (sizes,)."""

    gpu_kind: str
    collective: Collective
    ranks: int
    in_switch: bool
    latency_s: float | None
    message_bytes: FloatArray
    time_s: FloatArray
    source: str


def bus_factor(collective: Collective, ranks: int) -> float:
    """Bus bandwidth over message size per second, as nccl-tests defines it.

    2(n-1)/n for all-reduce, (n-1)/n for all-gather, reduce-scatter and all-to-all, 1 for single transfers.
    """
    if ranks < 2:
        raise ValueError(f"a collective needs at least 2 ranks, got {ranks}")
    match collective:
        case Collective.ALL_REDUCE:
            return 2 * (ranks - 1) / ranks
        case Collective.SEND_RECV | Collective.POINT_TO_POINT:
            return 1.0
        case _:
            return (ranks - 1) / ranks


@cache
def curves() -> tuple[Curve, ...]:
    """All shipped curves."""
    text = resources.files("cluster_models").joinpath("data", "collective_curves.toml").read_text("utf-8")
    return tuple(
        Curve(
            gpu_kind=entry["gpu_kind"],
            collective=Collective(entry["collective"]),
            ranks=entry["ranks"],
            in_switch=entry.get("in_switch", False),
            latency_s=entry["latency_us"] * MICROSECOND if "latency_us" in entry else None,
            message_bytes=np.array(entry["message_bytes"], dtype=np.float64),
            time_s=np.array(entry["time_us"], dtype=np.float64) * MICROSECOND,
            source=entry["source"],
        )
        for entry in tomllib.loads(text)["curve"]
    )


def link_family(kind: GpuKind, ranks: int = 2) -> str:
    """Family of the links that carry a group of ``ranks`` GPUs of ``kind``: NVLink4, PCIe, XGMI, ...

    A bridge joins pairs only: larger groups go over PCIe.
    """
    link = kind.scale_up_link
    if "bridge" in link:
        return "NVLink bridge" if ranks <= kind.scale_up_domain_gpus else "PCIe"
    return link.split()[0]


def domain_nominal_bytes_per_s(kind: GpuKind, ranks: int) -> float:
    """Nominal one-direction bytes/s that one GPU has towards a group of ``ranks`` GPUs.

    In a full mesh (AMD XGMI, boards of four NVIDIA GPUs) each peer sits behind one of ``domain - 1`` links, so a
    small group has only its share of them.
    """
    if "mesh" in kind.scale_up_link:
        return kind.scale_up_bytes_per_s * min(1.0, (ranks - 1) / (kind.scale_up_domain_gpus - 1))
    if link_family(kind, ranks) == "PCIe" and kind.pcie_bytes_per_s is not None:
        return kind.pcie_bytes_per_s
    return kind.scale_up_bytes_per_s


def _nearest(candidates: Sequence[Curve], ranks: int) -> Curve:
    """The curve with the closest number of ranks, the larger group on a tie (it is the slower one)."""
    return min(candidates, key=lambda curve: (abs(math.log(curve.ranks / ranks)), -curve.ranks))


def _serves(curve: Curve, collective: Collective, ranks: int, *, same: bool) -> bool:
    """Whether ``curve`` may stand for ``collective``: itself (``same``), or another of the ring family.

    In-switch reduction serves all-reduce alone, and no group smaller than the one it was seen in.
    """
    if curve.in_switch and (collective is not Collective.ALL_REDUCE or ranks < curve.ranks):
        return False
    if same:
        return curve.collective is collective
    return {curve.collective, collective} <= _RING


@cache
def _own_curve(kind_name: str, collective: Collective, ranks: int) -> Curve | None:
    """The closest curve measured on this kind, or ``None``."""
    own = [curve for curve in curves() if curve.gpu_kind == kind_name]
    for same in (True, False):
        serving = [curve for curve in own if _serves(curve, collective, ranks, same=same)]
        if in_switch := [curve for curve in serving if curve.in_switch]:
            serving = in_switch
        if serving:
            return _nearest(serving, ranks)
    return None


@cache
def _donors(kind_name: str, family: str, collective: Collective, ranks: int) -> tuple[Curve, ...]:
    """One curve of each other kind to borrow from: kinds of the same link family first, then any."""
    others = sorted({curve.gpu_kind for curve in curves()} - {kind_name})
    found = {name: curve for name in others if (curve := _own_curve(name, collective, ranks)) is not None}
    same_family = tuple(curve for name, curve in found.items() if link_family(gpu_kinds()[name], ranks) == family)
    return same_family or tuple(
        curve for curve in found.values() if curve.collective is collective and not curve.in_switch
    )


def _measured_as(collective: Collective) -> Collective:
    """The test whose curve describes ``collective``: single transfers are timed by sendrecv."""
    return Collective.SEND_RECV if collective is Collective.POINT_TO_POINT else collective


def domain_is_estimated(kind: GpuKind, collective: Collective, ranks: int) -> bool:
    """Whether no table of exactly this kind, collective and number of ranks exists."""
    measured = _measured_as(collective)
    return not any(
        (curve.gpu_kind, curve.collective, curve.ranks) == (kind.name, measured, ranks) for curve in curves()
    )


def domain_latency_s(kind: GpuKind, collective: Collective, ranks: int) -> float:
    """Seconds that a collective of almost no bytes takes inside one domain.

    The measured figure of the closest group; else of the kind's other collectives; else the median over the
    kinds of its link family; else over all kinds.
    """
    return _latency_s(kind.name, link_family(kind, ranks), _measured_as(collective), ranks)


def _family_of(kind_name: str) -> str:
    return link_family(gpu_kinds()[kind_name])


@cache
def _latency_s(kind_name: str, family: str, collective: Collective, ranks: int) -> float:
    timed = {curve: curve.latency_s for curve in curves() if curve.latency_s is not None}
    own = [curve for curve in timed if curve.gpu_kind == kind_name]
    if own:
        exact = [curve for curve in own if curve.collective is collective]
        return timed[_nearest(exact or own, ranks)]
    related = [latency for curve, latency in timed.items() if _family_of(curve.gpu_kind) == family]
    return float(np.median(related or list(timed.values())))


def _curve_time_s(curve: Curve, latency_s: float, message_bytes: FloatArray) -> FloatArray:
    """Seconds by ``curve``: log-log between its sizes, its last bandwidth above, latency + bandwidth below."""
    sizes, times = curve.message_bytes, curve.time_s
    log_bytes = np.log(np.maximum(message_bytes, sizes[0]))
    inside = np.exp(np.interp(log_bytes, np.log(sizes), np.log(times)))
    above = times[-1] * message_bytes / sizes[-1]
    start = min(latency_s, float(times[0]))
    below = start + (times[0] - start) * message_bytes / sizes[0]
    time_s: FloatArray = np.where(
        message_bytes < sizes[0], below, np.where(message_bytes > sizes[-1], above, inside)
    )
    return time_s


def domain_time_s(kind: GpuKind, collective: Collective, ranks: int, message_bytes: npt.ArrayLike) -> FloatArray:
    """Seconds of one collective among ``ranks`` GPUs of one domain; shape of ``message_bytes``.

    Curves of other groups or kinds keep their time above latency, scaled by bus traffic and nominal link speed;
    several donors give the median.
    """
    sizes = np.asarray(message_bytes, dtype=np.float64)
    measured = _measured_as(collective)
    own = _own_curve(kind.name, measured, ranks)
    donors = (own,) if own else _donors(kind.name, link_family(kind, ranks), measured, ranks)
    latency_s = domain_latency_s(kind, measured, ranks)
    traffic = bus_factor(measured, ranks)
    nominal = domain_nominal_bytes_per_s(kind, ranks)
    times = []
    for curve in donors:
        donor_kind = gpu_kinds()[curve.gpu_kind]
        donor_latency_s = domain_latency_s(donor_kind, curve.collective, curve.ranks)
        slower = domain_nominal_bytes_per_s(donor_kind, curve.ranks) / nominal
        ratio = slower * traffic / bus_factor(curve.collective, curve.ranks)
        donor_times = _curve_time_s(curve, donor_latency_s, sizes)
        if ratio == 1 and own is not None:
            return donor_times
        times.append(latency_s + np.maximum(donor_times - donor_latency_s, 0.0) * ratio)
    return np.asarray(np.median(times, axis=0), dtype=np.float64)
