"""Legal combinations of degrees, as arrays: one row a candidate."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt

from cluster_models.training.plan import Configuration, RankOrder
from cluster_models.training.schedules import PipelineSchedule, model_columns
from cluster_models.training.workload import Recompute, Sharding

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

RECOMPUTE_CODES: Final = tuple(Recompute)
SHARDING_CODES: Final = tuple(Sharding)
ORDER_CODES: Final = tuple(RankOrder)
SCHEDULE_CODES: Final = tuple(PipelineSchedule)


@dataclass(frozen=True, slots=True)
class CandidateBatch:
    """Struct of arrays, all of length ``n``; the last four hold indices into the ``*_CODES`` tuples."""

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
    schedule: IntArray

    def __len__(self) -> int:
        return len(self.tensor)

    def take(self, index: IntArray | BoolArray) -> CandidateBatch:
        """The rows that ``index`` selects."""
        return CandidateBatch(*(getattr(self, column.name)[index] for column in fields(self)))

    @property
    def runs(self) -> PipelineSchedule:
        """The schedule of candidates that share it."""
        return SCHEDULE_CODES[int(self.schedule[0])]

    def last_column(self, chunks: int) -> int:
        """The column of the model's last of ``chunks`` of candidates that share schedule and pipeline."""
        pipeline = int(self.pipeline[0])
        return model_columns(self.runs, pipeline, chunks // pipeline)[-1]

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
        SCHEDULE_CODES.index(configuration.schedule),
    )
    return CandidateBatch(*(np.array([value], dtype=np.int64) for value in columns))
