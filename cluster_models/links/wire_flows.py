"""The flow on the wire that a measurement stands for: from one GPU to another between two nodes.

nccl-tests prints *bus bandwidth*, a figure of the algorithm; a plan needs the rate of one flow while a known
number of flows leave the node.  Derivations: ``docs/links.md``.  Letters: g ranks per node, n = 2g ranks, S bytes
in the tool's size column, B its bus bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cluster_models.cluster.measurements import Collective, Sample, SampleStatus
from cluster_models.units import MIB

LARGE_BYTES: Final = 4.0 * MIB
"""From this size of one flow on bandwidth decides its time, not latency: smaller ones say nothing of larger."""


@dataclass(frozen=True, slots=True)
class WireFlow:
    """``flows`` flows leave the node at once, each of ``message_bytes`` at ``bytes_per_s``.

    ``exact`` is False where the algorithm may have put more on the wire than the least it needs: the rate is then
    a lower bound.
    """

    flows: int
    message_bytes: float
    bytes_per_s: float
    exact: bool

    @property
    def time_s(self) -> float:
        """Seconds of one flow, latency included."""
        return self.message_bytes / self.bytes_per_s


def wire_flow(sample: Sample) -> WireFlow | None:
    """The flow that ``sample`` measured; ``None`` where it says nothing about bandwidth."""
    if sample.status is not SampleStatus.OK or sample.bytes_per_s is None or sample.message_bytes <= 0:
        return None
    if sample.source == sample.destination:
        return _inside_node(sample, sample.bytes_per_s)
    return _between_nodes(sample, sample.bytes_per_s)


def _between_nodes(sample: Sample, bus_bytes_per_s: float) -> WireFlow:
    ranks, size = sample.ranks_per_node, sample.message_bytes
    others = 2 * ranks - 1
    match sample.collective:
        case Collective.SEND_RECV:  # a ring of ranks crosses once in either direction, whatever g is
            return WireFlow(1, size, bus_bytes_per_s, exact=True)
        case Collective.POINT_TO_POINT:
            return WireFlow(ranks, size, bus_bytes_per_s, exact=True)
        case Collective.ALL_TO_ALL:  # half of each rank's buffer crosses: B g / (2g-1)
            return WireFlow(ranks, size / 2, bus_bytes_per_s * ranks / others, exact=True)
        case Collective.ALL_REDUCE:  # at least S leaves the node: S/g per GPU at B / (n-1)
            return WireFlow(ranks, size / ranks, bus_bytes_per_s / others, exact=False)
        case Collective.ALL_GATHER | Collective.REDUCE_SCATTER:  # at least S/2 leaves the node
            return WireFlow(ranks, size / (2 * ranks), bus_bytes_per_s / others, exact=False)


def _inside_node(sample: Sample, bus_bytes_per_s: float) -> WireFlow | None:
    """Inside a node bus bandwidth is the pace of each GPU's own links.

    All-reduce is left out, because reduction inside the switches passes their speed, and so is a collective of
    one rank, which moves nothing.
    """
    ranks, size = sample.ranks_per_node, sample.message_bytes
    match sample.collective:
        case Collective.POINT_TO_POINT:
            return WireFlow(ranks, size, bus_bytes_per_s, exact=True)
        case Collective.ALL_REDUCE:
            return None
        case _ if ranks == 1:
            return None
        case Collective.SEND_RECV:
            return WireFlow(ranks, size, bus_bytes_per_s, exact=True)
        case _:
            return WireFlow(ranks, size * (ranks - 1) / ranks, bus_bytes_per_s, exact=False)
