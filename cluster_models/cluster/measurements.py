"""Samples of link measurements, as the tools that took them report them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cluster_models.errors import InvalidCluster


class Collective(StrEnum):
    """Operation that the measuring tool ran between the two ends."""

    SEND_RECV = "sendrecv"
    ALL_TO_ALL = "alltoall"
    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    POINT_TO_POINT = "point_to_point"


class Direction(StrEnum):
    """Which way the bytes went; ``BOTH`` is a symmetric test that cannot tell the two directions apart."""

    FORWARD = "forward"
    BOTH = "both"


class SampleStatus(StrEnum):
    """A failed test says nothing about bandwidth: the link is unknown, never zero."""

    OK = "ok"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement between two nodes (or inside one, when both ends are the same node).

    ``bytes_per_s`` is the *bus bandwidth* as nccl-tests defines it for collectives, and plain bandwidth
    for ``POINT_TO_POINT``.  ``message_bytes`` is the size column of the tool.  ``ranks_per_node`` GPUs took part on
    each end, and ``pairs_active`` node pairs were measured at the same time.
    """

    source: str
    destination: str
    direction: Direction
    tool: str
    collective: Collective
    message_bytes: float
    ranks_per_node: int
    pairs_active: int
    status: SampleStatus
    bytes_per_s: float | None = None
    latency_s: float | None = None
    measured_at: datetime | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.message_bytes < math.inf:
            raise InvalidCluster(
                f"{self._path}.message_bytes", self.message_bytes, "must be a finite number, not negative"
            )
        if self.status is SampleStatus.FAILED:
            return
        if self.bytes_per_s is None and self.latency_s is None:
            raise InvalidCluster(
                self._path, None, "a successful sample has neither bandwidth nor latency", "mark it failed instead"
            )
        for name, value in (("bytes_per_s", self.bytes_per_s), ("latency_s", self.latency_s)):
            if value is not None and not 0 < value < math.inf:
                raise InvalidCluster(
                    f"{self._path}.{name}",
                    value,
                    "must be a positive, finite number",
                    "a failed measurement is unknown, not zero: mark it failed or leave it out",
                )
        if self.ranks_per_node < 1 or self.pairs_active < 1:
            raise InvalidCluster(
                self._path,
                (self.ranks_per_node, self.pairs_active),
                "ranks per node and active pairs start at 1",
            )

    @property
    def _path(self) -> str:
        return f"measurements.{self.source}->{self.destination}"
