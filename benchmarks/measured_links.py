"""Reads published measurements of links for the placement benchmark, where they lie beside the checkout."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.placement_grid import Bandwidth, read_bandwidth
from cluster_models.units import GBIT, GBYTE

DATA: Final = Path(__file__).parents[2] / "shared" / "data" / "bandwidth"
SEVENTEEN_NODES: Final = DATA / "nccl_pairwise_clusterB_17node_h100_2025-11.csv"
MBYTE: Final = 1e6
MESSAGE_BYTES: Final = 1 << 30
GPUS_PER_NODE: Final = "8"
WAN_TIER: Final = "PREMIUM"


def square(path: Path) -> Bandwidth:
    """A square matrix of MB/s."""
    as_written = read_bandwidth(path)
    return Bandwidth(as_written.names, as_written.bytes_per_s * (MBYTE / GBYTE))


def turned(matrix: Bandwidth) -> Bandwidth:
    """Rows made senders: mpiGraph's table of receivers has them in its rows.

    Turned, it agrees with the senders' table (correlation 0.96); as written, it does not (-0.59).
    """
    return Bandwidth(matrix.names, np.ascontiguousarray(matrix.bytes_per_s.T))


def pairwise(path: Path, collective: str, column: str) -> Bandwidth:
    """Tests of node pairs with all their GPUs, one message size, both directions at once."""
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["status"] == "ok" and row["collective"] == collective]
    names = sorted({row[end] for row in rows for end in ("node_a", "node_b")})
    table = np.full((len(names), len(names)), np.nan)
    for row in rows:
        if int(row["size_bytes"]) == MESSAGE_BYTES and row["gpus_per_node"] == GPUS_PER_NODE and row[column]:
            a, b = names.index(row["node_a"]), names.index(row["node_b"])
            table[a, b] = table[b, a] = float(row[column]) * GBYTE
    return Bandwidth(tuple(names), table)


def regions(*days: Path) -> tuple[Bandwidth, ...]:
    """Links between the regions that were measured from and to all others on every day."""
    measured = []
    for day in days:
        with day.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["src_tier"] == row["dst_tier"] == WAN_TIER]
        measured.append(
            {(row["src_region"], row["dst_region"]): float(row["received_gbps"]) * GBIT for row in rows}
        )
    common = set.intersection(*(set(links) for links in measured))
    names = sorted({region for pair in common for region in pair})
    return tuple(
        Bandwidth(tuple(names), np.array([[links.get((a, b), np.nan) for b in names] for a in names]))
        for links in ({pair: links[pair] for pair in common} for links in measured)
    )
