"""Whether placing pays on real clusters: planned on one measurement, judged on another of the same links.

A plan counts for the step that it keeps on other figures than those it was made from.  The noise is
how far the comparison of two placements moves from one measurement to the other: the standard deviation, over
random placements, of the change of their step times, times the square root of two for a difference of two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.compiled_annealer import step_time
from benchmarks.measured_links import DATA, pairwise, regions, square, turned
from benchmarks.placement_clusters import training_on
from benchmarks.placement_grid import Bandwidth, Training, known_links, rank_orders
from benchmarks.placement_rivals import planned, step_of
from solver.candidates import FloatArray

RANDOM_PLACEMENTS: Final = 400
WAN_DAYS: Final = ("2022-01-17_mini", "2022-11-28")


@dataclass(frozen=True, slots=True, eq=False)
class Twice:
    """The same links measured twice, and the grids (replicas, stages) to place on them."""

    name: str
    first: Bandwidth
    second: Bandwidth
    shapes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Gain:
    """Shares of the step time: what a plan ``promised`` over rank order, what it ``kept`` on the other measurement.

    Means over planning on the first and on the second.  ``noise``: see above.
    """

    name: str
    shape: tuple[int, int]
    promised: float
    kept: float
    noise: float


def measured_twice() -> Iterator[Twice]:
    """The files of ``DATA`` that are there."""
    sent, received, later = (
        DATA / f"pipette_16node_mpigraph_{run}_MBps.csv" for run in ("time0_send", "time0_recv", "time1_send")
    )
    shapes = ((4, 4), (2, 8))
    if sent.exists() and received.exists():
        name = "16 A100 nodes, sender's and receiver's figures"
        yield Twice(name, square(sent), turned(square(received)), shapes)
    if sent.exists() and later.exists():
        yield Twice("16 A100 nodes, two runs", square(sent), square(later), shapes)
    for nodes, cluster, shapes in (
        (8, "clusterA_8node_h100_2025-08", ((2, 4), (4, 2))),
        (17, "clusterB_17node_h100_2025-11", ((4, 4), (2, 8))),
    ):
        path = DATA / f"nccl_pairwise_{cluster}.csv"
        if path.exists():
            send = pairwise(path, "sendrecv", "busbw_gbs")
            again = pairwise(path, "sendrecv", "inplace_busbw_gbs")
            yield Twice(f"{nodes} H100 nodes, the same test again", send, again, shapes)
            exchange = pairwise(path, "alltoall", "busbw_gbs")
            yield Twice(f"{nodes} H100 nodes, another pattern", send, exchange, shapes)
    days = [DATA / f"skyplane_iperf3_{day}.csv" for day in WAN_DAYS]
    if all(day.exists() for day in days):
        first, second = regions(*days)
        yield Twice("27 cloud regions, ten months apart", first, second, ((3, 9), (9, 3)))


def gain(twice: Twice, shape: tuple[int, int], *, seconds: float) -> Gain:
    """The gain of placing ``shape``; ``seconds`` for each of the two plans."""
    slots = shape[0] * shape[1]
    links = [known_links(bandwidth, slots).bytes_per_s for bandwidth in (twice.first, twice.second)]
    training = training_on(shape, float(np.median(links[0])))
    promised: list[float] = []
    kept: list[float] = []
    for here, there in (links, links[::-1]):
        plan = planned(here, training, seconds=seconds).assignment
        for judged, result in ((here, promised), (there, kept)):
            step = step_of(judged, training)
            given_s = min(step_time(order, step) for order in rank_orders(training))
            result.append(1 - step_time(plan, step) / given_s)
    return Gain(twice.name, shape, float(np.mean(promised)), float(np.mean(kept)), _noise(links, training))


def _noise(links: list[FloatArray], training: Training) -> float:
    random = np.random.default_rng(0)
    first, second = (step_of(matrix, training) for matrix in links)
    changes = []
    for _ in range(RANDOM_PLACEMENTS):
        order = random.permutation(len(links[0]))[: training.slots]
        changes.append(step_time(order, second) / step_time(order, first) - 1)
    return float(np.sqrt(2) * np.std(changes))
