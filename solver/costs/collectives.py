"""Seconds of collectives inside one scale-up domain, or inside one node."""

from __future__ import annotations

from typing import Final

import numpy as np

from cluster_models.cluster.gpus import GpuKind
from cluster_models.cluster.measurements import Collective
from cluster_models.links.collective_curves import domain_time_s
from solver.candidates import FloatArray

_SMALLEST_MESSAGE: Final = 1.0
"""The curves are logarithmic in the size; a byte stands for nothing to send."""


def domain_collective_s(
    gpu: GpuKind, collective: Collective, ranks: FloatArray, message_bytes: FloatArray
) -> FloatArray:
    """(n,) seconds of one collective among ``ranks`` GPUs of a domain; 0 for a single rank.

    ``message_bytes`` is the full buffer of a gather or scatter, the send buffer of an all-to-all and what one
    rank sends in a transfer (the size column of nccl-tests, its doc/PERFORMANCE.md).
    """
    seconds = np.zeros_like(message_bytes)
    for size in np.unique(ranks[ranks > 1]):
        rows = ranks == size
        messages = np.maximum(message_bytes[rows], _SMALLEST_MESSAGE)
        seconds[rows] = domain_time_s(gpu, collective, int(size), messages)
    return seconds


def domain_send_s(gpu: GpuKind, ranks: FloatArray, message_bytes: FloatArray) -> FloatArray:
    """(n,) seconds in which every rank of a ring sends ``message_bytes`` to its neighbour in the domain."""
    return domain_collective_s(gpu, Collective.SEND_RECV, np.where(ranks > 1, 2.0, 1.0), message_bytes)
