"""Logs in the layout of nccl-tests, made of our own numbers: a line with one latency and one bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

LATENCY_S: Final = 20e-6
RATE: Final = 40e9
"""Bytes per second of the algorithm bandwidth that large messages come to."""
_FACTORS: Final[dict[str, Callable[[int], float]]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    **dict.fromkeys(("all_gather", "reduce_scatter", "alltoall"), lambda n: (n - 1) / n),
    **dict.fromkeys(("sendrecv", "broadcast", "reduce"), lambda _: 1.0),
}
_SPREAD: Final = frozenset({"all_gather", "reduce_scatter", "alltoall"})
"""Their size is the number of ranks times their count."""
OLD: Final = "old"
"""The layout before 2.12: ``error`` instead of ``#wrong``, redop and root only where they mean something."""


def bus_bandwidth(program: str, ranks: int, size: int) -> float:
    """Bytes per second that the log of ``program`` prints, up to rounding."""
    return size / (LATENCY_S + size / RATE) * _FACTORS[program](ranks)


def log(
    hosts: Sequence[str],
    gpus: int = 1,
    *,
    program: str = "alltoall",
    sizes: Sequence[int] = (1 << 20, 1 << 24, 1 << 28),
    layout: str = "new",
    with_name: bool = True,
    with_ranks: bool = True,
    with_end: bool = True,
) -> str:
    """One test on ``gpus`` GPUs of each host."""
    ranks = len(hosts) * gpus
    lines = []
    if with_name:
        lines += ["# nccl-tests version 2.17.9 nccl-headers=22900 nccl-library=22900"]
        lines += [f"# Collective test starting: {program}_perf"]
    lines += [
        f"# nThread 1 nGpus 1 minBytes {min(sizes)} maxBytes {max(sizes)} step: 2(factor) warmup iters: 5",
        "#",
    ]
    if with_ranks:
        lines += ["# Using devices"]
        lines += [
            f"#  Rank {rank:2d} Group  0 Pid {900 + rank:6d} on {host} device {rank % gpus:2d} "
            f"[0000:{rank % gpus + 16:02x}:00] NVIDIA H100 80GB HBM3"
            for rank, host in enumerate(host for host in hosts for _ in range(gpus))
        ]
    lines += ["#", *_header(program, layout)]
    rows = [_row(program, ranks, size, layout) for size in sizes]
    lines += [row for row, _ in rows]
    if with_end:
        average = sum(bus for _, bus in rows) / len(rows)
        lines += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {average:g} ", "#"]
    if with_end and with_name:
        lines += [f"# Collective test concluded: {program}_perf"]
    return "\n".join(lines) + "\n"


def measured(hosts: Sequence[str], gpus: int, program: str, bus: Mapping[int, float]) -> str:
    """One test whose rows carry the bus bandwidths ``bus``, bytes per second of each size; none: it failed."""
    begins, ends = log(hosts, gpus, program=program, sizes=(1 << 20,), with_end=False).splitlines()[:-1], []
    ranks = len(hosts) * gpus
    parts = ranks if program in _SPREAD else 1
    for size, rate in bus.items():
        time_us = size * _FACTORS[program](ranks) / rate * 1e6
        group = f"{time_us:9.2f} {size / time_us / 1e3:7.2f} {rate / 1e9:7.2f} {0:6d}"
        ends.append(f"{size:12d} {size // 4 // parts:12d}   float  none  -1 {group} {group}")
    if bus:
        average = sum(bus.values()) / len(bus) / 1e9
        ends += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {average:g} ", "#"]
        ends += [f"# Collective test concluded: {program}_perf"]
    else:
        ends += [f"{hosts[-1]}: Test NCCL failure common.cu:1 'remote process exited or there was a network error'"]
    return "\n".join([*begins, *ends]) + "\n"


def _optional(program: str, layout: str) -> tuple[str, ...]:
    redop = "sum" if program in {"all_reduce", "reduce", "reduce_scatter", "sendrecv"} else "none"
    root = "0" if program in {"broadcast", "reduce"} else "-1"
    if layout != OLD:
        return redop, root
    return ((redop,) if redop == "sum" else ()) + ((root,) if root == "0" else ())


def _header(program: str, layout: str) -> list[str]:
    named = dict(zip(("sum", "none", "0", "-1"), ("redop", "redop", "root", "root"), strict=True))
    words = "  ".join(named[word] for word in _optional(program, layout))
    wrong = "error" if layout == OLD else "#wrong"
    group = f"time   algbw   busbw {wrong}"
    return [
        "#                    out-of-place          in-place",
        f"#  size  count  type  {words}  {group}  {group}",
    ]


def _row(program: str, ranks: int, size: int, layout: str) -> tuple[str, float]:
    bus = bus_bandwidth(program, ranks, size) / 1e9
    time_us = (LATENCY_S + size / RATE) * 1e6
    parts = ranks if program in _SPREAD else 1
    wrong = "N/A" if layout == OLD else "0"
    group = f"{time_us:9.2f} {size / time_us / 1e3:7.2f} {bus:7.2f} {wrong:>6}"
    words = "  ".join(_optional(program, layout))
    return f"{size:12d} {size // 4 // parts:12d}   float  {words} {group} {group}", round(bus, 2)
