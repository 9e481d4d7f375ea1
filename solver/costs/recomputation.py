"""Seconds of a layer's forward pass that run again in backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import Mlp
from cluster_models.training.framework_choices import SelectiveRecompute
from solver.candidates import FloatArray
from solver.costs.compute import Processor, matmul_s
from solver.costs.local_sizes import LocalSizes
from solver.costs.seconds import Seconds

_ALTERNATE_SHARE: Final = 0.6
"""Share of a layer without attention core and last product that runs again where every second product is kept: of
the products of queries, keys, values, output, gate and up the second, fourth and sixth (half of their work in a
Llama layer), and all memory-bound kernels."""


@dataclass(frozen=True, slots=True)
class Recomputation:
    """Seconds of what each policy runs again, collectives left out.

    ``core`` (n,) is the forward time of the attention core.  ``unneeded`` (n,) is that of the last product of a
    dense layer where the framework stops before it: nothing in backward needs its output.  ``selective_share`` of
    a layer without either runs again under selective recomputation; ``None``: the core instead.
    """

    core: FloatArray
    unneeded: FloatArray
    selective_share: float | None

    def added(self, layer: Seconds, sizes: LocalSizes, *, dense: bool) -> Seconds:
        """``layer`` with what runs again in its backward."""
        share = self.selective_share
        full = layer.forward - self.unneeded if dense else layer.forward
        selective = self.core if share is None else share * (full - self.core)
        repeated = np.where(sizes.full_recompute, full, np.where(sizes.selective_recompute, selective, 0.0))
        return layer.then(repeated)


def recomputation(
    gpu: Processor, architecture: Architecture, sizes: LocalSizes, core: Seconds, mlp: Mlp
) -> Recomputation:
    """Policies of the framework in a layer with this ``mlp``.

    Selective: the attention core (arXiv 2205.05198, section 5), or torchtitan's every second product; scaled
    products of formats under 16 bits are not on its list of what is kept and all run again.
    """
    framework = gpu.calibration.framework
    unneeded = np.zeros_like(sizes.tokens)
    if framework.stops_recompute and mlp is Mlp.DENSE:
        width = architecture.mlp_hidden / sizes.tensor
        unneeded = matmul_s(gpu, sizes.tokens, float(architecture.hidden), width)
    share = None
    if framework.selective_recompute is SelectiveRecompute.ALTERNATE_PRODUCTS:
        share = 1.0 if sizes.saved_input_bytes < sizes.element_bytes else _ALTERNATE_SHARE
    return Recomputation(core=core.forward, unneeded=unneeded, selective_share=share)
