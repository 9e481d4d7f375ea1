"""Times of all kinds of node pairs at a few numbers of flows, worked out once for every message size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cluster_models.links.model import LinkModel
from solver.candidates import FloatArray, IntArray

GRID_BYTES: Final = 2.0 ** np.arange(10, 37.01, 0.25)
MOST_KEPT_BYTES: Final = 2**28
"""Memory for times that are kept."""


@dataclass(frozen=True, slots=True, eq=False)
class LinkTimes:
    """Times of flows over ``links``; ``flows`` are numbers of them that leave a node at once, increasing.

    ``sizes``: message sizes of curves, increasing: a grid, and the measured sizes, where times may bend.
    """

    links: LinkModel
    flows: tuple[int, ...]
    sizes: FloatArray = field(init=False)
    _known: dict[float, FloatArray] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        measured = np.unique(self.links.tables.message_bytes)
        object.__setattr__(self, "sizes", np.union1d(GRID_BYTES, measured[np.isfinite(measured)]))

    def at(self, message_bytes: float) -> FloatArray:
        """Seconds of one flow of ``message_bytes``: all kinds of ``links.kinds`` at each of ``flows`` in turn."""
        if message_bytes not in self._known:
            times = np.concatenate([self.links.kind_s(max(1.0, message_bytes), flows) for flows in self.flows])
            if len(self._known) * times.nbytes > MOST_KEPT_BYTES:
                self._known.clear()
            self._known[message_bytes] = times
        return self._known[message_bytes]


def times_over(links: LinkModel, flows: tuple[int, ...]) -> LinkTimes:
    """The times of ``flows`` over ``links``, made once for all that ask: they mostly send the same messages."""
    if flows not in links.derived:
        links.derived[flows] = LinkTimes(links, flows)
    times: LinkTimes = links.derived[flows]
    return times


def flow_levels(gpus_per_node: int, in_use: IntArray) -> tuple[int, ...]:
    """Numbers of flows that leave nodes at once when ``gpus_per_node`` GPUs join those ``in_use`` by other jobs."""
    return tuple((gpus_per_node + np.unique(in_use)).tolist())
