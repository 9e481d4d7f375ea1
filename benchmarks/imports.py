"""How long large uploads take to be read and reported: processor seconds and memory of a dry run.

``python -m benchmarks.imports`` makes up four uploads in the layouts of nccl-tests, of our own tables and of Slurm:
one log of 10 MB, the same amount in 2,000 files, a table of 250,000 rows, and a topology of more hosts than a
cluster may have.  ``--scale`` makes them smaller or larger, ``--only`` takes one of them.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from app.imports.dry_run import Report, dry_run
from app.imports.garbage_collection import never_collected
from app.imports.report import answer_of
from app.imports.sources import SentFile
from cluster_models.units import MIB
from readers.proposal.aliases import AliasTable
from readers.proposal.values import Answers

LATENCY_S: Final = 20e-6
BYTES_PER_S: Final = 45e9
HOST_GPUS: Final = 8
LOG_SIZES: Final = tuple(1 << power for power in range(10, 33))
TABLE_SIZES: Final = (1 << 24, 1 << 28, 1 << 31)
LOGS, ROWS, HOSTS, LEAF_HOSTS = 2000, 250_000, 600_000, 30
TABLE_NODES, LOG_NODES = 300, 64


def log_of_pair(first: str, second: str) -> str:
    """A log of ``alltoall_perf`` of nccl-tests for two hosts of eight GPUs, with made-up times."""
    ranks = 2 * HOST_GPUS
    lines = ["# nccl-tests version 2.17.9", "# Collective test starting: alltoall_perf"]
    lines += [f"# nThread 1 nGpus 1 minBytes {LOG_SIZES[0]} maxBytes {LOG_SIZES[-1]} step: 2(factor)", "#"]
    lines += ["# Using devices"]
    lines += [
        f"#  Rank {rank:2d} Group  0 Pid {900 + rank:6d} on {(first, second)[rank // HOST_GPUS]} device "
        f"{rank % HOST_GPUS:2d} [0000:{rank % HOST_GPUS + 16:02x}:00] NVIDIA H100 80GB HBM3"
        for rank in range(ranks)
    ]
    lines += ["#", "#                    out-of-place          in-place"]
    group = "time   algbw   busbw #wrong"
    lines += [f"#  size  count  type  redop  root  {group}  {group}"]
    for size in LOG_SIZES:
        time_us = (LATENCY_S + size / BYTES_PER_S) * 1e6
        rate = size / time_us / 1e3
        figures = f"{time_us:9.2f} {rate:7.2f} {rate * (ranks - 1) / ranks:7.2f} {0:6d}"
        lines.append(f"{size:12d} {size // 4 // ranks:12d}   float  none  -1 {figures} {figures}")
    return "\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 20.0 ", "#", ""])


def one_log(scale: float) -> list[SentFile]:
    """Many tests behind each other in one file."""
    text = "".join(log_of_pair(*pair) for pair in _pairs(LOG_NODES, int(LOGS * scale)))
    return [SentFile("all.log", text.encode())]


def many_logs(scale: float) -> list[SentFile]:
    """The same tests, a file each."""
    pairs = enumerate(_pairs(LOG_NODES, int(LOGS * scale)))
    return [SentFile(f"pair-{number}.log", log_of_pair(*pair).encode()) for number, pair in pairs]


def table(scale: float) -> list[SentFile]:
    """Rows of our own table, three message sizes a pair, no two rows alike."""
    lines = ["node_a,node_b,gpus_per_node,collective,size_bytes,busbw_GBps,pairs_active,measured_at,status,error"]
    rows = itertools.product(_pairs(TABLE_NODES, int(ROWS * scale) // len(TABLE_SIZES)), TABLE_SIZES)
    for number, ((first, second), size) in enumerate(rows):
        rate = 40 + number % 797 / 100
        lines.append(f"{first},{second},{HOST_GPUS},alltoall,{size},{rate:.2f},1,2026-03-02T09:10:00Z,ok,")
    return [SentFile("pairs.csv", "\n".join(lines).encode())]


def topology(scale: float) -> list[SentFile]:
    """Leaves of thirty hosts each."""
    firsts = range(1, int(HOSTS * scale), LEAF_HOSTS)
    lines = [f"SwitchName=leaf-{first} Nodes=n[{first:06d}-{first + LEAF_HOSTS - 1:06d}]" for first in firsts]
    return [SentFile("topology.conf", "\n".join(lines).encode())]


UPLOADS: Final[Mapping[str, Callable[[float], list[SentFile]]]] = {
    "one-log": one_log,
    "many-logs": many_logs,
    "table": table,
    "topology": topology,
}


def report_of(files: Sequence[SentFile]) -> Report:
    """The dry run of an upload to a new cluster."""
    return dry_run(files, name="made-up", known=None, known_samples=(), aliases=AliasTable(), answers=Answers())


def _pairs(nodes: int, count: int) -> Iterator[tuple[str, str]]:
    """``count`` pairs of ``nodes`` hosts, from the beginning again where there are no more."""
    names = [f"node-{index:03d}" for index in range(nodes)]
    return itertools.islice(itertools.cycle(list(itertools.combinations(names, 2))), count)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each upload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the uploads")
    parser.add_argument("--only", choices=UPLOADS, help="one upload")
    asked = parser.parse_args(arguments)
    print(f"{'upload':12} {'MB':>7} {'processor':>10} {'s / 10 MB':>10} {'peak so far':>12}")
    for name in UPLOADS if asked.only is None else [asked.only]:
        files = UPLOADS[name](asked.scale)
        megabytes = sum(len(file.data) for file in files) / 1e6
        begin = time.process_time()
        with never_collected():
            answer_of(report_of(files))
        spent = time.process_time() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB
        print(f"{name:12} {megabytes:7.2f} {spent:8.2f} s {10 * spent / megabytes:8.2f} s {peak:8.0f} MiB")


if __name__ == "__main__":
    main()
