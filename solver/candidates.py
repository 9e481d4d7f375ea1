"""Legal combinations of degrees, as arrays: one row a candidate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from cluster_models.training.context_exchange import exchange_code
from cluster_models.training.plan import Configuration, RankOrder
from cluster_models.training.run_settings import RunSettings, settings_of
from cluster_models.training.schedules import PipelineSchedule, model_columns
from cluster_models.training.workload import Recompute, RecomputeModule, Sharding

Value = TypeVar("Value")
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

RECOMPUTE_CODES: Final = tuple(Recompute)
SHARDING_CODES: Final = tuple(Sharding)
ORDER_CODES: Final = tuple(RankOrder)
SCHEDULE_CODES: Final = tuple(PipelineSchedule)
MODULE_BITS: Final = {module: 1 << place for place, module in enumerate(RecomputeModule)}


@dataclass(frozen=True, slots=True)
class CandidateBatch:
    """Struct of arrays, all of length ``n``.

    ``recompute``, ``sharding``, ``rank_order`` and ``schedule`` hold indices into the ``*_CODES`` tuples,
    ``modules`` the sum of the ``MODULE_BITS`` that selective recomputation names, ``recompute_layers`` those of
    each chunk that full recomputation is limited to, 0: all, ``sharding_ranks`` the data and context ranks of a
    group that shares parameters out, 0: all, ``optimizer_offload`` the percent of optimizer states in the nodes'
    memory or ``ON_DISKS``, ``offloaded_layers`` those whose activations wait there, ``exchange`` the code of how
    context ranks exchange (``cluster_models.training.context_exchange``), ``settings`` that of the settings chosen.
    """

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
    modules: IntArray
    recompute_layers: IntArray
    sharding_ranks: IntArray
    optimizer_offload: IntArray
    offloaded_layers: IntArray
    exchange: IntArray
    settings: IntArray

    def __len__(self) -> int:
        return len(self.tensor)

    def take(self, index: IntArray | BoolArray) -> CandidateBatch:
        """The rows that ``index`` selects."""
        return CandidateBatch(*[getattr(self, name)[index] for name in names_of(CandidateBatch)])

    @property
    def runs(self) -> PipelineSchedule:
        """The schedule of candidates that share it; of none 1F1B."""
        return SCHEDULE_CODES[int(self.schedule.max(initial=0))]

    @property
    def chosen(self) -> RunSettings:
        """The settings of candidates that share them."""
        return settings_of(int(self.settings.max(initial=0)))

    def last_column(self, chunks: int) -> int:
        """The column of the model's last of ``chunks`` of candidates that share schedule and pipeline."""
        return int(self.model_order(chunks)[-1])

    def last_columns(self, chunks: int) -> IntArray:
        """(n,) the same of candidates that may differ in virtual stages: those with fewer have no layers behind."""
        last = self.last_column(chunks)
        if (self.virtual_pipeline == self.virtual_pipeline[0]).all():
            return np.full(len(self), last)
        return np.asarray(np.minimum(self.pipeline * self.virtual_pipeline - 1, last))

    def model_order(self, chunks: int) -> IntArray:
        """The columns of all ``chunks`` of such candidates in the order in which the model runs through them."""
        pipeline = int(self.pipeline[0])
        return _model_order(self.runs, pipeline, chunks // pipeline)

    @property
    def expert_block(self) -> IntArray:
        """(n,) consecutive ranks of a stage that hold every expert once between them."""
        return self.expert * self.expert_tensor


@lru_cache(maxsize=4096)
def _model_order(schedule: PipelineSchedule, pipeline: int, virtual: int) -> IntArray:
    return np.array(model_columns(schedule, pipeline, virtual), dtype=np.int64)


@cache
def names_of(kind: type[Any]) -> tuple[str, ...]:
    """The names of the fields of a dataclass in their order; ``fields`` makes the list anew each time."""
    return tuple(column.name for column in fields(kind))


def module_code(modules: Iterable[RecomputeModule]) -> int:
    """The sum of the modules' bits."""
    return sum(MODULE_BITS[module] for module in modules)


def modules_of(code: int) -> frozenset[RecomputeModule]:
    """The modules whose bits ``code`` is the sum of."""
    return frozenset(module for module, bit in MODULE_BITS.items() if code & bit)


def recomputation_of(batch: CandidateBatch, row: int = 0) -> tuple[Recompute, frozenset[RecomputeModule], int]:
    """Policy of one row, its modules and the layers that it is limited to."""
    policy = RECOMPUTE_CODES[int(batch.recompute[row])]
    return policy, modules_of(int(batch.modules[row])), int(batch.recompute_layers[row])


def select_rows(values: Value, rows: IntArray | BoolArray | slice) -> Value:
    """Arrays (n, ...) in dataclasses and collections with those rows that ``rows`` selects; all else stays.

    Values that can ``take`` rows do so themselves.
    """
    found: Any = values
    kind: Any = type(values)
    if kind is np.ndarray:
        found = found[rows]
    elif hasattr(kind, "take"):
        found = found.take(rows)
    elif kind is dict:
        found = {name: select_rows(each, rows) for name, each in found.items()}
    elif issubclass(kind, tuple):
        parts = [select_rows(each, rows) for each in found]
        found = kind(*parts) if hasattr(kind, "_fields") else tuple(parts)
    elif hasattr(kind, "__dataclass_fields__"):
        found = kind(*[select_rows(getattr(found, name), rows) for name in names_of(kind)])
    return found  # type: ignore[no-any-return]


def joined_batches(batches: Sequence[CandidateBatch]) -> CandidateBatch:
    """The rows of all ``batches``, one after the other."""
    none = np.empty(0, dtype=np.int64)
    return CandidateBatch(
        *(np.concatenate([none, *(getattr(batch, name) for batch in batches)]) for name in names_of(CandidateBatch))
    )


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
        module_code(configuration.recompute_modules),
        configuration.recompute_layers,
        configuration.sharding_ranks,
        configuration.offload_code,
        configuration.offloaded_layers,
        exchange_code(configuration.context_exchange, configuration.head_ranks, degrees.context),
        configuration.settings.code,
    )
    return CandidateBatch(*(np.array([value], dtype=np.int64) for value in columns))
