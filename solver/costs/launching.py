"""Layers whose kernels end sooner than the host can launch the next ones."""

from __future__ import annotations

from typing import Final

import numpy as np

from cluster_models.frameworks import CudaGraphs
from solver.costs.calibration import Calibration
from solver.costs.layer_costs import Seconds

LAUNCHED: Final = {CudaGraphs.NONE: 1.0, CudaGraphs.PARTIAL: 0.5, CudaGraphs.FULL: 0.0}
"""Share of the host's time that stays: graphs of attention and pre-processing save half of it (estimated), a graph
of the whole iteration all."""


def host_bound(layer: Seconds, collectives: Seconds, calibration: Calibration) -> Seconds:
    """``layer`` of which each pass, ``collectives`` included, lasts as long as the host needs to launch it.

    Kernels queue up behind one another, so that the longer of the two sets the pace.  Backward launches about
    twice the kernels at half the price, from the autograd engine instead of Python.
    """
    host = calibration.layer_host_s * LAUNCHED[calibration.framework.cuda_graphs]
    return Seconds(
        np.maximum(layer.forward, host - collectives.forward),
        np.maximum(layer.backward, host - collectives.backward),
    )
