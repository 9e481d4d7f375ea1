"""Buffers through which ranks communicate, as long as training runs."""

from __future__ import annotations

from typing import Final

import numpy as np

from cluster_models.model.architecture import Architecture
from cluster_models.training.frameworks import Framework
from solver.candidates import CandidateBatch, FloatArray
from solver.costs.calibration import Calibration
from solver.costs.local_sizes import LocalSizes

_GATHERED_PRODUCTS: Final = 6.0
_SCATTERED_PRODUCTS: Final = 4.0


def communicator_bytes(batch: CandidateBatch, calibration: Calibration) -> FloatArray:
    """(n,) what the library of collectives keeps outside the allocator for the groups of each candidate."""
    degrees = (batch.tensor, batch.pipeline, batch.data, batch.context, batch.expert, batch.expert_tensor)
    return np.asarray(calibration.group_bytes * sum((degree > 1).astype(np.float64) for degree in degrees))


def user_buffer_bytes(sizes: LocalSizes, architecture: Architecture, framework: Framework) -> FloatArray:
    """(n,) bytes through which tensor ranks exchange chunks beside products, as long as training runs.

    Transformer Engine has a buffer of all h T elements for each of ten products of a layer, the six that are
    gathered in the format of the products (``initialize_ub``); PyTorch a rank's share of one twice
    (``_symmetric_memory``, whose workspace all products use in turn).
    """
    if not sizes.chunked_collectives:
        return np.zeros_like(sizes.tokens)
    width = architecture.hidden * sizes.tokens
    if framework.overlap_tensor_backward:
        held = (_GATHERED_PRODUCTS * sizes.gathered_bytes + _SCATTERED_PRODUCTS * sizes.element_bytes) * width
    else:
        held = 2.0 * sizes.element_bytes * width / sizes.tensor
    return np.where(sizes.tensor > 1, held, 0.0)


def passing_bytes(batch: CandidateBatch, sizes: LocalSizes, architecture: Architecture) -> FloatArray:
    """(n,) gathered sequences and pipeline transfers (two each way)."""
    boundary = sizes.element_bytes * architecture.hidden * sizes.stream_tokens
    gathered = np.where(batch.tensor > 1, sizes.element_bytes * architecture.hidden * sizes.tokens, 0.0)
    transfers = np.where(batch.pipeline > 1, 4.0 * boundary, 0.0)
    return np.asarray(gathered + transfers)
