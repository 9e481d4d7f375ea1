"""Layers whose kernels end sooner than the host can launch the next ones."""

from __future__ import annotations

from typing import Final

import numpy as np

from cluster_models.frameworks import CudaGraphs
from solver.candidates import BoolArray, FloatArray
from solver.costs.calibration import Calibration
from solver.costs.seconds import Seconds

LAUNCHED: Final = {CudaGraphs.NONE: 1.0, CudaGraphs.PARTIAL: 0.5, CudaGraphs.FULL: 0.0}
"""Share of the host's time that stays: graphs of attention and pre-processing save half of it (estimated), a graph
of the whole iteration all."""


def host_bound(layer: Seconds, collectives: Seconds, calibration: Calibration) -> Seconds:
    """``layer`` of which each pass, ``collectives`` included, lasts as long as the host needs to launch it.

    Kernels queue up behind one another, so that the longer of the two sets the pace.  Backward launches about
    twice the kernels at half the price, from the autograd engine instead of Python.
    """
    return layer.at_least(calibration.layer_host_s * LAUNCHED[calibration.framework.cuda_graphs], collectives)


def beside_dispatch(
    layer: Seconds, collectives: Seconds, calibration: Calibration, *, overlapped: BoolArray, experts: FloatArray
) -> tuple[Seconds, FloatArray]:
    """A sparse ``layer`` with ``experts`` (n,) on the GPU beside the dispatch of another micro-batch.

    Layers of two micro-batches are launched in pieces, in turn and on several streams, which keeps the host busy
    for much longer than one after the other.  Where ``overlapped`` (n,) a pass lasts at least as long; the second
    value (n,) is how many seconds of dispatch hide in a pass: ``dispatch_overlap`` of what the GPU computes, and
    all the time that it waits for the host.
    """
    launching = calibration.overlap_host_s + calibration.expert_host_s * experts
    host = np.where(overlapped, launching * LAUNCHED[calibration.framework.cuda_graphs], 0.0)
    bound = layer.at_least(host, collectives)
    computed = (layer.forward + layer.backward) / 2.0
    waited = (bound.forward + bound.backward) / 2.0 - computed
    return bound, np.where(overlapped, calibration.dispatch_overlap * computed + waited, 0.0)
