"""Legal combinations of degrees, as arrays: one row a candidate."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt

from cluster_models.training.plan import Configuration, RankOrder
from cluster_models.training.workload import Recompute, Sharding

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

RECOMPUTE_CODES: Final = tuple(Recompute)
SHARDING_CODES: Final = tuple(Sharding)
ORDER_CODES: Final = tuple(RankOrder)


@dataclass(frozen=True, slots=True)
class CandidateBatch:
    """Struct of arrays, all of length ``n``; the last three hold indices into the ``*_CODES`` tuples."""

    tensor: IntArray
    pipeline: IntArray
    data: IntArray
    context: IntArray
    expert: IntArray
    expert_tensor: IntArray
    virtual_pipeline: IntArray
    micro_batch: IntArray
    recompute: IntArray
    sharding: IntArray
    rank_order: IntArray

    def __len__(self) -> int:
        return len(self.tensor)

    def take(self, index: IntArray | BoolArray) -> CandidateBatch:
        """The rows that ``index`` selects."""
        return CandidateBatch(*(getattr(self, column.name)[index] for column in fields(self)))

    @property
    def expert_block(self) -> IntArray:
        """(n,) consecutive ranks of a stage that hold every expert once between them."""
        return self.expert * self.expert_tensor


def batch_of(configuration: Configuration) -> CandidateBatch:
    """The batch whose one row is ``configuration``."""
    degrees = configuration.degrees
    columns = (
        degrees.tensor,
        degrees.pipeline,
        degrees.data,
        degrees.context,
        degrees.expert,
        degrees.expert_tensor,
        degrees.virtual_pipeline,
        configuration.micro_batch,
        RECOMPUTE_CODES.index(configuration.recompute),
        SHARDING_CODES.index(configuration.sharding),
        ORDER_CODES.index(configuration.rank_order),
    )
    return CandidateBatch(*(np.array([value], dtype=np.int64) for value in columns))
