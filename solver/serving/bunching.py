"""How much longer requests of a trace wait than random arrivals would, measured by the queue that it makes.

A server that takes S seconds for each request, at a load u = rate x S, makes random arrivals wait u S / (2 (1 - u))
on average (M/D/1) and makes others wait W, by Lindley's recursion over the times between them (Lindley 1952).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.serving.traces import Trace
from cluster_models.serving.workload import ServingWorkload
from solver.serving.loads import FloatArray

LOADS: Final = (0.1, 0.7)
"""A light load, at which only requests that come together wait, and a heavy one."""


@dataclass(frozen=True, slots=True)
class Bunching:
    """Excess over random arrivals, divided by the rate of the trace.

    In a random part of it, at a rate r, requests wait r (light (1 - u) + heavy u) S / (2 (1 - u)) longer, and a
    share r waiting (1 - u) more of them wait.
    """

    light_s: float = 0.0
    heavy_s: float = 0.0
    waiting_s: float = 0.0


def bunching_of(workload: ServingWorkload) -> Bunching:
    """Bunching of the workload's trace, nothing without one."""
    if workload.trace is None:
        return Bunching()
    rate = workload.trace.requests_per_s
    waits = [_waits(workload.trace, load) for load in LOADS]
    excess = [2.0 * (1.0 - load) * each.mean() - load for load, each in zip(LOADS, waits, strict=True)]
    # a straight line through both: light at no load, heavy at a full one
    slope = (excess[1] - excess[0]) / (LOADS[1] - LOADS[0])
    light = max(excess[0] - slope * LOADS[0], 0.0)
    waiting = max(float((waits[0] > 0).mean()) - LOADS[0], 0.0) / (1.0 - LOADS[0])
    return Bunching(light / rate, (excess[0] + slope * (1.0 - LOADS[0])) / rate, waiting / rate)


def _waits(trace: Trace, load: float) -> FloatArray:
    """Waits of all requests but the first at a server under ``load``, over its time for each."""
    gaps = np.diff(np.array(trace.arrivals_s))
    steps = np.cumsum(1.0 - gaps / (load * gaps.mean()))
    return np.asarray(steps - np.minimum.accumulate(np.minimum(steps, 0.0)))
