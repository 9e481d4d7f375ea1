"""How much longer a micro-batch takes than the sum of its parts, with nothing broken."""

from __future__ import annotations

import numpy as np

from solver.candidates import FloatArray
from solver.costs.calibration import Calibration


def straggling(nodes: FloatArray, calibration: Calibration) -> FloatArray:
    """(n,) factor on compute and collectives: ``slowdown (1 + straggling_share log2(nodes))``.

    Every collective waits for the slowest of its ranks, whose clock, temperature and host differ.  The expected
    maximum of N equal spreads grows slower than any power of N (with sqrt(2 ln N) for a normal one); published
    runs of one configuration on 1 to 1,344 nodes lose 0.3 to 1 % with each doubling.
    """
    share = calibration.straggling_share
    return np.asarray(calibration.slowdown * (1.0 + share * np.log2(np.maximum(nodes, 1.0))))
