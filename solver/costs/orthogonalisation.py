"""Seconds in which Muon makes the momentum of every matrix orthogonal (docs/memory_options.md)."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Final

import numpy as np

from cluster_models.cluster.gpus import GpuKind, Precision
from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import ATTENDING, LayerKind, Mlp
from solver.candidates import FloatArray, IntArray
from solver.costs.calibration import Calibration
from solver.costs.compute import Extent, Processor, matmul_s, processor
from solver.costs.layer_costs import core_widths, local_kv_heads, projections
from solver.costs.local_sizes import LocalSizes
from solver.costs.model_ends import end_precision
from solver.costs.parameters import by_rank

STEPS: Final = 5
"""Newton-Schulz iterations, ``--muon-num-ns-steps``."""
Matrix = tuple[Extent, Extent]


def orthogonalising(gpu: GpuKind, precision: Precision, calibration: Calibration) -> Processor:
    """The processor of FP32 matrices, TF32 where it has that (``--muon-fp32-matmul-prec medium``)."""
    products = Precision.FP32 if Precision.FP32 in gpu.peak_flops else end_precision(precision)
    return replace(processor(gpu, products, calibration), element_bytes=4.0)


def orthogonalisation_s(
    chip: Processor,
    architecture: Architecture,
    sizes: LocalSizes,
    layers: IntArray,
    *,
    stages: int,
    sharing: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """(n, P) seconds of the busiest of the ranks that share out matrices whole, as evenly as they divide.

    ``layers``, (C, K) or (n, C, K), as in ``step_costs``; ``sharing`` (n,): ranks that share out those of layers,
    and of routed experts.  A rank has no less than one whole matrix.
    """
    common, routed, largest = [], [], np.zeros_like(sizes.tokens)
    for kind in architecture.layer_kinds:
        own, experts = matrices_of(architecture, kind, sizes)
        seconds = [newton_schulz_s(chip, *matrix) for matrix in own]
        expert = [newton_schulz_s(chip, *matrix) for matrix in experts]
        largest = reduce(np.maximum, [*seconds, *expert], largest)
        common.append(sum(seconds, np.zeros_like(largest)))
        count = architecture.experts.count / sizes.expert if architecture.experts and experts else 0.0
        routed.append(count * sum(expert, np.zeros_like(largest)))
    ranks, expert_ranks = sharing
    each = np.stack(common, axis=1) / ranks[:, None] + np.stack(routed, axis=1) / expert_ranks[:, None]
    held = by_rank(np.atleast_2d((layers * each[:, None, :]).sum(axis=-1)), stages)
    return np.asarray(np.maximum(held, np.where(held > 0, largest[:, None], 0.0)))


def newton_schulz_s(chip: Processor, rows: Extent, columns: Extent) -> FloatArray:
    """(n,) seconds of the iterations on a matrix: A = X X', A A and (b A + c A A) X each (Jordan et al. 2024)."""
    short, long = np.minimum(rows, columns), np.maximum(rows, columns)
    gram, square = matmul_s(chip, short, short, long), matmul_s(chip, short, short, short)
    return np.asarray(STEPS * (gram + square + matmul_s(chip, short, long, short)))


def matrices_of(
    architecture: Architecture, kind: LayerKind, sizes: LocalSizes
) -> tuple[list[Matrix], list[Matrix]]:
    """Matrices of a layer that one tensor rank holds, each orthogonal on its own (``--muon-tp-mode blockwise``).

    The second are those of one routed expert.  Queries, keys and values are matrices of their own.
    """
    model, h = architecture.of_mixer(kind.mixer), float(architecture.hidden)
    found: list[Matrix] = [(n, k) for _, n, k in projections(model, sizes, kind.mixer)]
    if kind.mixer in ATTENDING and model.latent_attention is None:
        key, value = core_widths(model)
        heads = local_kv_heads(model, sizes)
        query = model.heads * key / sizes.tensor + architecture.gate_width / sizes.tensor
        found = [(query, h), (heads * key, h), (heads * value, h), *found[1:]]
    fan = 2.0 if architecture.gated_mlp else 1.0
    experts = architecture.experts
    dense = architecture.mlp_hidden if kind.mlp is Mlp.DENSE else 0
    if kind.sparse and experts is not None:
        dense = experts.shared_hidden
        width, cut = float(architecture.expert_width), experts.hidden / sizes.expert_tensor
        own: list[Matrix] = [(fan * cut, width), (width, cut)]
    else:
        own = []
    if dense:
        found += [(fan * dense / sizes.tensor, h), (h, dense / sizes.tensor)]
    return found, own
